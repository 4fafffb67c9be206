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
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode, PhaseStep, ProofKind, Reason, Role, RunOutcome, WaitKind
from runplan.domain.run.rules.lanes import list_startable, paths_overlap
from runplan.domain.run.state import RunState, apply, count_busy, failure, find_awaiting, fold, list_running, open_lanes
from runplan.engine.steps.land import record_move
from tests.support.builders import BUILT, a_plan, keep, started


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


def test_ready_phases_without_overlap_begin_in_plan_order() -> None:
    bodies = {
        "1": "Touches: a/",
        "2": "Touches: b/",
        "3": "Touches: a/x.py",
        "4": "Touches: c/\n\n### Dependencies\n\nPhase 1.",
        "5": "Text.",
        "6": "Touches: d/",
    }
    plan = parse_plan(a_plan(dict.fromkeys(bodies, "⬚"), bodies), path="plans/x.md")

    assert [phase.id for phase in list_startable(plan, {}, limit=9)] == ["1", "2", "6"]
    assert [phase.id for phase in list_startable(plan, {}, limit=2)] == ["1", "2"]
    assert [phase.id for phase in list_startable(plan, {"1": ("a/",)}, limit=1)] == ["2"]
    assert [phase.id for phase in list_startable(plan, {"5": ()}, limit=3)] == []
    assert list_startable(plan, {}, limit=0) == []


def test_a_first_phase_that_touches_everything_begins_alone() -> None:
    plan = parse_plan(a_plan({"1": "⬚", "2": "⬚"}, {"1": "Text.", "2": "Touches: b/"}), path="plans/x.md")

    assert [phase.id for phase in list_startable(plan, {}, limit=2)] == ["1"]


def test_neither_done_nor_blocked_nor_unsupported_phases_are_begun() -> None:
    bodies = {"1": "Touches: a/", "2": "Touches: b/", "3": "Touches: c/", "4": "Touches: d/\nExecution: ?"}
    plan = parse_plan(a_plan({"1": "✅ Done", "2": "🔴 Blocked", "3": "⬚", "4": "⬚"}, bodies), path="plans/x.md")

    assert [phase.id for phase in list_startable(plan, {}, limit=4)] == ["3"]


# --- the machine --------------------------------------------------------------------------------------------


def two_lanes(parallel: int = 2) -> list[e.Event]:
    return [
        keep(started(), parallel=parallel),
        e.LanesChosen(tip="c0", lanes=(("1", "p1", ("a",)), ("2", "p2", ("b",)))),
    ]


def in_lane(name: str, *events: e.Event) -> list[e.Event]:
    return [replace(event, lane=name) for event in events]


def read(phase: str) -> e.PhaseChosen:
    return e.PhaseChosen(tip="c0", phase=phase, items=(("W1", "x"),))


def at_work(phase: str, id_: str) -> list[e.Event]:
    lease = e.Leased(phase=phase, branch=phase, base="c0", base_tree="t0", worktree="w", attempt=1)
    known = e.BaselineKnown(key="k", tree="t0", results="")
    return [read(phase), lease, known, e.DispatchStarted(id=id_, role=Role.IMPLEMENT, agent="robot", cycle=1)]


def test_each_lane_is_decided_independently() -> None:
    state = fold([*two_lanes(), *in_lane("1", *at_work("p1", "r_1.1"))])

    decision = decide(state)

    assert decision.actions == (replace(a.AWAIT, lane="1"), replace(a.READ_PLAN, lane="2"))
    assert list_running(state) == ["r_1.1"]
    assert not decision.waiting


def test_a_run_waits_until_the_first_of_its_lanes_can_continue() -> None:
    paused = [e.Paused(kind=WaitKind.LIMIT, until=f"2030-01-0{n}T00:00:00Z", agent="claude") for n in (1, 2)]
    facts = [*two_lanes(), *in_lane("1", *at_work("p1", "d1")), *in_lane("2", read("p2"), paused[1])]
    one = decide(fold(facts))
    both = decide(fold([*facts[:2], *in_lane("1", read("p1"), paused[0]), *in_lane("2", read("p2"), paused[1])]))

    assert (one.waiting, one.wake) == (None, "2030-01-02T00:00:00Z")
    assert (both.waiting, both.wake) == ("limit", "2030-01-01T00:00:00Z")


