"""How a run stands: why its schedule pauses, and since when it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.run.decide import decide
from runplan.run.state import awaiting, failure, strands
from runplan.run.wording import step_of
from runplan.text import command

if TYPE_CHECKING:
    from runplan.run.state import RunState


def pause_reason(state: RunState) -> str:
    """Why the plan's schedule pauses after this run, until a person resumes it; "" when it does not."""
    ended = state.ended
    if phase := rejected_phase(state):
        return f"phase {phase} was rejected"
    if state.started is None or not state.started.daemon:  # a person works it in the foreground
        return ""
    if ended is None or ended.outcome not in ("failed", "refused"):
        return ""
    if not (state.phase or state.lanes):
        # A blocked phase may be free the next time; a plan that cannot be read needs a person.
        return ended.detail if state.plan is not None and state.plan.choice == "unreadable" else ""
    failed = failure(state)
    phase = failed.phase if failed else ""
    return f"phase {phase} failed ({ended.reason})" if phase else f"the run failed ({ended.reason})"


def rejected_phase(state: RunState) -> str:
    """The phase whose rejection ended the run; "" for none."""
    phases = (one.phase for one in (state, *(lane.state for lane in state.lanes)) if one.phase is not None)
    return (
        next((phase.read.phase for phase in phases if phase.rejected is not None), "")
        if state.ended is not None
        else ""
    )


def pending_answer(state: RunState, plan: str) -> str:
    """Why a schedule may not continue the plan's unfinished run; "" when it may.

    A run without `auto` lands only what a person approved, so a schedule may not turn it into one with `auto`.
    """
    if state.started is None or state.ended is not None or state.auto:
        return ""
    phase = awaiting(state)
    if decide(state).waiting != "approval" or phase is None:
        return f"a run of {plan} without `auto` has not ended; continue it: {command('runplan', 'retry', plan)}"
    answers = f"{command('runplan', 'approve', plan)}, or: {command('runplan', 'reject', plan)}"
    return f"phase {phase.read.phase} of {plan} needs your approval: {answers}"


def describe_rejection(phase: str, plan: str) -> str:
    """Why `now` starts nothing after a rejection, and the commands that help."""
    again = f"retry it: {command('runplan', 'retry', plan)}"
    on = f"or resume the schedule: {command('runplan', 'resume', plan)}"
    return f"phase {phase} was rejected; {again}; {on}"


class Since(Struct, frozen=True, kw_only=True):
    """What was shown last, and since when."""

    at: str = ""
    steps: tuple[str, ...] = ()
    stepped: str = ""  #: when they were begun
    waiting: str = ""
    ended: bool = False


def moved(before: Since, state: RunState, at: str) -> Since:
    """The same after a fact that was recorded `at` then, and made the state of it."""
    if state.ended is not None:
        return before if before.ended else replace(before, at=at, ended=True)
    steps = tuple(step_of(one.phase) if one.phase is not None else "" for _, one in strands(state))
    stepped = before.stepped if before.stepped and steps == before.steps else at
    waiting = decide(state).waiting
    if before.waiting and not waiting and stepped == before.stepped and any(one.waits for _, one in strands(state)):
        return before  # it is looked at again, and may well have to wait on
    waits = before.at if waiting == before.waiting else at
    return Since(at=waits if waiting else stepped, steps=steps, stepped=stepped, waiting=waiting)


# --- words ---------------------------------------------------------------------------------------------
