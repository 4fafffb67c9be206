"""Outlines of plans and phases; the state of a phase, and its words. Cheap to import."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.rows import Work, wait_of


class PhaseOutline(Struct, frozen=True):
    id: str
    title: str
    status: str
    commit: str | None
    depends: tuple[str, ...]
    hindrance: str = ""  #: why an open phase cannot be worked now


class PlanOutline(Struct, frozen=True, kw_only=True):
    """A plan without its texts; one that cannot be parsed has an error and no phases."""

    title: str = ""
    status: str = ""
    complete: bool = False
    phases: tuple[PhaseOutline, ...] = ()
    error: str = ""
    is_page: bool = False  #: the error is that it is no plan
    is_gone: bool = False  #: the error is that there is no file
    issues: tuple[int, ...] = ()
    priority: int = 0
    created: str = ""
    after: tuple[str, ...] = ()
    subplans: tuple[str, ...] = ()  #: plans that phases of it have done


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


#: Kinds of waits whose names are states, and not what is waited for.
_STATES = (WaitKind.PAUSED, WaitKind.CRASHED, WaitKind.UNREACHABLE, WaitKind.OVERLOADED)


def state_of_work(work: Work) -> PhaseState:
    is_asking = bool(work.waiting_for) and wait_of(work.waiting_for).is_for_person
    return PhaseState.WAITING if is_asking else PhaseState.RUNNING


def describe_phase(state: PhaseState, *, work: Work | None = None, about: str = "", after: Sequence[str] = ()) -> str:
    """The state in words: `done (abc1234)`, `failed (timeout)`, `waits for approval`, `running: gate`, `after 1, 2`."""
    match state:
        case PhaseState.WAITING | PhaseState.RUNNING if work is not None and work.waiting_for:
            return str(work.waiting_for) if work.waiting_for in _STATES else f"waits for {work.waiting_for}"
        case PhaseState.RUNNING:
            return f"running: {work.step}" if work is not None and work.step else "running"
        case PhaseState.TODO if after:
            return f"after {', '.join(after)}"
        case PhaseState.ELSEWHERE:
            return "in progress elsewhere"
        case _:
            return f"{state} ({about})" if about else str(state)
