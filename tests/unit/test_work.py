"""The current work of a run, from its journal."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from runplan.run.progress import Step, work_of

READ = Step("2026-01-01T00:00:00Z", "PlanRead")


def began(id: str, role: str = "implement", cycle: int = 1, *, agent: str = "claude", tree: str = "") -> Step:
    return Step(f"at {id}", "DispatchStarted", id=id, role=role, agent=agent, cycle=cycle, tree=tree)


def ended(id: str, tokens: tuple[int, int] = (0, 0), usd: float = 0.0) -> Step:
    return Step(f"at {id}", "DispatchEnded", id=id, input_tokens=tokens[0], output_tokens=tokens[1], usd=usd)


def test_running_agents_are_those_started_without_an_end() -> None:
    work = work_of([READ, began("r.1"), ended("r.1"), began("r.2", "verify")])
    assert (work.dispatch, work.agent, work.dispatched) == ("r.2", "claude", "at r.2")
    over = work_of([READ, began("r.1"), ended("r.1")])
    for rest, role, since in ((over, "implement", "at r.1"), (work.at_rest(), "verify", "at r.2")):
        assert (rest.dispatch, rest.agent, rest.step) == (None, None, None)
        assert (rest.role, rest.since, rest.began) == (role, since, since)
    assert work_of([READ, began("r.2"), ended("r.1")]).dispatch == "r.2"


def test_a_step_began_with_the_first_of_those_who_had_its_task() -> None:
    again = [READ, began("r.1"), ended("r.1"), began("r.2"), ended("r.2")]
    assert [(work.role, work.began) for work in (work_of(again), work_of([*again, began("r.3", "verify")]))] == [
        ("implement", "at r.1"),
        ("verify", "at r.3"),
    ]
    assert work_of([*again, READ]).began is None


def test_a_request_holds_until_it_is_withdrawn_and_a_stop_for_ever() -> None:
    pause, stop = Step("at 8", "Halted"), Step("at 8", "StopRequested")
    goes_on = (Step("at 9", "Continued"), Step("at 9", "RunResumed"))
    assert work_of([READ, began("r.1")]).asked is None
    assert work_of([READ, began("r.1"), pause]) == replace(work_of([READ, began("r.1")]), asked="pause")
    assert [work_of([READ, pause, word]).asked for word in goes_on] == [None, None]
    assert [work_of([READ, stop, word]).asked for word in (pause, *goes_on)] == ["stop"] * 3
    assert work_of([*in_lane("1", began("r_1.1")), stop]).at_rest().asked == "stop"


def test_a_command_of_the_project_has_no_agent() -> None:
    gate = replace(began("r.1", "gate", agent=""), gates='["lint", "types"]')
    work = work_of([READ, gate])
    assert (work.dispatch, work.agent, work.gates) == ("r.1", None, ("lint", "types"))
    assert work_of([READ, gate, ended("r.1")]).gates == ()


def test_usage_is_summed_over_all_phases() -> None:
    steps = [
        READ,
        began("r.1"),
        ended("r.1", (10, 5), 0.5),
        READ,
        began("r.2"),
        ended("r.2", (1, 2), 0.25),
        began("r.3"),
    ]
    work = work_of(steps)
    assert (work.tokens, work.usd) == (18, 0.75)
    assert (work.at_rest().tokens, work.at_rest().dispatch) == (18, None)


@pytest.mark.parametrize(
    ("steps", "retries"),
    [
        ([began("1")], 0),
        ([began("1"), began("2")], 1),
        ([began("1"), began("2"), began("3")], 2),
        ([began("1"), began("2", "verify"), began("3", "fix", 2), began("4", "verify", 2)], 1),
        ([began("1"), began("2", "fix", 2), began("3", "fix", 2), began("4", "fix", 3)], 3),
        ([began("1", "verify", tree="a"), began("2", "verify", tree="b")], 0),
        ([began("1", "verify", tree="a"), began("2", "verify", tree="a")], 1),
        ([began("1", "gate", agent=""), began("2", "gate", agent="")], 0),
        ([began("1"), began("2"), READ, began("3")], 0),
    ],
    ids=[
        "the first",
        "lost, limited or handed over",
        "twice",
        "a fix, and what verifies it",
        "a fix that was repeated counts as well",
        "a verifier on another tree",
        "a verifier on the same tree",
        "checks that run twice",
        "of another phase",
    ],
)
def test_retries_are_fixes_and_agents_on_the_same_task_again(steps: list[Step], retries: int) -> None:
    assert work_of([READ, *steps]).retries == retries


def test_a_sum_knows_that_an_agent_reported_no_cost() -> None:
    priced, unpriced, unused = ended("r.1", (1, 1), 0.1), ended("r.2", (1, 1)), ended("r.3")
    assert [work_of([READ, *steps]).unpriced for steps in ([priced, unused], [priced, unpriced])] == [False, True]


def in_lane(lane: str, *steps: Step) -> list[Step]:
    return [replace(step, lane=lane) for step in steps]


def test_each_lane_has_its_phase_and_usage_is_summed() -> None:
    one = in_lane(
        "1", Step("at 0", "PlanRead", phase="3"), began("r_1.1"), ended("r_1.1", (10, 5), 0.5), began("r_1.2", "verify")
    )
    two = in_lane("2", Step("at 0", "PlanRead", phase="4"), began("r_2.1"), began("r_2.2"))
    over = in_lane("3", began("r_3.1"), ended("r_3.1", (1, 1)), Step("at 9", "RunEnded"))

    work = work_of([READ, began("r.1"), ended("r.1", (100, 0)), *one, *two, *over])

    assert [(lane.phase, lane.step, lane.dispatch, lane.retries) for lane in work.lanes] == [
        ("3", "verify", "r_1.2", 0),
        ("4", "implement", "r_2.2", 1),
    ]
    assert (work.tokens, work.usd, work.retries) == (117, 0.5, 1)


def test_a_failed_lane_is_reported_while_others_continue() -> None:
    lost = in_lane("1", Step("at 0", "PlanRead", phase="3"), began("r_1.1"), ended("r_1.1"))
    over = Step("at 9", "RunEnded", lane="1", outcome="failed", reason="agent-failed")
    goes_on = in_lane("2", Step("at 0", "PlanRead", phase="4"), began("r_2.1"))

    assert [(lane.phase, lane.failed) for lane in work_of([*lost, over, *goes_on]).lanes] == [
        ("3", "agent-failed"),
        ("4", None),
    ]
    assert work_of([*lost, over]).lanes == ()


def test_the_run_has_its_own_state_when_every_lane_has_ended() -> None:
    work = work_of([*in_lane("1", began("r_1.1"), ended("r_1.1"), Step("at 9", "RunEnded")), READ, began("r.1")])
    assert (work.dispatch, work.lanes) == ("r.1", ())
