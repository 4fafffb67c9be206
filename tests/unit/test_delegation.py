"""A phase that another plan or a command does: what is waited for, and when its row lands."""

import pytest

from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import CommandAltered
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Role, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.state import fold
from tests.support.builders import BUILT, decided, ended, started

CHOSEN = e.SubplanChosen(tip="c0", phase="2", title="Two", subplan="plans/SUB.md")
STOPPED = e.StopRequested(by="a person")
NOT_COMPLETE = e.SubplanEnded(complete=False, run="r2", detail="plans/SUB.md is not complete (phase 1, no-commits)")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), "waits for sub-plan"),
        ((e.Woke(kind=WaitKind.SUBPLAN),), "waits for sub-plan"),
        ((e.Halted(by="a person"),), "waits for paused"),
        ((STOPPED,), "waits for sub-plan"),  # the run of the sub-plan ends first
        ((STOPPED, NOT_COMPLETE), "fail stopped at stop: stopped by a person"),
        ((NOT_COMPLETE,), f"fail blocked at sub-plan: {NOT_COMPLETE.detail}"),
        ((e.SubplanEnded(complete=True, run="r2"),), "land"),
        ((e.SubplanEnded(complete=True), e.LandingMoved(tip="c1")), "read-plan"),
    ],
    ids=["begun", "woken", "paused", "stop", "stopped", "failed", "complete", "target moved"],
)
def test_the_row_lands_without_approval_when_a_sub_plan_is_complete(events: tuple[e.Event, ...], expected: str) -> None:
    assert decided(fold([started("finish", auto=False), CHOSEN, *events])) == expected


def test_status_names_the_sub_plan_and_no_person_is_needed() -> None:
    row = project_run(fold([started(), CHOSEN]), run="r1", plan="plans/X.md", started="", since="")
    assert (row.waiting_for, row.about, row.subplan, row.step) == ("sub-plan", *["plans/SUB.md"] * 2, "sub-plan")
    assert not row.needs_person


# --- a command ------------------------------------------------------------------------------------------

COMMAND = e.DelegateChosen(tip="c0", phase="2", title="Two", command="make release")
LEASE = e.Leased(phase="2", branch="b", base="c0", base_tree="t0", worktree="w", attempt=1)
BASELINE = e.BaselineKnown(key="k", tree="t0", results="")
BEGUN = (LEASE, BASELINE, e.DispatchStarted(id="r1.1", role=Role.DELEGATE, cycle=1))
MOVED = (
    e.WorkTaken(head="c1", tree="t1", commits=1),
    e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree="t1", patch="t1"),
)
ALTERED = CommandAltered(onto="c0", commit="c9", tree="t9", files=("Makefile",))
ASKED = (LEASE, BASELINE, ALTERED, e.ApprovalAsked(tree="t9"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((LEASE, BASELINE, ALTERED), "ask"),
        (ASKED, "waits for sign-off"),
        ((*ASKED, e.Answered(tree="t8", approved=True)), "waits for sign-off"),
        ((*ASKED, e.Answered(tree="t9", approved=True)), "delegate"),
        (
            (*ASKED, e.Answered(tree="t9", approved=False, why="no")),
            "fail stopped at delegate: the change was rejected: no",
        ),
    ],
    ids=["changed", "asked", "another answer", "approved", "rejected"],
)
def test_a_command_with_changed_files_waits_for_a_person_with_auto(events: tuple[e.Event, ...], expected: str) -> None:
    assert decided(fold([started("phase", auto=True), COMMAND, *events])) == expected


def test_a_command_that_has_run_is_not_asked_about_again() -> None:
    work = e.WorkTaken(head="c1", tree="t1", commits=1)
    asked = fold([started("phase"), COMMAND, *ASKED])
    assert asked.current.answerable == "t9"
    assert fold([started("phase"), COMMAND, *ASKED, work, BUILT]).current.answerable == "t1"


def over(ending: Ending, code: int | None = 0) -> e.DispatchEnded:
    return ended("r1.1", "delegate", ending, code)


def checked(ending: Ending) -> tuple[e.Event, ...]:
    return e.DispatchStarted(id="r1.2", role=Role.GATE, cycle=1, tree="t1"), ended("r1.2", "gate", ending)


def red(time: int) -> e.GateJudged:
    return e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="exit 1", time=time)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), "lease"),
        ((LEASE, BASELINE), "delegate"),
        (BEGUN, "await"),
        ((*BEGUN, over(Ending.EXITED)), "take-delegated"),
        ((*BEGUN, over(Ending.LOST, None)), "delegate"),  # unless the target has moved
        ((*BEGUN, over(Ending.EXITED, 3)), "fail agent-failed"),
        ((*BEGUN, over(Ending.TIMEOUT, None)), "fail timeout"),
        ((*BEGUN, over(Ending.SURVIVED)), "fail agent-failed"),
        ((*BEGUN, over(Ending.EXITED), e.WorkTaken(head="c0", tree="t0", commits=0)), "fail no-commits"),
        ((*BEGUN, over(Ending.EXITED), *MOVED), "gate t1"),
        ((*BEGUN, over(Ending.EXITED), *MOVED, *checked(Ending.SURVIVED)), "fail tests-unfinished"),
        ((*BEGUN, over(Ending.EXITED), *MOVED, *checked(Ending.BUDGET)), "fail budget"),
        ((*BEGUN, over(Ending.EXITED), *MOVED, red(1)), "gate t1"),
        ((*BEGUN, over(Ending.EXITED), *MOVED, red(1), red(2)), "fail tests-failed"),
        ((*BEGUN, over(Ending.EXITED), *MOVED, e.LandingMoved(tip="c2")), "take-delegated"),
    ],
)
def test_a_command_is_proven_on_the_target(events: tuple[e.Event, ...], expected: str) -> None:
    assert decided(fold([started("finish"), COMMAND, *events])).partition(" at ")[0] == expected
