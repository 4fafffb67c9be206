"""Reads the plan from the target's tip and records the next phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.errors import PlanUnreadable
from runplan.landing.pull_request import PullRequestLander
from runplan.plan import model as plans, tracker
from runplan.run.decide import startable
from runplan.run.events import Concluded, LanesChosen, PlanRead
from runplan.run.state import open_lanes
from runplan.steps.verify import examined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.plan.model import Phase, Plan
    from runplan.run.actions import Action
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


def read_plan(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    tip = context.lander.tip() or ""
    if isinstance(context.lander, PullRequestLander) and (closed := context.lander.closed) is not None:
        yield Concluded(reason=closed.reason, note=closed.why)
        return
    wanted = state.started.wanted if state.started and not state.landed else ""
    try:
        plan, text = context.plan_at(tip)
    except PlanUnreadable as error:
        yield PlanRead(tip=tip, choice="unreadable", detail=str(error))
        return
    if state.started and state.started.mode == "undo":
        yield _undo(plan, tip=tip, wanted=wanted)
        return
    lanes = open_lanes(state)
    found = startable(plan, {lane.phase: lane.touches for lane in lanes}, limit=_free_lanes(state, len(lanes)))
    if lanes or len(found) > 1:
        first = len(state.lanes) + 1
        chosen = tuple((str(number), phase.id, phase.touches) for number, phase in enumerate(found, first))
        yield LanesChosen(tip=tip, lanes=chosen)
        return
    yield _examined(reading(plan, text, tip=tip, wanted=wanted), plan, context)


def _examined(read: PlanRead, plan: Plan, context: RunContext) -> PlanRead:
    """The reading with remarks on its text, and on pull requests of others that change the same paths."""
    phase = plan.phase(read.phase) if read.choice == "next" else None
    if phase is None:
        return read
    drift, remarks = examined(plan, phase, context)
    if isinstance(context.lander, PullRequestLander) and not drift:
        remarks = (*remarks, *context.lander.others(phase.touches))
    return replace(read, drift=drift, remarks=remarks)


def _free_lanes(state: RunState, running: int) -> int:
    """How many more phases may run in parallel; only `finish auto` runs several."""
    started = state.started
    is_parallel = started is not None and started.mode == "finish" and started.auto
    return max(0, started.parallel - running) if started is not None and is_parallel else 0


def reading(plan: Plan, text: bytes, *, tip: str, wanted: str) -> PlanRead:
    """The next phase of the plan, or why there is none."""
    found = tracker.choose(plan, wanted=wanted or None)
    if not isinstance(found, tracker.NoPhase):
        return _next(plan, found, tip)
    if found.choice == "all-done" and tracker.complete(text, path=plan.path, completed="") == text:
        return PlanRead(tip=tip, choice="complete", detail="every phase is done")
    return PlanRead(tip=tip, choice=found.choice, detail=found.detail, title=plan.title)


def _next(plan: Plan, phase: Phase, tip: str) -> PlanRead:
    if phase.execution != "worktree":
        detail = (
            f"{plan.path}:{phase.heading_line}: phase {phase.id} asks for `Execution: {phase.execution}`, "
            "which runplan does not support; remove the line, or do the phase by hand and mark it done"
        )
        return PlanRead(tip=tip, choice="blocked", detail=detail)
    return PlanRead(
        tip=tip,
        choice="next",
        phase=phase.id,
        title=phase.title,
        text=phase.text,
        items=tuple((item.id, item.text) for item in phase.items),
        touches=phase.touches,
        allows=phase.allows,
        sign_off=phase.sign_off,
    )


def _undo(plan: Plan, *, tip: str, wanted: str) -> PlanRead:
    phase = plan.phase(wanted)
    if phase is None or phase.status is not plans.Status.DONE:
        return PlanRead(tip=tip, choice="complete", detail=f"phase {wanted} is not done; there is nothing to undo")
    return PlanRead(tip=tip, choice="undo", phase=phase.id, title=phase.title, text=phase.text)
