"""How an attempt begins after a failure, by its reason and step, and what is done first."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import actions as a, events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import Beginning, PhaseStep, Reason, Role
from runplan.domain.run.reasons import beginning_after
from runplan.domain.run.state import fold
from tests.support.builders import started

PROVE, FIX, CONTINUE, ANEW = Beginning.PROVE, Beginning.FIX, Beginning.CONTINUE, Beginning.ANEW

#: After each reason, by the step that failed; `fix` and `verify` count as one.
TABLE = {
    Reason.NO_COMMITS: (ANEW, ANEW),
    Reason.OFF_BASE: (ANEW, ANEW),
    Reason.VERIFICATION_FAILED: (FIX, FIX),
    Reason.TESTS_FAILED: (FIX, FIX),
    Reason.TAMPERED: (FIX, FIX),
    Reason.OUT_OF_SCOPE: (FIX, FIX),
    Reason.AGENT_FAILED: (CONTINUE, PROVE),
    Reason.AGENT_MISSING: (CONTINUE, PROVE),
    Reason.BLOCKED: (CONTINUE, PROVE),
    **dict.fromkeys(
        (
            *(Reason.INVALID_VERDICT, Reason.TESTS_UNFINISHED, Reason.GUARD_VIOLATED, Reason.READONLY_VIOLATED),
            *(Reason.CONFLICT, Reason.TARGET_MOVING, Reason.PROTECTED, Reason.DRIFT, Reason.TIMEOUT, Reason.SILENT),
            *(Reason.NO_PROGRESS, Reason.BUDGET, Reason.BASELINE_RED, Reason.SETUP_FAILED, Reason.ALREADY_ON_TARGET),
            *(Reason.PLAN_INVALID, Reason.PLAN_NOT_COMMITTED, Reason.CI_FAILED, Reason.PR_CLOSED),
            *(Reason.FORGE_UNREACHABLE, Reason.STOPPED, Reason.CRASHED),
        ),
        (PROVE, PROVE),
    ),
}


def failed(reason: Reason, step: str = "implement", rejected: str | None = None) -> e.PhaseFailed:
    return e.PhaseFailed(phase="1", reason=reason, step=PhaseStep(step), detail="why", rejected=rejected)


@pytest.mark.parametrize("reason", Reason)
def test_the_reason_and_the_step_decide_how_the_next_attempt_begins(reason: Reason) -> None:
    begun = [beginning_after(failed(reason, step), is_changed=False, has_fixers=True) for step in ("implement", "fix")]
    assert tuple(begun) == TABLE[reason]
    assert beginning_after(failed(reason), is_changed=True, has_fixers=True) is PROVE, "the complaint may be settled"
    alone = beginning_after(failed(reason), is_changed=False, has_fixers=False)
    assert alone is (CONTINUE if begun[0] is FIX else begun[0]), "without fix cycles the implementer continues"


@pytest.mark.parametrize(
    ("reason", "step", "tree", "expected"),
    [
        (Reason.STOPPED, "land", "t1", FIX),  # by the rejection
        (Reason.STOPPED, "stop", "t2", PROVE),  # later, after an agent had taken up the words
        (Reason.STOPPED, "stop", "", FIX),
        (Reason.AGENT_FAILED, "fix", "", FIX),
        (Reason.AGENT_FAILED, "verify", "t2", PROVE),
        (Reason.NO_PROGRESS, "fix", "t1", FIX),
        (Reason.OFF_BASE, "fix", "", Beginning.ANEW),
    ],
)
def test_a_rejected_change_gets_a_fixer_until_one_has_changed_it(
    reason: Reason, step: str, tree: str, expected: Beginning
) -> None:
    failure = replace(failed(reason, step, rejected="no"), tree=tree)
    assert beginning_after(failure, is_changed=False, has_fixers=True) is expected


def first_action(beginning: Beginning) -> a.Action:
    kept = e.KeptWork(ref="b", head="c1", tree="t1", base="c0", beginning=beginning, complaint="red")
    lease = e.Leased(phase="1", branch="b", base="c0", base_tree="t0", worktree="w", attempt=2, kept=kept)
    state = fold([started(test_command=""), e.PhaseChosen(tip="c0", phase="1"), lease])
    (action,) = decide(state).actions
    return action


def test_an_attempt_on_kept_work_begins_as_recorded() -> None:
    assert first_action(PROVE) == a.TAKE_WORK
    fixes, continues = first_action(FIX), first_action(CONTINUE)
    assert isinstance(fixes, a.Start)
    assert fixes.dispatch == e.DispatchStarted(role=Role.FIX, cycle=2, tree="t1", complaint="red")
    assert isinstance(continues, a.Start)
    assert (continues.dispatch.role, continues.dispatch.cycle) == ("implement", 1)
