"""Phases side by side: which may be, and what the machine makes of several at once."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from runplan.adapters.clock import SystemClock
from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.plan.model import parse_plan
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import PlanningChosen, RevisionRequested, StepCrashed
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import Mode, PhaseStep, ProofKind, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.rules.lanes import list_startable, paths_overlap
from runplan.domain.run.state import RunState, apply, count_busy, failure, find_awaiting, fold, open_lanes
from runplan.engine.steps.land import record_move
from tests.support.builders import BUILT, LEASED, a_plan, decided, ended, fold_on, keep, started


@pytest.mark.parametrize(
    ("some", "others", "expected"),
    [
        (("src/a/**",), ("src/b/**",), False),
        (("src/a.py",), ("src/b.py",), False),
        (("src/a.py",), ("src/a.py",), True),
        (("src",), ("src/a.py",), True),
        (("src/",), ("src2/a.py",), False),
        (("src/*.py",), ("src/deep/a.py",), True),  # in doubt
        (("*.md",), ("src/a.py",), True),
        (("**",), ("src/a.py",), True),
        (("docs/a*",), ("docs/b.md",), True),
        (("docs/a*",), ("src/b.md",), False),
        (("./src/a",), ("/src/a/b",), True),
        (("SRC/a",), ("src/A",), True),
        (("a", "b"), ("c", "b/x"), True),
        ((), ("a",), True),
        (("a",), (), True),
        ((), (), True),
    ],
)
def test_two_phases_overlap_where_paths_meet(some: tuple[str, ...], others: tuple[str, ...], expected: bool) -> None:
    assert paths_overlap(some, others) is expected
    assert paths_overlap(others, some) is expected


PATHS = st.lists(st.sampled_from(["a", "b", "c.py", "d"]), min_size=1, max_size=3).map("/".join)


@given(PATHS, PATHS, st.sampled_from(["", "/**", "/*", "*"]), st.sampled_from(["", "/**", "/*", "?"]))
def test_a_path_covered_by_both_patterns_is_an_overlap(one: str, two: str, tail: str, other_tail: str) -> None:
    from runplan.domain.globs import matches

    shared = [path for path in ("a", "a/b", "a/b/c.py", "b", "c.py", "d/d/d", one, two, f"{one}/a", f"{two}/b")
              if matches(one + tail, path) and matches(two + other_tail, path)]  # fmt: skip
    assert not shared or paths_overlap([one + tail], [two + other_tail])


OVERLAPS = {
    "1": "Touches: a/",
    "2": "Touches: b/",
    "3": "Touches: a/x.py",
    "4": "Touches: c/\n\n### Dependencies\n\nPhase 1.",
    "5": "Text.",
    "6": "Touches: d/",
}
STATUSES = {"1": "Touches: a/", "2": "Touches: b/", "3": "Touches: c/", "4": "Touches: d/\nExecution: ?"}


@pytest.mark.parametrize(
    ("cells", "bodies", "busy", "limit", "expected"),
    [
        pytest.param("⬚⬚⬚⬚⬚⬚", OVERLAPS, {}, 9, "1 2 6", id="those without overlap, in plan order"),
        pytest.param("⬚⬚⬚⬚⬚⬚", OVERLAPS, {}, 2, "1 2", id="as many as may be"),
        pytest.param("⬚⬚⬚⬚⬚⬚", OVERLAPS, {}, 0, "", id="none"),
        pytest.param("⬚⬚⬚⬚⬚⬚", OVERLAPS, {"1": ("a/",)}, 1, "2", id="one is at work"),
        pytest.param("⬚⬚⬚⬚⬚⬚", OVERLAPS, {"5": ()}, 3, "", id="one at work may touch everything"),
        pytest.param("⬚⬚", {"1": "Text.", "2": "Touches: b/"}, {}, 2, "1", id="the first may touch everything"),
        pytest.param("✅🔴⬚⬚", STATUSES, {}, 4, "3", id="neither done nor blocked nor unsupported ones"),
    ],
)
def test_phases_begin_side_by_side(
    cells: str, bodies: dict[str, str], busy: dict[str, tuple[str, ...]], limit: int, expected: str
) -> None:
    plan = parse_plan(a_plan(dict(zip(bodies, cells, strict=True)), bodies), path="plans/x.md")
    assert " ".join(phase.id for phase in list_startable(plan, busy, limit=limit)) == expected


# --- the machine --------------------------------------------------------------------------------------------


def two_lanes(parallel: int = 2) -> list[e.Event]:
    chosen = e.LanesChosen(tip="c0", lanes=(("1", "p1", ("a",)), ("2", "p2", ("b",))))
    return [keep(started(), parallel=parallel), chosen]


def in_lane(name: str, *events: e.Event) -> list[e.Event]:
    return [replace(event, lane=name) for event in events]


def read(phase: str) -> e.PhaseChosen:
    return e.PhaseChosen(tip="c0", phase=phase, items=(("W1", "x"),))


def at_work(phase: str, id_: str) -> list[e.Event]:
    lease = e.Leased(phase=phase, branch=phase, base="c0", base_tree="t0", worktree="w", attempt=1)
    known = e.BaselineKnown(key="k", tree="t0", results="")
    return [read(phase), lease, known, e.DispatchStarted(id=id_, role=Role.IMPLEMENT, agent="robot", cycle=1)]


LATER = "2030-01-01T00:00:00Z"
DONE = e.RunEnded(outcome=RunOutcome.DONE)
SILENT = e.Paused(kind=WaitKind.UNREACHABLE, until=LATER, words="origin")
STOP = e.StopRequested(by="me")
OVER = ended("d2", "implement")
LANE_1, LANE_2 = in_lane("1", *at_work("p1", "d1")), in_lane("2", *at_work("p2", "d2"))
ENDED_1 = in_lane("1", read("p1"), DONE)
ENDED_2 = in_lane("2", read("p2"), DONE)
NEXT = e.RunResumed(mode=Mode.NEXT, wanted="", auto=True)
BUDGET = e.Paused(kind=WaitKind.BUDGET, until=LATER, words="the rest")


@pytest.mark.parametrize(
    ("parallel", "facts", "expected"),
    [
        pytest.param(2, LANE_1, "1: await, 2: read-plan", id="each lane is decided independently"),
        pytest.param(2, [*in_lane("1", read("p1"), SILENT), *LANE_2], "1: sleep, 2: await",
                     id="a lane with an unreachable remote delays no other"),
        pytest.param(3, [*ENDED_1, SILENT, *LANE_2], "2: await, sleep",
                     id="an unreachable target delays no running lane"),
        pytest.param(3, [*ENDED_1, SILENT, *[StepCrashed(detail="x", trace="")] * 2, *LANE_2], "2: await",
                     id="nor does a crash in the search for phases"),
        pytest.param(3, [*ENDED_1, SILENT, *LANE_2, e.Woke(kind=WaitKind.UNREACHABLE)], "2: await, read-plan",
                     id="and is read again"),
        pytest.param(2, [*in_lane("1", read("p1"), BUDGET), *LANE_2, *in_lane("2", OVER)],
                     "1: lease, 2: take-work",
                     id="a wait for budget is checked again when another agent ends"),
        pytest.param(3, [], "1: read-plan, 2: read-plan", id="the plan is read for each lane"),
        pytest.param(3, ENDED_1, "2: read-plan, read-plan", id="and for a further one when a lane has ended"),
        pytest.param(3, [*ENDED_1, e.LanesChosen(tip="c1", lanes=())], "2: read-plan", id="once"),
        pytest.param(3, [*ENDED_1, STOP], "2: finish stopped stopped", id="not after a stop"),
        pytest.param(3, [*ENDED_1, e.Halted(by="me")], "waits for paused", id="nor a pause"),
        pytest.param(3, [NEXT, *ENDED_1, *ENDED_2], "finish done", id="a run of the next phase begins nothing more"),
        pytest.param(2, [*in_lane("1", e.RunEnded(outcome=RunOutcome.NOTHING_TO_DO)), *ENDED_2], "read-plan",
                     id="a phase completed by another process is no failure"),
        pytest.param(2, [*LANE_1, *LANE_2, STOP], "1: end, 2: end", id="a stop reaches every lane"),
        pytest.param(2, [e.Halted(by="me")], "waits for paused", id="a pause too"),
        pytest.param(2, [e.Halted(by="me"), e.Continued()], "1: read-plan, 2: read-plan", id="until it goes on"),
    ],
)  # fmt: skip
def test_lanes_are_decided_side_by_side(parallel: int, facts: list[e.Event], expected: str) -> None:
    assert decided(fold([*two_lanes(parallel), *facts])) == expected


def test_a_run_waits_until_the_first_of_its_lanes_can_continue() -> None:
    paused = [e.Paused(kind=WaitKind.LIMIT, until=f"2030-01-0{n}T00:00:00Z", agent="claude") for n in (1, 2)]
    one = decide(fold([*two_lanes(), *LANE_1, *in_lane("2", read("p2"), paused[1])]))
    both = decide(fold([*two_lanes(), *in_lane("1", read("p1"), paused[0]), *in_lane("2", read("p2"), paused[1])]))
    assert (one.waiting, one.wake) == (None, "2030-01-02T00:00:00Z")
    assert (both.waiting, both.wake) == ("limit", "2030-01-01T00:00:00Z")


@pytest.mark.parametrize("kind", ["unreachable", "limit", "checkout"])
def test_a_stop_overrides_the_wait_of_a_run(kind: str) -> None:
    pause = e.Paused(kind=WaitKind(kind), until=LATER, words="origin")
    assert decided(fold([started(), read("p1"), pause, STOP])).startswith("fail")
    assert decided(fold([*two_lanes(), *in_lane("1", read("p1"), pause), STOP])).startswith("1: fail")
    assert decided(fold([started(), *at_work("p1", "d1"), STOP, pause])) == "end"


def test_after_a_failure_nothing_begins_and_the_run_fails_when_the_others_have_ended() -> None:
    failed = e.PhaseFailed(phase="p1", reason=Reason.AGENT_FAILED, step=PhaseStep.IMPLEMENT, detail="x")
    lost = e.RunEnded(outcome=RunOutcome.FAILED, reason="agent-failed", detail="x")
    facts = [*two_lanes(), *in_lane("1", read("p1"), failed, lost)]
    alone = fold(facts)
    over = fold([*facts, *in_lane("2", read("p2"), DONE)])
    assert a.READ_PLAN not in decide(alone).actions
    assert decide(over).actions == (a.Finish(outcome=RunOutcome.FAILED, reason="agent-failed", detail="x"),)
    assert failure(over) == replace(failed, lane="1")


ASKED = e.QuestionAsked(id="q1", text="which port?", phase="p1")


def test_a_lane_with_a_question_gives_its_place_to_a_further_phase_and_the_answer_reaches_it_alone() -> None:
    facts = [*two_lanes(), *LANE_1, *LANE_2, *in_lane("1", ended("d1", "implement", said="blocked"))]
    assert decided(fold(facts)) == "1: ask-question, 2: await"
    facts += in_lane("1", ASKED)
    assert decided(fold(facts)) == "2: await, read-plan"
    facts += [e.LanesChosen(tip="c0", lanes=()), *in_lane("2", DONE), e.LanesChosen(tip="c0", lanes=())]
    assert decided(fold(facts)) == "waits for question"
    assert decided(fold([*facts, e.QuestionAnswered(id="q1", text="8080")])) == "1: implement"


def test_a_rejection_applies_to_the_lane_of_its_candidate() -> None:
    built = [replace(BUILT, tree=tree) for tree in ("t1", "t2")]
    facts: list[e.Event] = [*two_lanes()]
    facts += in_lane("1", read("p1"), built[0], e.LandingHeld(why="w"))
    facts += in_lane("2", read("p2"), built[1], e.LandingHeld(why="w"))
    state = fold([*facts, e.Answered(tree="t2", approved=False)])
    phases = {lane.options.wanted: lane.attempt for lane in open_lanes(state)}
    assert phases["p1"] is not None
    assert phases["p1"].refusal is None
    assert phases["p2"] is not None
    assert phases["p2"].refusal is not None
    assert find_awaiting(fold(facts)) == phases["p1"]


def test_an_approval_reaches_the_phase_that_it_is_about_and_leaves_the_others_waiting() -> None:
    """Each of two phases waits for its sign-off beside the one of the run, which asks a question."""
    begun = [keep(started(), parallel=1), *at_work("p0", "d0"), replace(ASKED, phase="p0")]
    facts: list[e.Event] = [*begun, *two_lanes()[1:]]
    for lane, tree in (("1", "t1"), ("2", "t2")):
        built = e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree=tree, patch=tree)
        facts += in_lane(lane, read(f"p{lane}"), built, e.ApprovalAsked(tree=tree))
    state = fold(facts)
    assert (count_busy(state), decide(state).actions[-1]) == (0, a.READ_PLAN)
    for approved in (True, False):
        after = apply(state, e.Answered(tree="t2", approved=approved))
        first, second = (lane.current for lane in open_lanes(after))
        assert (first.delivery.asked, second.delivery.asked) == ("t1", "")
        assert (second.delivery.is_approved, second.refusal is None) == (approved, approved)
        assert after.attempt == state.attempt


@pytest.mark.parametrize(
    ("ours", "patch", "broken", "is_approved"),
    [(True, "p", False, True), (False, "p", False, False), (True, "q", False, False), (True, "p", True, False)],
)
def test_an_approval_holds_for_the_same_patch_after_a_landing_of_runplan(
    *, ours: bool, patch: str, broken: bool, is_approved: bool
) -> None:
    """So phases that landed while one waited for its sign-off make nobody sign off twice."""
    moved = e.LandingMoved(tip="c2", ours=ours)
    again = replace(BUILT, onto="c2", onto_tree="t2", tree="t3", patch=patch)
    promises = (e.Promise(test="a.py::test_a", why="x"),) if broken else ()
    proof = e.ProofJudged(tree="t3", kind=ProofKind.OLD_TESTS, line="", promises=promises)
    facts = [started(), read("p1"), BUILT, e.Answered(tree="t1", approved=True), moved, again, proof]
    assert fold(facts).current.delivery.is_approved is is_approved
    assert not fold([fact for fact in facts if not isinstance(fact, e.Answered)]).current.delivery.is_approved


LANDINGS = {"c3": "c2", "c2": "c1", "c5": "foreign"}  #: by their commits: the tips before


@pytest.mark.parametrize(("tip", "is_ours"), [("c1", True), ("c3", True), ("foreign", False), ("c5", False)], ids=str)
def test_only_a_chain_of_landings_is_a_move_of_ours(tip: str, *, is_ours: bool) -> None:
    """An approval is not carried over a foreign commit below a landing: c5 was landed on one."""
    begun = [e.LandingStarted(id=f"L{new}", ref="main", old=old, new=new) for new, old in LANDINGS.items()]
    ended = [e.Landed(id=f"L{new}", phase="1", tip=new, code=new) for new in LANDINGS]
    facts: dict[type[e.Event], list[Any]] = {e.LandingStarted: begun, e.Landed: ended}
    read = lambda kind, **_: [SimpleNamespace(event=event) for event in facts[kind]]  # noqa: E731
    context: Any = SimpleNamespace(store=SimpleNamespace(list_facts=read), clock=SystemClock())
    assert record_move(context, "c1", tip) == e.LandingMoved(tip=tip, ours=is_ours)


def test_independent_phases_go_on_beside_a_phase_of_the_run_that_asks_a_person() -> None:
    """Also with one phase at a time; the phase that asked stays a phase of the run."""
    blocked = ended("d", "implement", said="blocked", detail="which?")
    begun = [keep(started(), parallel=1), e.PhaseChosen(tip="t", phase="1", touches=("a",)), LEASED]
    state = fold([*begun, e.DispatchStarted(id="d", role=Role.IMPLEMENT, cycle=1, agent="r"), blocked])
    state = apply(state, e.QuestionAsked(id="q", text="which?", phase="1"))
    assert decided(state) == "read-plan"
    assert decided(apply(state, e.LanesChosen(tip="t", lanes=()))) == "waits for question"
    state = apply(state, e.LanesChosen(tip="t", lanes=(("1", "2", ("b",)),)))
    assert decided(state) == "1: read-plan"
    assert "baseline t0" in decided(apply(state, e.QuestionAnswered(id="q", text="this"))).split(", ")
    over = apply(state, replace(DONE, lane="1"))
    assert decided(over) == "read-plan", "further phases may start"
    assert decided(apply(over, e.LanesChosen(tip="t", lanes=()))) == "waits for question"


@pytest.mark.parametrize(
    "event",
    [e.NoWork(tip="t", detail="none", kind=NoWorkKind.UNREADABLE), e.Concluded(reason=Reason.PR_CLOSED, note="closed")],
)
def test_a_phase_that_asks_is_kept_while_no_other_phase_can_be_read(event: e.Event) -> None:
    begun = [started(), e.PhaseChosen(tip="t", phase="1", touches=("a",)), LEASED]
    state = fold([*begun, e.QuestionAsked(id="q", text="which?", phase="1"), event])
    assert decided(state) == "waits for question"
    assert decided(apply(state, e.QuestionAnswered(id="q", text="this"))) == "baseline t0"


def lanes_that_end(*endings: e.Event, **options: Any) -> RunState:
    """Two lanes that ask; then these events, after which both have ended."""
    first, *rest = two_lanes()
    assert isinstance(first, e.RunStarted)
    facts: list[e.Event] = [keep(first, **options), *rest]
    for lane in ("1", "2"):
        asked = e.QuestionAsked(id=f"q{lane}", text="which?", phase=f"p{lane}")
        facts += in_lane(lane, *at_work(f"p{lane}", f"d{lane}"), ended(f"d{lane}", "implement", said="blocked"), asked)
    return fold([*facts, e.LanesChosen(tip="c0", lanes=()), *endings])


def fails(lane: str, reason: Reason, outcome: RunOutcome) -> list[e.Event]:
    failed = e.PhaseFailed(phase=f"p{lane}", reason=reason, step=PhaseStep.IMPLEMENT, detail="why")
    return in_lane(lane, failed, e.CleanedUp(phase=f"p{lane}"), e.RunEnded(outcome=outcome, reason=reason))


def test_a_revision_ends_the_lanes_that_wait_for_a_person_and_the_run_continues_after_it() -> None:
    planning = e.Planning(goal="Better.", is_revision=True)
    requested = decided(lanes_that_end(RevisionRequested(planning=planning)))
    failures = [action.partition(" stopped ")[0] for action in requested.split(", ") if "fail" in action]
    assert failures == ["1: fail", "2: fail"]
    stopped = [*fails("1", Reason.STOPPED, RunOutcome.STOPPED), *fails("2", Reason.STOPPED, RunOutcome.STOPPED)]
    state = lanes_that_end(RevisionRequested(planning=planning), *stopped)
    assert decided(state) == "choose-goal"
    chosen = PlanningChosen(tip="c0", title="X", text="Better.", planning=planning)
    landed = e.Landed(id="l", phase="", tip="c1", code="c1")
    assert decided(fold_on(state, chosen, landed, e.CleanedUp(phase=""))) == "read-plan"


def test_a_lane_whose_phase_does_not_fit_the_code_has_the_plan_revised() -> None:
    endings = [*in_lane("1", DONE), *fails("2", Reason.DRIFT, RunOutcome.FAILED)]
    assert decided(lanes_that_end(*endings, planner="claude")) == "choose-goal"
    assert decided(lanes_that_end(*endings, planner="claude", replan=False)).startswith("finish")
