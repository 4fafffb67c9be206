"""The queue: which plan is worked next, and why a plan has to wait."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.names import is_named
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.run.kinds import ON_PULL_REQUEST, RunStatus, WaitKind
from runplan.domain.run.rows import PlanFacts, RunRow, wait_of
from runplan.domain.standing.actions import NextAction
from runplan.domain.standing.phases import PlanOutline
from runplan.domain.text import counted

PINNED = 0  #: the place of a plan that is before all others


class QueueEntry(Struct, frozen=True, kw_only=True):
    plan: str
    title: str
    issues: tuple[int, ...] = ()
    phases: int = 0  #: that are open
    why: str = ""  #: why it is not worked now; "" for one that is ready
    is_pinned: bool = False
    actions: tuple[NextAction, ...] = ()  #: that it calls for; added by the view

    @property
    def words(self) -> str:
        return self.why or "ready"


def order_queue(
    outlines: Mapping[str, PlanOutline], facts: Mapping[str, PlanFacts], places: Mapping[str, int]
) -> tuple[QueueEntry, ...]:
    """The open plans: by priority, then by age, then by name, except those that persons have put elsewhere."""
    # Nor are those listed that have a schedule of their own, or that a phase of another plan has done.
    passed = {path for outline in outlines.values() if not outline.complete for path in outline.subplans}
    passed.update(path for path, known in facts.items() if known.schedule)
    open_plans = (path for path, outline in outlines.items() if not (outline.error or outline.complete))
    listed = [path for path in open_plans if outlines[path].status in ("", PlanStatus.ACTIVE) and path not in passed]
    listed.sort(key=lambda path: (outlines[path].priority, outlines[path].created or "~", path))
    order = [path for path in listed if places.get(path) == PINNED]
    pinned = len(order)
    order += [path for path in listed if path not in places]
    for path in sorted((path for path in listed if places.get(path)), key=lambda path: places[path]):
        order.insert(max(places[path] - 1, pinned), path)
    entries = []
    for path in order:
        outline = outlines[path]
        why = describe_delay(path, outlines, facts.get(path, PlanFacts()))
        phases = sum(phase.status != "done" for phase in outline.phases)
        entry = QueueEntry(plan=path, title=outline.title, issues=outline.issues, phases=phases, why=why)
        entries.append(replace(entry, is_pinned=places.get(path) == PINNED))
    return tuple(entries)


def describe_delay(path: str, outlines: Mapping[str, PlanOutline], facts: PlanFacts) -> str:
    """Why the plan is not begun now; "" for nothing."""
    run = facts.run
    if run is not None and run.is_active:
        until = f", {wait_of(run.waiting_for).until} {run.wake}" if run.wake else ""
        about = run.waiting_for if run.needs_person else f"{run.about or run.waiting_for}{until}"
        return f"waits{' for you' * is_for_person(run)}: {about}" if run.waiting_for else "is worked on"
    if facts.queued:
        return f"queued: {facts.queued}"
    refused_at, verb, refused = facts.refused
    if refused and (run is None or refused_at > run.started):
        return f"its last {verb} was refused: {refused}"
    if run is not None and run.state in (RunStatus.FAILED, RunStatus.STOPPED):
        return f"its last run {run.state}"
    for name in outlines[path].after:
        named = [name] if name in outlines else [other for other in outlines if is_named(name, other)]
        if len(named) != 1:
            return f"after {name}, which names {counted(len(named), 'plan')} on the target"
        if not outlines[named[0]].complete:
            return f"after {named[0]}"
    phases = [phase for phase in outlines[path].phases if phase.status != "done"]
    if phases and all(phase.hindrance for phase in phases):
        return f"phase {phases[0].id} {phases[0].hindrance}"
    return ""


def move_plan(order: list[str], places: Mapping[str, int], plan: str, to: int) -> dict[str, int]:
    """The places after a person has put the plan at `to`; others that were put somewhere stay in their order."""
    moved = [path for path in order if path != plan]
    moved.insert(to - 1, plan)
    pinned = {path: PINNED for path in moved if path != plan and places.get(path) == PINNED}
    return {path: n for n, path in enumerate(moved, 1) if path == plan or places.get(path)} | pinned


def holds_up(run: RunRow) -> bool:
    """Whether the queue waits for the run: it works, or would lack a key as the next one does."""
    return run.is_active and (not is_for_person(run) or run.waiting_for == WaitKind.KEY)


def is_for_person(run: RunRow) -> bool:
    return run.needs_person or run.waiting_for in ON_PULL_REQUEST
