"""The rules of planning: read-only steps, each with a valid output, then a proposal that a person approves."""

from runplan.domain.run import actions as a
from runplan.domain.run.actions import Decision, fail_phase, perform_action, start_dispatch, wait_for
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.events import DispatchStarted, PhaseFailed, Planning
from runplan.domain.run.kinds import PLANNING, PhaseStep, Reason, Role, WaitKind
from runplan.domain.run.rules.shared import MAX_MOVES, fail_lost, judge_agent

MAX_REVISIONS = 2  #: of a plan by one of its runs
MAX_TRIES = 3  #: of a step, whose output is refused
_PURPOSES = {
    Role.UNDERSTAND: "an agent states the problem, the criteria of success and its assumptions",
    Role.EXPLORE: "an agent reads the code that the goal is about",
    Role.ALTERNATIVES: "an agent compares ways to reach the goal",
    Role.DRAFT: "an agent writes the plan",
    Role.CRITIQUE: "another agent judges the plan by the principles",
    Role.REVISE: "an agent revises the plan and answers every finding",
}


def list_steps(planning: Planning) -> tuple[Role, ...]:
    wanted = {*(planning.steps or PLANNING), Role.DRAFT}
    if planning.quick or planning.is_revision:
        wanted -= {Role.UNDERSTAND, Role.ALTERNATIVES}
    *first, critique, revise = [role if role in wanted else None for role in PLANNING]
    rounds = 1 if planning.quick or not revise else planning.rounds
    return tuple(role for role in (*first, *(critique, revise) * rounds) if role)


def next_step(attempt: PlanningAttempt) -> Role | None:
    """The step that is due; None when the plan can be proposed. A critique without findings needs no revision."""
    if attempt.revision:
        return Role.REVISE
    done = iter(attempt.accepted)
    last = None
    for role in list_steps(attempt.chosen.planning):
        if role is Role.REVISE and last is not None and not last.findings:
            continue
        last = next(done, None)
        if last is None:
            return role
    return None


def write_plan(attempt: PlanningAttempt) -> Decision:
    if lost := fail_lost(attempt):
        return lost
    if (ended := attempt.dispatches.ended) is not None:
        judge = perform_action(a.JUDGE_STEP, f"the output of {ended.role} is checked")
        return judge_agent(attempt.dispatches, ended, judge)
    if (proposal := attempt.proposal) is not None:  # exactly the text that a person approved lands
        delivery = attempt.delivery
        if delivery.held:
            return wait_for(WaitKind.CHECKOUT, delivery.held, f"the landing waits: {delivery.held}")
        if delivery.moves > MAX_MOVES:
            moved = f"the target moved {delivery.moves} times meanwhile"
            return fail_phase(Reason.TARGET_MOVING, PhaseStep.LAND, moved)
        is_free = attempt.chosen.planning.approval == "none" and proposal.is_free
        if is_free or delivery.approved == proposal.sha256:
            return perform_action(a.LAND, "the plan lands as one commit")
        if delivery.asked != proposal.sha256:
            return perform_action(a.ASK, "a person approves the plan")
        return wait_for(WaitKind.APPROVAL, "the proposed plan", "the proposed plan needs your approval")
    if attempt.chosen.planning.asks and attempt.new_questions:
        return perform_action(a.ASK_QUESTIONS, "a step before the draft has questions for a person")
    role = next_step(attempt)
    if role is None:
        return perform_action(a.PROPOSE, "every step has a valid output; the plan is proposed")
    if attempt.tries >= MAX_TRIES or (attempt.has_written and attempt.tries > 1):
        reason = Reason.READONLY_VIOLATED if attempt.has_written else Reason.PLAN_INVALID
        return fail_phase(reason, PhaseStep(role), f"{role}: {'; '.join(attempt.problems)}")
    dispatch = DispatchStarted(role=role, cycle=attempt.judged.get(role, 0) + 1)
    again = f"; its last output was refused: {attempt.problems[0]}" if attempt.problems else ""
    return start_dispatch(dispatch, f"{_PURPOSES[role]}{again}")


def describe_misfit(failure: PhaseFailed) -> str:
    asks_on = failure.reason is Reason.BLOCKED and failure.step in (PhaseStep.IMPLEMENT, PhaseStep.FIX)
    if failure.reason is not Reason.DRIFT and not asks_on:
        return ""
    return f"Phase {failure.phase} does not fit the code ({failure.reason}): {failure.detail}"
