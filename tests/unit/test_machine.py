"""The machine always knows what is next, never asks for the same thing for ever, and lands a phase once."""

import pytest
from msgspec.structs import replace

from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import LandingRefused, ProposalMade, Setup, SetupDoubted, SetupReused, TrialJudged
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Mode, PhaseStep, ProofKind, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.recorded import from_json
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rules.shared import MAX_MOVES
from runplan.domain.run.state import RunState, apply, fold
from runplan.domain.settings.schema import GatesSettings, GateTable, TrySettings
from runplan.engine.loop.runs import is_current
from tests.support.builders import BUILT, CHOSEN, LEASED, PASSED, PROVEN, SKIPPED, TAKEN, keep, started


def test_an_event_type_of_a_newer_version_and_its_new_fields_are_ignored() -> None:
    assert from_json("FromTheFuture", "{}") is None
    assert from_json("RunEnded", '{"outcome": "done", "shape": "round"}') == e.RunEnded(outcome=RunOutcome.DONE)


def failing(state: RunState) -> a.Fail:
    (action,) = decide(state).actions
    assert isinstance(action, a.Fail)
    return action


def starting(state: RunState) -> e.DispatchStarted:
    (action,) = decide(state).actions
    assert isinstance(action, a.Start)
    return action.dispatch


WRITTEN = (
    started(test_command=""),
    CHOSEN,
    LEASED,
    e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="r", cycle=1),
    e.DispatchEnded(id="d1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0),
    TAKEN,
)


def landing(*more: e.Event) -> RunState:
    """A phase that is proven and about to land, and what happened then."""
    return fold([*WRITTEN, BUILT, SKIPPED, PROVEN, *more])


def test_work_that_the_target_has_already_fails_at_its_landing() -> None:
    refused = e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="x")
    assert failing(fold([*WRITTEN, refused])).at is PhaseStep.LAND


def test_a_begun_landing_is_recovered_before_anything_else() -> None:
    begun = e.LandingStarted(id="l", ref="r", old="c0", new="c2", code="c1")
    assert decide(landing(begun)).actions == (a.LAND,)
    assert decide(landing(begun, e.StopRequested(by="me"))).actions == (a.LAND,)


@pytest.mark.parametrize(("patch", "carries"), [("p", True), ("other", False)])
def test_a_verdict_carries_over_to_a_moved_target_with_the_same_patch_only(patch: str, carries: bool) -> None:
    built = e.CandidateBuilt(onto="c9", onto_tree="t9b", commits=("c10",), tree="t9", patch=patch)
    moved = landing(e.LandingMoved(tip="c9"), built)
    assert (moved.work.proof.verdict is not None) is carries
    assert decide(moved).actions == (a.JUDGE_GATE,)


def test_a_target_that_keeps_moving_ends_the_phase() -> None:
    moves: list[e.Event] = []
    for number in range(MAX_MOVES + 1):
        moves += [
            e.LandingMoved(tip=f"c{number}"),
            e.CandidateBuilt(onto=f"c{number}", onto_tree="t0", commits=("k",), tree="t1", patch="p"),
        ]
    assert decide(landing(*moves[:-2])).actions == (a.LAND,)
    assert failing(landing(*moves)).reason == Reason.TARGET_MOVING


def test_a_target_that_keeps_moving_ends_an_undo() -> None:
    built = e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("k",), tree="t1", patch="p")
    moves = [built, e.LandingMoved(tip="c1")]
    undo = [started(Mode.UNDO, wanted="1"), e.UndoChosen(tip="c0", phase="1"), *moves * MAX_MOVES]
    assert decide(fold(undo)).actions == (a.BUILD_UNDO,)
    assert failing(fold([*undo, *moves])).reason == Reason.TARGET_MOVING


def test_a_held_landing_waits_until_it_is_resumed() -> None:
    held = e.LandingHeld(why="a.txt is edited")
    waiting = decide(landing(held))
    assert (waiting.actions, waiting.waiting) == ((), "checkout")
    assert "a.txt is edited" in waiting.why
    assert decide(landing(held, e.RunResumed(mode=Mode.FINISH, wanted="", auto=True))).actions == (a.LAND,)


def test_a_held_landing_with_a_time_wakes_then_and_lands_again() -> None:
    held = e.LandingHeld(why="checks are running")
    until = "2026-01-01T00:00:00Z"
    paused = (held, e.Paused(kind=WaitKind.CHECKOUT, until=until, words=held.why))
    waiting = decide(landing(*paused))
    assert (waiting.waiting, waiting.wake) == ("checkout", until)
    assert decide(landing(*paused, e.Woke(kind=WaitKind.CHECKOUT))).actions == (a.LAND,)


def test_a_target_that_refuses_the_candidate_ends_the_phase_as_protected() -> None:
    refused: list[e.Event] = [
        e.LandingStarted(id="l", ref="r", old="c1", new="c3", code="c2"),
        LandingRefused(why="hook declined"),
    ]
    decision = decide(landing(*refused))
    assert decision.actions == (a.Fail(reason=Reason.PROTECTED, at=PhaseStep.LAND, detail="hook declined"),)


def test_a_rejected_candidate_is_not_landed() -> None:
    action = failing(landing(e.ApprovalAsked(tree="t1"), e.Answered(tree="t1", approved=False)))
    assert (action.reason, action.detail) == (Reason.STOPPED, "the change was rejected")


