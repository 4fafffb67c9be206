"""What follows from a question of an agent and from the words of a person who rejects a change."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import StepCrashed
from runplan.domain.run.decide import decide, pending_answer
from runplan.domain.run.kinds import Beginning, GateAnswer, Mode, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.reasons import beginning_after
from runplan.domain.run.rules.shared import MAX_QUESTIONS
from runplan.domain.run.state import RunState, apply, fold
from tests.support.builders import BUILT, CHOSEN, LEASED, decided, ended, failing, fold_on, keep, started, starting

BEGUN: list[e.Event] = [started("next", test_command=""), CHOSEN, LEASED]
RESUMED = e.RunResumed(mode=Mode.NEXT, wanted="", auto=True)


def blocked(role: Role = Role.IMPLEMENT, cycle: int = 1) -> list[e.Event]:
    begun = e.DispatchStarted(id="d", role=role, agent="r", cycle=cycle, tree="t1", complaint="red")
    return [begun, ended("d", role, agent="r", said="blocked", detail="which port?")]


def asked(name: str) -> e.Event:
    return e.QuestionAsked(id=name, text="which port?", phase="1")


def answered(name: str) -> e.Event:
    return e.QuestionAnswered(id=name, text="8080")


# --- defects of runplan itself ----------------------------------------------------------------------

CRASH = StepCrashed(detail="KeyError: 'x'", trace="…")
LATER = "2026-03-01T12:00:00Z"
LANDED = e.Landed(id="l", tip="c2", phase="1", code="c1")


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        *((events, False) for events in ([CRASH], [CRASH, LANDED, CRASH], [CRASH, CRASH, RESUMED])),
        *((events, False) for events in ([CRASH, CRASH, RESUMED, CRASH], [CRASH, CRASH, e.StopRequested(by="me")])),
        *((events, True) for events in ([CRASH, CRASH], [CRASH, *blocked(), asked("q1"), CRASH])),
        ([CRASH, CRASH, e.Paused(kind=WaitKind.UNREACHABLE, until=LATER), e.Woke(kind=WaitKind.UNREACHABLE)], True),
    ],
)
def test_a_crashed_step_is_taken_once_more_and_then_a_person_continues(events: list[e.Event], waits: bool) -> None:
    state = fold([*BEGUN, *events])
    decision = decide(state)
    assert (decision.waiting == "crashed") is waits
    if waits:
        assert (decision.actions, decision.wake) == ((), "")
        assert decision.about == "runplan itself failed 2 times: KeyError: 'x'"
        assert pending_answer(state, "plans/x.md").endswith(". Continue: runplan retry plans/x.md")


def test_a_crash_in_one_lane_does_not_hold_the_others() -> None:
    lanes = e.LanesChosen(lanes=(("a", "1", ()), ("b", "2", ())), tip="c0")
    state = fold([keep(started("finish"), parallel=2), lanes, *[replace(CRASH, lane="a")] * 2])
    decision = decide(state)
    assert decision.waiting is None
    assert {action.lane for action in decision.actions} == {"b"}


# --- questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("role", "cycle"), [(Role.IMPLEMENT, 1), (Role.FIX, 2)])
def test_a_blocked_agent_asks_and_the_answer_starts_the_same_role_in_the_same_cycle(role: Role, cycle: int) -> None:
    state = fold([*BEGUN, *blocked(role, cycle)])
    assert (decide(state).actions, decide(state).why) == ((a.ASK_QUESTION,), "r has a question")
    state = apply(state, asked("q1"))
    waits = decide(state)
    assert (waits.actions, waits.waiting, waits.wake) == ((), "question", "")
    assert waits.why == "phase 1 asks: which port? (q1)"
    begun = starting(apply(state, answered("q1")))
    assert (begun.role, begun.cycle, begun.again) == (role, cycle, "")


def test_only_the_first_answer_to_the_open_question_counts() -> None:
    state = fold([*BEGUN, *blocked(), asked("q1")])
    assert decide(apply(state, answered("other"))).waiting == "question"
    state = fold_on(state, answered("q1"), e.QuestionAnswered(id="q1", text="late"))
    assert state.work.dispatches.answers == {"q1": "8080"}
    assert state.work.words == ("an agent asked: which port?; a person answered: 8080",)


def test_neither_resume_nor_pause_answers_a_question_and_a_stop_ends_the_wait() -> None:
    state = fold([*BEGUN, *blocked(), asked("q1")])
    assert decide(apply(state, RESUMED)).waiting == "question"
    paused = decide(apply(state, e.Halted(by="me")))
    assert (paused.waiting, "; paused by me: an answer takes effect with" in paused.about) == ("question", True)
    assert failing(apply(state, e.StopRequested(by="me"))).reason is Reason.STOPPED


def test_a_schedule_does_not_continue_a_run_with_an_open_question() -> None:
    state = fold([*BEGUN, *blocked(), asked("q1")])
    words = "phase 1 asks: which port? (q1). Answer: runplan answer plans/x.md TEXT"
    assert pending_answer(state, "plans/x.md") == words
    two = apply(state, asked("q2"))
    answers = "Answer: runplan answer q1 TEXT; Answer: runplan answer q2 TEXT"
    assert pending_answer(two, "plans/x.md").endswith(answers), "the plan would not say which one"
    assert pending_answer(apply(state, e.RunEnded(outcome=RunOutcome.STOPPED)), "plans/x.md") == ""


def test_work_that_was_interrupted_by_a_question_lands_as_one_commit() -> None:
    state = fold([*BEGUN, *blocked(), asked("q1"), answered("q1")])
    assert apply(state, e.WorkTaken(head="h", tree="t1", commits=3)).work.squash


def test_an_agent_that_asks_again_and_again_is_blocked() -> None:
    state = fold(BEGUN)
    for number in range(MAX_QUESTIONS):
        state = fold_on(state, *blocked(), asked(f"q{number}"), answered(f"q{number}"))
    action = failing(fold_on(state, *blocked()))
    assert (action.reason, action.detail) == (Reason.BLOCKED, "agents asked 5 questions already, and then: which port?")


# --- rejections with words ----------------------------------------------------------------------------


def proven(tree: str, onto: str = "c0") -> list[e.Event]:
    return [
        e.WorkTaken(head="h", tree=tree, commits=1),
        e.CandidateBuilt(onto=onto, onto_tree="t0", commits=("c1",), tree=tree, patch=tree),
        e.GateJudged(tree=tree, answer=GateAnswer.SKIPPED, code=None, line="", time=1),
        e.VerdictGiven(tree=tree, patch=tree, passed=True, items=(("W1", True, "y"),), agent="r"),
    ]


def rejected(tree: str, why: str = "too short") -> list[e.Event]:
    return [e.ApprovalAsked(tree=tree), e.Answered(tree=tree, approved=False, why=why)]


def asking(*more: e.Event) -> RunState:
    begun = keep(started(auto=False, test_command=""), max_fix_cycles=0)
    return fold([begun, *BEGUN[1:], *more])


def fixed(state: RunState) -> RunState:
    fixer = starting(state)
    assert (fixer.role, fixer.complaint) == (Role.FIX, "a person rejected the change: too short")
    return fold_on(state, replace(fixer, id="f"), ended("f", "fix"))


def test_words_with_a_rejection_start_a_fixer_and_count_no_fix_cycle() -> None:
    state = asking(*proven("t1"))
    for number in range(2, 5):
        state = fold_on(fixed(fold_on(state, *rejected(f"t{number - 1}"))), *proven(f"t{number}"))
        assert decide(state).actions == (a.ASK,)
    assert state.work.fixes == 0
    failed = replace(proven("t9")[-1], passed=False, why="W1")
    assert failing(fold_on(state, *proven("t9")[:-1], failed)), "the limit of the settings still holds"


def test_a_fixer_that_ignores_the_words_ends_the_phase_without_progress() -> None:
    state = fold_on(fixed(asking(*proven("t1"), *rejected("t1"))), *proven("t1")[:2])
    why = "the fixer changed nothing; a person rejected the change: too short"
    assert decided(state) == f"fail no-progress at fix: {why}"


def test_the_fixer_of_a_rejected_candidate_works_on_the_moved_target() -> None:
    (action,) = decide(asking(*proven("t1", onto="c9"), *rejected("t1"))).actions
    assert isinstance(action, a.RebuildBranch)
    assert (action.onto, action.complaint) == ("c9", "a person rejected the change: too short")


def test_a_held_landing_that_is_rejected_with_words_is_not_approved_any_more() -> None:
    approved = e.Answered(tree="t1", approved=True)
    state = asking(*proven("t1"), e.ApprovalAsked(tree="t1"), approved, e.LandingHeld(why="a.txt is edited"))
    state = fold_on(state, *rejected("t1")[1:])
    assert (state.current.delivery.held, state.current.delivery.approved) == ("", "")
    fixed(state)


@pytest.mark.parametrize("ours", [False, True])
def test_an_approval_that_a_moved_target_made_void_is_asked_again_with_the_reason(*, ours: bool) -> None:
    approved = [e.ApprovalAsked(tree="t1"), e.Answered(tree="t1", approved=True, by="Anna")]
    landing = e.LandingStarted(id="l", ref="refs/heads/main", old="c0", new="c2", code="c1")
    state = asking(*proven("t1"), *approved, landing, e.LandingMoved(tip="c9", ours=ours), *proven("t2", "c9")[1:])
    assert decide(state).actions == (a.ASK,)
    waits = decide(apply(state, e.ApprovalAsked(tree="t2")))
    again = "phase 1 passed all checks and needs your approval again: the target has moved since the last one"
    assert waits.why == again


@pytest.mark.parametrize(
    "chosen", [e.UndoChosen(tip="c0", phase="1"), e.CompletionChosen(tip="c0"), e.MergeChosen(tip="c0", merge="c1")]
)
def test_words_end_an_attempt_that_no_agent_can_revise(chosen: e.Chosen) -> None:
    action = failing(fold([started(auto=False), chosen, BUILT, *rejected("t1")]))
    assert (action.reason, action.detail) == (Reason.STOPPED, "the change was rejected: too short")


def test_a_stop_before_the_fixer_leaves_the_words_of_a_rejection_to_the_next_attempt() -> None:
    state = asking(*proven("t1"), *rejected("t1"))
    end = failing(apply(state, e.StopRequested(by="me")))
    failed = e.PhaseFailed(phase="1", reason=end.reason, step=end.at, detail="", rejected="too short", tree="t1")
    assert beginning_after(failed, is_changed=False, has_fixers=True) is Beginning.FIX


@pytest.mark.parametrize("options", [{"auto": True}, {"auto": False}, {"auto": True, "concludes": True}])
def test_a_change_that_was_rejected_before_waits_for_a_person_also_with_auto(options: dict[str, bool]) -> None:
    told = "a person rejected this very change on 2026-01-01 10:00 UTC: too short"
    built = [replace(fact, rejected=told) if isinstance(fact, e.CandidateBuilt) else fact for fact in proven("t1")]
    state = fold([replace(started(test_command=""), **options), *BEGUN[1:], *built])
    assert decide(state).actions == (a.ASK,)
    waits = decide(fold_on(state, e.ApprovalAsked(tree="t1"), e.LanesChosen(tip="c0", lanes=())))
    assert (waits.waiting, waits.about) == ("sign-off", told)
    assert waits.why == f"phase 1 passed all checks and needs your sign-off: {told}"
    assert state.work.warnings == (told,)
    assert decide(apply(state, e.Answered(tree="t1", approved=True))).actions == (a.LAND,)


@pytest.mark.parametrize(
    ("remote", "missing", "lands"),
    [
        ("", "ROBOT_KEY", True),
        ("origin", "ROBOT_KEY", True),
        *(("origin", name, False) for name in ("SSH_AUTH_SOCK", "GH_TOKEN")),
    ],
)
def test_an_approved_change_lands_while_only_agents_miss_a_variable(remote: str, missing: str, *, lands: bool) -> None:
    begun = replace(started(auto=False, test_command=""), remote=remote)
    waits = fold([begun, *BEGUN[1:], *proven("t1"), e.ApprovalAsked(tree="t1"), e.Halted(by="r", missing=(missing,))])
    lost = f"the daemon restarted and lost ${missing}"
    assert (decide(waits).waiting, decide(waits).about) == ("approval", f"approval; {lost}")
    approved = apply(waits, e.Answered(tree="t1", approved=True))
    landing = e.LandingStarted(id="l", ref="refs/heads/main", old="c0", new="c2", code="c1")
    for state in (approved, apply(approved, landing)):
        decision = decide(state)
        assert (decision.actions, decision.waiting) == (((a.LAND,), None) if lands else ((), "key"))
    failed = replace(proven("t2")[-1], passed=False, why="W1")
    assert decide(fold_on(waits, *proven("t2")[:-1], failed)).waiting == "key", "a fixer is an agent"
