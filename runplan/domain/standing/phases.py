"""The state of a phase, and its words. Cheap to import."""

from collections.abc import Sequence
from enum import StrEnum

from runplan.domain.run.rows import Work, wait_of


class PhaseState(StrEnum):
    TODO = "todo"
    NEXT = "next"  #: a start would work on it
    BLOCKED = "blocked"
    ELSEWHERE = "elsewhere"  #: it is marked as in progress, and no run works on it
    RUNNING = "running"
    WAITING = "waiting"  #: for a person
    STOPPED = "stopped"  #: by a person
    FAILED = "failed"
    DONE = "done"
    UNDONE = "undone"


def state_of_work(work: Work) -> PhaseState:
    is_asking = bool(work.waiting_for) and wait_of(work.waiting_for).is_for_person
    return PhaseState.WAITING if is_asking else PhaseState.RUNNING


def describe_phase(state: PhaseState, *, work: Work | None = None, about: str = "", after: Sequence[str] = ()) -> str:
    """The state in words: `done (abc1234)`, `failed (timeout)`, `waits for approval`, `running: gate`, `after 1, 2`."""
    match state:
        case PhaseState.WAITING | PhaseState.RUNNING if work is not None and work.waiting_for:
            return f"waits for {work.waiting_for}"
        case PhaseState.RUNNING:
            return f"running: {work.step}" if work is not None and work.step else "running"
        case PhaseState.TODO if after:
            return f"after {', '.join(after)}"
        case PhaseState.ELSEWHERE:
            return "in progress elsewhere"
        case _:
            return f"{state} ({about})" if about else str(state)
