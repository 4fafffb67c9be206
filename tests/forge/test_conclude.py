"""From the landed phases to the merged pull request, against a stand-in of GitHub, without a run."""

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from runplan.adapters.forge.access import find_forge
from runplan.adapters.forge.protocol import STATUS
from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import Repository
from runplan.domain.errors import RateLimited, RefusedEarly, TokenRefused, Unreachable
from runplan.domain.gitfacts import PLAN, RUN, read_trailers
from runplan.domain.run.kinds import Reason
from runplan.domain.settings.schema import PullRequestSettings, RunSettings, Settings
from runplan.engine.landing.conversation import result_marker
from runplan.engine.landing.description import BEGIN, DRAFT, END, PEOPLE
from runplan.engine.landing.lander import Commanded, Conclusion, Failed, Landed, NeedsRepair, Progress, Waiting
from runplan.engine.landing.merging import read_issues
from runplan.engine.landing.modes import open_landers
from runplan.engine.landing.pull_request import PlanPlace, PullRequestLander
from runplan.engine.report.summary import describe_plan
from tests.forge.conftest import BRANCH, git
from tests.support.github.hub import Hub
from tests.support.github.server import Fault, StandIn, an_app, environment
from tests.support.tools import write_script

pytestmark = pytest.mark.rest

LATE = 2_000_000_000.0  #: long after the push
MakeLander: TypeAlias = Callable[[], PullRequestLander]


#: Conclude again and again, until it is over or has waited so often.
Conclude: TypeAlias = Callable[..., Conclusion]


def make_progress(**fields: Any) -> Progress:
    return Progress(**{"may_merge": True, "repairs": 0, "max_repairs": 2, "updates": 0} | fields)


@pytest.fixture
def clone(place: Path, stand_in: StandIn) -> Path:
    git("remote", "add", "origin", stand_in.remote, cwd=place / "clone")
    git("branch", "-q", "-D", "work", BRANCH, cwd=place / "clone")
    return place / "clone"


@pytest.fixture
def issues() -> list[int]:
    return []


@pytest.fixture
def options() -> dict[str, Any]:
    """Settings of pull requests; a test changes them before it concludes."""
    return {"checks_wait_s": 60.0}


@pytest.fixture
def a_lander(clone: Path, stand_in: StandIn, issues: list[int], options: dict[str, Any]) -> Iterator[MakeLander]:
    env = dict(os.environ) | environment(stand_in)
    tool = clone.with_name("tool.git")
    git("clone", "-q", "--bare", "--shared", str(clone), str(tool), cwd=clone)
    git("remote", "remove", "origin", cwd=tool)
    with Git(clone, env=dict(os.environ)) as user:
        here = Repository(root=clone, common_dir=clone / ".git", git=user)

        def make() -> PullRequestLander:
            settings = Settings(run=RunSettings(landing="pr"), pull_request=PullRequestSettings(**options))
            plan = PlanPlace(
                path="plans/X.md",
                slug="x",
                report="reports/plan-x.md",
                issues=tuple(issues),
                describe=lambda plan, text, group: describe_plan(plan, text, lambda *_, **_plan: [], group),
            )
            lander, _ = open_landers(here, settings, env, tool=tool, plan=plan, zones=None)
            assert isinstance(lander, PullRequestLander)
            return lander

        yield make


@pytest.fixture
def conclude(a_lander: MakeLander, hub: Hub) -> Conclude:
    tip = hub.tip(BRANCH)

    def call(looks: int = 6, *, now: float = LATE, auto: bool = True, pushed_at: float = 0.0) -> Conclusion:
        # A new lander each time, as after a restart.
        progress = make_progress(may_merge=auto, pushed=(tip,), pushed_at=pushed_at)
        for _ in range(looks):
            found = a_lander().conclude(progress, now=now)
            if not isinstance(found, Waiting):
                break
        return found

    return call


def waits(found: Conclusion, kind: str) -> str:
    assert isinstance(found, Waiting)
    assert found.kind == kind
    return found.why


def merged(found: Conclusion, hub: Hub) -> str:
    """It is merged once, and no branch is left."""
    assert isinstance(found, Landed), found
    assert hub.merges == 1
    assert BRANCH not in hub.branches()
    return found.note


# --- checks ------------------------------------------------------------------------------------------------