def test_a_rejection_of_another_candidate_is_ignored() -> None:
    asked = e.ApprovalAsked(tree="t1")
    assert decide(landing(asked, e.Answered(tree="t0", approved=False, why="no"))) == decide(landing(asked))


def test_an_answer_belongs_to_the_open_question_of_its_id() -> None:
    question = e.QuestionAsked(id="r.Q1", text="which?")
    state = fold([started(), e.PhaseChosen(tip="c0", phase="1"), question])
    first, other = (e.QuestionAnswered(id=id_, text="this") for id_ in ("r.Q1", "r.Q2"))
    assert is_current(state, first)
    assert not is_current(state, other)
    assert not is_current(apply(state, first), first)


@pytest.mark.parametrize("why", ["", "shorter"])
@pytest.mark.parametrize("is_approval", [True, False])
def test_the_first_of_two_answers_counts(why: str, *, is_approval: bool) -> None:
    """Both may be queued while the daemon does not respond, such as by two uses of one link."""
    second = e.Answered(tree="t1", approved=is_approval, why="" if is_approval else "longer")
    asked = e.ApprovalAsked(tree="t1")
    assert is_current(landing(asked), second)
    assert not is_current(landing(asked, e.Answered(tree="t1", approved=False, why=why)), second)
    assert not is_current(landing(asked, e.Answered(tree="t1", approved=True)), second)


def proven_by(*more: e.Event) -> RunState:
    """A phase whose checks are run by a command, after the implementer has ended."""
    return fold([started(setup="make deps"), CHOSEN, LEASED, *more])


def ran(role: str, tree: str = "", code: int = 0, name: str = "d", *, again: str = "") -> list[e.Event]:
    return [
        e.DispatchStarted(id=name, role=Role(role), agent="", cycle=1, tree=tree, again=again),
        e.DispatchEnded(id=name, role=Role(role), ending=Ending.EXITED, code=code),
    ]


def due(state: RunState) -> tuple[str, str]:
    dispatch = starting(state)
    return dispatch.role, dispatch.tree


IMPLEMENTED: list[e.Event] = [
    *ran("setup", "t0"),
    *ran("baseline", "t0"),
    e.BaselineKnown(key="k", tree="t0", results=""),
    *ran("setup"),
    *ran("implement"),
    TAKEN,
    BUILT,
]

BROKEN = e.RulesBroken(tree="t1", reason=Reason.OUT_OF_SCOPE, lines=("a: outside", "b: outside"), remedy="; permit it")


def test_a_fixer_takes_back_what_breaks_a_rule_and_the_second_finding_ends_the_phase() -> None:
    state = proven_by(*IMPLEMENTED[:-2], BROKEN)
    fixer = starting(state)
    assert (fixer.role, fixer.cycle, fixer.tree) == ("fix", 2, "t1")
    assert fixer.complaint == "the phase does not permit these changes; take them back: a: outside; b: outside"
    fixed = [replace(fixer, id="f"), e.DispatchEnded(id="f", role=Role.FIX, ending=Ending.EXITED, code=0)]
    assert decide(fold_on(state, *fixed, IMPLEMENTED[-2])).actions == (a.BUILD_CANDIDATE,)
    action = failing(fold_on(state, *fixed, BROKEN))
    assert (action.reason, action.at, action.detail) == ("out-of-scope", "fix", "a: outside; b: outside; permit it")


def test_a_broken_rule_ends_the_phase_where_nothing_may_be_fixed() -> None:
    state = fold_on(proven_by(*IMPLEMENTED[:-2], BROKEN), e.RunResumed(mode=Mode.NEXT, wanted="", auto=True))
    assert state.started is not None
    action = failing(replace(state, started=keep(state.started, max_fix_cycles=0)))
    assert (action.reason, action.at) == ("out-of-scope", "implement")
    assert starting(replace(state, started=keep(state.started, max_fix_cycles=1))).role == "fix"


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_as_many_fixers_start_as_the_settings_allow(allowed: int) -> None:
    def disproven(number: int) -> list[e.Event]:
        tree = f"t{number}"
        return [
            e.WorkTaken(head=f"h{number}", tree=tree, commits=1),
            e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree=tree, patch=tree),
            e.GateJudged(tree=tree, answer=GateAnswer.SKIPPED, code=None, line="", time=1),
            e.VerdictGiven(tree=tree, patch=tree, passed=False, items=(("W1", False, "y"),), agent="r", why="W1"),
        ]

    begun = keep(started(test_command=""), max_fix_cycles=allowed)
    state = fold([begun, CHOSEN, LEASED, *ran("implement"), *disproven(1)])
    for number in range(allowed):
        fixer = replace(starting(state), id=f"f{number}")
        state = fold_on(state, fixer, e.DispatchEnded(id=fixer.id, role=Role.FIX, ending=Ending.EXITED, code=0))
        state = fold_on(state, *disproven(number + 2))
    assert failing(state).reason == Reason.VERIFICATION_FAILED


def handed_over(*trees: str) -> RunState:
    """A phase of which agent after agent filled its context and left these trees."""
    events: list[e.Event] = []
    for number, tree in enumerate(trees, start=1):
        full = e.DispatchEnded(id="d", role=Role.IMPLEMENT, ending=Ending.CONTEXT, code=None, kind="context")
        events += [e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="r", cycle=1), full]
        events.append(e.HandedOver(number=number, tree=tree, note="", why="full"))
    begun: list[e.Event] = [started(test_command=""), CHOSEN, LEASED]
    return fold([*begun, *events])


