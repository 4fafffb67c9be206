"""The rules of the two parts that kinds of work share: a dispatch of an agent, and a delivery."""

from collections.abc import Sequence

from msgspec.structs import replace

from runplan.domain.run import actions as a
from runplan.domain.run.actions import Decision, fail_phase, perform_action, start_dispatch, wait_for
from runplan.domain.run.attempt_parts import DispatchRecord
from runplan.domain.run.attempts import Attempt, WorkAttempt
from runplan.domain.run.dispatch import Ending, EndingKind, ReturnStatus
from runplan.domain.run.events import DispatchEnded, RunStarted
from runplan.domain.run.kinds import PhaseStep, Reason, WaitKind
from runplan.domain.run.reasons import describe_ending, gave_reason

MAX_MOVES = 5  #: how often a candidate is rebuilt because the target moved
MAX_QUESTIONS = 5  #: of agents to a person, in one attempt
MAX_LOST = 3  #: lost processes in a row
SUCCEEDED = ("", EndingKind.SUCCESS)  #: kinds of an ending; "" of an agent that reports none
#: Endings that may be chance: an unknown error, a signal (as of a kernel out of memory), silence.
REPEATED = (EndingKind.CRASHED, EndingKind.KILLED, EndingKind.SILENT)
UNNAMED = (*SUCCEEDED, *REPEATED)  #: the agent named no problem of its own
#: The reason for an ending that a limit of runplan caused.
STOPPED_BY = {
    Ending.TIMEOUT: Reason.TIMEOUT,
    Ending.SILENT: Reason.SILENT,
    Ending.MISSING: Reason.AGENT_MISSING,
    Ending.BUDGET: Reason.BUDGET,
}


def fail_lost(attempt: Attempt) -> Decision | None:
    lost = attempt.dispatches.lost
    if lost < MAX_LOST:
        return None
    return fail_phase(Reason.CRASHED, attempt.step, f"{lost} processes in a row were gone and left no result")


def judge_agent(record: DispatchRecord, ended: DispatchEnded, succeeded: Decision) -> Decision:
    """An ending that may be chance is repeated once per role and cycle; `succeeded` follows a success."""
    how = describe_ending(ended)
    if ended.said == ReturnStatus.BLOCKED and ended.kind in UNNAMED:
        if len(record.questions) < MAX_QUESTIONS:
            return perform_action(a.ASK_QUESTION, f"{ended.agent or ended.role} has a question")
        detail = f"agents asked {len(record.questions)} questions already, and then: {ended.detail}"
        return fail_phase(Reason.BLOCKED, PhaseStep(ended.role), detail)
    if ended.kind in REPEATED and ended.said != ReturnStatus.FAILED:
        newest = record.newest
        assert newest is not None
        same = [other for other in record.repeated if (other.role, other.cycle) == (newest.role, newest.cycle)]
        if not same:
            return start_dispatch(replace(newest, again=how), f"{how}; it is tried once more")
        how = f"{how}; it was tried once more" + ("" if same[0].again == how else f" after {same[0].again}")
    elif ended.kind in SUCCEEDED and ended.succeeded and ended.said != ReturnStatus.FAILED:
        return succeeded
    reason = STOPPED_BY.get(ended.ending, Reason.AGENT_FAILED)
    if ended.kind == EndingKind.BUDGET:
        reason = Reason.BUDGET
    elif gave_reason(ended):
        reason = Reason.AGENT_FAILED
    return fail_phase(reason, PhaseStep(ended.role), how)


def land_candidate(
    started: RunStarted, attempt: Attempt, *, proof: str = "all checks passed", sign_off: Sequence[str] | None = None
) -> Decision:
    """Land when a person has approved it, or need not; `sign_off`: what a person has to see, also with `auto`."""
    delivery = attempt.delivery
    tree = delivery.candidate.tree if delivery.candidate else ""
    if delivery.held:
        return wait_for(WaitKind.CHECKOUT, delivery.held, f"the landing waits: {delivery.held}")
    is_free = started.auto or started.concludes  # a pull request is approved as a whole
    if (is_free and sign_off is None) or not tree or delivery.is_approved:
        return perform_action(a.LAND, f"{proof}; code, tracker and report land together")
    is_signed = sign_off is not None
    if delivery.asked != tree:
        asks = "a person signs the phase off" if is_signed else "without `auto` a person approves each landing"
        return perform_action(a.ASK, asks)
    proven = f"phase {attempt.chosen.phase} passed all checks and needs your"
    if is_signed:
        criteria = f": {'; '.join(sign_off)}" if sign_off else ""
        rejected = delivery.candidate.rejected if delivery.candidate else ""
        return wait_for(WaitKind.SIGN_OFF, rejected, f"{proven} sign-off{criteria}")
    again = " again: the target has moved since the last one" if delivery.approved_by else ""
    return wait_for(WaitKind.APPROVAL, "", f"{proven} approval{again}")


def await_subplan(attempt: WorkAttempt) -> Decision:
    why = f"phase {attempt.chosen.phase} is done by {attempt.awaited_plan}, whose run has not ended"
    return wait_for(WaitKind.SUBPLAN, attempt.awaited_plan, why)


def undo_phase(started: RunStarted, attempt: Attempt) -> Decision:
    delivery = attempt.delivery
    phase = attempt.chosen.phase
    if delivery.conflict is not None:
        changed = f"later work on the target changes the same lines as phase {phase}, in {delivery.conflicting_paths}"
        return fail_phase(Reason.CONFLICT, PhaseStep.UNDO, changed)
    if delivery.moves > MAX_MOVES:
        return fail_phase(Reason.TARGET_MOVING, PhaseStep.UNDO, f"the target moved {delivery.moves} times meanwhile")
    if delivery.candidate is None:
        return perform_action(a.BUILD_UNDO, f"phase {phase} is to be reverted")
    return land_candidate(started, attempt, proof="an undo needs no checks")
