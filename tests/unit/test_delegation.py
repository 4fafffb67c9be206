"""A phase that another plan or a command does: what is waited for, and when its row lands."""

import pytest

from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import CommandAltered
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, PhaseStep, Reason, Role, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.state import fold
from tests.support.builders import BUILT, started

CHOSEN = e.SubplanChosen(tip="c0", phase="2", title="Two", subplan="plans/SUB.md")
STOPPED = e.StopRequested(by="a person")
NOT_COMPLETE = e.SubplanEnded(complete=False, run="r2", detail="plans/SUB.md is not complete (phase 1, no-commits)")


@pytest.mark.parametrize(
    ("events", "actions", "waiting"),
    [
        ((), (), WaitKind.SUBPLAN),
        ((e.Woke(kind=WaitKind.SUBPLAN),), (), WaitKind.SUBPLAN),
        ((e.Halted(by="a person"),), (), WaitKind.PAUSED),
        ((STOPPED,), (), WaitKind.SUBPLAN),  # the run of the sub-plan ends first
        (
            (STOPPED, NOT_COMPLETE),
            (a.Fail(reason=Reason.STOPPED, at=PhaseStep.STOP, detail="stopped by a person"),),
            None,
        ),
        ((NOT_COMPLETE,), (a.Fail(reason=Reason.BLOCKED, at=PhaseStep.SUBPLAN, detail=NOT_COMPLETE.detail),), None),
        ((e.SubplanEnded(complete=True, run="r2"),), (a.LAND,), None),
        ((e.SubplanEnded(complete=True), e.LandingMoved(tip="c1")), (a.READ_PLAN,), None),
    ],
    ids=["begun", "woken", "paused", "stop", "stopped", "failed", "complete", "target moved"],
)
def test_the_row_lands_without_approval_when_the_sub_plan_is_complete(
    events: tuple[e.Event, ...], actions: tuple[a.Action, ...], waiting: WaitKind | None
) -> None:
    decision = decide(fold([started("finish", auto=False), CHOSEN, *events]))
    assert (decision.actions, decision.waiting) == (actions, waiting)


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
START = a.Start(dispatch=e.DispatchStarted(role=Role.DELEGATE, cycle=1))
ALTERED = CommandAltered(onto="c0", commit="c9", tree="t9", files=("Makefile",))
ASKED = (LEASE, BASELINE, ALTERED, e.ApprovalAsked(tree="t9"))


@pytest.mark.parametrize(
    ("events", "action", "waiting"),
    [
        ((LEASE, BASELINE, ALTERED), a.ASK, None),
        (ASKED, None, WaitKind.SIGN_OFF),
        ((*ASKED, e.Answered(tree="t8", approved=True)), None, WaitKind.SIGN_OFF),
        ((*ASKED, e.Answered(tree="t9", approved=True)), START, None),
        ((*ASKED, e.Answered(tree="t9", approved=False, why="no")),
         a.Fail(reason=Reason.STOPPED, at=PhaseStep.DELEGATE, detail="the change was rejected: no"), None),
    ],
    ids=["changed", "asked", "another answer", "approved", "rejected"],
)  # fmt: skip
def test_a_command_whose_files_have_changed_waits_for_a_person_also_with_auto(
    events: tuple[e.Event, ...], action: a.Action | None, waiting: WaitKind | None
) -> None:
    decision = decide(fold([started("phase", auto=True), COMMAND, *events]))
    assert (decision.actions, decision.waiting) == ((action,) if action else (), waiting)


def test_a_command_that_has_run_is_not_asked_about_again() -> None:
    work = e.WorkTaken(head="c1", tree="t1", commits=1)
    asked = fold([started("phase"), COMMAND, *ASKED])
    assert asked.current.answerable == "t9"
    assert fold([started("phase"), COMMAND, *ASKED, work, BUILT]).current.answerable == "t1"


def over(ending: Ending, code: int | None = 0) -> e.DispatchEnded:
    return e.DispatchEnded(id="r1.1", role=Role.DELEGATE, ending=ending, code=code)


def checked(ending: Ending) -> tuple[e.Event, ...]:
    gate = e.DispatchStarted(id="r1.2", role=Role.GATE, cycle=1, tree="t1")
    return gate, e.DispatchEnded(id="r1.2", role=Role.GATE, ending=ending, code=0)


def red(time: int) -> e.GateJudged:
    return e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="exit 1", time=time)


@pytest.mark.parametrize(
    ("events", "step"),
    [
        ((), "lease"),
        ((LEASE, BASELINE), START),
        (BEGUN, "await"),
        ((*BEGUN, over(Ending.EXITED)), "take-delegated"),
        ((*BEGUN, over(Ending.LOST, None)), START),  # unless the target has moved
        ((*BEGUN, over(Ending.EXITED, 3)), Reason.AGENT_FAILED),
        ((*BEGUN, over(Ending.TIMEOUT, None)), Reason.TIMEOUT),
        ((*BEGUN, over(Ending.SURVIVED)), Reason.AGENT_FAILED),
        ((*BEGUN, over(Ending.EXITED), e.WorkTaken(head="c0", tree="t0", commits=0)), Reason.NO_COMMITS),
        ((*BEGUN, over(Ending.EXITED), *MOVED), Role.GATE),
        ((*BEGUN, over(Ending.EXITED), *MOVED, *checked(Ending.SURVIVED)), Reason.TESTS_UNFINISHED),
        ((*BEGUN, over(Ending.EXITED), *MOVED, *checked(Ending.BUDGET)), Reason.BUDGET),
        ((*BEGUN, over(Ending.EXITED), *MOVED, red(1)), Role.GATE),
        ((*BEGUN, over(Ending.EXITED), *MOVED, red(1), red(2)), Reason.TESTS_FAILED),
        ((*BEGUN, over(Ending.EXITED), *MOVED, e.LandingMoved(tip="c2")), "take-delegated"),
    ],
)
def test_a_command_is_proven_on_the_target(events: tuple[e.Event, ...], step: a.Start | Reason | Role | str) -> None:
    (action,) = decide(fold([started("finish"), COMMAND, *events])).actions
    match action:
        case a.Fail(reason=reason):
            assert reason is step
        case a.Start(dispatch=dispatch):
            assert step in (action, dispatch.role)
        case _:
            assert action.step == step
