"""The machine always knows what is next, never asks for the same thing for ever, and lands a phase once."""

import pytest
from msgspec.structs import replace

from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import LandingRefused, Setup, SetupDoubted, SetupReused, TrialJudged
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Mode, PhaseStep, ProofKind, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.recorded import from_json
from runplan.domain.run.rules.shared import MAX_MOVES
from runplan.domain.run.state import RunState, apply, fold
from runplan.domain.settings.schema import GatesSettings, GateTable, TrySettings
from runplan.engine.loop.runs import is_current
from tests.support.builders import (
    BUILT,
    CHOSEN,
    LEASED,
    PASSED,
    PROVEN,
    SKIPPED,
    TAKEN,
    decided,
    ended,
    failing,
    fold_on,
    keep,
    started,
    starting,
)


def test_an_event_type_of_a_newer_version_and_its_new_fields_are_ignored() -> None:
    assert from_json("FromTheFuture", "{}") is None
    assert from_json("RunEnded", '{"outcome": "done", "shape": "round"}') == e.RunEnded(outcome=RunOutcome.DONE)


WRITTEN = (
    *(started(test_command=""), CHOSEN, LEASED),
    *(e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="r", cycle=1), ended("d1", "implement"), TAKEN),
)


def landing(*more: e.Event) -> RunState:
    """A phase that is proven and about to land, and what happened then."""
    return fold([*WRITTEN, BUILT, SKIPPED, PROVEN, *more])


BEGUN = e.LandingStarted(id="l", ref="r", old="c0", new="c2", code="c1")
HELD = e.LandingHeld(why="a.txt is edited")
LATER = "2026-01-01T00:00:00Z"
ASKED = e.ApprovalAsked(tree="t1")
REJECTED = e.Answered(tree="t1", approved=False)
PAUSED = e.Paused(kind=WaitKind.CHECKOUT, until=LATER)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([BEGUN], "land", id="a begun landing is recovered before anything else"),
        pytest.param([BEGUN, e.StopRequested(by="me")], "land", id="also before a stop"),
        pytest.param([HELD], "waits for checkout", id="a held landing waits"),
        pytest.param([HELD, e.RunResumed(mode=Mode.FINISH, wanted="", auto=True)], "land", id="until it is resumed"),
        pytest.param([HELD, PAUSED], "sleep", id="or for a time"),
        pytest.param([HELD, PAUSED, e.Woke(kind=WaitKind.CHECKOUT)], "land", id="after which it lands again"),
        pytest.param([BEGUN, LandingRefused(why="no")], "fail protected at land: no", id="the target refuses it"),
        pytest.param([ASKED, REJECTED], "fail stopped at land: the change was rejected", id="a person rejects it"),
        pytest.param([ASKED, replace(REJECTED, tree="t0", why="no")], "land", id="a person rejects another one"),
    ],
)
def test_a_proven_phase_lands_unless_something_holds_it(events: list[e.Event], expected: str) -> None:
    assert decided(landing(*events)) == expected


def test_a_held_landing_says_why_and_until_when() -> None:
    waiting = decide(landing(HELD, replace(PAUSED, words=HELD.why)))
    assert (waiting.waiting, waiting.wake) == ("checkout", LATER)
    assert "a.txt is edited" in decide(landing(HELD)).why


def test_work_that_the_target_has_already_fails_at_its_landing() -> None:
    refused = e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="x")
    assert failing(fold([*WRITTEN, refused])).at is PhaseStep.LAND


@pytest.mark.parametrize(("patch", "carries"), [("p", True), ("other", False)])
def test_a_verdict_carries_over_to_a_moved_target_with_the_same_patch_only(patch: str, carries: bool) -> None:
    built = e.CandidateBuilt(onto="c9", onto_tree="t9b", commits=("c10",), tree="t9", patch=patch)
    moved = landing(e.LandingMoved(tip="c9"), built)
    assert (moved.work.proof.verdict is not None) is carries
    assert decide(moved).actions == (a.JUDGE_GATE,)


UNDO = (started(Mode.UNDO, wanted="1"), e.UndoChosen(tip="c0", phase="1"), BUILT)


