"""A schedule rests after a run that failed at a phase or found no plan, and after no other."""

import pytest
from msgspec.structs import replace

from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import events as e
from runplan.domain.run.decide import pause_reason, pending_answer
from runplan.domain.run.kinds import PhaseStep, Reason, RunOutcome
from runplan.domain.run.state import fold
from tests.support.builders import BUILT, started

READ = e.PhaseChosen(tip="c1", phase="2")
BLOCKED = e.NoWork(tip="c1", detail="phase 2 waits for 1", kind=NoWorkKind.BLOCKED)
DRAFT = e.NoWork(tip="c1", detail="the plan says status: draft", kind=NoWorkKind.INACTIVE)
GONE = e.NoWork(tip="c1", detail="it is gone", kind=NoWorkKind.UNREADABLE)
FAILED = e.PhaseFailed(phase="2", reason=Reason.AGENT_FAILED, step=PhaseStep.IMPLEMENT, detail="x")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([READ, FAILED, e.RunEnded(outcome=RunOutcome.FAILED, reason="agent-failed")], "phase 2 failed (agent-failed)"),
        (
            [READ, FAILED, e.RunEnded(outcome=RunOutcome.REFUSED, reason="baseline-red")],
            "phase 2 failed (baseline-red)",
        ),
        ([READ, e.RunEnded(outcome=RunOutcome.FAILED, reason="crashed")], "the run failed (crashed)"),
        ([READ, FAILED], ""),
        ([READ, FAILED, e.RunEnded(outcome=RunOutcome.STOPPED, reason="stopped")], ""),
        ([READ, e.RunEnded(outcome=RunOutcome.DONE)], ""),
        ([e.RunEnded(outcome=RunOutcome.REFUSED, reason="blocked")], ""),
        ([BLOCKED, e.RunEnded(outcome=RunOutcome.REFUSED, reason="blocked", detail="phase 2 waits for 1")], ""),
        ([GONE, e.RunEnded(outcome=RunOutcome.REFUSED, reason="blocked", detail="it is gone")], "it is gone"),
        ([DRAFT, e.RunEnded(outcome=RunOutcome.REFUSED, reason="blocked", detail=DRAFT.detail)], DRAFT.detail),
    ],
    ids=["failed", "refused", "crashed", "not-ended", "stopped", "done", "no-phase", "waits", "gone", "draft"],
)
def test_a_failure_pauses_the_schedule_until_it_is_resumed(facts: list[e.Event], why: str) -> None:
    begun = replace(started("next"), daemon=True)
    state = fold([begun, *facts])
    assert pause_reason(state) == why


@pytest.mark.parametrize("daemon", [True, False])
def test_a_rejection_pauses_the_schedule_of_any_run(*, daemon: bool) -> None:
    no: list[e.Event] = [
        BUILT,
        e.Answered(tree="t1", approved=False),
        replace(FAILED, reason=Reason.STOPPED),
        e.RunEnded(outcome=RunOutcome.STOPPED),
    ]
    state = fold([replace(started("next"), daemon=daemon), READ, *no])
    assert pause_reason(state) == "phase 2 was rejected"


def test_a_manual_run_pauses_no_schedule() -> None:
    state = fold([started("next"), READ, FAILED, e.RunEnded(outcome=RunOutcome.FAILED, reason="agent-failed")])
    assert pause_reason(state) == ""


OPEN = "a run of plans/x.md without `auto` has not ended: {}; see: runplan status plans/x.md"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([started("next", auto=False), READ], OPEN.format("the phase needs a worktree and a branch")),
        ([started("next", auto=True), READ], ""),
        ([started("next", auto=False), READ, e.RunEnded(outcome=RunOutcome.DONE)], ""),
        ([], ""),
    ],
    ids=["unfinished", "auto", "ended", "none"],
)
def test_a_firing_does_not_continue_a_run_without_auto(facts: list[e.Event], why: str) -> None:
    assert pending_answer(fold(facts), "plans/x.md") == why