@pytest.mark.parametrize("trees", [pytest.param(("t0", "t0"), id="S17"), ("t1", "t1"), ("t1", "t2", "t2")])
def test_two_hand_overs_with_the_same_tree_are_no_progress(trees: tuple[str, ...]) -> None:
    action = failing(handed_over(*trees))
    assert (action.reason, action.at) == (Reason.NO_PROGRESS, "implement")


@pytest.mark.parametrize("trees", [("t0",), ("t0", "t1"), ("t1", "t2", "t1")])
def test_a_fresh_agent_goes_on_while_the_tree_changes(trees: tuple[str, ...]) -> None:
    assert due(handed_over(*trees)) == ("implement", "")


@pytest.mark.parametrize("used", [pytest.param(1, id="S20"), 2, 3])
def test_used_handovers_still_count_after_a_resume(used: int) -> None:
    """However often it is resumed, no more than three agents follow the first."""
    state = handed_over(*(f"t{number}" for number in range(used)))
    full = e.DispatchEnded(id="d", role=Role.IMPLEMENT, ending=Ending.CONTEXT, code=None, kind="context")
    begun = e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="r", cycle=1)
    for event in (e.RunResumed(mode=Mode.NEXT, wanted="", auto=True), begun, full):
        state = apply(state, event)
    (action,) = decide(state).actions
    assert action.step == ("hand-over" if used < 3 else "fail")


@pytest.mark.parametrize("kind", [pytest.param("context", id="S9"), "max-turns"])
def test_an_agent_with_a_full_context_that_returns_done_has_no_successor(kind: str) -> None:
    ended = e.DispatchEnded(id="d", role=Role.IMPLEMENT, ending=Ending.CONTEXT, code=None, kind=kind, said="done")
    begun = e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="r", cycle=1)
    state = apply(apply(handed_over("t1", "t2", "t3"), begun), ended)
    assert decide(state).actions == (a.TAKE_WORK,), "also where no hand-over is left"


def test_setup_runs_before_the_baseline_once_for_agents_and_once_on_each_tree() -> None:
    assert due(proven_by()) == ("setup", "t0")
    assert due(proven_by(*IMPLEMENTED[:2])) == ("baseline", "t0")
    assert due(proven_by(*IMPLEMENTED[:5])) == ("setup", "")
    assert due(proven_by(*IMPLEMENTED[:7])) == ("implement", "")
    assert due(proven_by(*IMPLEMENTED)) == ("setup", "t1")
    assert due(proven_by(*IMPLEMENTED, *ran("setup", "t1"))) == ("gate", "t1")
    red = e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="x", time=1)
    failed = [*IMPLEMENTED, *ran("setup", "t1"), *ran("gate", "t1", 1), red]
    assert due(proven_by(*failed)) == ("gate", "t1")
    passed = replace(red, answer=GateAnswer.PASSED, time=2)
    assert due(proven_by(*failed, *ran("gate", "t1"), passed)) == ("verify", "t1")


REUSED = SetupReused(tree="t1")
RED = e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="x", time=1, rerun="one")
UNNAMED = replace(RED, rerun="")  #: no test can be repeated alone
GREEN = replace(RED, answer=GateAnswer.PASSED, time=2, rerun="")
RENEWED = [*ran("setup", "t1", again="red")]
KILLED = replace(UNNAMED, answer=GateAnswer.UNFINISHED, code=None)  #: by a signal


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ([REUSED], ("gate", "t1")),
        ([REUSED, RED], ("gate", "t1")),  # of the failed tests alone
        ([REUSED, RED, GREEN], ("verify", "t1")),
        ([REUSED, RED, replace(RED, time=2, rerun="")], ("setup", "t1")),
        ([REUSED, RED, replace(RED, time=2, rerun=""), *RENEWED], ("gate", "t1")),
        ([REUSED, RED, replace(RED, time=2, rerun=""), *RENEWED, replace(GREEN, time=3)], ("verify", "t1")),
        ([REUSED, RED, replace(RED, time=2, rerun=""), *RENEWED, replace(RED, time=3)], ("fix", "t1")),
        ([REUSED, UNNAMED], ("setup", "t1")),
        ([REUSED, UNNAMED, *RENEWED], ("gate", "t1")),
        ([REUSED, UNNAMED, *RENEWED, GREEN], ("verify", "t1")),
        ([REUSED, UNNAMED, *RENEWED, replace(UNNAMED, time=2)], ("fix", "t1")),
        ([REUSED, replace(UNNAMED, answer=GateAnswer.UNFINISHED)], ("setup", "t1")),
        ([REUSED, replace(UNNAMED, answer=GateAnswer.UNFINISHED), *RENEWED], ("gate", "t1")),
        ([REUSED, KILLED], ("setup", "t1")),
        ([REUSED, KILLED, *RENEWED], ("gate", "t1")),
        ([*ran("setup", "t1"), RED], ("gate", "t1")),
        ([*ran("setup", "t1"), replace(UNNAMED, answer=GateAnswer.UNFINISHED)], ("fix", "t1")),
    ],
)
def test_a_red_gate_counts_only_with_products_of_its_own_tree(then: list[e.Event], expected: tuple[str, str]) -> None:
    assert due(proven_by(*IMPLEMENTED, *then)) == expected