def test_a_check_that_registers_late_is_waited_for(conclude: Conclude, hub: Hub) -> None:
    """Counted from the push, and again from the end of the last check: it may start another one."""
    registered = datetime.now(UTC)
    hub.check(hub.tip(BRANCH), "unit")
    waits(conclude(4, now=registered.timestamp() + 50), "checks")
    hub.check(hub.tip(BRANCH), "deploy", None)
    assert "not finished: deploy" in waits(conclude(2), "checks")
    hub.check(hub.tip(BRANCH), "deploy", at=registered + timedelta(minutes=30))
    waits(conclude(2, now=registered.timestamp() + 1850), "checks")
    merged(conclude(now=registered.timestamp() + 1860), hub)


@pytest.mark.promise
def test_a_required_check_is_waited_for_even_if_it_is_late(conclude: Conclude, stand_in: StandIn, hub: Hub) -> None:
    hub.required, hub.allow_auto_merge = ["ci"], False
    assert "main requires checks ci" in waits(conclude(4), "checks")
    hub.check(hub.tip(BRANCH), "ci", None)
    waits(conclude(2), "checks")
    assert "PUT /pulls/1/merge" not in stand_in.requests  # an administrator's merge would bypass the rule
    hub.check(hub.tip(BRANCH), "ci")
    merged(conclude(), hub)


@pytest.mark.parametrize(
    ("wanted", "refused", "parents"), [("rebase", {"rebase"}, 2), ("merge", {"merge"}, 1), ("squash", {"squash"}, 2)]
)
def test_another_method_is_tried_where_one_is_refused_for_this_branch(
    a_lander: MakeLander, hub: Hub, options: dict[str, Any], wanted: str, refused: set[str], parents: int
) -> None:
    options["method"] = wanted
    hub.refused, hub.allow_auto_merge = refused, False
    hub.check(hub.tip(BRANCH))
    lander = a_lander()
    progress = make_progress(pushed=(hub.tip(BRANCH),))
    looks = [lander.conclude(progress, now=LATE) for _ in range(6) if not hub.merges]
    assert isinstance(looks[-1], Landed), looks
    assert f": main refused {wanted} for this branch" in looks[-1].note
    assert len(hub.git("log", "-1", "--format=%P", "main").split()) == parents


def test_the_first_pull_request_waits_for_the_checks_of_the_workflows(conclude: Conclude, hub: Hub) -> None:
    hub.commit(
        "main", {".github/workflows/ci.yml": "on: [pull_request]\n", ".github/workflows/x.yml": "on: schedule\n"}
    )
    hub.create(BRANCH, "main", "X", "").unknown = 0
    soon = datetime.now(UTC).timestamp() + 90.0
    found = conclude(3, now=soon, pushed_at=soon - 80.0)
    assert waits(found, "checks").endswith("waits for the checks of .github/workflows/ci.yml")
    hub.check(hub.tip(BRANCH))
    merged(conclude(), hub)


def test_a_rule_that_no_number_shows_is_named(conclude: Conclude, hub: Hub) -> None:
    hub.resolution, hub.allow_auto_merge = True, False
    hub.rulesets = [{"type": "pull_request", "parameters": {"require_code_owner_review": True}}]
    assert "main requires resolved conversations, a review of a code owner: http" in waits(conclude(), "review")


# --- rules of the repository -------------------------------------------------------------------------------


def test_a_draft_of_runplans_own_is_marked_ready_when_the_plan_is_complete(conclude: Conclude, hub: Hub) -> None:
    pull = hub.create(BRANCH, "main", "Mine", f"Above\n\n{BEGIN}{DRAFT}\n{END}\nBelow", draft=True)
    waits(conclude(1), "merge")
    assert (pull.draft, DRAFT in pull.body) == (False, False)
    hub.set_draft(is_draft=True)  # a person sets it back
    assert "mark it as ready" in waits(conclude(), "review")
    hub.set_draft(is_draft=False)
    merged(conclude(), hub)
    assert (pull.body.startswith("Above\n\n"), pull.body.endswith("\nBelow")) == (True, True)


