"""The machine always knows what is next, never asks for the same thing for ever, and lands a phase once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runplan.core import actions as a
from runplan.core import events as e
from runplan.core.decide import MAX_MOVES, decide
from runplan.core.eventtext import from_json, name_of, to_json
from runplan.core.reasons import Reason
from runplan.core.run import RunState, apply, fold
from tests.support.machine import Chance, started

MANY = 400


def drive(data: st.DataObject, begun: e.RunStarted) -> list[e.Event]:
    """Let the machine work in a world of chance until it ends or waits for good."""
    world = Chance(lambda words: data.draw(st.sampled_from(list(words))))
    events: list[e.Event] = [begun]
    state = fold(events)
    for _ in range(MANY):
        decision = decide(state)
        if decision.waiting:
            events.append(e.RunResumed(mode=begun.mode, wanted="", auto=True))
            state = apply(state, events[-1])
            continue
        if not decision.actions:
            return events
        before = decision
        for action in decision.actions:
            for event in world.answer(action, state):
                events.append(event)
                state = apply(state, event)
        running = isinstance(before.actions[0], a.Await)
        assert running or decide(state) != before, f"{before} changed nothing"
    raise AssertionError(f"no end after {MANY} steps: {decide(state).why}")


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    st.sampled_from(["next", "finish"]),
    st.booleans(),
    st.sampled_from(["", "make test"]),
    st.sampled_from(["", "make setup"]),
)
def test_whatever_happens_a_run_ends_in_a_named_outcome(
    data: st.DataObject, mode: str, auto: bool, test_command: str, setup: str
) -> None:
    events = drive(data, started(mode, auto=auto, test_command=test_command, setup=setup))
    ended = events[-1]
    assert isinstance(ended, e.RunEnded)
    assert ended.outcome in ("done", "failed", "refused", "stopped", "nothing-to-do")
    assert ended.reason == "" or Reason(ended.reason)
    if ended.outcome == "failed":
        assert ended.reason


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_nothing_lands_without_a_passed_verdict_and_a_gate_on_the_same_tree(data: st.DataObject) -> None:
    events = drive(data, started())
    state = RunState()
    for event in events:
        if isinstance(event, e.LandingStarted) and state.phase is not None and state.phase.candidate is not None:
            tree = state.phase.candidate.tree
            assert state.phase.gates[-1].tree == tree
            assert state.phase.gates[-1].answer == "passed"
            assert state.phase.verdict is not None
            assert state.phase.verdict.passed
            assert state.phase.verdict.tree == tree or state.phase.verdict.patch == state.phase.candidate.patch
        state = apply(state, event)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_phase_lands_at_most_once_and_no_two_processes_run_at_once(data: st.DataObject) -> None:
    events = drive(data, started())
    landed = [event.phase for event in events if isinstance(event, e.Landed)]
    assert len(landed) == len(set(landed))
    running = ""
    for event in events:
        if isinstance(event, e.DispatchStarted):
            assert running == ""
            running = event.id
        if isinstance(event, e.DispatchEnded):
            assert event.id == running
            running = ""


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_there_are_never_more_fixes_than_allowed(data: st.DataObject) -> None:
    events = drive(data, started())
    fixes: dict[str, set[int]] = {}
    phase = ""
    for event in events:
        if isinstance(event, e.PlanRead):
            phase = event.phase
        if isinstance(event, e.DispatchStarted) and event.role == "fix":
            fixes.setdefault(phase, set()).add(event.cycle)
    # Two for failed proofs, and one more where the work had to be brought onto a moved target.
    assert all(len(cycles) <= 3 for cycles in fixes.values())


def test_events_survive_being_written_down() -> None:
    read = e.PlanRead(tip="c", choice="next", phase="1", items=(("W1", "x"),), touches=("a/**",))
    given = e.VerdictGiven(tree="t", patch="p", passed=False, items=(("W1", False, "no"),), agent="robot")
    for event in (started(), read, given, e.RunEnded(outcome="done")):
        assert from_json(name_of(event), to_json(event)) == event


def test_an_event_of_a_newer_version_is_passed_over_and_new_fields_are_ignored() -> None:
    assert from_json("FromTheFuture", "{}") is None
    assert from_json("RunEnded", '{"outcome": "done", "shape": "round"}') == e.RunEnded(outcome="done")


def landing(*more: e.Event) -> RunState:
    """A phase that is proven and about to land, and what happened then."""
    return fold(
        [
            started(test_command=""),
            e.PlanRead(tip="c0", choice="next", phase="1", items=(("W1", "x"),), final=True),
            e.Leased(phase="1", branch="b", base="c0", base_tree="t0", worktree="w", attempt=1, fresh=False),
            e.DispatchStarted(id="d1", role="implement", agent="r", cycle=1),
            e.DispatchEnded(id="d1", role="implement", ending="exited", code=0),
            e.WorkTaken(head="h", tree="t1", commits=1, pristine=True),
            e.CandidateBuilt(onto="c0", commits=("c1",), tree="t1", patch="p"),
            e.GateJudged(tree="t1", answer="skipped", code=None, line="", time=1),
            e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "y"),), agent="r"),
            *more,
        ]
    )


def test_a_proven_candidate_lands_at_once_with_auto() -> None:
    assert decide(landing()).actions == (a.Land(),)


def test_a_begun_landing_is_asked_about_before_anything_else() -> None:
    begun = e.LandingStarted(id="l", ref="r", old="c0", new="c2", code="c1", locks=())
    assert decide(landing(begun)).actions == (a.Land(),)
    assert decide(landing(begun, e.StopRequested(by="me"))).actions == (a.Land(),)


def test_a_verdict_carries_over_when_only_the_target_moved() -> None:
    moved = landing(
        e.LandingMoved(id="l", tip="c9"), e.CandidateBuilt(onto="c9", commits=("c10",), tree="t9", patch="p")
    )
    assert moved.phase is not None
    assert moved.phase.verdict is not None
    assert decide(moved).actions == (a.JudgeGate(tree="t9"),)


def test_a_verdict_does_not_carry_over_when_the_change_is_another() -> None:
    moved = landing(
        e.LandingMoved(id="l", tip="c9"), e.CandidateBuilt(onto="c9", commits=("c10",), tree="t9", patch="other")
    )
    assert moved.phase is not None
    assert moved.phase.verdict is None


def test_a_target_that_keeps_moving_ends_the_phase() -> None:
    moves: list[e.Event] = []
    for number in range(MAX_MOVES + 1):
        moves += [
            e.LandingMoved(id="l", tip=f"c{number}"),
            e.CandidateBuilt(onto=f"c{number}", commits=("k",), tree="t1", patch="p"),
        ]
    (action,) = decide(landing(*moves)).actions
    assert isinstance(action, a.Fail)
    assert action.reason == Reason.TARGET_MOVING


def test_a_held_landing_waits_until_somebody_calls_it_on() -> None:
    held = e.LandingHeld(id="l", why="a.txt is edited")
    waiting = decide(landing(held))
    assert (waiting.actions, waiting.waiting) == ((), "checkout")
    assert "a.txt is edited" in waiting.why
    assert decide(landing(held, e.RunResumed(mode="finish", wanted="", auto=True))).actions == (a.Land(),)


def test_a_rejected_candidate_is_not_landed() -> None:
    (action,) = decide(landing(e.ApprovalAsked(tree="t1"), e.Rejected(tree="t1", why="no"))).actions
    assert isinstance(action, a.Fail)
    assert (action.reason, action.detail) == (Reason.STOPPED, "the candidate was rejected: no")