def test_the_first_start_of_a_step_counts_only_at_that_step() -> None:
    gate = e.DispatchStarted(id="g", role=Role.GATE, agent="", cycle=1, tree="t1", gates=("tests",), at="12:00")
    over = e.DispatchEnded(id="g", role=Role.GATE, ending=Ending.EXITED, code=0)
    rows = [
        project_run(proven_by(*IMPLEMENTED, *ran("setup", "t1"), *then), run="r", plan="p", started="", since="")
        for then in ([gate], [gate, over, replace(GREEN, time=1)])
    ]
    assert [(row.step, row.began) for row in rows] == [("gate", "12:00"), ("verify", None)]


@pytest.mark.parametrize(("passed", "step"), [(True, PhaseStep.LAND), (False, PhaseStep.VERIFY)])
def test_only_a_verdict_that_passes_leads_to_the_landing(*, passed: bool, step: PhaseStep) -> None:
    verdict = e.VerdictGiven(tree="t1", patch="p", passed=passed, items=(), agent="robot")
    assert proven_by(*IMPLEMENTED, *ran("setup", "t1"), replace(GREEN, time=1), verdict).work.step is step


def test_the_reason_of_a_gate_is_its_tree_or_the_run_before() -> None:
    begun = [*IMPLEMENTED, *ran("setup", "t1")]
    assert decide(proven_by(*begun)).why == "the tests run on the exact tree"
    assert decide(proven_by(*begun, RED)).why == "the tests run a second time, because the first run failed: x"


def test_only_the_run_after_a_fresh_set_up_says_so() -> None:
    twice = [*IMPLEMENTED, REUSED, RED, replace(RED, time=2, rerun="")]
    assert starting(proven_by(*twice[:-1])).why == ""
    assert starting(proven_by(*twice, *RENEWED)).why == "all tests, with a fresh set-up"


def test_a_gate_that_is_killed_with_new_products_too_fails() -> None:
    (failed,) = decide(proven_by(*IMPLEMENTED, REUSED, KILLED, *RENEWED, replace(KILLED, time=2))).actions
    assert isinstance(failed, a.Fail)
    assert failed.reason is Reason.TESTS_UNFINISHED


def test_a_red_gate_beside_failed_tests_counts_only_with_products_of_its_own_tree() -> None:
    known = e.BaselineKnown(key="l", tree="t0", results="", name="lint")
    red = [replace(UNNAMED, name="lint"), RED, replace(UNNAMED, name="lint", time=2), GREEN]
    begun = [keep(started(setup="make deps"), gates=gates("lint")), *IMPLEMENTED, known, REUSED]
    assert due(proven_by(*begun, *red[:2])) == ("gate", "t1")
    assert due(proven_by(*begun, *red)) == ("setup", "t1")
    assert due(proven_by(*begun, *red, *RENEWED)) == ("gate", "t1")


def test_a_red_baseline_counts_only_with_products_of_its_own_tree() -> None:
    doubted = [SetupReused(tree="t0"), *ran("baseline", "t0", 1), SetupDoubted(why="red")]
    assert due(proven_by(*doubted)) == ("setup", "t0")
    assert starting(proven_by(*doubted)).again
    assert due(proven_by(*doubted, *ran("setup", "t0"))) == ("baseline", "t0")


def test_the_first_set_up_runs_in_both_worktrees_at_once() -> None:
    state = fold([started(setup="make setup"), e.PhaseChosen(tip="c0", phase="1"), LEASED])
    (action,) = decide(state).actions
    assert isinstance(action, a.Start)
    assert (action.dispatch.role, action.dispatch.tree, action.dispatch.agents) == (Role.SETUP, "t0", True)
    begun = apply(state, replace(action.dispatch, id="d"))
    state = apply(begun, e.DispatchEnded(id="d", role=Role.SETUP, ending=Ending.EXITED, code=0))
    state = apply(state, e.BaselineKnown(key="k", tree="t0", results=""))
    assert [step.dispatch.role for step in decide(state).actions if isinstance(step, a.Start)] == [Role.IMPLEMENT]


KINDS = (ProofKind.OLD_TESTS, ProofKind.NEW_TESTS, ProofKind.EMPTIED)


def test_old_and_new_tests_use_the_set_up_of_the_code_that_they_run_on() -> None:
    runs = tuple(e.ProofRun(kind=kind, commit=f"c-{kind}", tree=f"t-{kind}") for kind in KINDS)
    built = replace(IMPLEMENTED[-1], proofs=runs)
    old, new, emptied = (e.ProofJudged(tree="t1", kind=kind, line="x") for kind in KINDS)
    events = [*IMPLEMENTED[:-1], built]
    assert due(proven_by(*events)) == ("prove", "t-new-tests")  # the base is still set up
    events += [*ran("prove", "t-new-tests"), new]
    assert due(proven_by(*events)) == ("setup", "t1")
    events += [*ran("setup", "t1"), *ran("gate", "t1"), PASSED]
    assert due(proven_by(*events)) == ("prove", "t-old-tests")
    events += [*ran("prove", "t-old-tests"), old]
    assert due(proven_by(*events)) == ("prove", "t-emptied")  # the products are those of the candidate
    assert due(proven_by(*events, *ran("prove", "t-emptied"), emptied)) == ("verify", "t1")