def test_the_comment_on_a_failure_is_replaced_when_every_phase_landed(a_lander: MakeLander, hub: Hub) -> None:
    hub.reviews, hub.allow_auto_merge = 1, False
    pull = hub.create(BRANCH, "main", "X", "")
    failure = "runplan ended its work on this pull request: failed."
    a_lander().forge().put_comment(1, marker=result_marker("plans/X.md"), text=failure, is_pull=True)
    progress = make_progress(pushed=(pull.sha,))
    now = "runplan failed here before, and has continued its work (plan `plans/X.md`): all phases landed."
    for expected in ([now], [now, "Mine."]):
        a_lander().conclude(progress, now=LATE)
        assert [comment["body"].partition("\n\n")[0] for comment in pull.comments] == expected
        hub.comment(1, "Mine.\n\n<!-- runplan plans/X.md -->", by="bob")


def test_people_that_a_limit_or_a_crash_kept_away_are_added_later(
    a_lander: MakeLander, stand_in: StandIn, hub: Hub, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runplan.adapters.forge.retry.DELAYS_S", (0.0,))
    options |= {"labels": ("plan",), "reviewers": ("reviewer",)}
    hub.reviews, hub.allow_auto_merge = 1, False
    limit = Fault(call="POST /issues/1/labels", kind="before", status=403, headers=(("Retry-After", "60"),))
    stand_in.faults += [limit, Fault(call="POST /issues/1/labels", kind="before", status=500, times=2)]
    progress = make_progress()
    for look, (labels, has_mark) in enumerate((([], True), ([], True), (["plan"], False), (["plan"], False))):
        with nullcontext() if look else pytest.raises(RateLimited):
            a_lander().conclude(progress, now=LATE)
        assert (hub.pulls[1].labels, PEOPLE in hub.pulls[1].body) == (labels, has_mark)
    assert stand_in.requests.count("POST /issues/1/labels") == 4


def test_a_status_of_runplans_own_can_be_required(conclude: Conclude, hub: Hub) -> None:
    hub.required = [STATUS]
    head = hub.tip(BRANCH)
    merged(conclude(), hub)
    (status,) = hub.statuses[head]
    assert (status["state"], status["description"]) == ("success", "1 of 1 item proven")
    assert status["target_url"].endswith(f"/acme/app/blob/{head}/reports/plan-x.md")


def test_a_required_status_that_the_token_may_not_set_is_named_until_it_may(a_lander: MakeLander, hub: Hub) -> None:
    hub.statuses_allowed, hub.required = False, [STATUS]
    lander, progress = a_lander(), make_progress()
    found = [lander.conclude(progress, now=LATE) for _ in range(4)][-1]
    assert "main requires the commit status runplan, which the token may not set" in waits(found, "merge")
    hub.statuses_allowed = True
    merged([lander.conclude(progress, now=LATE) for _ in range(2)][-1], hub)


@pytest.mark.parametrize("is_required", [False, True])
def test_a_check_that_fails_on_the_target_too_is_passed_by_if_so_set(
    conclude: Conclude, stand_in: StandIn, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, is_required: bool
) -> None:
    """A required one is not merged, although GitHub says to an administrator that it could be."""
    hub = stand_in.hub
    options["ignore_red_on_target"] = True
    hub.required, hub.allow_auto_merge = ["lint"] if is_required else [], False
    monkeypatch.setattr(hub, "merge_state", lambda _: (True, "unstable"))
    for branch in (BRANCH, "main"):
        hub.check(hub.tip(branch), "lint", "failure")
    if is_required:
        assert "main requires checks lint" in waits(conclude(), "review")
        assert "PUT /pulls/1/merge" not in stand_in.requests
    else:
        assert "lint failed, on main too" in merged(conclude(), hub)


def test_a_merge_queue_is_used_where_there_is_one(conclude: Conclude, hub: Hub) -> None:
    hub.merge_queue = True
    merged(conclude(), hub)


@pytest.mark.promise
@pytest.mark.parametrize("method", ["squash", pytest.param("rebase", marks=pytest.mark.rest)])
def test_a_method_that_the_repository_allows_is_used(conclude: Conclude, hub: Hub, method: str) -> None:
    hub.methods = {method}
    assert f"it was merged by {method}: main does not allow merge" in merged(conclude(), hub)
    trailers = read_trailers(hub.git("log", "-1", "--format=%B", "main"))
    assert (trailers[PLAN], trailers[RUN]) == ("plans/X.md", "r1")


def test_methods_that_are_all_forbidden_meanwhile_are_waited_for(conclude: Conclude, hub: Hub) -> None:
    hub.methods, hub.linear = {"merge"}, True
    assert "main allows no merge method" in waits(conclude(4), "merge")
    hub.linear = False
    merged(conclude(), hub)


@pytest.mark.parametrize("free", [Hub.dismiss, Hub.approve])
def test_changes_requested_by_a_writer_block_it(conclude: Conclude, hub: Hub, free: Callable[[Hub, int], None]) -> None:
    """Also when GitHub was asked to merge when a check passes, and requires no review."""
    hub.required = ["ci"]
    waits(conclude(4), "merge")
    assert hub.pulls[1].auto_merge
    hub.review(1, "Not so.", state="CHANGES_REQUESTED")
    assert "reviewer asked for changes on pull request #1" in waits(conclude(2), "review")
    hub.check(hub.tip(BRANCH), "ci")
    hub.auto_merge_all()
    waits(conclude(2), "review")
    assert hub.merges == 0
    free(hub, 1)
    merged(conclude(), hub)


def test_a_merge_that_runplan_has_ordered_is_cancelled_when_its_issue_changes(
    a_lander: MakeLander, hub: Hub, issues: list[int]
) -> None:
    hub.required = ["ci"]
    issue = hub.add_issue("Bug")
    issues.append(issue.number)
    lander = a_lander()
    [read] = read_issues(lander.forge(), issues)
    progress = make_progress(issues={issue.number: read})
    for _ in range(4):
        waits(lander.conclude(progress, now=LATE), "merge")
    assert hub.pulls[2].auto_merge
    issue.body = "It is another one."
    assert f"#{issue.number}" in waits(lander.conclude(progress, now=LATE), "issue")
    hub.check(hub.tip(BRANCH), "ci")
    hub.auto_merge_all()
    assert hub.merges == 0


@pytest.mark.promise
def test_without_auto_a_person_merges(conclude: Conclude, stand_in: StandIn, hub: Hub) -> None:
    assert "review and merge it" in waits(conclude(auto=False), "review")
    hub.do_merge(hub.pulls[1], "merge")
    merged(conclude(auto=False), hub)
    assert "PUT /pulls/1/merge" not in stand_in.requests


# --- messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", [True, False])
def test_a_look_at_a_pull_request_that_waits_for_review_costs_two_calls(
    a_lander: MakeLander, stand_in: StandIn, hub: Hub, auto: bool
) -> None:
    """One of them is conditional, and counts only after a change."""
    hub.reviews, hub.allow_auto_merge = 1, False
    hub.check(hub.tip(BRANCH))
    lander = a_lander()
    progress = make_progress(may_merge=auto, pushed=(hub.tip(BRANCH),))
    for _ in range(4):
        lander.conclude(progress, now=LATE)
    hub.comment(1, "A word between people")
    for looks in range(1, 5):
        stand_in.requests.clear()
        waits(lander.conclude(progress, now=LATE), "review")
        if looks > 2:
            assert stand_in.requests == ["GET /pulls/1", "POST /graphql"]
    assert stand_in.unchanged >= 4


def test_handled_messages_are_answered_and_their_authors_asked_once(
    a_lander: MakeLander, stand_in: StandIn, hub: Hub
) -> None:
    hub.reviews, hub.allow_auto_merge = 1, False
    pull = hub.create(BRANCH, "main", "X", "")
    thread = hub.review(1, "Why?", path="1.txt", line=1)
    hub.review(1, "Rename it.", by="bob", state="CHANGES_REQUESTED")
    answers = {f"line {thread}": "Handled in abc.", f"review {thread + 1}": "No change."}
    progress = make_progress(answers=answers, pushed=(pull.sha,))
    stand_in.faults.append(Fault(call="POST /pulls/1/comments/1/replies", kind="before", status=403))
    for _ in range(3):  # the first one stops between the answers
        a_lander().conclude(progress, now=LATE)
    assert [(comment.get("in_reply_to_id"), comment["body"].split("\n\n<!--")[0]) for comment in pull.comments[1:]] == [
        (None, "> Rename it.\n\nNo change."),
        (thread, "Handled in abc."),
    ]
    assert sorted(pull.requested) == ["bob", "reviewer"]


def test_requests_beyond_the_limit_are_answered_once(a_lander: MakeLander, hub: Hub) -> None:
    hub.reviews, hub.allow_auto_merge = 1, False
    pull = hub.create(BRANCH, "main", "X", "")
    asked = hub.review(1, "Why?", path="1.txt", line=1)
    progress = make_progress(reviews=("", ""), max_reviews=2, pushed=(pull.sha,), began=1.0)
    for _ in range(3):
        waits(a_lander().conclude(progress, now=LATE), "review")
    (told,) = [comment["body"].split("\n\n")[0] for comment in pull.comments if comment["id"] != asked]
    limit = "runplan handles 2 reviews by itself (`pull_request.max_reviews`)."
    assert told == f"{limit} For the next one comment `/runplan retry`, or run `runplan retry plans/X.md --review`."
    assert hub.reactions == [(asked, "eyes")]
    hub.review(1, "And this?", path="1.txt", line=1)
    waits(a_lander().conclude(replace(progress, max_reviews=0), now=LATE), "review")
    assert len(pull.comments) == 3, "nothing is told where a person handles every review"


def test_a_request_precedes_the_merge_and_a_command_both(a_lander: MakeLander, hub: Hub) -> None:
    hub.check(hub.tip(BRANCH))
    hub.create(BRANCH, "main", "X", "").unknown = 0
    hub.review(1, "Rename it.")
    progress = make_progress(max_reviews=1, pushed=(hub.tip(BRANCH),), began=1.0)
    needed = a_lander().conclude(progress, now=LATE)
    assert isinstance(needed, NeedsRepair)
    assert [item.thread for item in needed.comments] == ["review 1"]
    assert needed.complaint.endswith("R1 reviewer:\n> Rename it.")
    assert "max_reviews = 1" in waits(a_lander().conclude(replace(progress, reviews=("",)), now=LATE), "review")
    id_ = f"comment {hub.comment(1, '/runplan retry', by='reviewer')}"
    assert a_lander().conclude(progress, now=LATE) == Commanded(id=id_, by="reviewer", is_stop=False)
    merged(a_lander().conclude(replace(progress, answers={"review 1": "", id_: ""}), now=LATE), hub)


# --- people ------------------------------------------------------------------------------------------------


def amend(hub: Hub) -> None:
    made = hub.git(
        "commit-tree", f"{BRANCH}^{{tree}}", "-p", f"{BRANCH}~1", "-m", hub.git("log", "-1", "--format=%B", BRANCH)
    )
    before = hub.branches()
    hub.git("update-ref", f"refs/heads/{BRANCH}", made)
    hub.pushed(before)


@pytest.mark.promise
@pytest.mark.parametrize(
    "act", [amend, lambda hub: hub.commit(BRANCH, {"theirs.txt": "theirs\n"})], ids=["amended", "added"]
)
def test_commits_of_a_person_are_not_merged_by_runplan(
    conclude: Conclude, stand_in: StandIn, hub: Hub, act: Callable[[Hub], object]
) -> None:
    act(hub)
    assert "commits that runplan did not push" in waits(conclude(2), "review")
    hub.do_merge(hub.pulls[1], "merge")
    merged(conclude(), hub)
    assert "PUT /pulls/1/merge" not in stand_in.requests


@pytest.mark.parametrize("by_person", [False, True], ids=["asked for by runplan", "by a person"])
def test_auto_merge_does_not_merge_commits_that_come_later(conclude: Conclude, hub: Hub, by_person: bool) -> None:
    hub.required = ["ci", "slow"]
    hub.check(hub.tip(BRANCH))
    waits(conclude(4), "merge")
    new = hub.commit(BRANCH, {"theirs.txt": "theirs\n"})
    if by_person:
        hub.pulls[1].later = "Merge it"
    waits(conclude(2), "review")
    for name in hub.required:
        hub.check(new, name)
    assert hub.merges == int(by_person)


def test_a_pull_request_that_leads_elsewhere_is_neither_merged_nor_opened_again(conclude: Conclude, hub: Hub) -> None:
    hub.git("branch", "release", "main")
    conclude(1, auto=False)
    hub.pulls[1].base = "release"
    assert "#1 leads to release instead of main; change it back" in waits(conclude(2), "review")
    assert (hub.merges, list(hub.pulls)) == (0, [1])
    hub.pulls[1].base = "main"
    merged(conclude(), hub)


def test_a_target_that_is_gone_is_named(conclude: Conclude, hub: Hub) -> None:
    conclude(1, auto=False)
    main = hub.tip("main")
    hub.git("update-ref", "-d", "refs/heads/main")
    with pytest.raises(Unreachable, match="origin has no branch main any more; create it again"):
        conclude()
    hub.git("update-ref", "refs/heads/main", main)
    merged(conclude(), hub)


@pytest.mark.parametrize("by_person", [False, True], ids=["merged by runplan", "by a person"])
def test_commits_that_are_pushed_after_the_merge_stay_on_the_branch(
    conclude: Conclude, clone: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, by_person: bool
) -> None:
    merge = hub.do_merge

    def and_push(*args: Any) -> str:
        made = merge(*args)
        hub.commit(BRANCH, {"late.txt": "late\n"})
        return made

    monkeypatch.setattr(hub, "do_merge", and_push)
    if by_person:
        conclude(1, auto=False)
        hub.do_merge(hub.pulls[1], "squash")
    found = conclude()
    assert isinstance(found, Landed)
    late = hub.tip(BRANCH)
    assert f"{BRANCH} stays on origin: commits were pushed to it after the merge, up to {late[:12]}" in found.note
    assert found.note.endswith(f"or drop them: git push origin --delete {BRANCH}")
    assert (list(hub.pulls), hub.merges) == ([1], 1)
    assert "late.txt" in hub.git("ls-tree", "--name-only", BRANCH)
    assert git("rev-parse", f"origin/{BRANCH}", cwd=clone) == late


def test_a_fetch_beside_it_leaves_no_tracking_ref(a_lander: MakeLander, clone: Path, hub: Hub) -> None:
    lander = a_lander()
    head = lander.branch_tip() or ""
    fetch = f"git -C {clone} fetch -q {hub.bare} refs/heads/{BRANCH}:refs/remotes/origin/{BRANCH}"
    write_script(hub.bare / "hooks" / "pre-receive", f"env -i PATH=/usr/bin:/bin {fetch}")
    assert lander.delete_branch(head) == ""
    assert BRANCH not in hub.branches()
    assert git("for-each-ref", "refs/remotes/origin/runplan", cwd=clone) == ""


def test_a_local_target_with_commits_of_its_own_stays(conclude: Conclude, clone: Path, hub: Hub) -> None:
    git("commit", "-q", "--allow-empty", "-m", "mine", cwd=clone)
    before = git("rev-parse", "main", cwd=clone)
    assert "your local main stays" in merged(conclude(), hub)
    assert git("rev-parse", "main", cwd=clone) == before


@pytest.mark.promise
def test_a_refused_push_is_named(a_lander: MakeLander, clone: Path, hub: Hub) -> None:
    lander = a_lander()
    write_script(hub.bare / "hooks" / "pre-receive", "echo 'error: GH006: Protected branch update failed' >&2\nexit 1")
    old = lander.tip() or ""
    new = git("commit-tree", f"{old}^{{tree}}", "-p", old, "-m", "more", cwd=clone)
    answer = lander.land(lander.prepare(id="r1.2", old=old, new=new), lambda: None)
    assert isinstance(answer, Failed)
    assert (answer.reason, hub.tip(BRANCH)) == (Reason.PROTECTED, old)
    assert "GH006" in answer.why


@pytest.mark.promise
def test_a_closed_pull_request_is_a_failure_that_keeps_the_commits(conclude: Conclude, clone: Path, hub: Hub) -> None:
    conclude(1, auto=False)
    hub.pulls[1].state = "closed"
    found = conclude()
    assert isinstance(found, Failed)
    assert (found.reason, hub.merges) == (Reason.PR_CLOSED, 0)
    assert git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked", cwd=clone) == hub.tip(BRANCH)


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_branch_that_is_deleted_before_the_merge_is_a_failure_that_keeps_the_commits(
    a_lander: MakeLander, conclude: Conclude, clone: Path, hub: Hub, is_opened: bool
) -> None:
    if is_opened:
        conclude(1, auto=False)
    head = a_lander().branch_tip()
    hub.git("update-ref", "-d", f"refs/heads/{BRANCH}")
    lander = a_lander()
    assert lander.branch_tip() is None
    assert isinstance(lander.closed, Failed)
    assert (lander.closed.reason, hub.merges) == (Reason.PR_CLOSED, 0)
    assert f"{BRANCH} was deleted on origin before it was merged" in lander.closed.why
    assert git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked", cwd=clone) == head


@pytest.mark.promise
@pytest.mark.parametrize("deletes", [False, True])
def test_a_merge_into_another_branch_is_a_failure_until_the_target_has_it(
    conclude: Conclude, clone: Path, hub: Hub, deletes: bool
) -> None:
    """Where a person has led the pull request elsewhere, neither its branch nor the plan is over."""
    conclude(1, auto=False)
    hub.git("branch", "dev", "main")
    hub.retarget(hub.pulls[1], "dev")
    hub.delete_branch_on_merge = deletes
    head = hub.tip(BRANCH)
    hub.do_merge(hub.pulls[1], "squash")
    found = conclude()
    assert isinstance(found, Failed)
    assert found.reason == Reason.PR_CLOSED
    assert "was merged into dev, which main lacks" in found.why
    assert git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked", cwd=clone) == head
    hub.git("update-ref", "refs/heads/main", hub.tip("dev"))
    hub.commit("main", {"later.txt": ""})
    found = conclude()
    merged(found, hub)
    assert isinstance(found, Landed)
    assert found.tip == hub.tip("main"), "the merge commit need not be on the target"


def test_a_merge_without_a_phase_that_a_person_took_out_is_a_failure(conclude: Conclude, clone: Path, hub: Hub) -> None:
    conclude(1, auto=False)
    head = hub.tip(BRANCH)
    other = git("commit-tree", "main^{tree}", "-p", "main", "-m", "other", cwd=clone)
    git("push", "-q", "--force", str(hub.bare), f"{other}:refs/heads/{BRANCH}", cwd=clone)
    hub.pulls[1].sha = other
    hub.do_merge(hub.pulls[1], "merge")
    found = conclude()
    assert isinstance(found, Failed)
    assert found.reason == Reason.PR_CLOSED
    assert "pull request #1 was merged without phase 1" in found.why
    assert git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked", cwd=clone) == head


@pytest.mark.promise
@pytest.mark.parametrize(("default", "comments"), [("main", 0), pytest.param("trunk", 1, marks=pytest.mark.rest)])
def test_issues_of_the_plan_are_closed_with_a_comment_where_github_does_not_say_it(
    conclude: Conclude, hub: Hub, issues: list[int], default: str, comments: int
) -> None:
    """GitHub closes them itself, and says by what, only when the default branch is the target."""
    hub.default_branch = default
    issue = hub.add_issue("Bug")
    issues += [issue.number, 99]
    assert "issue #99 is not closed" in merged(conclude(), hub)
    assert (issue.state, len(issue.comments)) == ("closed", comments)


# --- signing in --------------------------------------------------------------------------------------------


def test_a_token_that_git_finds_expired_is_named_as_that(conclude: Conclude, hub: Hub) -> None:
    hub.tokens = {"newer"}
    with pytest.raises(TokenRefused, match="cannot run git fetch on origin: the token has expired or was revoked"):
        conclude()


@pytest.mark.parametrize(
    ("key", "is_installed", "expected"),
    [
        (None, True, "No such file"),
        ("-----BEGIN PRIVATE KEY-----\nnone\n-----END PRIVATE KEY-----\n", True, "is no private key that can be read"),
        ("of the app", False, "the GitHub App 77 is not installed on acme/app"),
    ],
)
def test_a_github_app_that_cannot_sign_in_is_refused(
    clone: Path, stand_in: StandIn, hub: Hub, key: str | None, is_installed: bool, expected: str
) -> None:
    app, private = an_app(hub)
    file = clone / "app.pem"
    if key is not None:
        file.write_text(private if key == "of the app" else key)
    if not is_installed:
        hub.app = None
    env = {"GITHUB_APP_ID": app, "GITHUB_APP_PRIVATE_KEY_FILE": str(file), "GITHUB_API_URL": stand_in.api}
    with Git(clone, env=dict(os.environ)) as user, pytest.raises(RefusedEarly) as caught:
        find_forge(user, remote="origin", env=env)
    assert expected in str(caught.value)
    assert private.splitlines()[1] not in str(caught.value)