@pytest.mark.parametrize("begun", [(*WRITTEN, BUILT, SKIPPED, PROVEN), UNDO], ids=["phase", "undo"])
def test_a_target_that_keeps_moving_ends_the_work(begun: tuple[e.Event, ...]) -> None:
    moves = [e.LandingMoved(tip="c1"), replace(BUILT, onto="c1")] * MAX_MOVES
    assert decided(fold([*begun, *moves])) == "land"
    assert failing(fold([*begun, *moves, moves[0]])).reason is Reason.TARGET_MOVING


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
    begun = e.DispatchStarted(id=name, role=Role(role), agent="", cycle=1, tree=tree, again=again)
    return [begun, ended(name, role, code=code)]


IMPLEMENTED: list[e.Event] = [
    *(*ran("setup", "t0"), *ran("baseline", "t0"), e.BaselineKnown(key="k", tree="t0", results="")),
    *(*ran("setup"), *ran("implement"), TAKEN, BUILT),
]

BROKEN = e.RulesBroken(tree="t1", reason=Reason.OUT_OF_SCOPE, lines=("a: outside", "b: outside"), remedy="; permit it")


def test_a_fixer_takes_back_what_breaks_a_rule_and_the_second_finding_ends_the_phase() -> None:
    state = proven_by(*IMPLEMENTED[:-2], BROKEN)
    fixer = starting(state)
    assert (fixer.role, fixer.cycle, fixer.tree) == ("fix", 2, "t1")
    assert fixer.complaint == "the phase does not permit these changes; take them back: a: outside; b: outside"
    fixed = [replace(fixer, id="f"), ended("f", "fix")]
    assert decided(fold_on(state, *fixed, IMPLEMENTED[-2])) == "build-candidate"
    assert decided(fold_on(state, *fixed, BROKEN)) == "fail out-of-scope at fix: a: outside; b: outside; permit it"


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
        state = fold_on(state, fixer, ended(fixer.id, "fix"))
        state = fold_on(state, *disproven(number + 2))
    assert failing(state).reason == Reason.VERIFICATION_FAILED


FULL = ended("d", "implement", Ending.CONTEXT, None, kind="context")
IMPLEMENTER = e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="r", cycle=1)


def handed_over(*trees: str) -> RunState:
    """A phase of which agent after agent filled its context and left these trees."""
    events: list[e.Event] = []
    for number, tree in enumerate(trees, start=1):
        events += [IMPLEMENTER, FULL, e.HandedOver(number=number, tree=tree, note="", why="full")]
    return fold([started(test_command=""), CHOSEN, LEASED, *events])


@pytest.mark.parametrize(
    ("trees", "expected"),
    [
        pytest.param("t0 t0", "fail no-progress", id="S17"),
        ("t1 t2 t2", "fail no-progress"),
        ("t0 t1", "implement"),
        ("t1 t2 t1", "implement"),
    ],
)
def test_a_fresh_agent_goes_on_while_the_tree_changes(trees: str, expected: str) -> None:
    assert decided(handed_over(*trees.split())).partition(" at ")[0] == expected


@pytest.mark.parametrize(("used", "step"), [pytest.param(1, "hand-over", id="S20"), (2, "hand-over"), (3, "fail")])
def test_used_handovers_still_count_after_a_resume(used: int, step: str) -> None:
    """However often it is resumed, no more than three agents follow the first."""
    state = handed_over(*(f"t{number}" for number in range(used)))
    resumed = e.RunResumed(mode=Mode.NEXT, wanted="", auto=True)
    assert decided(fold_on(state, resumed, IMPLEMENTER, FULL)).split()[0] == step


@pytest.mark.parametrize("kind", [pytest.param("context", id="S9"), "max-turns"])
def test_an_agent_with_a_full_context_that_returns_done_has_no_successor(kind: str) -> None:
    state = fold_on(handed_over("t1", "t2", "t3"), IMPLEMENTER, replace(FULL, kind=kind, said="done"))
    assert decided(state) == "take-work", "also where no hand-over is left"


def test_setup_runs_before_the_baseline_once_for_agents_and_once_on_each_tree() -> None:
    assert decided(proven_by()) == "setup t0"
    assert decided(proven_by(*IMPLEMENTED[:2])) == "baseline t0"
    assert decided(proven_by(*IMPLEMENTED[:5])) == "setup"
    assert decided(proven_by(*IMPLEMENTED[:7])) == "implement"
    assert decided(proven_by(*IMPLEMENTED)) == "setup t1"
    assert decided(proven_by(*IMPLEMENTED, *ran("setup", "t1"))) == "gate t1"
    red = e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="x", time=1)
    failed = [*IMPLEMENTED, *ran("setup", "t1"), *ran("gate", "t1", 1), red]
    assert decided(proven_by(*failed)) == "gate t1"
    passed = replace(red, answer=GateAnswer.PASSED, time=2)
    assert decided(proven_by(*failed, *ran("gate", "t1"), passed)) == "verify t1"