def test_a_verdict_on_the_same_patch_does_not_answer_a_question_that_came_later() -> None:
    run = e.ProofRun(kind=ProofKind.OLD_TESTS, commit="c8", tree="t8")
    verdict = e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "x"),), agent="robot")
    kept = e.ProofJudged(tree="t2", kind=run.kind, line="x", time=2)
    moved = [
        *IMPLEMENTED,
        *ran("setup", "t1"),
        PASSED,
        verdict,
        e.LandingMoved(tip="c9"),
        e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c2",), tree="t2", patch="p", proofs=(run,)),
        e.BaselineKnown(key="k", tree="t9", results=""),
        *ran("setup", "t2"),
        replace(PASSED, tree="t2"),
    ]
    assert decide(proven_by(*moved, kept)).actions == (a.LAND,)
    broken = replace(kept, promises=(e.Promise(test="a.py::test_a", why="it fails"),))
    assert due(proven_by(*moved, broken)) == ("verify", "t2")


@pytest.mark.parametrize("role", ["gate", "verify"])
def test_setup_runs_again_where_its_products_have_changed(role: str) -> None:
    passed = [PASSED] if role == "verify" else []
    put_off: list[e.Event] = [
        e.DispatchStarted(id="g", role=Role(role), agent="", cycle=1, tree="t1"),
        e.DispatchEnded(id="g", role=Role(role), ending=Ending.ENDED, code=None),
    ]
    before = [*IMPLEMENTED, *ran("setup", "t1"), *passed]
    assert due(proven_by(*before)) == (role, "t1")
    assert due(proven_by(*before, *put_off)) == ("setup", "t1")
    assert due(proven_by(*before, *put_off, *ran("setup", "t1"))) == (role, "t1")


def test_a_lost_gate_runs_again_on_a_newly_prepared_tree() -> None:
    lost: list[e.Event] = [
        e.DispatchStarted(id="g", role=Role.GATE, agent="", cycle=1, tree="t1"),
        e.DispatchEnded(id="g", role=Role.GATE, ending=Ending.LOST, code=None),
    ]
    assert due(proven_by(*IMPLEMENTED, *ran("setup", "t1"), *lost)) == ("setup", "t1")


def test_a_moved_target_gets_a_baseline_of_its_own() -> None:
    """Only tests that fail on the current target excuse a red gate, not those that failed on the old base."""
    moved = e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c10",), tree="t10", patch="p")
    assert due(proven_by(*IMPLEMENTED[:-1], moved)) == ("setup", "t9")
    assert due(proven_by(*IMPLEMENTED[:-1], moved, *ran("setup", "t9"))) == ("baseline", "t9")


def test_a_fixer_of_work_on_a_moved_target_begins_with_the_tree_that_failed() -> None:
    moved = e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c10",), tree="t10", patch="p")
    base = e.BaselineKnown(key="k", tree="t9", results="")
    red = e.GateJudged(tree="t10", answer=GateAnswer.FAILED, code=1, line="x", time=2)
    (action,) = decide(proven_by(*IMPLEMENTED[:-1], moved, base, red)).actions
    assert isinstance(action, a.RebuildBranch)
    assert (action.onto, action.start, action.tree) == ("c9", "c10", "t10")


def gates(*names: str) -> GatesSettings:
    """Gates that run at the same time, after the tests."""
    return GatesSettings(tables={name: GateTable(command=name, parallel=True) for name in names})


def gated(*more: e.Event, verifiers: tuple[str, ...] = ("codex",)) -> RunState:
    """A candidate that has to pass three gates, two of them side by side."""
    begun = keep(started(), gates=gates("lint", "types"), verifiers=verifiers)
    known = [e.BaselineKnown(key="k", tree="t0", results="", name=name) for name in ("tests", "lint", "types")]
    return fold([begun, CHOSEN, LEASED, *known, *IMPLEMENTED[-2:], *more])


def judged(name: str, answer: str = "passed", time: int = 1) -> e.GateJudged:
    return e.GateJudged(tree="t1", answer=GateAnswer(answer), code=0, line=f"{name} line", time=time, name=name)


def verdict(agent: str, *, passed: bool = True, scope: str = "") -> e.VerdictGiven:
    return e.VerdictGiven(tree="t1", patch="p", passed=passed, items=(), agent=agent, scope=scope, why="not proven: W1")


@pytest.mark.parametrize(
    ("events", "role", "names"),
    [
        ([], "gate", ("tests",)),
        ([judged("tests")], "gate", ("lint", "types")),
        ([judged("tests"), judged("lint")], "gate", ("types",)),
        ([judged("tests"), judged("lint", "failed"), judged("types", "failed")], "gate", ("lint", "types")),
        ([judged("tests"), judged("lint", "failed"), judged("types")], "gate", ("lint",)),
        ([judged("tests"), judged("lint", "failed", 2), judged("types")], "fix", ()),
        ([judged("tests"), judged("lint"), judged("types")], "verify", ()),
    ],
)
def test_every_gate_has_to_pass_a_red_one_runs_twice(events: list[e.Event], role: str, names: tuple[str, ...]) -> None:
    action = starting(gated(*events))
    assert (action.role, action.gates) == (role, names)


def test_the_second_run_of_a_gate_names_the_failure_of_the_first() -> None:
    state = gated(judged("tests", "failed"))
    assert starting(state).again == "the first run failed: tests line"
    assert decide(state).why == "the tests run a second time, because the first run failed: tests line"
    second = e.DispatchStarted(role=Role.GATE, cycle=1, again="x")
    assert apply(state, second).current.warnings == (), "the report names both runs"


