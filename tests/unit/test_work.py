"""The current work of a run, from its state."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode, Role, RunOutcome
from runplan.domain.run.projection import project_run
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import fold
from tests.support.builders import keep, started

READ = e.PhaseChosen(tip="c", phase="1")
LEASED = e.Leased(phase="1", branch="b", base="c", base_tree="t", worktree="w", attempt=1)


def began(id: str, role: str = "implement", cycle: int = 1, *, agent: str = "claude", again: str = "") -> e.Event:
    return e.DispatchStarted(id=id, role=Role(role), agent=agent, cycle=cycle, again=again, at=f"at {id}", tree="t")


def ended(id: str, role: str = "implement", tokens: tuple[int, int] = (0, 0), usd: float = 0.0) -> e.Event:
    sent, received = tokens
    return e.DispatchEnded(
        id=id, role=Role(role), ending=Ending.EXITED, code=0, input_tokens=sent, output_tokens=received, usd=usd
    )


def work(*events: e.Event) -> RunRow:
    return shown(started(), READ, LEASED, *events)


def shown(*events: e.Event) -> RunRow:
    return project_run(fold(events), run="r", plan="p", started="", since="")


def test_the_running_agent_is_the_one_whose_end_is_not_recorded() -> None:
    now = work(began("r.1"), ended("r.1"), began("r.2", "verify"))
    assert (now.dispatch, now.agent, now.dispatched) == ("r.2", "claude", "at r.2")
    rest = work(began("r.1"), ended("r.1"))
    assert (rest.dispatch, rest.agent, rest.dispatched) == (None, None, None)


def test_a_step_began_with_the_first_process_of_its_role_and_cycle() -> None:
    again = (began("r.1"), ended("r.1"), began("r.2", again="lost"))
    later = work(*again, ended("r.2"), began("r.3", "verify"))
    assert [(row.step, row.began) for row in (work(*again), later)] == [("implement", "at r.1"), ("verify", "at r.3")]


def test_a_request_holds_until_it_is_withdrawn_and_a_stop_for_ever() -> None:
    pause, stop = e.Halted(by="me"), e.StopRequested(by="me")
    goes_on = (e.Continued(), e.RunResumed(mode=Mode.FINISH, wanted="", auto=True))
    assert work(began("r.1")).asked is None
    assert work(began("r.1"), pause).asked == "pause"
    assert [work(pause, word).asked for word in goes_on] == [None, None]
    assert [work(stop, word).asked for word in (pause, *goes_on)] == ["stop"] * 3


def test_a_command_of_the_project_has_no_agent() -> None:
    gate = e.DispatchStarted(id="r.1", role=Role.GATE, agent="", cycle=1, gates=("lint", "types"))
    assert (work(gate).dispatch, work(gate).agent, work(gate).gates) == ("r.1", None, ("lint", "types"))
    assert work(gate, ended("r.1", "gate")).gates == ()


def test_usage_is_summed_over_all_phases_and_knows_an_agent_without_a_cost() -> None:
    first = (began("r.1"), ended("r.1", tokens=(10, 5), usd=0.5), READ, LEASED)
    now = work(*first, began("r.2"), ended("r.2", tokens=(1, 2), usd=0.25))
    assert (now.tokens, now.usd, now.unpriced) == (18, 0.75, False)
    assert work(*first, began("r.2"), ended("r.2", tokens=(1, 2))).unpriced


@pytest.mark.parametrize(
    ("events", "retries"),
    [
        ((began("1"),), 0),
        ((began("1"), ended("1"), began("2", again="killed")), 1),
        ((began("1"), ended("1"), began("2", "fix", 2), ended("2", "fix"), began("3", "verify", 2)), 1),
        ((began("1"), ended("1"), e.HandedOver(number=1, tree="t", note="", why="full"), began("2")), 1),
        ((began("1"), ended("1"), began("2", again="killed"), READ, LEASED, began("3")), 0),
    ],
    ids=["the first", "killed", "a fix, and its verifier", "handed over", "of another phase"],
)
def test_retries_are_fixes_hand_overs_and_repeated_agents(events: tuple[e.Event, ...], retries: int) -> None:
    assert work(*events).retries == retries


def test_each_lane_has_its_phase_and_a_failed_one_is_shown_while_others_continue() -> None:
    lanes = e.LanesChosen(tip="c", lanes=(("1", "3", ("a",)), ("2", "4", ("b",)), ("3", "5", ("c",))))
    failed = e.RunEnded(outcome=RunOutcome.FAILED, reason="agent-failed", lane="1")
    facts = [
        keep(started(), parallel=3),
        lanes,
        *(replace(event, lane="1") for event in (READ, LEASED, began("r_1.1"), ended("r_1.1", tokens=(1, 1), usd=0.5))),
        failed,
        *(replace(event, lane="2") for event in (replace(READ, phase="4"), LEASED, began("r_2.1"))),
        e.RunEnded(outcome=RunOutcome.DONE, lane="3"),
    ]
    now = shown(*facts)
    lanes_shown = [(lane.phase, lane.dispatch, lane.failed) for lane in now.lanes]
    assert lanes_shown == [("3", None, "agent-failed"), ("4", "r_2.1", None)]
    assert (now.dispatch, now.tokens, now.usd) == ("r_2.1", 2, 0.5)
    assert shown(*facts, replace(failed, lane="2")).lanes == ()
