"""Which landing of a phase can be taken back: the newest that has not been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.plan import Status
from runplan.core.quickclass import dataclass
from runplan.core.trailers import LANDING, PHASE, PLAN, UNDOES, read_trailers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.core.gitfacts import Oid
    from runplan.core.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoable:
    """A landing that stands on the target."""

    landing: str
    commits: tuple[Oid, ...]  #: newest first, its bookkeeping among them


def newest_landing(marked: Iterable[tuple[Oid, str]], *, plan: str, phase: str) -> Undoable | None:
    """The phase's newest landing among commits (id, message) that are given newest first; None when none stands."""
    undone: set[str] = set()
    landing = ""
    commits: list[Oid] = []
    for oid, message in marked:
        trailers = read_trailers(message)
        if taken_back := trailers.get(UNDOES):
            undone.add(taken_back)
            continue
        id_ = trailers.get(LANDING, "")
        if (trailers.get(PLAN), trailers.get(PHASE)) != (plan, phase) or not id_ or id_ in undone:
            continue
        landing = landing or id_
        if id_ == landing:
            commits.append(oid)
    return Undoable(landing=landing, commits=tuple(commits)) if commits else None


def built_upon(plan: Plan, phase: str) -> tuple[str, ...]:
    """The phases that are done and depend on this one, the last one first."""
    done = (other for other in plan.phases if other.status is Status.DONE and phase in other.depends)
    return tuple(other.id for other in done)[::-1]
