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


def ended(outcome: str, reason: str = "", detail: str = "") -> e.RunEnded:
    return e.RunEnded(outcome=RunOutcome(outcome), reason=reason, detail=detail)


REJECTED = [BUILT, e.Answered(tree="t1", approved=False), replace(FAILED, reason=Reason.STOPPED), ended("stopped")]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([READ, FAILED, ended("failed", "agent-failed")], "phase 2 failed (agent-failed)"),
        ([READ, FAILED, ended("refused", "baseline-red")], "phase 2 failed (baseline-red)"),
        ([READ, ended("failed", "crashed")], "the run failed (crashed)"),
        ([READ, FAILED], ""),
        ([READ, FAILED, ended("stopped", "stopped")], ""),
        ([READ, ended("done")], ""),
        ([ended("refused", "blocked")], ""),
        ([BLOCKED, ended("refused", "blocked", "phase 2 waits for 1")], ""),
        ([GONE, ended("refused", "blocked", "it is gone")], "it is gone"),
        ([DRAFT, ended("refused", "blocked", DRAFT.detail)], DRAFT.detail),
        ([READ, *REJECTED], "phase 2 was rejected"),
    ],
    ids=["failed", "refused", "crashed", "open", "stopped", "done", "no phase", "waits", "gone", "draft", "rejected"],
)
def test_a_failure_pauses_the_schedule_until_it_is_resumed(facts: list[e.Event], why: str) -> None:
    assert pause_reason(fold([replace(started("next"), daemon=True), *facts])) == why
    by_hand = why if "rejected" in why else ""
    assert pause_reason(fold([started("next"), *facts])) == by_hand, "a manual run pauses none, unless rejected"


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