LATER = "2030-01-01T00:00:00Z"


def test_a_lane_with_an_unreachable_remote_delays_no_other() -> None:
    silent = e.Paused(kind=WaitKind.UNREACHABLE, until=LATER, words="origin")
    facts = [*two_lanes(), *in_lane("1", read("p1"), silent), *in_lane("2", *at_work("p2", "d2"))]

    decision = decide(fold(facts))

    assert decision.actions == (replace(a.SLEEP, lane="1"), replace(a.AWAIT, lane="2"))
    assert (decision.waiting, decision.wake) == (None, LATER)


def test_an_unreachable_target_delays_no_running_lane() -> None:
    facts = [*two_lanes(parallel=3), *in_lane("1", read("p1"), e.RunEnded(outcome=RunOutcome.DONE))]
    silent = e.Paused(kind=WaitKind.UNREACHABLE, until=LATER, words="origin")

    decision = decide(fold([*facts, silent, *in_lane("2", *at_work("p2", "d2"))]))

    assert decision.actions == (replace(a.AWAIT, lane="2"), a.SLEEP)
    assert a.READ_PLAN in decide(fold([*facts, silent, e.Woke(kind=WaitKind.UNREACHABLE)])).actions
    crashes = [StepCrashed(detail="x", trace="")] * 2  # in the search for phases
    assert decide(fold([*facts, *crashes, *in_lane("2", *at_work("p2", "d2"))])).actions == decision.actions[:1]


@pytest.mark.parametrize("kind", ["unreachable", "limit", "checkout"])
def test_a_stop_overrides_the_wait_of_a_run(kind: str) -> None:
    pause = e.Paused(kind=WaitKind(kind), until=LATER, words="origin")
    alone = fold([started(), read("p1"), pause, e.StopRequested(by="me")])
    side = fold([*two_lanes(), *in_lane("1", read("p1"), pause), e.StopRequested(by="me")])
    ends = fold([started(), *at_work("p1", "d1"), e.StopRequested(by="me"), pause])

    assert isinstance(decide(alone).actions[0], a.Fail)
    assert isinstance(decide(side).actions[0], a.Fail)
    assert decide(ends).actions == (a.END,)


def test_a_run_of_the_next_phase_begins_nothing_after_its_lanes() -> None:
    facts = [*two_lanes(parallel=3), e.RunResumed(mode=Mode.NEXT, wanted="", auto=True)]
    done = [fact for n in ("1", "2") for fact in in_lane(n, read(f"p{n}"), e.RunEnded(outcome=RunOutcome.DONE))]

    assert a.READ_PLAN not in decide(fold(facts)).actions
    assert decide(fold([*facts, *done])).actions == (a.Finish(outcome=RunOutcome.DONE),)


def test_a_wait_for_budget_is_checked_again_when_another_agent_ends() -> None:
    waits = e.Paused(kind=WaitKind.BUDGET, until=LATER, words="the rest")
    facts = [*two_lanes(), *in_lane("1", read("p1"), waits), *in_lane("2", *at_work("p2", "d2"))]
    ended = e.DispatchEnded(id="d2", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0)

    first = decide(fold([*facts, *in_lane("2", ended)])).actions[0]
    assert first.lane == "1"
    assert first.step != "sleep"


def test_the_plan_is_checked_for_parallel_phases_once_per_ended_lane() -> None:
    three = two_lanes(parallel=3)
    assert a.READ_PLAN not in decide(fold(three)).actions

    ended = [*three, *in_lane("1", read("p1"), e.RunEnded(outcome=RunOutcome.DONE))]
    assert a.READ_PLAN in decide(fold(ended)).actions
    assert a.READ_PLAN not in decide(fold([*ended, e.LanesChosen(tip="c1", lanes=())])).actions
    assert a.READ_PLAN not in decide(fold([*ended, e.StopRequested(by="me")])).actions
    assert a.READ_PLAN not in decide(fold([*ended, e.Halted(by="me")])).actions


