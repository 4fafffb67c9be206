"""Works a run to its end, or to the point where only a person can go on, in this process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias

from runplan.core.disk import refused_by_disk
from runplan.core.dispatch import GRACE_S
from runplan.core.errors import Crashed, Fenced, RunplanError, Unreachable
from runplan.core.events import PhaseFailed, RunEnded
from runplan.core.reasons import Reason
from runplan.core.run import running, strands
from runplan.core.times import parse_iso
from runplan.core.told import step_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from runplan.app.journal import Journal
    from runplan.app.world import World
    from runplan.core.decide import Decision
    from runplan.core.events import Approved, Rejected
    from runplan.core.run import RunState


class Interruption(Protocol):
    """A person's wish that the work here ends; who says it twice is heard as KeyboardInterrupt."""

    @property
    def asked(self) -> bool: ...

    @property
    def left_s(self) -> float:
        """What is left of the time in which processes may end by themselves."""
        ...

    def clear(self) -> None:
        """Let the next wait be a wait again."""
        ...

    def at_once(self) -> AbstractContextManager[None]:
        """While nothing runs, the first time is KeyboardInterrupt, too."""
        ...


Person: TypeAlias = "Callable[[RunState], Approved | Rejected | None]"


def work(journal: Journal, world: World, *, person: Person, interruption: Interruption) -> Decision:
    """Advance until the run has ended or waits for a person; `person` answers what can be answered here and now.

    Between two steps there is nothing but the wait for the process that runs: no turn, no poll. What git, disk or
    network refuse leaves the run where it is, to be gone on with; any other fault ends it by name.
    """
    try:
        return _work(journal, world, person, interruption)
    except Fenced:
        raise  # whatever runs is somebody else's
    except RunplanError as error:
        if not interruption.asked:
            raise
        _end_by_request(journal, world)
        raise KeyboardInterrupt from error  # a terminal tells everybody, and git ends at once
    except KeyboardInterrupt:
        _end_by_request(journal, world)
        raise
    except Exception as error:  # the edge of a run: whatever it was, the journal has to tell
        raise told_by_name(error, journal, world) from error


def told_by_name(error: Exception, journal: Journal, world: World) -> RunplanError:
    """What an unforeseen error means: a disk that refuses leaves the run where it is, any other fault ends it."""
    if isinstance(error, OSError) and (refused := refused_by_disk(error)):
        return Unreachable(refused)
    world.store.require_there()
    told = f"{type(error).__name__}: {error}"
    _crashed(journal, world, told)
    return Crashed(f"unexpected {told}; what was made is kept, --debug shows where it was")


def _crashed(journal: Journal, world: World, told: str) -> None:
    """End the run by name: the report tells of it, no agent goes on, and the plan is free again."""
    world.dispatches.end(running(journal.state), grace_s=GRACE_S)
    over = RunEnded(outcome="failed", reason=Reason.CRASHED, detail=told)
    for lane, state in strands(journal.state):
        phase = state.phase
        if phase is not None and phase.failure is None and phase.landed is None:
            title, attempt = phase.read.title, phase.lease.attempt if phase.lease else 1
            step, name = step_of(phase), phase.read.phase
            failed = PhaseFailed(
                phase=name, reason=Reason.CRASHED, step=step, detail=told, title=title, attempt=attempt
            )
            journal.append(failed, *([over] if lane else []), lane=lane)
    journal.append(over)
    world.claims.release(world.plan, run=world.run)


def _work(journal: Journal, world: World, person: Person, interruption: Interruption) -> Decision:
    # A third of all imports; by now the spawner is starting, and they go side by side.
    from runplan.app.runner import advance

    while True:
        decision = advance(journal, world, lambda: not interruption.asked)
        if journal.state.ended is not None:
            world.claims.release(world.plan, run=world.run)
            return decision
        if interruption.asked and not (running(journal.state) and interruption.left_s):
            raise KeyboardInterrupt
        if not decision.waiting:
            _wait(journal, world, decision, interruption)
            continue
        with interruption.at_once():
            if decision.waiting == "approval" and (answer := person(journal.state)) is not None:
                journal.append(answer)
            elif decision.wake:
                world.clock.sleep_until(parse_iso(decision.wake))
            else:
                return decision


def _wait(journal: Journal, world: World, decision: Decision, interruption: Interruption) -> None:
    """Until a process ends, something else is due, or the person has waited long enough."""
    left = (parse_iso(decision.wake) - world.clock.now()).total_seconds() if decision.wake else None
    if interruption.asked:
        left = interruption.left_s if left is None else min(left, interruption.left_s)
    world.dispatches.wait(running(journal.state), timeout_s=left)
    interruption.clear()


def _end_by_request(journal: Journal, world: World) -> None:
    """The person does not wait any longer: end what runs; the next start begins the same again."""
    from runplan.app.runner import record_ends

    world.dispatches.end(running(journal.state), grace_s=GRACE_S)
    with suppress(RunplanError):  # where it cannot be recorded, the next start sees by itself that they have ended
        record_ends(journal, world)
