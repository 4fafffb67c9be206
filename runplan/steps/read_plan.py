"""Reads the plan from the target's tip and records the next phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import PlanUnreadable
from runplan.plan import model as plans, tracker
from runplan.run.decide import startable
from runplan.run.events import LanesChosen, PlanRead
from runplan.run.state import open_lanes
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.plan.model import Phase, Plan
    from runplan.run.actions import ReadPlan
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


def read_plan(action: ReadPlan, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    tip = context.lander.tip() or ""
    text = context.objects.blob(tip, context.plan) if tip else None
    if text is None:
        gone = f"{context.plan} is no longer on {context.settings.run.target}"
        yield PlanRead(tip=tip, choice="unreadable", detail=gone)
        return
    wanted = state.started.wanted if state.started and not state.landed else ""
    try:
        plan = plans.parse(text, path=context.plan)
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
    yield reading(plan, text, tip=tip, wanted=wanted)


def _free_lanes(state: RunState, running: int) -> int:
    """How many more phases may run in parallel; only `finish auto` runs several."""
    started = state.started
    is_parallel = started is not None and started.mode == "finish" and state.auto
    return max(0, started.parallel - running) if started is not None and is_parallel else 0


def reading(plan: Plan, text: bytes, *, tip: str, wanted: str) -> PlanRead:
    """The next phase of the plan, or why there is none."""
    match tracker.choose(plan, wanted=wanted or None):
        case tracker.Next(phase=phase):
            return _next(plan, phase, tip)
        case tracker.AllDone():
            if tracker.complete(text, path=plan.path, completed="") != text:
                return PlanRead(tip=tip, choice="all-done", title=plan.title)
            return PlanRead(tip=tip, choice="complete", detail="every phase is done")
        case tracker.AlreadyComplete():
            return PlanRead(tip=tip, choice="complete", detail="the plan is already complete")
        case tracker.PhaseDone(phase=phase):
            commit = f" ({phase.commit})" if phase.commit else ""
            return PlanRead(tip=tip, choice="phase-done", detail=f"phase {phase.id} is already done{commit}")
        case tracker.NeedsPhases(phase=phase, missing=missing):
            return PlanRead(tip=tip, choice="needs", detail=_needs(plan, phase, missing))
        case tracker.NotFound(ids=ids):
            return PlanRead(
                tip=tip, choice="blocked", detail=f"there is no phase {wanted}; there are: {', '.join(ids)}"
            )
        case tracker.AllBlocked(why=why):
            return PlanRead(tip=tip, choice="blocked", detail="; ".join(_obstacle(one) for one in why))


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
    )


def _undo(plan: Plan, *, tip: str, wanted: str) -> PlanRead:
    phase = plan.phase(wanted)
    if phase is None or phase.status is not plans.Status.DONE:
        return PlanRead(tip=tip, choice="complete", detail=f"phase {wanted} is not done; there is nothing to undo")
    return PlanRead(tip=tip, choice="undo", phase=phase.id, title=phase.title, text=phase.text)


def _needs(plan: Plan, phase: Phase, missing: tuple[str, ...]) -> str:
    standing = ", ".join(f"{other} ({found.status})" for other in missing if (found := plan.phase(other)))
    first = command("runplan", "start", plan.path, missing[0])
    return f"phase {phase.id} depends on {standing}; first run: {first}"


def _obstacle(one: tracker.Obstacle) -> str:
    if one.missing:
        return f"phase {one.phase} waits for {', '.join(one.missing)}"
    return f"phase {one.phase} is marked blocked; clear its status in the plan to allow work on it"