def test_a_failed_gate_is_named_in_the_complaint() -> None:
    action = starting(gated(judged("tests"), judged("lint", "failed", 2), judged("types")))
    assert action.complaint == "lint: the checks failed: lint line"


def test_all_verifiers_pass_one_after_the_other_before_it_lands() -> None:
    green = [judged(name) for name in ("tests", "lint", "types")]

    def after(*given: e.Event) -> RunState:
        return gated(*green, *given, verifiers=("codex", "gemini"))

    assert [starting(after(*given)).agent for given in ((), (verdict("codex"),))] == ["codex", "gemini"]
    assert decide(after(verdict("codex"), verdict("gemini"))).actions == (a.LAND,)
    assert starting(after(verdict("codex"), verdict("gemini", passed=False))).role == "fix"


@pytest.mark.parametrize("more", [(), (verdict("codex"), e.FinalVerificationDue(tree="t1"))], ids=["phase", "final"])
def test_a_doubted_verdict_has_the_same_verifier_asked_again_in_the_same_cycle(more: tuple[e.Event, ...]) -> None:
    green = [judged(name) for name in ("tests", "lint", "types")]
    before = gated(*green, *more, verifiers=("codex",))
    doubted = e.VerdictDoubted(patch="p", why="it gave no verdict")
    asked = apply(before, doubted)
    assert starting(asked) == starting(before)
    assert "asked once more, because it gave no verdict" in decide(asked).why
    assert asked.work.proof.doubted == doubted
    answered = apply(asked, verdict("codex", passed=False))
    assert answered.work.proof.doubted is None, "the next verifier may be asked once more, too"
    other = e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree="t1", patch="other")
    assert apply(asked, other).work.proof.doubted is None


def test_the_last_phase_is_verified_together_with_all_others_before_it_lands() -> None:
    last = [*(judged(name) for name in ("tests", "lint", "types")), verdict("codex"), e.FinalVerificationDue(tree="t1")]
    action = starting(gated(*last))
    assert (action.role, action.scope, action.tree) == ("verify", "final", "t1")
    assert decide(gated(*last, verdict("codex", scope="final"))).actions == (a.LAND,)
    failed = starting(gated(*last, verdict("codex", scope="final", passed=False)))
    assert failed.role == "fix"


@pytest.mark.parametrize(
    ("in_plan", "patterns", "waits"), [(("look",), (), True), ((), ("w*",), True), ((), ("x",), False)]
)
def test_a_phase_with_an_interface_waits_for_its_sign_off_also_with_auto(
    in_plan: tuple[str, ...], patterns: tuple[str, ...], waits: bool
) -> None:
    state = landing()
    assert state.work.work is not None
    assert state.started is not None
    phase = replace(
        state.work,
        chosen=replace(state.work.chosen, sign_off=in_plan),
        work=replace(state.work.work, files=("web.html",)),
    )
    state = replace(state, attempt=phase, started=keep(state.started, sign_off=patterns))
    if not waits:
        assert decide(state).actions == (a.LAND,)
        return
    assert decide(state).actions == (a.ASK,)
    asked = apply(state, e.ApprovalAsked(tree="t1"))
    assert decide(asked).actions == (a.READ_PLAN,), "independent phases go on"
    asked = apply(asked, e.LanesChosen(tip="c0", lanes=()))
    assert decide(asked).waiting == "sign-off"
    assert decide(apply(asked, e.Answered(tree="t0", approved=True))).waiting == "sign-off"
    assert decide(apply(asked, e.Answered(tree="t1", approved=True))).actions == (a.LAND,)


TRIAL = TrialJudged(tree="t1", patch="p", agent="robot", dispatch="d")


def tried(*more: e.Event, files: tuple[str, ...] = ("web/a.html",), fixes: int = 2) -> RunState:
    """A verified candidate of a run that has try.paths."""
    state = landing()
    assert state.work.work is not None
    assert state.started is not None
    phase = replace(state.work, work=replace(state.work.work, files=files))
    paths = ("web/**",)
    trial = TrySettings(serve="serve", paths=paths)
    begun = keep(state.started, trial=trial, max_fix_cycles=fixes, sign_off=paths)
    return fold_on(replace(state, attempt=phase, started=begun), *more)


def test_a_change_of_try_paths_is_tried_before_a_person_signs_it_off() -> None:
    action = starting(tried())
    assert (action.role, action.tree, action.agent) == ("try", "t1", "")
    assert decide(tried(TRIAL)).actions == (a.ASK,)
    assert decide(tried(files=("src/a.py",))).actions == (a.LAND,)
    moved = e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c3",), tree="t2", patch="other")
    assert tried(TRIAL, moved).work.proof.trial is None


def test_a_finding_of_a_trial_starts_a_fixer_that_gets_it_as_an_item() -> None:
    found = replace(TRIAL, findings=("no name", "no colour"))
    state = tried(found)
    assert (starting(state).role, starting(state).complaint) == ("fix", "the trial found: no name; and 1 other finding")
    assert state.work.proof.failed_items == (("Trial 1", "no name"), ("Trial 2", "no colour"))
    failed = failing(tried(found, fixes=0))
    assert (failed.reason, failed.at) == (Reason.VERIFICATION_FAILED, PhaseStep.TRY)