REUSED = SetupReused(tree="t1")
RED = e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="x", time=1, rerun="one")
UNNAMED = replace(RED, rerun="")  #: no test can be repeated alone
GREEN = replace(RED, answer=GateAnswer.PASSED, time=2, rerun="")
RENEWED = [*ran("setup", "t1", again="red")]
KILLED = replace(UNNAMED, answer=GateAnswer.UNFINISHED, code=None)  #: by a signal


AGAIN = [RED, replace(RED, time=2, rerun="")]
UNENDED = replace(UNNAMED, answer=GateAnswer.UNFINISHED)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ([REUSED], "gate t1"),
        ([REUSED, RED], "gate t1"),  # of the failed tests alone
        ([REUSED, RED, GREEN], "verify t1"),
        ([REUSED, *AGAIN], "setup t1"),
        ([REUSED, *AGAIN, *RENEWED], "gate t1"),
        ([REUSED, *AGAIN, *RENEWED, replace(GREEN, time=3)], "verify t1"),
        ([REUSED, *AGAIN, *RENEWED, replace(RED, time=3)], "fix t1"),
        ([REUSED, UNNAMED], "setup t1"),
        ([REUSED, UNNAMED, *RENEWED, replace(UNNAMED, time=2)], "fix t1"),
        ([REUSED, UNENDED], "setup t1"),
        ([REUSED, UNENDED, *RENEWED], "gate t1"),
        ([REUSED, KILLED], "setup t1"),
        ([REUSED, KILLED, *RENEWED, replace(KILLED, time=2)], "fail tests-unfinished at gate: x"),
        ([*ran("setup", "t1"), RED], "gate t1"),
        ([*ran("setup", "t1"), UNENDED], "fix t1"),
    ],
)
def test_a_red_gate_counts_only_with_products_of_its_own_tree(then: list[e.Event], expected: str) -> None:
    assert decided(proven_by(*IMPLEMENTED, *then)) == expected


def test_the_first_start_of_a_step_counts_only_at_that_step() -> None:
    gate = e.DispatchStarted(id="g", role=Role.GATE, agent="", cycle=1, tree="t1", gates=("tests",), at="12:00")
    over = ended("g", "gate")
    rows = [
        project_run(proven_by(*IMPLEMENTED, *ran("setup", "t1"), *then), run="r", plan="p", started="", since="")
        for then in ([gate], [gate, over, replace(GREEN, time=1)])
    ]
    assert [(row.step, row.began) for row in rows] == [("gate", "12:00"), ("verify", None)]


@pytest.mark.parametrize(("passed", "step"), [(True, PhaseStep.LAND), (False, PhaseStep.VERIFY)])
def test_only_a_verdict_that_passes_leads_to_the_landing(*, passed: bool, step: PhaseStep) -> None:
    given = e.VerdictGiven(tree="t1", patch="p", passed=passed, items=(), agent="robot")
    assert proven_by(*IMPLEMENTED, *ran("setup", "t1"), replace(GREEN, time=1), given).work.step is step


def test_only_the_run_after_a_fresh_set_up_says_so() -> None:
    twice = [*IMPLEMENTED, REUSED, *AGAIN]
    assert starting(proven_by(*twice[:-1])).why == ""
    assert starting(proven_by(*twice, *RENEWED)).why == "all tests, with a fresh set-up"


def test_a_red_gate_beside_failed_tests_counts_only_with_products_of_its_own_tree() -> None:
    known = e.BaselineKnown(key="l", tree="t0", results="", name="lint")
    red = [replace(UNNAMED, name="lint"), RED, replace(UNNAMED, name="lint", time=2), GREEN]
    begun = [keep(started(setup="make deps"), gates=gates("lint")), *IMPLEMENTED, known, REUSED]
    assert decided(proven_by(*begun, *red[:2])) == "gate t1"
    assert decided(proven_by(*begun, *red)) == "setup t1"
    assert decided(proven_by(*begun, *red, *RENEWED)) == "gate t1"


