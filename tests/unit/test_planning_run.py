"""Planning: which step is due, when a plan is proposed, and what a person's answers do."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import PlanningChosen, ProposalMade, RevisionRequested, StartQueued, StepJudged
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode, PhaseStep, Reason, Role, WaitKind
from runplan.domain.run.state import RunState, apply, fold, list_running
from tests.support.builders import decided, failing, fold_on, keep, started, starting

STARTED = started("plan", auto=False)
PHASES = started(auto=False)  #: a run that works phases
FINDINGS = (("F1", "phase 1: vague"),)
PROPOSAL = ProposalMade(path="plans/x.md", text="# X\n", sha256="aa", title="X")
LANDED = e.Landed(id="r.1", phase="", tip="t", code="t")
CLEAN = e.CleanedUp(phase="")


def begun(**options: Any) -> RunState:
    planning = e.Planning(**{"goal": "Do X.", **options})
    chosen = PlanningChosen(tip="t", title="X", text="Do X.", planning=planning)
    return fold([replace(STARTED, planning=planning), chosen])


def due(state: RunState) -> str:
    """The step of an agent that is due, or the action."""
    return decided(state).partition(" ")[0]


def ended(state: RunState, **more: Any) -> RunState:
    """The dispatch that is due, started and ended."""
    begun = replace(starting(state), id=f"r.{state.dispatches + 1}", agent="robot")
    fields = {"id": begun.id, "role": begun.role, "ending": Ending.EXITED, "code": 0, "agent": "robot", **more}
    return fold_on(state, begun, e.DispatchEnded(**fields))


def judged(state: RunState, **more: Any) -> RunState:
    """The step that is due, with this judgement of its output."""
    state = ended(state)
    assert due(state) == a.JUDGE_STEP.step
    over = state.planning.dispatches.ended
    assert over is not None
    findings = FINDINGS if over.role is Role.CRITIQUE else ()
    usual = {"role": over.role, "dispatch": over.id, "text": over.role, "findings": findings}
    return apply(state, StepJudged(**{**usual, **more}))


def proposed(state: RunState) -> RunState:
    while due(state) != a.PROPOSE.step:
        state = judged(state)
    return apply(state, PROPOSAL)


def asked(state: RunState) -> RunState:
    return apply(proposed(state), e.ApprovalAsked(tree="aa"))


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        ({}, "understand explore alternatives draft critique revise critique revise"),
        ({"rounds": 1}, "understand explore alternatives draft critique revise"),
        ({"quick": True}, "explore draft critique revise"),
        ({"is_revision": True, "rounds": 1}, "explore draft critique revise"),
        ({"steps": (Role.EXPLORE, Role.CRITIQUE)}, "explore draft critique"),
        ({"steps": (Role.DRAFT,)}, "draft"),
        ({"steps": (Role.UNDERSTAND, Role.EXPLORE, Role.DRAFT), "quick": True}, "explore draft"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_steps_follow_each_other(options: dict[str, Any], roles: str) -> None:
    state = begun(**options)
    for role in roles.split():
        assert due(state) == role
        state = judged(state)
    assert due(state) == "propose"


def test_a_critique_without_findings_needs_no_revision() -> None:
    state = begun(quick=True)
    for _ in range(2):
        state = judged(state)
    assert due(judged(state, findings=())) == "propose"


def test_a_refused_output_is_tried_again_with_the_problems_and_then_the_plan_is_invalid() -> None:
    state = begun(quick=True)
    for number in (1, 2):
        state = judged(state, problems=("no path exists",))
        assert (starting(state).role, starting(state).cycle) == (Role.EXPLORE, number + 1)
    action = failing(judged(state, problems=("no path exists",)))
    assert (action.reason, action.at) == (Reason.PLAN_INVALID, "explore")


def test_a_planner_that_writes_twice_has_violated_its_role() -> None:
    state = judged(begun(), problems=("files were changed",), has_written=True)
    assert due(state) == Role.UNDERSTAND
    state = judged(state, problems=("files were changed",), has_written=True)
    assert failing(state).reason is Reason.READONLY_VIOLATED


def test_a_planner_that_wrote_once_and_then_only_reads_has_all_its_tries() -> None:
    state = judged(begun(), problems=("files were changed",), has_written=True)
    assert due(judged(state, problems=("empty",))) == Role.UNDERSTAND
    state = judged(state)
    for _ in range(2):
        state = judged(state, problems=("empty",))
        assert due(state) == Role.EXPLORE


def test_questions_of_each_step_before_the_draft_are_asked_once() -> None:
    state = begun(asks=True)
    for role in (Role.UNDERSTAND, Role.EXPLORE, Role.ALTERNATIVES):
        assert due(state) == role
        state = judged(state, questions=("Which?", "Where?"))
        assert due(state) == "ask-questions"
        for id_, text in state.planning.new_questions:
            state = apply(state, e.QuestionAsked(id=id_, text=text))
        assert (decide(state).waiting, state.planning.step) == (WaitKind.QUESTION, PhaseStep(role))
        for question in state.planning.dispatches.questions:
            state = apply(state, e.QuestionAnswered(id=question.id, text="here"))
    assert due(state) == Role.DRAFT
    assert due(judged(begun(), questions=("Which?",))) == Role.EXPLORE, "without --ask nobody is asked"


def test_several_explorers_are_awaited_and_then_merged_by_one() -> None:
    state = begun(quick=True, explorers=3)
    ids = ("r.1", "r.1-2", "r.1-3")
    state = apply(state, e.DispatchStarted(role=Role.EXPLORE, cycle=1, id=ids[0], agent="robot", beside=ids[1:]))
    assert list_running(state) == [*ids]
    for id_, left in (("r.1-3", ids[:2]), ("r.1", ids[1:2]), ("r.1-2", ())):
        over = e.DispatchEnded(id=id_, role=Role.EXPLORE, ending=Ending.EXITED, code=0, agent="robot")
        before = decide(state)
        state = apply(state, over)
        assert list_running(state) == [*left]
        assert decide(state) != before
    assert due(state) == a.JUDGE_STEP.step
    state = apply(state, StepJudged(role=Role.EXPLORE, dispatch="r.1", parts=("a", "b")))
    assert (due(state), state.planning.parts, state.planning.tries) == (Role.EXPLORE, ("a", "b"), 0)
    assert due(judged(state)) == Role.DRAFT


def test_a_lost_step_is_repeated_and_no_other() -> None:
    state = judged(begun(quick=True))
    assert due(ended(state, ending=Ending.LOST, code=None)) == Role.DRAFT


EDITED = replace(PROPOSAL, sha256="cc", is_edited=True, replaces="aa")
APPROVED = e.Answered(tree="aa", approved=True)
REJECTED = e.Answered(tree="aa", approved=False)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], "waits for approval", id="it waits"),
        pytest.param([replace(APPROVED, tree="bb")], "waits for approval", id="an approval of another text"),
        pytest.param([replace(REJECTED, tree="bb", why="no")], "waits for approval", id="a rejection of another text"),
        pytest.param([e.RunResumed(mode=Mode.PLAN, wanted="", auto=False)], "waits for approval", id="a resumed run"),
        pytest.param([APPROVED], "land", id="only the shown text is approved"),
        pytest.param([EDITED], "ask", id="a text that a person edited is asked about anew"),
        pytest.param([APPROVED, EDITED], "ask", id="also behind an approval"),
        pytest.param([APPROVED, e.LandingHeld(why="dirty")], "waits for checkout", id="it waits for the checkout"),
        pytest.param([APPROVED, *[e.LandingMoved(tip="t2")] * 5], "land", id="a target that moves"),
        pytest.param([APPROVED, *[e.LandingMoved(tip="t2")] * 6], "fail target-moving", id="and moves again"),
        pytest.param([REJECTED], "fail stopped", id="a rejection without words ends the run"),
        pytest.param([replace(REJECTED, why="smaller")], "revise", id="one with words revises at once"),
    ],
)
def test_a_proposal_lands_when_a_person_approves_exactly_this_text(facts: list[e.Event], expected: str) -> None:
    assert decided(fold_on(asked(begun(quick=True)), *facts)).partition(" at ")[0] == expected


def test_an_edited_text_is_at_its_approval_again() -> None:
    answered = apply(asked(begun(quick=True)), APPROVED)
    steps = [state.attempt and state.attempt.step for state in (answered, apply(answered, EDITED))]
    assert steps == [PhaseStep.LAND, PhaseStep.APPROVE]


@pytest.mark.parametrize(("is_free", "action"), [(True, a.LAND), (False, a.ASK)])
def test_no_approval_is_asked_only_for_a_plan_that_grants_nothing(is_free: bool, action: a.Action) -> None:
    state = begun(quick=True, approval="none")
    while due(state) != a.PROPOSE.step:
        state = judged(state)
    assert decide(apply(state, replace(PROPOSAL, is_free=is_free))).actions == (action,)


def test_a_revision_after_a_rejection_is_asked_about_with_the_words_kept() -> None:
    revised = apply(asked(begun(quick=True)), replace(REJECTED, why="smaller"))
    assert revised.planning.rejections == ("smaller",)
    revised = judged(revised)
    assert due(revised) == "propose"
    assert due(apply(revised, replace(PROPOSAL, sha256="cc"))) == "ask"


def test_a_landed_plan_queues_the_run_that_was_asked_for() -> None:
    state = fold_on(asked(begun(quick=True, then="{}")), APPROVED, LANDED, CLEAN)
    assert due(state) == "queue-start"
    assert due(apply(state, StartQueued(command=1))) == "finish"


# --- revisions in a run of phases -----------------------------------------------------------------------


def failed_phase(reason: Reason, *, mode: str = "finish", replans: bool = True, step: str = "implement") -> RunState:
    """A run whose phase 1 has failed and is cleaned up."""
    begun = keep(replace(PHASES, mode=Mode(mode)), replan=replans)
    failed = e.PhaseFailed(phase="1", reason=reason, step=PhaseStep(step), detail="7 files, not 3")
    return fold([begun, e.PhaseChosen(tip="t", phase="1"), failed, e.CleanedUp(phase="1")])


def revised(state: RunState, **more: Any) -> RunState:
    planning = e.Planning(goal="fit", is_revision=True, rounds=1)
    return apply(state, PlanningChosen(tip="t", planning=planning, text="fit", before="# X\n", **more))


@pytest.mark.parametrize(
    ("reason", "options", "action"),
    [
        (Reason.DRIFT, {}, "choose-goal"),
        (Reason.BLOCKED, {}, "choose-goal"),
        (Reason.BLOCKED, {"step": "lease"}, "finish"),
        (Reason.DRIFT, {"replans": False}, "finish"),
        (Reason.TESTS_FAILED, {}, "finish"),
    ],
)
def test_a_misfit_of_the_code_has_the_plan_revised(reason: Reason, options: dict[str, Any], action: str) -> None:
    assert due(failed_phase(reason, **options)) == action


@pytest.mark.parametrize("mode", ["finish", "next"])
def test_a_run_continues_with_the_revised_plan(mode: str) -> None:
    state = revised(failed_phase(Reason.DRIFT, mode=mode), reason=Reason.DRIFT)
    state = apply(asked(state), APPROVED)
    assert due(state) == "land"
    assert due(fold_on(state, LANDED, CLEAN)) == "read-plan"


@pytest.mark.parametrize(
    ("state", "why", "reason", "outcome"),
    [
        (revised(failed_phase(Reason.DRIFT), reason=Reason.DRIFT), Reason.PLAN_INVALID, Reason.DRIFT, "failed"),
        (revised(failed_phase(Reason.DRIFT), reason=Reason.DRIFT), Reason.STOPPED, Reason.STOPPED, "stopped"),
        (revised(failed_phase(Reason.DRIFT)), Reason.PLAN_INVALID, Reason.PLAN_INVALID, "failed"),
        (begun(), Reason.PLAN_INVALID, Reason.PLAN_INVALID, "failed"),
    ],
    ids=["for a phase", "stopped", "for a person", "a new plan"],
)
def test_a_revision_that_fails_ends_the_run_with_the_reason_of_the_phase(
    state: RunState, why: Reason, reason: Reason, outcome: str
) -> None:
    failed = e.PhaseFailed(phase="", reason=why, step=PhaseStep.DRAFT, detail="no plan")
    (action,) = decide(fold_on(state, failed, CLEAN)).actions
    assert isinstance(action, a.Finish)
    assert (action.outcome, action.reason) == (outcome, reason)
    assert (f"the plan was not revised: {why}" in action.detail) is (why is not reason)


def test_a_plan_is_revised_at_most_twice_by_a_run() -> None:
    state = failed_phase(Reason.DRIFT)
    for _ in range(2):
        assert due(state) == "choose-goal"
        failed = e.PhaseFailed(phase="1", reason=Reason.DRIFT, step=PhaseStep.IMPLEMENT, detail="")
        facts = (LANDED, CLEAN, e.PhaseChosen(tip="t", phase="1"), failed, e.CleanedUp(phase="1"))
        state = fold_on(revised(state, reason=Reason.DRIFT), *facts)
    assert due(state) == "finish"


def test_a_person_has_the_plan_revised_before_the_next_phase() -> None:
    request = RevisionRequested(planning=e.Planning(goal="smaller", is_revision=True))
    state = fold([PHASES, request])
    assert due(state) == "choose-goal"
    asking = fold([PHASES, e.PhaseChosen(tip="t", phase="1"), e.QuestionAsked(id="q", text="which?", phase="1")])
    assert failing(apply(asking, request)).reason is Reason.STOPPED, "it gives way, and its work is kept"
    failed = e.PhaseFailed(phase="1", reason=Reason.STOPPED, step=PhaseStep.IMPLEMENT, detail="")
    assert due(fold_on(asking, request, failed, e.CleanedUp(phase="1"))) == "choose-goal"


def test_two_phases_in_a_row_are_planned_first() -> None:
    """The plan is read again after the revision for the first one, and the second one is the next."""
    state = fold([PHASES])
    for phase in ("1", "2"):
        assert due(state) == "read-plan"
        planning = e.Planning(goal="Plan it.", is_revision=True, revises=phase)
        state = apply(state, RevisionRequested(planning=planning))
        assert due(state) == "choose-goal"
        state = apply(state, PlanningChosen(tip="t", title="X", text="Plan it.", planning=planning))
        state = fold_on(proposed(state), LANDED, CLEAN)


def test_words_of_a_person_are_about_the_text_that_the_person_has_edited() -> None:
    edited = replace(EDITED, text="---\ntitle: X\n---\n# Mine\n")
    state = fold_on(asked(begun(quick=True)), edited, e.Answered(tree="cc", approved=False, why="more"))
    assert due(state) == Role.REVISE
    assert [step.text for step in state.planning.accepted] == ["explore", "draft", "critique", "# Mine\n"]


def test_a_rejected_text_leaves_no_hold_to_the_next_one() -> None:
    state = fold_on(asked(begun(quick=True)), APPROVED, e.LandingHeld(why="dirty"), replace(REJECTED, why="more"))
    assert due(apply(judged(state), PROPOSAL)) == "ask"