def test_a_trial_without_an_answer_is_asked_for_once_more_and_one_without_a_server_is_judged() -> None:
    doubted = e.VerdictDoubted(patch="p", why="it gave no answer", who="agent of the trial")
    state = tried(*ran("try"), doubted)
    assert starting(state).role == "try"
    assert "asked once more, because it gave no answer" in decide(state).why
    assert state.current.warnings == ("the agent of the trial was asked once more, because it gave no answer",)
    ended = e.DispatchEnded(id="d", role=Role.TRY, ending=Ending.EXITED, code=97, kind="unserved")
    assert decide(tried(ran("try")[0], ended)).actions == (a.JUDGE_TRIAL,)


#: An agent's endings by kind: what the process did, its exit code.
ENDINGS = {
    "crashed": ("exited", 1),
    "killed": ("signalled", None),
    "silent": ("silent", None),
    "timed-out": ("timeout", None),
    "auth": ("exited", 1),
    "setup": ("exited", 1),
    "refusal": ("exited", 1),
    "denied": ("exited", 0),
    "budget": ("budget", None),
    "no-output": ("exited", 0),
}
GREEN = e.GateJudged(tree="t1", answer=GateAnswer.PASSED, code=0, line="", time=1)
FAILED_GATES: list[e.Event] = [e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="red", time=2)]


def sent(role: str, kind: str, *, cycle: int = 1, said: str = "", again: str = "") -> list[e.Event]:
    """An agent in this role that ended this way."""
    ending, code = ENDINGS[kind]
    tree = "" if role == "implement" else "t1"
    return [
        e.DispatchStarted(id="d", role=Role(role), agent="r", cycle=cycle, tree=tree, complaint="red", again=again),
        e.DispatchEnded(
            id="d", role=Role(role), agent="r", ending=Ending(ending), code=code, kind=kind, said=said, detail="oops"
        ),
    ]


#: The events before a dispatch of each role, and its cycle.
BEFORE: dict[str, tuple[list[e.Event], int]] = {
    "implement": (IMPLEMENTED[:-4], 1),
    "verify": ([*IMPLEMENTED, GREEN], 1),
    "fix": ([*IMPLEMENTED, *FAILED_GATES], 2),
}


@pytest.mark.parametrize("kind", ["crashed", "killed", "silent"])
@pytest.mark.parametrize("role", list(BEFORE))
def test_an_agent_that_crashed_was_killed_or_fell_silent_is_tried_once_more(role: str, kind: str) -> None:
    before, cycle = BEFORE[role]
    again = starting(once := proven_by(*before, *sent(role, kind, cycle=cycle)))
    tree = "" if role == "implement" else "t1"
    assert (again.role, again.cycle, again.tree) == (role, cycle, tree), "no fix cycle is used up"
    assert "oops" in again.again

    failed = failing(fold_on(once, *sent(role, kind, cycle=cycle, again=again.again)))
    assert failed.reason == (Reason.SILENT if kind == "silent" else Reason.AGENT_FAILED)
    assert "tried once more" in failed.detail


@pytest.mark.parametrize("kind", [kind for kind in ENDINGS if kind not in ("crashed", "killed", "silent")])
def test_no_other_ending_is_tried_once_more(kind: str) -> None:
    failing(proven_by(*BEFORE["implement"][0], *sent("implement", kind)))


def test_an_agent_that_says_why_it_failed_is_not_tried_once_more() -> None:
    failing(proven_by(*BEFORE["implement"][0], *sent("implement", "crashed", said="failed")))


@pytest.mark.parametrize("kind", ["crashed", "killed", "silent"])
def test_an_agent_that_is_blocked_asks_a_person_however_it_ends(kind: str) -> None:
    blocked = proven_by(*BEFORE["implement"][0], *sent("implement", kind, said="blocked"))
    assert decide(blocked).actions == (a.ASK_QUESTION,)


#: A conflict that a fixer was sent to solve.
CONFLICTED: list[e.Event] = [
    *IMPLEMENTED[:-1],
    e.CandidateConflicted(onto="c9", paths=("a.txt", "b.txt")),
    e.BranchRebuilt(base="c9", base_tree="t9", parked="refs/kept", complaint=""),
]


def test_a_conflict_is_solved_in_a_fix_cycle() -> None:
    fixer = starting(proven_by(*CONFLICTED))
    assert (fixer.role, fixer.cycle) == (Role.FIX, 2)


@pytest.mark.parametrize("code", [0, 1])
def test_a_fixer_that_returns_failed_leaves_the_conflict_with_any_exit_code(code: int) -> None:
    begun, ended = sent("fix", "crashed", cycle=2, said="failed")
    action = failing(proven_by(*CONFLICTED, begun, replace(ended, code=code, kind="crashed" if code else "")))
    assert action.reason == Reason.CONFLICT
    assert "a.txt, b.txt: r (fix) reported a failure: oops" in action.detail


def test_a_fixer_that_crashes_twice_over_a_conflict_leaves_the_conflict() -> None:
    once = proven_by(*CONFLICTED, *sent("fix", "crashed", cycle=2))
    again = starting(once)
    action = failing(fold_on(once, *sent("fix", "crashed", cycle=2, again=again.again)))
    assert action.reason == Reason.CONFLICT
    assert "a.txt, b.txt: r (fix) exited with code 1: oops; it was tried once more" in action.detail


def test_a_role_is_retried_once_per_fix_cycle() -> None:
    first = [*sent("implement", "crashed"), *sent("implement", "crashed", again="x")[:1], *ran("implement")[1:]]
    worked = proven_by(*BEFORE["implement"][0], *first, *IMPLEMENTED[-2:], *FAILED_GATES)
    action = starting(fold_on(worked, *sent("fix", "killed", cycle=2)))
    assert action.again