def test_a_red_baseline_counts_only_with_products_of_its_own_tree() -> None:
    doubted = [SetupReused(tree="t0"), *ran("baseline", "t0", 1), SetupDoubted(why="red")]
    assert decided(proven_by(*doubted)) == "setup t0"
    assert starting(proven_by(*doubted)).again
    assert decided(proven_by(*doubted, *ran("setup", "t0"))) == "baseline t0"


def test_the_first_set_up_runs_in_both_worktrees_at_once() -> None:
    state = fold([started(setup="make setup"), e.PhaseChosen(tip="c0", phase="1"), LEASED])
    first = starting(state)
    assert (first.role, first.tree, first.agents) == (Role.SETUP, "t0", True)
    known = e.BaselineKnown(key="k", tree="t0", results="")
    assert decided(fold_on(state, replace(first, id="d"), ended("d", "setup"), known)) == "implement"


KINDS = (ProofKind.OLD_TESTS, ProofKind.NEW_TESTS, ProofKind.EMPTIED)


def test_old_and_new_tests_use_the_set_up_of_the_code_that_they_run_on() -> None:
    runs = tuple(e.ProofRun(kind=kind, commit=f"c-{kind}", tree=f"t-{kind}") for kind in KINDS)
    built = replace(IMPLEMENTED[-1], proofs=runs)
    old, new, emptied = (e.ProofJudged(tree="t1", kind=kind, line="x") for kind in KINDS)
    events = [*IMPLEMENTED[:-1], built]
    assert decided(proven_by(*events)) == "prove t-new-tests"  # the base is still set up
    events += [*ran("prove", "t-new-tests"), new]
    assert decided(proven_by(*events)) == "setup t1"
    events += [*ran("setup", "t1"), *ran("gate", "t1"), PASSED]
    assert decided(proven_by(*events)) == "prove t-old-tests"
    events += [*ran("prove", "t-old-tests"), old]
    assert decided(proven_by(*events)) == "prove t-emptied"  # the products are those of the candidate
    assert decided(proven_by(*events, *ran("prove", "t-emptied"), emptied)) == "verify t1"


def test_a_verdict_on_the_same_patch_does_not_answer_a_question_that_came_later() -> None:
    run = e.ProofRun(kind=ProofKind.OLD_TESTS, commit="c8", tree="t8")
    verdict = e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "x"),), agent="robot")
    kept = e.ProofJudged(tree="t2", kind=run.kind, line="x", time=2)
    built = e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c2",), tree="t2", patch="p", proofs=(run,))
    moved = [*IMPLEMENTED, *ran("setup", "t1"), PASSED, verdict, e.LandingMoved(tip="c9"), built]
    moved += [e.BaselineKnown(key="k", tree="t9", results=""), *ran("setup", "t2"), replace(PASSED, tree="t2")]
    assert decided(proven_by(*moved, kept)) == "land"
    broken = replace(kept, promises=(e.Promise(test="a.py::test_a", why="it fails"),))
    assert decided(proven_by(*moved, broken)) == "verify t2"


@pytest.mark.parametrize(("role", "ending"), [("gate", Ending.ENDED), ("verify", Ending.ENDED), ("gate", Ending.LOST)])
def test_a_check_that_was_put_off_or_lost_runs_again_on_a_newly_prepared_tree(role: str, ending: Ending) -> None:
    before = [*IMPLEMENTED, *ran("setup", "t1"), *([PASSED] if role == "verify" else [])]
    put_off = [e.DispatchStarted(id="g", role=Role(role), agent="", cycle=1, tree="t1"), ended("g", role, ending, None)]
    assert decided(proven_by(*before)) == f"{role} t1"
    assert decided(proven_by(*before, *put_off)) == "setup t1"
    assert decided(proven_by(*before, *put_off, *ran("setup", "t1"))) == f"{role} t1"


