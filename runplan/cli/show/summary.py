"""The last lines of a run: what came of it, where the work is, and the command that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import OUTCOMES, Exit
from runplan.run.reasons import Reason, next_action
from runplan.run.state import failed_lane, failure as failure_of
from runplan.text import command

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.engine.worker import Outcome
    from runplan.run.events import PhaseFailed, RunEnded
    from runplan.run.state import RunState


def summary(plan: str, outcome: Outcome, *, logs: Path) -> tuple[Exit, list[str]]:
    """The exit code and the lines; `logs` is where the outputs of processes are kept."""
    state, ended = outcome.state, outcome.state.ended
    if ended is None:
        waits = outcome.decision.waiting == "approval"
        seen = [f"to see it: {command('runplan', 'diff', plan)}"] if waits else []
        return Exit.WAITING, [outcome.decision.why, *seen, _go_on(plan, outcome)]
    landed = _landed(state)
    match OUTCOMES[ended.outcome]:
        case Exit.DONE if ended.outcome == "nothing-to-do" and not state.landed:
            return Exit.DONE, [f"nothing to do: {ended.detail}"]
        case Exit.DONE:
            return Exit.DONE, [f"done: {landed}; the account: {command('runplan', 'report', plan)}"]
        case code:
            word = "refused" if code is Exit.USAGE else "failed"
            reason = Reason(ended.reason)
            failure = failure_of(state)
            lane = failed_lane(state)
            over = lane.state.ended if lane is not None and lane.state.ended is not None else ended
            told = _failure(failure, over, logs) if failure else [ended.detail]
            account = [f"the account: {command('runplan', 'report', plan)}"] if failure or state.landed else []
            follows = next_action(reason, failure.step if failure else "")
            return code, [*told, landed, f"next: {follows}", *account, f"{word}: {reason}"]


def _landed(state: RunState) -> str:
    phases = [one.phase for one in state.landed if one.phase]
    if state.started is not None and state.started.mode == "undo":
        return f"phase {phases[0]} was taken back" if phases else "nothing was changed"
    if not phases:
        return "the plan is marked complete" if state.landed else "nothing landed"
    return f"{len(phases)} phase{'' if len(phases) == 1 else 's'} landed ({', '.join(phases)})"


def _failure(failure: PhaseFailed, ended: RunEnded, logs: Path) -> list[str]:
    phase = f"phase {failure.phase}" if failure.phase else "the plan"
    told = [f"{phase} failed at {failure.step}: {failure.detail}"]
    if failure.branch:
        told.append(f"its work is kept on the branch {failure.branch}")
    if failure.parked:
        told.append(f"the work as it was before the conflict is kept at {failure.parked}")
    if ended.parked:
        told.append(f"work that is on no branch is kept at {ended.parked}")
    if failure.dispatch:
        told.append(f"the log of its last process: {logs / failure.dispatch / 'out.log'}")
    return told


def _go_on(plan: str, outcome: Outcome) -> str:
    if outcome.decision.waiting == "approval":
        return f"to land it: {command('runplan', 'approve', plan)}; to refuse it: {command('runplan', 'reject', plan)}"
    if outcome.decision.wake:
        return f"when that is settled it goes on by itself, and at once with: {command('runplan', 'retry', plan)}"
    return f"when that is settled: {command('runplan', 'retry', plan)}"
