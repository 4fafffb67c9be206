"""What hinders the merge of a pull request."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters.forge.protocol import STATUS, CheckState, MergeState, PullCheck, PullRequest, Target
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import MessagesHandled
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import Mode, RunOutcome, WaitKind
from runplan.domain.run.state import fold
from runplan.engine.landing.lander import Failed, NeedsRepair, Progress, Waiting
from runplan.engine.landing.merging import RedTarget, before_merge, describe_change, next_step
from tests.support.builders import keep, started

STATES = (CheckState.PASSED, CheckState.PENDING, CheckState.FAILED)
PASSED, PENDING, RED = (PullCheck(name="ci", state=state) for state in STATES)


def pull(**fields: Any) -> PullRequest:
    usual: dict[str, Any] = {"number": 1, "url": "https://x.test/1", "head": "a" * 40, "base": "main", "title": "X"}
    usual |= {"is_open": True, "is_merged": False, "draft": False, "auto_merge": False, "body": "", "merge_commit": ""}
    return PullRequest(**usual | {"state": MergeState.READY} | fields)


def progress(**fields: Any) -> Progress:
    return Progress(**{"may_merge": True, "repairs": 0, "max_repairs": 2, "updates": 0} | fields)


@pytest.mark.parametrize(
    ("pull", "checks", "progress", "expected"),
    [
        (pull(), (PASSED,), progress(), None),
        (pull(), (), progress(), None),
        (pull(), (PASSED, PENDING), progress(), "checks"),
        (pull(), (PENDING, RED), progress(), "fix"),
        (pull(), (RED,), progress(repairs=2), "ci-failed"),
        (pull(), (RED,), progress(max_repairs=0), "ci-failed"),
        (pull(state=MergeState.BEHIND), (PASSED,), progress(), "merge"),
        (pull(state=MergeState.CONFLICT), (), progress(updates=4), "merge"),
        (pull(state=MergeState.CONFLICT), (PASSED,), progress(updates=5), "conflict"),
        (pull(state=MergeState.BEHIND), (PASSED,), progress(updates=5), "target-moving"),
        (pull(draft=True), (PASSED,), progress(), "review"),
        (pull(), (PASSED,), progress(may_merge=False), "review"),
        (pull(state=MergeState.UNKNOWN), (PASSED,), progress(), "wait"),
        (pull(state=MergeState.BLOCKED), (PASSED,), progress(), None),
    ],
)
def test_what_hinders_a_merge(
    pull: PullRequest, checks: tuple[PullCheck, ...], progress: Progress, expected: str | None
) -> None:
    match next_step(pull, checks, progress, RedTarget()):
        case None:
            assert expected is None
        case NeedsRepair(merge=merge):
            assert expected == ("merge" if merge else "fix")
        case Failed(reason=reason):
            assert expected == reason
        case Waiting(kind=kind):
            assert expected == ("wait" if kind == "merge" else kind)


def issue(text: str = "a", title: str = "t", closed: str = "") -> e.IssueRead:
    return e.IssueRead(number=7, title=title, text=text, closed=closed)


HIDDEN = e.IssueRead(number=7, closed="deleted or hidden")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (issue(), issue(), ""),
        (issue(), issue("b"), "issue #7 was edited: its text changed"),
        (issue(), issue("b", "u"), "issue #7 was edited: its title and its text changed"),
        (issue(), issue(closed="closed"), "issue #7 was closed"),
        (issue(), issue("b", closed="closed"), "issue #7 was closed and was edited: its text changed"),
        (issue(closed="closed"), issue(), ""),
        (None, issue(closed="closed"), "issue #7 was closed"),
        (issue(), HIDDEN, "issue #7 was deleted or hidden"),
        (HIDDEN, HIDDEN, ""),
        (None, HIDDEN, ""),
    ],
)
def test_what_a_person_is_told_before_a_merge(before: e.IssueRead | None, now: e.IssueRead, expected: str) -> None:
    assert describe_change(before, now) == expected


LINT = PullCheck(name="lint", state=CheckState.FAILED)
WAITS = "pull request #1: lint failed on main too; fix it there, or set pull_request.ignore_red_on_target"


@pytest.mark.parametrize(
    ("checks", "red", "mended", "is_ignored", "expected"),
    [
        ((LINT,), {"lint"}, set(), False, WAITS),
        ((LINT, PENDING), {"lint"}, set(), False, WAITS),
        ((LINT,), {"lint"}, set(), True, None),
        ((LINT, PENDING), {"lint"}, set(), True, "checks of pull request #1 are not finished: ci"),
        ((LINT,), {"other"}, set(), True, "repair: checks of pull request #1 failed: lint"),
        (
            (LINT, RED),
            {"lint"},
            set(),
            True,
            "repair: checks of pull request #1 failed: ci; lint failed on main too, and is not to be fixed here",
        ),
        ((LINT,), set(), {"lint"}, False, "repair: pull request #1 is behind main"),
        ((PASSED,), {"lint"}, set(), False, None),
    ],
    ids=["waited for", "with others", "passed by", "pending", "not there", "both", "mended there", "only there"],
)
def test_a_check_that_fails_on_the_target_too_is_not_repaired(
    checks: tuple[PullCheck, ...], red: set[str], mended: set[str], is_ignored: bool, expected: str | None
) -> None:
    target = RedTarget(names=frozenset(red), mended=frozenset(mended), is_ignored=is_ignored)
    step = next_step(pull(), checks, progress(), target)
    match step:
        case NeedsRepair(complaint=complaint):
            assert f"repair: {complaint}" == expected
        case Waiting(why=why):
            assert why == expected
        case _:
            assert (step, expected) == (None, None)


TARGET = Target()
KNOWN = Target(usual_checks=("ci", "lint"))


@pytest.mark.parametrize(
    ("pull", "checks", "target", "is_stable", "expected"),
    [
        (pull(), (PASSED,), TARGET, False, "checks: pull request #1 waits for further checks"),
        (pull(), (), TARGET, False, "checks: pull request #1 waits for further checks"),
        (pull(), (PASSED,), TARGET, True, None),
        (pull(), (PASSED,), Target(usual_checks=("ci",)), False, None),
        (pull(), (PASSED,), KNOWN, False, "checks: pull request #1 waits for lint, which ran on earlier pull requests"),
        (pull(), (PASSED,), KNOWN, True, None),
        (pull(), (PASSED,), Target(usual_checks=("ci", STATUS)), False, None),
        (pull(), (PASSED,), Target(checks=(STATUS,)), False, "checks: pull request #1 waits for further checks"),
        (pull(), (PASSED,), Target(checks=("slow",)), True, None),  # the forge is asked to merge it when it is met
        (pull(), (PASSED,), Target(objections=("ann",)), True, "review: ann asked for changes on pull request #1"),
        (pull(auto_merge=True), (PASSED,), Target(objections=("ann",)), True, "review: ann asked for changes"),
        (pull(auto_merge=True), (PASSED,), TARGET, True, "merge: pull request #1 is merged when the rules of main"),
    ],
)
def test_what_a_pull_request_with_passed_checks_waits_for(
    pull: PullRequest, checks: tuple[PullCheck, ...], target: Target, is_stable: bool, expected: str | None
) -> None:
    waiting = before_merge(pull, checks, target, is_stable=is_stable)
    assert (waiting is None) == (expected is None)
    if waiting is not None and expected is not None:
        assert f"{waiting.kind}: {waiting.why}".startswith(expected)


# --- review and claims -------------------------------------------------------------------------------------

COMMENT = e.ReviewItem("review 1", "Rename it.", author="bob", id="R1")
OTHER = e.ReviewItem("line 2", "Why?", author="bob", path="a.py", line=1, id="R2")
RESUMED = e.RunResumed(mode=Mode.FINISH, wanted="", auto=True, review=(COMMENT, OTHER))
HANDLED = e.RepairChosen(tip="t", review=(COMMENT.thread,), comments=(COMMENT,))


def steps(*facts: e.Event, **fields: Any) -> tuple[str, ...]:
    state = fold([keep(started(), landing="pr", concludes=True, **fields), *facts])
    return tuple(action.step for action in decide(state).actions)


def test_comments_of_reviewers_are_handled_once() -> None:
    over = (e.Landed(id="r.1", phase="", tip="t", code="c", review=HANDLED.review), e.CleanedUp(phase=""))
    assert steps(review=(COMMENT,)) == ("review",)
    assert steps(HANDLED, *over, review=(COMMENT,)) == ("read-plan",)
    left = fold([started(), HANDLED, RESUMED]).review  # asked for again while an agent handles the first
    assert (left, fold([started(), HANDLED, *over, RESUMED]).review) == ((OTHER,), (OTHER,))
    state = fold([started(), HANDLED, e.RepairChosen(tip="t")])
    assert (state.repairs, state.reviews) == (1, ("",))
    again = fold([started(), HANDLED, e.RepairChosen(tip="t"), RESUMED])
    assert (again.repairs, again.reviews) == (0, ()), "a person wants it tried again"


@pytest.mark.parametrize(
    ("review", "commits", "expected"),
    [(HANDLED.review, 0, "clean-up"), (HANDLED.review, 1, "build-candidate"), ((), 0, "fail")],
)
def test_only_a_repair_for_a_review_may_leave_no_change(review: tuple[str, ...], commits: int, expected: str) -> None:
    leased = e.Leased(phase="", branch="refs/heads/b", base="t", base_tree="tt", worktree="w", attempt=1)
    taken = e.WorkTaken(head="h", tree="ht", commits=commits)
    assert steps(replace(HANDLED, review=review), leased, taken, gates=()) == (expected,)
    answered = (MessagesHandled(review=review, answers=(("review 1", "No."),)), e.CleanedUp(phase=""))
    if expected == "clean-up":
        assert steps(HANDLED, leased, taken, *answered) == ("read-plan",), "the run goes on"


def test_issues_are_claimed_before_any_work() -> None:
    assert steps(issues=(1,), claim="busy") == ("claim-issues",)
    assert steps(e.IssuesMarked(), issues=(1,), claim="busy") == ("read-plan",)
    assert steps(issues=(1,)) == steps(claim="busy") == ("read-plan",)
    assert steps(e.StopRequested(by="a person"), issues=(1,), claim="busy") == ("finish",)


LATER = "2026-01-01T01:00:00Z"


@pytest.mark.parametrize(
    ("facts", "expected", "wake"),
    [
        ((), ("claim-issues", "read-plan"), LATER),
        ((e.IssuesMarked(),), ("read-plan",), ""),
        ((e.IssuesMarked(until="2026-01-01T02:00:00Z"),), ("claim-issues", "read-plan"), "2026-01-01T02:00:00Z"),
        ((e.StopRequested(by="a person"),), ("finish",), ""),
        ((e.Paused(kind=WaitKind.MERGE, until="2026-01-01T00:30:00Z", words=""),), ("sleep",), "2026-01-01T00:30:00Z"),
        ((e.RunEnded(outcome=RunOutcome.DONE),), (), ""),
    ],
)
def test_a_claim_that_meets_a_rate_limit_is_shown_later_next_to_the_work(
    facts: tuple[e.Event, ...], expected: tuple[str, ...], wake: str
) -> None:
    run = keep(started(), issues=(1,), claim="busy")
    decision = decide(fold([run, e.IssuesMarked(until=LATER), *facts]))
    assert (tuple(action.step for action in decision.actions), decision.wake) == (expected, wake)


@pytest.mark.parametrize(("reason", "is_open"), [("ci-failed", True), ("pr-closed", False)])
def test_a_failed_run_names_its_pull_request_unless_that_was_closed(reason: str, *, is_open: bool) -> None:
    landed = e.Landed(id="l", phase="1", tip="c2", code="c1", pull="#1 https://github.test/1")
    state = fold([started(), landed, e.RunEnded(outcome=RunOutcome.FAILED, reason=reason)])
    assert state.pulls == (("#1 https://github.test/1",) if is_open else ())


def test_a_pull_request_that_was_closed_in_mid_run_ends_the_run() -> None:
    assert steps(e.Concluded(reason="pr-closed", note="closed")) == ("finish",)
