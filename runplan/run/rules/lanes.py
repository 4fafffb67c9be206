"""Which phases of a plan can run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.globs import literal
from runplan.plan.marks import PlanStatus, Status
from runplan.plan.tracker import describe_hindrance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runplan.plan.model import Phase, Plan


def list_startable(plan: Plan, worked: Mapping[str, Sequence[str]], *, limit: int) -> list[Phase]:
    """The phases to start now, in the plan's order, at most `limit`; `worked` maps running phases to touched paths.

    A phase without `Touches:` may touch everything, so it runs alone.
    """
    chosen: list[Phase] = []
    taken = list(worked.values())
    for phase in plan.phases if plan.status is PlanStatus.ACTIVE else ():
        is_open = phase.status is not Status.DONE and not describe_hindrance(plan, phase)
        is_free = phase.id not in worked and not any(paths_overlap(phase.touches, other) for other in taken)
        if len(chosen) < limit and is_open and is_free:
            chosen.append(phase)
            taken.append(phase.touches)
    return chosen


def paths_overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether both may cover the same path; true in doubt, and when either is empty."""
    some_paths = [_covering_path(pattern) for pattern in some]
    other_paths = [_covering_path(pattern) for pattern in others]
    if not some_paths or not other_paths:
        return True
    return any(a[: len(b)] == b[: len(a)] for a in some_paths for b in other_paths)


def _covering_path(pattern: str) -> tuple[str, ...]:
    """The folder or file that contains every match; casefolded, since some file systems ignore case."""
    fixed = literal(pattern)
    whole = fixed == pattern.strip().removeprefix("./").lstrip("/")
    path = fixed if whole else fixed.rpartition("/")[0]
    return tuple(part for part in path.casefold().split("/") if part not in ("", "."))
