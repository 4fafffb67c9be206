"""Which phases of a plan can run side by side, and which can begin on a phase that is being proven."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from runplan.domain.globs import literal
from runplan.domain.plan.marks import ExecutionKind, PlanStatus, Status
from runplan.domain.plan.model import Phase, Plan
from runplan.domain.plan.tracker import describe_hindrance, missing_dependencies
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.events import PhaseChosen
from runplan.domain.run.kinds import Mode
from runplan.domain.run.rules.phases import list_sign_off
from runplan.domain.run.state import RunState, count_ahead, open_states


def list_startable(plan: Plan, worked: Mapping[str, Sequence[str]], *, limit: int) -> list[Phase]:
    """The phases to start now, at most `limit`; `worked` maps running phases to touched paths, () for every path."""
    chosen: list[Phase] = []
    taken = list(worked.values())
    for phase in plan.phases if plan.status is PlanStatus.ACTIVE else ():
        is_open = phase.status is not Status.DONE and not describe_hindrance(plan, phase)
        is_free = phase.id not in worked and not any(paths_overlap(phase.touches, other) for other in taken)
        if len(chosen) < limit and is_open and is_free:
            chosen.append(phase)
            taken.append(phase.touches)
    return chosen


def may_begin_ahead(state: RunState) -> bool:
    started = state.options
    is_on = started.auto and started.mode is Mode.FINISH
    return is_on and count_ahead(state) < started.kept.run.pipeline and bool(list_bases(state))


def list_bases(state: RunState) -> dict[str, str]:
    """The commit of each phase that is being proven and on which another can begin."""
    bases: dict[str, str] = {}
    for lane in open_states(state):
        phase = lane.attempt
        if not isinstance(phase, WorkAttempt) or phase.work is None or not phase.work.commits:
            continue
        if not isinstance(phase.chosen, PhaseChosen) or phase.chosen.direct:
            continue
        delivery = phase.delivery
        is_over = phase.failure or delivery.landed or lane.stop
        is_broken = phase.refusal or phase.broken or phase.revision or phase.drift
        # A person who has to see the phase sees it before anything begins on it.
        is_asked = lane.questions or list_sign_off(lane.options, phase) is not None
        head = delivery.candidate.commits[-1] if delivery.candidate else phase.work.head if lane.after else ""
        if head and not (is_over or is_broken or delivery.conflict or delivery.held or is_asked):
            bases[phase.chosen.phase] = head
    return bases


def list_ahead(
    plan: Plan, worked: Mapping[str, Sequence[str]], bases: Collection[str], below: Mapping[str, str], *, limit: int
) -> list[tuple[Phase, str]]:
    """The phases to begin on one of `bases`, which are being proven, each with that one; at most `limit`.

    `worked` maps the running phases to their touched paths, `below` those ahead to the one that they began on. All that
    a phase waits for is in its base, on which no other has begun: phases land as if worked one after the other.
    """
    chosen: list[tuple[Phase, str]] = []
    taken = dict(worked)
    free = [base for base in bases if base not in below.values()]
    for phase in plan.phases if plan.status is PlanStatus.ACTIVE else ():
        is_open = phase.status is Status.TODO and not phase.unsupported and phase.id not in taken
        overlapping = {other for other, touches in taken.items() if paths_overlap(phase.touches, touches)}
        waits = {*missing_dependencies(plan, phase), *overlapping}
        after = next((base for base in free if waits <= _list_contained(base, below)), "")
        if not is_open or not after:
            continue
        if len(chosen) >= limit or phase.execution.kind is not ExecutionKind.WORKTREE:
            break
        chosen.append((phase, after))
        taken[phase.id] = phase.touches
        free.remove(after)
    return chosen


def _list_contained(phase: str, below: Mapping[str, str]) -> set[str]:
    return {phase, *(_list_contained(below[phase], below) if below.get(phase) else ())}


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
