"""Works a run to its end, or to the point where only a person can go on, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.runner import advance
from runplan.core.errors import RunplanError
from runplan.core.events import RunEnded
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.app.journal import Journal
    from runplan.app.world import World
    from runplan.core.decide import Decision
    from runplan.core.events import Approved, Rejected
    from runplan.core.run import RunState


GRACE_S = 3.0  #: what an agent gets to end itself when its person interrupts


def work(journal: Journal, world: World, *, person: Callable[[RunState], Approved | Rejected | None]) -> Decision:
    """Advance until the run has ended or waits for a person; `person` answers what can be answered here and now.

    Between two steps there is nothing but the wait for the process that runs: no turn, no poll. What git, disk or
    network refuse leaves the run where it is, to be gone on with; any other fault ends it by name.
    """
    try:
        return _work(journal, world, person)
    except RunplanError:
        raise
    except KeyboardInterrupt:
        end_agents(journal, world)
        raise
    except Exception as error:  # the edge of a run: whatever it was, the journal has to tell
        journal.append(RunEnded(outcome="failed", reason=Reason.CRASHED, detail=f"{type(error).__name__}: {error}"))
        world.claims.release(world.plan, run=world.run)
        raise


def _work(journal: Journal, world: World, person: Callable[[RunState], Approved | Rejected | None]) -> Decision:
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


def end_agents(journal: Journal, world: World) -> None:
    """The person interrupts: end what runs; the journal tells the rest, and the next start goes on from there."""
    running = journal.state.phase.dispatch if journal.state.phase else None
    if running is not None:
        world.dispatches.end(running.id, grace_s=GRACE_S)
