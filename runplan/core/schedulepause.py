"""When a schedule begins nothing: after a run that failed or was rejected, and while a person is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.decide import decide
from runplan.core.run import awaiting, failure

if TYPE_CHECKING:
    from runplan.core.run import RunState


def why_to_rest(state: RunState) -> str:
    """Why the plan's schedule does not fire after this run, until a person has looked; "" when it does."""
    ended = state.ended
    if phase := rejected_phase(state):
        return f"the candidate of phase {phase} was rejected"
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


def rejected_phase(state: RunState) -> str:
    """The phase whose rejection has ended the run; "" for none."""
    phases = (one.phase for one in (state, *(lane.state for lane in state.lanes)) if one.phase is not None)
    return (
        next((phase.read.phase for phase in phases if phase.rejected is not None), "")
        if state.ended is not None
        else ""
    )


def waits_for_person(state: RunState, plan: str) -> str:
    """Why a firing leaves the plan's unfinished run alone; "" when it may go on with it.

    A run without `auto` lands what a person said yes to, so no schedule turns it into one with `auto`.
    """
    if state.started is None or state.ended is not None or state.auto:
        return ""
    phase = awaiting(state)
    if decide(state).waiting != "approval" or phase is None:
        return f"a run of {plan} without `auto` has not ended; go on with it: {command('runplan', 'retry', plan)}"
    answers = f"{command('runplan', 'approve', plan)}, or: {command('runplan', 'reject', plan)}"
    return f"phase {phase.read.phase} of {plan} waits for your approval; answer: {answers}"


def told_rejected(phase: str, plan: str) -> str:
    """Why `now` begins nothing after a rejection, and the commands that do."""
    again = f"work the phase again: {command('runplan', 'retry', plan)}"
    on = f"let the schedule go on: {command('runplan', 'resume', plan)}"
    return f"the candidate of phase {phase} was rejected; {again}; {on}"