def test_after_a_failure_nothing_begins_and_the_run_fails_when_the_others_have_ended() -> None:
    failed = e.PhaseFailed(phase="p1", reason=Reason.AGENT_FAILED, step=PhaseStep.IMPLEMENT, detail="x")
    lost = e.RunEnded(outcome=RunOutcome.FAILED, reason="agent-failed", detail="x")
    facts = [*two_lanes(), *in_lane("1", read("p1"), failed, lost)]
    alone = fold(facts)
    over = fold([*facts, *in_lane("2", read("p2"), e.RunEnded(outcome=RunOutcome.DONE))])

    assert a.READ_PLAN not in decide(alone).actions
    assert decide(over).actions == (a.Finish(outcome=RunOutcome.FAILED, reason="agent-failed", detail="x"),)
    assert failure(over) == replace(failed, lane="1")


def test_a_phase_completed_by_another_process_is_no_failure() -> None:
    facts = [
        *two_lanes(),
        *in_lane("1", e.RunEnded(outcome=RunOutcome.NOTHING_TO_DO)),
        *in_lane("2", read("p2"), e.RunEnded(outcome=RunOutcome.DONE)),
    ]

    assert decide(fold(facts)).actions == (a.READ_PLAN,)


def test_a_request_for_the_run_reaches_every_lane() -> None:
    facts = [*two_lanes(), *in_lane("1", *at_work("p1", "d1")), *in_lane("2", *at_work("p2", "d2"))]
    stopped = decide(fold([*facts, e.StopRequested(by="me")]))
    halted = decide(fold([*two_lanes(), e.Halted(by="me")]))

    assert stopped.actions == (replace(a.END, lane="1"), replace(a.END, lane="2"))
    assert halted.waiting == "paused"
    assert decide(fold([*two_lanes(), e.Halted(by="me"), e.Continued()])).waiting is None


ASKED = e.QuestionAsked(id="q1", text="which port?", phase="p1")