def test_a_moved_target_gets_a_baseline_of_its_own() -> None:
    """Only tests that fail on the current target excuse a red gate, not those that failed on the old base."""
    moved = e.CandidateBuilt(onto="c9", onto_tree="t9", commits=("c10",), tree="t10", patch="p")
    assert decided(proven_by(*IMPLEMENTED[:-1], moved)) == "setup t9"
    assert decided(proven_by(*IMPLEMENTED[:-1], moved, *ran("setup", "t9"))) == "baseline t9"


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
    assert decide(gated()).why == "the tests run on the exact tree"
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
    assert decided(after(verdict("codex"), verdict("gemini"))) == "land"
    assert decided(after(verdict("codex"), verdict("gemini", passed=False))) == "fix t1"


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
    assert (decided(gated(*last)), starting(gated(*last)).scope) == ("verify t1", "final")
    assert decided(gated(*last, verdict("codex", scope="final"))) == "land"
    assert decided(gated(*last, verdict("codex", scope="final", passed=False))) == "fix t1"


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
    assert decided(state) == ("ask" if waits else "land")
    if not waits:
        return
    asked = apply(state, ASKED)
    assert decided(asked) == "read-plan", "independent phases go on"
    asked = apply(asked, e.LanesChosen(tip="c0", lanes=()))
    for answer, expected in (("t0", "waits for sign-off"), ("t1", "land")):
        assert decided(apply(asked, e.Answered(tree=answer, approved=True))) == expected


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
    assert (decided(tried(TRIAL)), decided(tried(files=("src/a.py",)))) == ("ask", "land")
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
    assert decided(tried(ran("try")[0], ended("d", "try", code=97, kind="unserved"))) == "judge-trial"


#: An agent's endings by kind: what the process did, its exit code.
ENDINGS = {
    **dict.fromkeys(("crashed", "auth", "setup", "refusal"), ("exited", 1)),
    **dict.fromkeys(("denied", "no-output"), ("exited", 0)),
    **{kind: (ending, None) for kind, ending in (("killed", "signalled"), ("silent", "silent"))},
    **{kind: (ending, None) for kind, ending in (("timed-out", "timeout"), ("budget", "budget"))},
}
GREEN = e.GateJudged(tree="t1", answer=GateAnswer.PASSED, code=0, line="", time=1)
FAILED_GATES: list[e.Event] = [e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="red", time=2)]


