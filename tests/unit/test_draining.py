"""A run that is let go of begins nothing new, and what was ended for that is begun again by the next runner."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from runplan.daemon.lifecycle import ENDING_S, Drain
from runplan.run import actions as a, events as e
from runplan.run.decide import decide, ends, without_beginnings
from runplan.run.state import RunState, apply, fold, running
from tests.support.machine import Chance, started

MANY = 200


def driven(data: st.DataObject) -> tuple[Chance, RunState]:
    """A run somewhere on its way, in a world of chance."""
    world = Chance(lambda words: data.draw(st.sampled_from(list(words))))
    state = fold([started()])
    for _ in range(data.draw(st.integers(0, 40))):
        for action in decide(state).actions:
            for event in world.answer(action, state):
                state = apply(state, event)
    return world, state


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_run_that_is_drained_comes_to_rest_without_another_process(data: st.DataObject) -> None:
    world, state = driven(data)
    for _ in range(MANY):
        decision = without_beginnings(decide(state))
        if not decision.actions:
            break
        for action in decision.actions:
            for event in world.answer(action, state):
                assert not isinstance(event, e.DispatchStarted | e.Leased | e.PlanRead)
                state = apply(state, event)
    assert running(state) == []
    left = decide(state)
    assert left.waiting or state.ended or all(isinstance(one, (a.ReadPlan, a.Lease, a.Start)) for one in left.actions)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_ended_is_due_again_and_charged_to_nobody(data: st.DataObject) -> None:
    _, state = driven(data)
    began = state.phase.dispatch if state.phase else None
    for action in ends(state):
        assert isinstance(action, a.End)
        assert began is not None
        state = apply(state, e.DispatchEnded(id=action.id, role=began.role, ending="ended", code=None))
    assert running(state) == []
    assert ends(state) == ()
    if began is None or state.ended or (state.phase and (state.phase.failure or state.phase.refusal)):
        return
    (again,) = decide(state).actions
    assert isinstance(again, a.Start)
    assert (again.role, again.cycle, again.tree) == (began.role, began.cycle, began.tree)


def test_in_a_lane_the_same_holds() -> None:
    state = fold([started(), e.LanesChosen(tip="c1", lanes=(("l1", "1", ("a/",)), ("l2", "2", ("b/",))))])
    decision = decide(state)
    assert decision.actions
    assert without_beginnings(decision).actions == ()
    read = e.PlanRead(tip="c1", choice="next", phase="1")
    begun = e.DispatchStarted(id="d1", role="implement", agent="robot", cycle=1)
    for event in (read, begun):
        state = apply(state, e.LaneFact(lane="l1", event=event))
    assert ends(state) == (a.LaneAction(lane="l1", action=a.End(id="d1")),)


# --- the daemon's own end -------------------------------------------------------------------------------------


class House:
    """Something that drains, and its clock."""

    def __init__(self) -> None:
        self.at_rest = False
        self.done: list[str] = []
        self.time = 100.0
        self.drain_ = Drain(self, grace_s=lambda: 30.0, told=self.told, interrupt=self.interrupt, now=lambda: self.time)
        self.heard: list[tuple[str, float]] = []

    def told(self, step: str, within_s: float) -> None:
        self.heard.append((step, within_s))

    def drain(self) -> None:
        self.done.append("drain")

    def interrupt(self) -> None:
        self.done.append("interrupt")

    def end_agents(self) -> None:
        self.done.append("end-agents")


def test_nobody_asked_nothing_ends() -> None:
    house = House()
    house.at_rest = True
    assert (house.drain_.over, house.drain_.left_s, house.drain_.refusal) == (False, None, "")


def test_it_is_over_at_once_where_nothing_runs() -> None:
    house = House()
    house.at_rest = True
    house.drain_.ask()
    assert house.drain_.over


def test_it_is_over_when_the_last_agent_has_ended_or_the_grace_is() -> None:
    house = House()
    house.drain_.ask()
    assert (house.drain_.over, house.drain_.left_s, house.done) == (False, 30.0, ["drain"])
    house.time += 20
    assert house.drain_.refusal == ("the daemon is shutting down and starts nothing new; try again in 11s")
    house.at_rest = True
    assert house.drain_.over
    house.at_rest = False
    house.time += 10
    assert house.drain_.over


def test_the_second_word_ends_agents_and_the_third_waits_for_nobody() -> None:
    house = House()
    house.drain_.ask()
    house.time += 29
    house.drain_.ask()
    assert house.done == ["drain", "interrupt", "end-agents"]
    assert house.heard == [("draining", 30.0), ("ending-agents", ENDING_S)]
    house.time += 2
    assert not house.drain_.over, "agents are given the time that takes"
    house.drain_.ask()
    assert house.drain_.over


@pytest.mark.parametrize("times", [1, 3])
def test_a_hand_over_is_the_first_word_however_often_it_is_said(times: int) -> None:
    house = House()
    for _ in range(times):
        house.drain_.hand_over()
    assert house.done == ["drain"]
    assert not house.drain_.over
    house.drain_.ask()
    assert house.done == ["drain", "interrupt", "end-agents"], "who wants it to end after that wants it soon"
