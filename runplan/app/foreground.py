"""Works a run to its end, or to the point where only a person can go on, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.disk import refused_by_disk
from runplan.core.errors import Crashed, RunplanError, Unreachable
from runplan.core.events import PhaseFailed, RunEnded
from runplan.core.reasons import Reason
from runplan.core.times import parse_iso
from runplan.core.told import step_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.app.journal import Journal
    from runplan.app.world import World
    from runplan.core.decide import Decision
    from runplan.core.events import Approved, Event, Rejected
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
        raise told_by_name(error, journal, world) from error


def told_by_name(error: Exception, journal: Journal, world: World) -> RunplanError:
    """What an unforeseen error means: a disk that refuses leaves the run where it is, any other fault ends it."""
    if isinstance(error, OSError) and (refused := refused_by_disk(error)):
        return Unreachable(refused)
    told = f"{type(error).__name__}: {error}"
    _crashed(journal, world, told)
    return Crashed(f"unexpected {told}; what was made is kept, --debug shows where it was")


def _crashed(journal: Journal, world: World, told: str) -> None:
    """End the run by name: the report tells of it, no agent goes on, and the plan is free again."""
    end_agents(journal, world)
    phase = journal.state.phase
    events: list[Event] = []
    if phase is not None and phase.failure is None and phase.landed is None:
        title, attempt = phase.read.title, phase.lease.attempt if phase.lease else 1
        step, name = step_of(phase), phase.read.phase
        events.append(
            PhaseFailed(phase=name, reason=Reason.CRASHED, step=step, detail=told, title=title, attempt=attempt)
        )
    journal.append(*events, RunEnded(outcome="failed", reason=Reason.CRASHED, detail=told))
    world.claims.release(world.plan, run=world.run)


def _work(journal: Journal, world: World, person: Callable[[RunState], Approved | Rejected | None]) -> Decision:
    # A third of all imports; by now the spawner is starting, and they go side by side.
    from runplan.app.runner import advance

    while True:
        decision = advance(journal, world)
        if journal.state.ended is not None:
            world.claims.release(world.plan, run=world.run)
            return decision
        if decision.waiting == "approval" and (answer := person(journal.state)) is not None:
            journal.append(answer)
        elif decision.wake:
            world.clock.sleep_until(parse_iso(decision.wake))
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