def sent(role: str, kind: str, *, cycle: int = 1, said: str = "", again: str = "") -> list[e.Event]:
    """An agent in this role that ended this way."""
    ending, code = ENDINGS[kind]
    tree = "" if role == "implement" else "t1"
    return [
        e.DispatchStarted(id="d", role=Role(role), agent="r", cycle=cycle, tree=tree, complaint="red", again=again),
        ended("d", role, Ending(ending), code, agent="r", kind=kind, said=said, detail="oops"),
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


@pytest.mark.parametrize(
    ("kind", "said"),
    [*((kind, "") for kind in ENDINGS if kind not in ("crashed", "killed", "silent")), ("crashed", "failed")],
)
def test_no_other_ending_is_tried_once_more_nor_one_with_a_reason(kind: str, said: str) -> None:
    failing(proven_by(*BEFORE["implement"][0], *sent("implement", kind, said=said)))


@pytest.mark.parametrize("kind", ["crashed", "killed", "silent"])
def test_an_agent_that_is_blocked_asks_a_person_however_it_ends(kind: str) -> None:
    blocked = proven_by(*BEFORE["implement"][0], *sent("implement", kind, said="blocked"))
    assert decided(blocked) == "ask-question"


#: A conflict that a fixer was sent to solve.
CONFLICTED: list[e.Event] = [
    *IMPLEMENTED[:-1],
    e.CandidateConflicted(onto="c9", paths=("a.txt", "b.txt")),
    e.BranchRebuilt(base="c9", base_tree="t9", parked="refs/kept", complaint=""),
]


@pytest.mark.parametrize("code", [0, 1])
def test_a_fixer_that_returns_failed_leaves_the_conflict_with_any_exit_code(code: int) -> None:
    begun, over = sent("fix", "crashed", cycle=2, said="failed")
    assert isinstance(over, e.DispatchEnded)
    action = failing(proven_by(*CONFLICTED, begun, replace(over, code=code, kind="crashed" if code else "")))
    assert action.reason == Reason.CONFLICT
    assert "a.txt, b.txt: r (fix) reported a failure: oops" in action.detail


def test_a_fixer_that_crashes_twice_over_a_conflict_leaves_the_conflict() -> None:
    once = proven_by(*CONFLICTED, *sent("fix", "crashed", cycle=2))
    action = failing(fold_on(once, *sent("fix", "crashed", cycle=2, again=starting(once).again)))
    assert action.reason == Reason.CONFLICT
    assert "a.txt, b.txt: r (fix) exited with code 1: oops; it was tried once more" in action.detail


def test_limits_and_overloaded_providers_in_a_row_are_counted() -> None:
    begun, over = sent("implement", "crashed")
    assert isinstance(over, e.DispatchEnded)
    kinds = ("limit", "overloaded", "limit", "overloaded", "overloaded")
    ends = [event for kind in kinds for event in (begun, replace(over, kind=kind))]
    state = fold_on(proven_by(*BEFORE["implement"][0]), *ends)
    assert state.attempt is not None
    assert (state.attempt.dispatches.limited, state.attempt.dispatches.busy) == (2, 3)


def test_a_role_is_retried_once_per_fix_cycle() -> None:
    first = [*sent("implement", "crashed"), *sent("implement", "crashed", again="x")[:1], *ran("implement")[1:]]
    worked = proven_by(*BEFORE["implement"][0], *first, *IMPLEMENTED[-2:], *FAILED_GATES)
    action = starting(fold_on(worked, *sent("fix", "killed", cycle=2)))
    assert action.again


def test_a_plan_that_only_has_to_be_marked_is_read_again_when_the_target_moves() -> None:
    assert decided(fold([started(), e.CompletionChosen(tip="c0"), e.LandingMoved(tip="c1")])) == "read-plan"


def test_set_up_whose_products_cannot_be_used_is_repeated_three_times_at_most() -> None:
    state = fold([started(setup="make setup"), e.PhaseChosen(tip="c0", phase="1"), LEASED])
    assert decide(state).why == "run.setup prepares the worktree of the checks"
    reasons = ["first use of the worktree", *3 * ["the worktree had to be made anew"]]
    for number, why in enumerate(reasons):
        set_up = replace(starting(state), id=f"s{number}", why=why)
        assert set_up.role == Role.SETUP
        check = e.DispatchStarted(id=f"b{number}", role=Role.BASELINE, gates=("tests",), cycle=1, tree="t0")
        unused = ended(check.id, "baseline", Ending.ENDED, None, detail=why)
        state = fold_on(state, set_up, ended(set_up.id, "setup"), check, unused)
    failed = failing(state)
    assert failed.reason is Reason.SETUP_FAILED
    assert "3 times on the same tree, and its products could not be used: the worktree had to be made" in failed.detail


def test_set_ups_of_the_base_and_of_the_code_in_turn_are_no_repetition() -> None:
    setup = Setup()
    for number, tree in enumerate(["t0", "t1"] * 4):
        set_up = e.DispatchStarted(id=f"s{number}", role=Role.SETUP, cycle=1, tree=tree, why="package.json changed")
        setup = setup.record(ended(set_up.id, "setup"), set_up)
    assert setup.ran == (("t1", "package.json changed"),)


LANDED = e.Landed(id="l", phase="1", tip="c1", code="c1")


@pytest.mark.parametrize(
    ("concludes", "facts", "kind", "expected"),
    [
        (False, [], NoWorkKind.COMPLETE, "finish nothing-to-do"),
        (False, [LANDED], NoWorkKind.COMPLETE, "finish done"),
        (True, [], NoWorkKind.COMPLETE, "conclude"),
        (True, [], NoWorkKind.BLOCKED, "finish refused blocked"),
    ],
)
def test_a_run_without_further_phases_ends_or_concludes(
    *, concludes: bool, facts: list[e.Event], kind: NoWorkKind, expected: str
) -> None:
    begun = replace(started(Mode.FINISH), concludes=concludes)
    assert decided(fold([begun, *facts, e.NoWork(tip="c0", kind=kind, detail="x")])) == expected


@pytest.mark.parametrize(("role", "agent", "who"), [(Role.IMPLEMENT, "robot", "robot"), (Role.GATE, "", "gate")])
def test_a_stop_names_the_agent_or_the_check_that_it_ends(role: Role, agent: str, who: str) -> None:
    running = e.DispatchStarted(id="d", role=role, agent=agent, cycle=1)
    state = fold([started(), e.PhaseChosen(tip="c0", phase="1"), running, e.StopRequested(by="a person")])
    assert decide(state).why == f"stopped by a person; {who} is being ended"