def test_limits_and_overloaded_providers_in_a_row_are_counted() -> None:
    begun, ended = sent("implement", "crashed")
    kinds = ("limit", "overloaded", "limit", "overloaded", "overloaded")
    state = fold_on(
        proven_by(*BEFORE["implement"][0]), *(e for kind in kinds for e in (begun, replace(ended, kind=kind)))
    )
    assert state.attempt is not None
    assert (state.attempt.dispatches.limited, state.attempt.dispatches.busy) == (2, 3)


def fold_on(state: RunState, *more: e.Event) -> RunState:
    for event in more:
        state = apply(state, event)
    return state


def test_a_plan_that_only_has_to_be_marked_is_read_again_when_the_target_moves() -> None:
    done = fold([started(), e.CompletionChosen(tip="c0"), e.LandingMoved(tip="c1")])
    assert decide(done).actions == (a.READ_PLAN,)


def test_set_up_of_the_agents_worktree_runs_once_or_is_reused() -> None:
    begun = [started(test_command="", setup="make setup"), e.PhaseChosen(tip="c0", phase="1"), LEASED]
    assert starting(fold(begun)).role == Role.SETUP
    assert starting(fold([*begun, SetupReused()])).role == Role.IMPLEMENT
    set_up = e.DispatchStarted(id="d1", role=Role.SETUP, cycle=1)
    ended = e.DispatchEnded(id="d1", role=Role.SETUP, ending=Ending.EXITED, code=0)
    assert starting(fold([*begun, set_up, ended])).role == Role.IMPLEMENT


def test_set_up_whose_products_cannot_be_used_is_repeated_three_times_at_most() -> None:
    state = fold([started(setup="make setup"), e.PhaseChosen(tip="c0", phase="1"), LEASED])
    reasons = ["first use of the worktree", *3 * ["the worktree had to be made anew"]]
    for number, why in enumerate(reasons):
        set_up = replace(starting(state), id=f"s{number}", why=why)
        assert set_up.role == Role.SETUP
        ended = e.DispatchEnded(id=set_up.id, role=Role.SETUP, ending=Ending.EXITED, code=0)
        check = e.DispatchStarted(id=f"b{number}", role=Role.BASELINE, gates=("tests",), cycle=1, tree="t0")
        unused = e.DispatchEnded(id=check.id, role=Role.BASELINE, ending=Ending.ENDED, code=None, detail=why)
        state = fold_on(state, set_up, ended, check, unused)
    failed = failing(state)
    assert failed.reason is Reason.SETUP_FAILED
    assert "3 times on the same tree, and its products could not be used: the worktree had to be made" in failed.detail


def test_set_ups_of_the_base_and_of_the_code_in_turn_are_no_repetition() -> None:
    setup = Setup()
    for number, tree in enumerate(["t0", "t1"] * 4):
        set_up = e.DispatchStarted(id=f"s{number}", role=Role.SETUP, cycle=1, tree=tree, why="package.json changed")
        ended = e.DispatchEnded(id=set_up.id, role=Role.SETUP, ending=Ending.EXITED, code=0)
        setup = setup.record(ended, set_up)
    assert setup.ran == (("t1", "package.json changed"),)


def test_a_run_that_finds_every_phase_done_has_nothing_to_do_and_one_that_landed_is_done() -> None:
    nothing = e.NoWork(tip="c0", kind=NoWorkKind.COMPLETE, detail="every phase is done")
    landed = e.Landed(id="l", phase="1", tip="c1", code="c1")
    for events, outcome in (([], RunOutcome.NOTHING_TO_DO), ([landed], RunOutcome.DONE)):
        (action,) = decide(fold([started(Mode.FINISH), *events, nothing])).actions
        assert isinstance(action, a.Finish)
        assert action.outcome is outcome


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        (NoWorkKind.COMPLETE, a.CONCLUDE),
        (NoWorkKind.BLOCKED, a.Finish(outcome=RunOutcome.REFUSED, reason=Reason.BLOCKED, detail="x")),
    ],
)
def test_a_pull_request_is_merged_only_when_every_phase_is_done(kind: NoWorkKind, action: a.Action) -> None:
    nothing = e.NoWork(tip="c0", kind=kind, detail="x")
    assert decide(fold([replace(started(), concludes=True), nothing])).actions == (action,)


def test_a_request_has_the_reply_that_its_person_gave() -> None:
    replies = {
        "answer": e.Answered(tree="t1", approved=True),
        "answered": e.QuestionAnswered(id="q", text="this"),
        "edited": ProposalMade(path="p", text="# X", sha256="aa", title="X"),
    }
    requests = [RunRequest(started=started(), **{name: reply}) for name, reply in replies.items()]  # type: ignore[arg-type]
    assert [request.reply for request in requests] == [*replies.values()]
    assert RunRequest(started=started()).reply is None


@pytest.mark.parametrize(("role", "agent", "who"), [(Role.IMPLEMENT, "robot", "robot"), (Role.GATE, "", "gate")])
def test_a_stop_names_the_agent_or_the_check_that_it_ends(role: Role, agent: str, who: str) -> None:
    running = e.DispatchStarted(id="d", role=role, agent=agent, cycle=1)
    state = fold([started(), e.PhaseChosen(tip="c0", phase="1"), running, e.StopRequested(by="a person")])
    assert decide(state).why == f"stopped by a person; {who} is being ended"
