"""When a schedule rests: after a run that failed, until a person has looked; no bill every four hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.run import failure

if TYPE_CHECKING:
    from runplan.core.run import RunState


def why_to_rest(state: RunState) -> str:
    """Why the plan's schedule does not fire after this run, until a person has looked; "" when it does."""
    ended = state.ended
    if state.started is None or not state.started.daemon:  # somebody works it by hand, and looks
        return ""
    if ended is None or ended.outcome not in ("failed", "refused"):
        return ""
    if not (state.phase or state.lanes):
        # A phase that waits for others may be free the next time; a plan that is gone needs somebody.
        return ended.detail if state.plan is not None and state.plan.choice == "unreadable" else ""
    failed = failure(state)
    phase = failed.phase if failed else ""
    return f"phase {phase} failed ({ended.reason})" if phase else f"the run failed ({ended.reason})"
