"""Works a run to its end, or to the point where only a person can go on, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.runner import advance
from runplan.core.events import RunEnded
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.app.journal import Journal
    from runplan.app.world import World
    from runplan.core.decide import Decision
    from runplan.core.events import Approved, Rejected
    from runplan.core.run import RunState


def work(journal: Journal, world: World, *, person: Callable[[RunState], Approved | Rejected | None]) -> Decision:
    """Advance until the run has ended or waits for a person; `person` answers what can be answered here and now.

    Between two steps there is nothing but the wait for the process that runs: no turn, no poll.
    """
    while True:
        decision = advance(journal, world)
        if journal.state.ended is not None:
            world.claims.release(world.plan, run=world.run)
            return decision
        if decision.waiting == "approval" and (answer := person(journal.state)) is not None:
            journal.append(answer)
        elif decision.waiting:
            return decision
        else:
            running = journal.state.phase.dispatch if journal.state.phase else None
            assert running is not None
            world.dispatches.wait([running.id], timeout_s=None)


def end_agents(journal: Journal, world: World, *, grace_s: float) -> None:
    """The person interrupts: end what runs; the journal shows the rest, and the next start goes on from there."""
    running = journal.state.phase.dispatch if journal.state.phase else None
    if running is not None:
        world.dispatches.end(running.id, grace_s=grace_s)


def crash(journal: Journal, world: World, told: str) -> None:
    """Something nobody expected: the run ends in a named outcome, and everything it made stays where it is."""
    journal.append(RunEnded(outcome="failed", reason=Reason.CRASHED, detail=told))
    world.claims.release(world.plan, run=world.run)