def test_a_lane_with_a_question_gives_its_place_to_a_further_phase_and_the_answer_reaches_it_alone() -> None:
    facts = [*two_lanes(), *in_lane("1", *at_work("p1", "d1")), *in_lane("2", *at_work("p2", "d2"))]
    facts += in_lane("1", e.DispatchEnded(id="d1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, said="blocked"))
    assert decide(fold(facts)).actions == (replace(a.ASK_QUESTION, lane="1"), replace(a.AWAIT, lane="2"))
    facts += in_lane("1", ASKED)
    asked = decide(fold(facts))
    assert asked.actions == (replace(a.AWAIT, lane="2"), a.READ_PLAN)
    assert asked.waiting is None
    facts += [e.LanesChosen(tip="c0", lanes=()), *in_lane("2", e.RunEnded(outcome=RunOutcome.DONE))]
    facts += [e.LanesChosen(tip="c0", lanes=())]
    assert decide(fold(facts)).waiting == "question"
    (action,) = decide(fold([*facts, e.QuestionAnswered(id="q1", text="8080")])).actions
    assert (action.lane, action.step) == ("1", "start")


def test_a_rejection_applies_to_the_lane_of_its_candidate() -> None:
    built = [
        e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree=tree, patch="p") for tree in ("t1", "t2")
    ]
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
    ended = e.DispatchEnded(id="d", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, said="blocked", detail="which?")
    begun = [keep(started(), parallel=1), e.PhaseChosen(tip="t", phase="1", touches=("a",))]
    leased = e.Leased(phase="1", branch="b", base="c", base_tree="t", worktree="w", attempt=1)
    state = fold([*begun, leased, e.DispatchStarted(id="d", role=Role.IMPLEMENT, cycle=1, agent="r"), ended])
    state = apply(state, e.QuestionAsked(id="q", text="which?", phase="1"))
    assert [action.step for action in decide(state).actions] == ["read-plan"]
    assert decide(apply(state, e.LanesChosen(tip="t", lanes=()))).waiting is WaitKind.QUESTION

    state = apply(state, e.LanesChosen(tip="t", lanes=(("1", "2", ("b",)),)))
    assert [(action.step, action.lane) for action in decide(state).actions] == [("read-plan", "1")]
    answered = apply(state, e.QuestionAnswered(id="q", text="this"))
    assert ("start", "") in [(action.step, action.lane) for action in decide(answered).actions]
    over = apply(state, replace(e.RunEnded(outcome=RunOutcome.DONE), lane="1"))
    assert [action.step for action in decide(over).actions] == ["read-plan"], "further phases may start"
    assert decide(apply(over, e.LanesChosen(tip="t", lanes=()))).waiting is WaitKind.QUESTION


@pytest.mark.parametrize(
    "event",
    [
        e.NoWork(tip="t", detail="no phases", kind=NoWorkKind.UNREADABLE),
        e.Concluded(reason=Reason.PR_CLOSED, note="closed"),
    ],
)
def test_a_phase_that_asks_is_kept_while_no_other_phase_can_be_read(event: e.Event) -> None:
    begun = [started(), e.PhaseChosen(tip="t", phase="1", touches=("a",))]
    leased = e.Leased(phase="1", branch="b", base="c", base_tree="t", worktree="w", attempt=1)
    state = fold([*begun, leased, e.QuestionAsked(id="q", text="which?", phase="1"), event])
    assert decide(state).waiting is WaitKind.QUESTION
    (action,) = decide(apply(state, e.QuestionAnswered(id="q", text="this"))).actions
    assert action.step == "start"


def lanes_that_end(*endings: e.Event, **options: Any) -> RunState:
    """Two lanes that ask; then these events, after which both have ended."""
    first, *rest = two_lanes()
    assert isinstance(first, e.RunStarted)
    facts: list[e.Event] = [keep(first, **options), *rest]
    for lane in ("1", "2"):
        ended = e.DispatchEnded(id=f"d{lane}", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, said="blocked")
        asked = e.QuestionAsked(id=f"q{lane}", text="which?", phase=f"p{lane}")
        facts += in_lane(lane, *at_work(f"p{lane}", f"d{lane}"), ended, asked)
    return fold([*facts, e.LanesChosen(tip="c0", lanes=()), *endings])


def fails(lane: str, reason: Reason, outcome: RunOutcome) -> list[e.Event]:
    failed = e.PhaseFailed(phase=f"p{lane}", reason=reason, step=PhaseStep.IMPLEMENT, detail="why")
    return in_lane(lane, failed, e.CleanedUp(phase=f"p{lane}"), e.RunEnded(outcome=outcome, reason=reason))


def test_a_revision_ends_the_lanes_that_wait_for_a_person_and_the_run_continues_after_it() -> None:
    planning = e.Planning(goal="Better.", is_revision=True)
    requested = lanes_that_end(RevisionRequested(planning=planning))
    assert [(action.step, action.lane) for action in decide(requested).actions] == [("fail", "1"), ("fail", "2")]
    stopped = [*fails("1", Reason.STOPPED, RunOutcome.STOPPED), *fails("2", Reason.STOPPED, RunOutcome.STOPPED)]
    state = lanes_that_end(RevisionRequested(planning=planning), *stopped)
    assert decide(state).actions == (a.CHOOSE_GOAL,)
    chosen = PlanningChosen(tip="c0", title="X", text="Better.", planning=planning)
    landed = e.Landed(id="l", phase="", tip="c1", code="c1")
    for event in (chosen, landed, e.CleanedUp(phase="")):
        state = apply(state, event)
    assert decide(state).actions == (a.READ_PLAN,)


def test_a_lane_whose_phase_does_not_fit_the_code_has_the_plan_revised() -> None:
    endings = [*in_lane("1", e.RunEnded(outcome=RunOutcome.DONE)), *fails("2", Reason.DRIFT, RunOutcome.FAILED)]
    assert decide(lanes_that_end(*endings, planner="claude")).actions == (a.CHOOSE_GOAL,)
    assert [action.step for action in decide(lanes_that_end(*endings, planner="claude", replan=False)).actions] == [
        "finish"
    ]
