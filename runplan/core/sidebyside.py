"""What next, for phases that are worked side by side?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core import actions as a
from runplan.core.decision import Decision, until
from runplan.core.run import failed_lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.core.events import RunStarted
    from runplan.core.run import Lane, RunState


def side_by_side(
    state: RunState, started: RunStarted, lanes: list[Lane], decide: Callable[[RunState], Decision]
) -> Decision:
    """Each lane by the same rules, as if it were alone; and a look at what may begin beside them."""
    each = [decide(lane.state) for lane in lanes]
    look = _look(state, started, len(lanes))
    actions: list[a.Action] = [
        a.LaneAction(lane=lane.name, action=action)
        for lane, decision in zip(lanes, each, strict=True)
        for action in decision.actions
    ]
    # They wait as one only when all do; what comes first is then what the run waits for.
    waits = sorted((one for one in each if one.waiting), key=lambda one: one.wake or "~")
    first = waits[0] if len(waits) == len(each) and (look is None or look.waiting) else None
    told = [f"phase {lane.phase}: {one.why}" for lane, one in zip(lanes, each, strict=True)]
    if (failed := failed_lane(state)) is not None:
        told.append(f"phase {failed.phase} did not land, so nothing new begins")
    return Decision(
        actions=(*actions, *(look.actions if look else ())),
        why="; ".join(told),
        waiting=first.waiting if first else "",
        about=first.about if first else "",
        wake=min((one.wake for one in (*each, *([look] if look else [])) if one.wake), default=""),
    )


def _look(state: RunState, started: RunStarted, at_work: int) -> Decision | None:
    """Whether to see what can begin beside them; None when nothing may."""
    room = started.mode == "finish" and at_work < started.parallel and not state.looked
    if not room or state.stop or state.halted or state.queued or failed_lane(state) is not None:
        return None
    if state.pause is not None:  # the target could not be asked; that holds nobody up who is at work
        return until(state.pause)
    return Decision(actions=(a.ReadPlan(),), why="what may begin beside them is seen from the plan on the target")
