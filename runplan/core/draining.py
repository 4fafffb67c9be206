"""What a run still does while its runner is about to let go of it: everything but begin something new."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core import actions as a
from runplan.core.run import strands

if TYPE_CHECKING:
    from runplan.core.decide import Decision
    from runplan.core.run import RunState

#: What is past its dispatch is judged and landed; nothing is read, leased or started for what would come after.
BEGINNINGS = (a.ReadPlan, a.Lease, a.Start)


def without_beginnings(decision: Decision) -> Decision:
    """The same decision without what begins something new; the next runner decides it again."""
    actions = tuple(action for action in decision.actions if not isinstance(_inner(action), BEGINNINGS))
    return decision if actions == decision.actions else replace(decision, actions=actions)


def ends(state: RunState) -> tuple[a.Action, ...]:
    """What ends every process of a run; each is recorded as ended by us, and is due again afterwards."""
    found: list[a.Action] = []
    for name, one in strands(state):
        if one.phase is not None and one.phase.dispatch is not None:
            end = a.End(id=one.phase.dispatch.id)
            found.append(a.LaneAction(lane=name, action=end) if name else end)
    return tuple(found)


def _inner(action: a.Action) -> a.Action:
    return action.action if isinstance(action, a.LaneAction) else action
