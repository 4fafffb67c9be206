"""Which landing of a phase can be taken back: the newest that has not been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.plan import Status
from runplan.core.quickclass import dataclass
from runplan.core.trailers import LANDING, Mark, marks, read_trailers, squeezed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.core.gitfacts import Oid
    from runplan.core.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoable:
    """A landing that stands on the target."""

    landing: str
    commits: tuple[Oid, ...]  #: newest first, its bookkeeping among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """A commit of the landing that was changed since, so that it cannot be told what it holds."""

    commit: Oid
    why: str


def newest_landing(marked: Iterable[tuple[Oid, str]], *, plan: str, phase: str) -> Undoable | Unclear | None:
    """The phase's newest landing among commits (id, message) that are given newest first; None when none stands."""
    told = [(oid, message, marks(message)) for oid, message in marked]
    undone = {mark.undoes for _, _, found in told for mark in found}
    sought = (squeezed(plan), squeezed(phase))
    all_marks = (mark for _, _, found in told for mark in found if not mark.undoes)
    landings = (mark.landing for mark in all_marks if (mark.plan, mark.phase) == sought)
    landing = next((one for one in landings if one and one not in undone), "")
    if not landing:
        return None
    whole = Mark(plan=sought[0], phase=sought[1], landing=landing)
    commits = []
    for oid, message, found in told:
        if all(mark.landing != landing for mark in found):
            continue
        if why := _unclear(message, found, whole):
            return Unclear(commit=oid, why=why)
        commits.append(oid)
    return Undoable(landing=landing, commits=tuple(commits))


def _unclear(message: str, found: tuple[Mark, ...], whole: Mark) -> str:
    """What keeps the commit from being one of this landing, and of no other."""
    others = [f"phase {mark.phase} of {mark.plan}" for mark in found if (mark.plan, mark.phase) != whole[:2]]
    if others:
        return f"says that it holds {', '.join(others)}, too"
    if found != (whole,):
        return "tells of more than one landing"
    if squeezed(read_trailers(message).get(LANDING, "")) != whole.landing:
        return "has other words below its Runplan trailers, which have to be its last paragraph"
    return ""


def built_upon(plan: Plan, phase: str) -> tuple[str, ...]:
    """The phases that are done and depend on this one, the last one first."""
    done = (other for other in plan.phases if other.status is Status.DONE and phase in other.depends)
    return tuple(other.id for other in done)[::-1]
