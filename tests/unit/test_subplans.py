"""A phase that another plan does: what is waited for, and when its row lands."""

import pytest

from runplan.run import actions as a, events as e
from runplan.run.decide import decide
from runplan.run.kinds import PhaseStep, Reason, WaitKind
from runplan.run.projection import project_run
from runplan.run.state import fold
from tests.support.builders import started

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
        (
            (NOT_COMPLETE,),
            (a.Fail(reason=Reason.BLOCKED, at=PhaseStep.SUBPLAN, detail=NOT_COMPLETE.detail),),
            None,
        ),
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
