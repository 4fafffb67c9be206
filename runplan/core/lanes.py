"""Phases side by side: which may be begun beside those that are worked already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.globs import literal
from runplan.core.marks import Status
from runplan.core.target import missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runplan.core.plan import Phase, Plan


def beside(plan: Plan, worked: Mapping[str, Sequence[str]], *, room: int) -> list[Phase]:
    """The phases to begin now, in the plan's order, at most `room`; `worked` are those at work, with what they touch.

    A phase that does not say what it touches may touch everything, so it is worked alone.
    """
    chosen: list[Phase] = []
    taken = list(worked.values())
    for phase in plan.phases:
        if len(chosen) >= room:
            break
        if phase.id in worked or not _is_due(plan, phase) or any(overlap(phase.touches, other) for other in taken):
            continue
        chosen.append(phase)
        taken.append(phase.touches)
    return chosen


def _is_due(plan: Plan, phase: Phase) -> bool:
    free = phase.status not in (Status.DONE, Status.BLOCKED)
    return free and phase.execution == "worktree" and not missing(plan, phase)


def overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a path may be covered by both; in doubt, and where nothing is said, it may."""
    one, two = [_place(pattern) for pattern in some], [_place(pattern) for pattern in others]
    if not one or not two:
        return True
    return any(a[: len(b)] == b[: len(a)] for a in one for b in two)


def _place(pattern: str) -> tuple[str, ...]:
    """The folder, or the file, that everything the pattern covers lies in; some file systems fold the case."""
    fixed = literal(pattern)
    whole = fixed == pattern.strip().removeprefix("./").lstrip("/")
    path = fixed if whole else fixed.rpartition("/")[0]
    return tuple(part for part in path.casefold().split("/") if part not in ("", "."))
