"""The GitHub client through the real PyGithub, against a stand-in on a real repository."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from github import Auth, GithubIntegration
from requests import ReadTimeout

from runplan.adapters.forge.access import parse_remote
from runplan.adapters.forge.github import GitHub
from runplan.adapters.forge.github_access import open_forge
from runplan.adapters.forge.github_calls import TIMEOUT_S, GitHubCalls
from runplan.adapters.forge.protocol import CheckState, Merge, NotMerged, PullRequest
from runplan.adapters.git.command import Git
from runplan.domain.errors import NotAllowed, RateLimited, Unreachable
from runplan.domain.settings.schema import RunSettings, Settings
from runplan.engine.landing.modes import require_mergeable
from tests.forge.conftest import BRANCH
from tests.support.github.described import EXCERPT, described, faults
from tests.support.github.hub import Hub
from tests.support.github.server import Fault, StandIn, an_app, environment
from tests.support.tls import make_certificate

PASSED, FAILED, PENDING = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING


def opened(forge: GitHub) -> PullRequest:
    return forge.create_pull_request(branch="work", base="main", title="Work", body="text")


def by_squash(head: str) -> Merge:
    return Merge(head=head, method="squash", title="Work (#1)", message="Runplan-Plan: plans/X.md")


def merged(forge: GitHub, number: int, head: str) -> str | NotMerged:
    return forge.merge_pull_request(number, by_squash(head))


@pytest.mark.parametrize(("kind", "status"), [("before", 502), ("after", 0)], ids=["502", "dropped"])
def test_a_lost_answer_makes_nothing_twice(forge: GitHub, stand_in: StandIn, hub: Hub, kind: str, status: int) -> None:
    calls = ("POST /pulls", "PUT /pulls/1/merge", "POST /issues/1/comments", "POST /pulls/1/comments/1/replies")
    stand_in.faults += [Fault(call=call, kind=kind, status=status) for call in calls]
    made = opened(forge)
    hub.review(made.number, "Why?", path="b.txt", line=1)
    (line,) = forge.read_activity(made.number, made.head).messages
    forge.answer_message(made.number, line, marker="runplan answer", text="hello")
    forge.put_comment(made.number, marker="runplan done", text="hello")
    answer = merged(forge, made.number, made.head)
    assert answer == hub.tip("main")
    assert hub.git("log", "-1", "--format=%B", "main") == "Work (#1)\n\nRunplan-Plan: plans/X.md"
    assert hub.merges == 1
    assert list(hub.pulls) == [1]
    assert len(hub.pulls[1].comments) == 3
    assert [fault.call for fault in stand_in.faults if fault.times] == []


def test_a_pull_request_that_waits_in_the_queue_is_not_queued_again(forge: GitHub, hub: Hub) -> None:
    hub.merge_queue, hub.reviews = True, 1
    made = opened(forge)
    answers = [forge.merge_later(made.number, by_squash(made.head), queue=True) for _ in range(2)]
    assert (answers, hub.pulls[1].queued, hub.merges) == ([None, None], True, 0)


def test_checks_are_check_runs_and_statuses_of_the_pushed_commit(forge: GitHub, hub: Hub) -> None:
    head = hub.tip("work")
    assert forge.list_checks(head) == ()
    hub.check(head, "unit", None)
    hub.check(head, "skip", "neutral")
    hub.check(head, "lint", "timed_out", "too slow")
    hub.check(head, "odd", "a conclusion of tomorrow", "odd")
    hub.statuses[head] = [{"context": "build", "state": "error", "target_url": None, "description": "broken"}]
    found = {check.name: check.state for check in forge.list_checks(head)}
    assert found == {"unit": PENDING, "skip": PASSED, "lint": FAILED, "odd": FAILED, "build": FAILED}
    assert forge.read_failure_log(head) == "lint: too slow\nodd: odd\nbuild: broken"
    hub.logs[head] = "E   assert 1 == 2"
    assert "assert 1 == 2" in forge.read_failure_log(head)


@pytest.mark.parametrize(("last", "state"), [("success", PASSED), ("failure", FAILED), ("pending", PENDING)])
def test_a_status_beyond_the_first_page_counts(forge: GitHub, hub: Hub, last: str, state: CheckState) -> None:
    usual = {"target_url": None, "description": "ok"}
    states = [*["success"] * 40, last]
    hub.statuses[hub.tip("work")] = [usual | {"context": f"{n}", "state": one} for n, one in enumerate(states)]
    assert [check.state for check in forge.list_checks(hub.tip("work"))] == [*[PASSED] * 30, state]


def allows(*methods: str) -> dict[str, Any]:
    return {"type": "pull_request", "parameters": {"allowed_merge_methods": list(methods)}}


@pytest.mark.parametrize(
    ("repository", "linear", "rulesets", "wanted", "expected"),
    [
        ({"merge", "squash"}, True, (), "merge", "squash"),
        ({"merge", "squash", "rebase"}, False, ({"type": "required_linear_history"},), "merge", "rebase"),
        ({"merge", "squash", "rebase"}, False, (allows("squash", "merge"), allows("squash")), "merge", "squash"),
        ({"merge", "rebase"}, False, (allows("squash"),), "merge", ""),
        ({"merge"}, True, (), "merge", ""),
    ],
    ids=["classic linear", "ruleset linear", "two rulesets", "excluded", "linear only"],
)
def test_the_method_of_a_merge_follows_from_settings_and_rules(
    forge: GitHub,
    hub: Hub,
    repository: set[str],
    linear: bool,
    rulesets: tuple[dict[str, Any], ...],
    wanted: str,
    expected: str,
) -> None:
    hub.methods, hub.linear, hub.rulesets = repository, linear, list(rulesets)
    method = forge.read_target("main").choose_method(wanted)
    assert method == expected
    if method:
        made = opened(forge)
        how = Merge(head=made.head, method=method, title="Work", message="")
        assert isinstance(forge.merge_pull_request(made.number, how), str)


def test_the_rules_and_the_usual_checks_of_a_branch_are_read(forge: GitHub, hub: Hub) -> None:
    made = opened(forge)
    hub.check(made.head, "unit")
    hub.statuses[made.head] = [{"context": "build", "state": "success"}]
    merged(forge, made.number, made.head)
    hub.required, hub.strict, hub.reviews = ["ci"], True, 2
    target = forge.read_target("main")
    assert (target.checks, target.usual_checks, target.queue) == (("ci",), ("unit", "build"), False)
    assert target.requirements == "checks ci, 2 approving reviews, an up-to-date branch"
    assert forge.read_target("release").usual_checks == ()


@pytest.mark.parametrize(
    ("labeller", "edited_by", "expected"),
    [("reader", "", False), ("bob", "stranger", False), ("bob", "reporter", True)],
    ids=["read access", "edited since", "edited by a writer"],
)
def test_an_issue_is_trusted_for_the_labeller_of_its_text(
    forge: GitHub, hub: Hub, labeller: str, edited_by: str, expected: bool
) -> None:
    hub.permissions["reader"] = "read"
    issue = hub.add_issue("Bug", "text", "runplan", by="stranger", labeller=labeller)
    if edited_by:
        issue.edited, issue.editor = "2999-01-01T00:00:00Z", edited_by
    assert forge.is_issue_trusted(issue.number, "Runplan") is expected
    assert not forge.is_issue_trusted(hub.add_issue("Other", by="stranger").number, "runplan")


def test_the_conversation_is_read_with_threads_and_without_what_was_withdrawn(forge: GitHub, hub: Hub) -> None:
    opened(forge)
    hub.review(1, "Please rename it.")
    hub.review(1, "No.", state="DISMISSED")
    hub.review(1, "Soon.", state="PENDING")
    first = hub.review(1, "Why?", path="b.txt", line=3)
    hub.pulls[1].comments[-1]["start_line"] = 1
    hub.review(1, "Yes, why?", thread=first, by="bob")
    hub.review(1, "Old.", path="b.txt")
    hub.pulls[1].comments[-1]["user"] = None  # of an account that was deleted
    hub.pulls[1].resolved.add(hub.review(1, "Done?", path="b.txt", line=2))
    found = [(one.author, one.place, one.thread, one.text) for one in forge.read_activity(1, hub.tip("work")).messages]
    assert found == [
        ("reviewer", "", "", "Please rename it."),
        ("reviewer", "b.txt:1-3", str(first), "Why?"),
        ("bob", "b.txt:1-3", str(first), "Yes, why?"),
        ("ghost", "b.txt", str(first + 2), "Old."),
    ]


def test_the_activity_is_one_call_and_further_pages_are_read(forge: GitHub, stand_in: StandIn, hub: Hub) -> None:
    head = opened(forge).head
    hub.statuses[head] = [
        {"context": name, "state": "success", "target_url": None, "description": "ok"} for name in ("build", "runplan")
    ]
    before = len(stand_in.requests)
    assert [check.name for check in forge.read_activity(1, head).checks] == ["build"]
    assert stand_in.requests[before:] == ["POST /graphql"]
    for number in range(120):
        hub.check(head, f"check {number}")
        hub.comment(1, f"comment {number}")
    activity = forge.read_activity(1, head)
    assert (len(activity.checks), len(activity.messages)) == (121, 120)
    assert stand_in.requests[before + 1 :] == ["POST /graphql"] * 2


def test_the_newest_run_of_a_check_counts_in_each_suite(forge: GitHub, hub: Hub) -> None:
    head = opened(forge).head
    hub.check(head, "ci")
    (newest,) = hub.runs[head]
    earlier = newest | {"conclusion": "failure", "at": "2020-01-01T00:00:00Z"}
    hub.runs[head] = [newest, earlier]
    assert [check.state for check in forge.read_activity(1, head).checks] == [PASSED]
    hub.runs[head].append(earlier | {"suite": "CS_2"})
    assert [check.state for check in forge.read_activity(1, head).checks] == [PASSED, FAILED]


def test_checks_that_graphql_hides_from_a_token_are_read_by_rest(forge: GitHub, hub: Hub) -> None:
    head = opened(forge).head
    hub.check(head, "lint", "failure")
    hub.review(1, "Why?")
    hub.hides_checks = True
    activity = forge.read_activity(1, head)
    assert [check.state for check in activity.checks] == [FAILED]
    assert len(activity.messages) == 1


@pytest.mark.parametrize(
    ("lacks", "seen", "unread"),
    [
        ({"checks"}, ["ci", "build"], ("checks other than jobs of GitHub Actions",)),
        ({"checks", "actions"}, ["build"], ("checks other than jobs of GitHub Actions", "jobs of GitHub Actions")),
        ({"checks", "actions", "statuses"}, None, ()),
    ],
    ids=["actions", "statuses", "nothing"],
)
def test_a_token_without_the_permission_for_checks_reads_what_it_may(
    forge: GitHub, hub: Hub, lacks: set[str], seen: list[str] | None, unread: tuple[str, ...]
) -> None:
    head = opened(forge).head
    hub.lacks, hub.hides_checks = lacks, True
    for commit in (head, hub.tip("main")):
        hub.check(commit, "ci", "failure")
        hub.set_status(commit, {"context": "build", "state": "success"})
    if seen is None:
        with pytest.raises(NotAllowed, match="read access to Actions"):
            forge.read_target("main")
        return
    assert [check.name for check in forge.read_activity(1, head).checks] == seen
    assert forge.read_target("main").unread == unread


def read(forge: GitHub) -> object:
    return forge.read_pull_request(1)


def limit(
    status: int, *headers: tuple[str, str], call: str = "GET .*", message: str = "API rate limit exceeded"
) -> Fault:
    errors = [{"type": "RATE_LIMITED", "message": message}]
    return Fault(call=call, kind="before", status=status, headers=headers, message=message, errors=errors)


def test_a_token_that_a_server_repeats_is_redacted(forge: GitHub, stand_in: StandIn) -> None:
    stand_in.faults.append(Fault(call="GET .*", kind="before", status=403, message="bad header: token t0ken"))
    with pytest.raises(NotAllowed, match=r"403 bad header: token \[redacted\]"):
        forge.may_write("bob")


def test_the_authorities_that_git_trusts_are_trusted(stand_in: StandIn, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    stand_in.use_tls(certificate, key)
    with Git(tmp_path, env=dict(os.environ)) as git:
        address = parse_remote(stand_in.remote, {})
        assert address is not None
        env = environment(stand_in) | {"GIT_SSL_CAINFO": certificate}
        assert open_forge(git, address, env).read_repository().can_push


EXCEEDED = "You have exceeded a secondary rate limit"
AFTER = ("retry-after", "30")


#: docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api: no further call before that time.
@pytest.mark.parametrize(
    ("fault", "wait_s", "ask"),
    [
        (limit(403, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1090")), 90.0, read),
        (limit(403, AFTER, message=EXCEEDED), 30.0, read),
        (limit(403, message=EXCEEDED), 60.0, read),
        (limit(429, message="Too Many Requests"), 60.0, read),
        (limit(403, AFTER, call="PATCH .*"), 30.0, lambda forge: forge.edit_pull_request(1, body="new")),
        (limit(503, AFTER, call="PUT .*"), 30.0, lambda forge: forge.merge_pull_request(1, by_squash("0" * 40))),
        (limit(200, AFTER, call="POST /graphql"), 30.0, lambda forge: forge.read_target("main")),
        (
            limit(200, AFTER, call="POST /graphql"),
            30.0,
            lambda forge: forge.merge_later(1, by_squash("0" * 40), queue=True),
        ),
    ],
    ids=["primary", "with a time", "without a time", "429", "patch", "outage", "query", "mutation"],
)
def test_a_rate_limit_names_its_end_and_holds_for_all_calls(
    forge: GitHub, stand_in: StandIn, slept: list[float], fault: Fault, wait_s: float, ask: Callable[[GitHub], object]
) -> None:
    opened(forge)
    stand_in.faults.append(replace(fault))
    with pytest.raises(RateLimited) as caught:
        ask(forge)
    assert (caught.value.until, slept) == (1000.0 + wait_s, [])
    stand_in.requests.clear()
    with pytest.raises(RateLimited):
        read(forge)
    assert stand_in.requests == []


def test_foreign_issues_are_found_without_collaborators_and_kept(forge: GitHub, stand_in: StandIn, hub: Hub) -> None:
    hub.lists_collaborators = False
    for by in ("stranger", "reporter", "stranger"):
        hub.add_issue("Bug", "", "runplan", by=by)
    for asked in (["reporter", "stranger"], ["reporter"]):
        stand_in.requests.clear()
        assert [issue.is_trusted for issue in forge.list_issues("runplan")] == [False, True, False]
        assert sorted(call.split("/")[2] for call in stand_in.requests if call.endswith("/permission")) == asked


@pytest.mark.parametrize(
    ("arrange", "error"),
    [
        (lambda s: s.faults.append(Fault(call="GET .*", kind="before", status=403, message="Forbidden")), NotAllowed),
        (lambda s: s.faults.append(Fault(call="GET .*", kind="before", times=9)), Unreachable),
        (lambda s: s.faults.append(Fault(call="GET .*", kind="before", status=0, times=9)), Unreachable),
        (lambda s: a_page(s.hub, 200), "sends text/html instead of JSON (status 200)"),
        (lambda s: a_page(s.hub, 404), "sends text/html instead of JSON (status 404)"),
        (lambda s: s.faults.append(moved("https://login.example/x")), "redirects to https://login.example"),
        (lambda s: s.faults.append(moved("/api/v3/repos/acme/app/pulls/1", times=9)), "redirects more than 5 times"),
    ],
    ids=[
        *("no permission", "5xx", "no connection", "page of a proxy", "page that is not found"),
        *("redirect to a login", "redirects without end"),
    ],
)
def test_a_refusal_or_an_outage_is_a_named_error(
    forge: GitHub, stand_in: StandIn, arrange: Callable[[StandIn], object], error: type[Exception] | str
) -> None:
    opened(forge)
    arrange(stand_in)
    with pytest.raises(Unreachable if isinstance(error, str) else error) as caught:
        read(forge)
    assert "t0ken" not in str(caught.value)
    if isinstance(error, str):
        assert error in str(caught.value)


def moved(where: str, times: int = 1) -> Fault:
    return Fault(call="GET .*", kind="before", status=302, headers=(("Location", where),), times=times)


def a_page(hub: Hub, status: int) -> None:
    hub.page = "<html>Sign in</html>"
    hub.page_status = status


def test_an_open_pull_request_counts_before_a_closed_one(forge: GitHub, hub: Hub) -> None:
    """A person may have changed where the open one leads."""
    hub.pulls[opened(forge).number].state = "closed"
    elsewhere = hub.create("work", BRANCH, "Work", "")
    pull = forge.find_pull_request(branch="work", base="main")
    assert pull is not None
    assert pull.number == elsewhere.number


def test_reads_and_writes_follow_a_renamed_repository(forge: GitHub, stand_in: StandIn, hub: Hub) -> None:
    """The query of a read and the body of a write arrive; the pull request of another branch is not taken for ours."""
    hub.create(BRANCH, "main", "Other", "")
    forge.read_repository()
    hub.renamed_from, hub.name = hub.name, "product"
    assert forge.find_pull_request(branch="work", base="main") is None
    made = opened(forge)
    forge.edit_pull_request(made.number, body="new")
    assert (hub.pulls[made.number].head, hub.pulls[made.number].body) == ("work", "new")
    assert isinstance(merged(forge, made.number, made.head), str)
    settings = Settings(run=RunSettings(target="main", remote="origin"))
    (remark,) = require_mergeable(forge, settings)
    address = f"{forge.address.web}/acme/product.git"
    assert remark == f"acme/app was renamed to acme/product; update the remote: git remote set-url origin {address}"
    assert forge.address.web.startswith("http")


@pytest.mark.parametrize("arrange", ["read-only token", "archived"])
def test_a_token_that_may_open_no_pull_request_is_found_out_without_one(forge: GitHub, hub: Hub, arrange: str) -> None:
    forge.require_may_open("main")
    hub.read_only, hub.archived = ({"t0ken"}, False) if arrange == "read-only token" else (set(), True)
    with pytest.raises(NotAllowed, match="403"):
        forge.require_may_open("main")
    assert (hub.pulls, forge.read_repository().is_archived) == ({}, arrange == "archived")


def test_a_forge_that_hangs_is_asked_once(slept: list[float]) -> None:
    times = iter((0.0, 0.0, TIMEOUT_S + 15.0, TIMEOUT_S + 15.0))
    asked: list[str] = []

    def hang() -> None:
        asked.append("x")
        raise ReadTimeout

    with pytest.raises(Unreachable, match="the forge does not answer"):
        GitHubCalls(sleep=slept.append, now=lambda: next(times)).attempt("read it", hang)
    assert (asked, slept) == (["x"], [])


def test_the_stand_in_answers_as_github_describes(forge: GitHub, stand_in: StandIn, hub: Hub) -> None:
    every_call(forge, hub)
    installed = GithubIntegration(auth=Auth.AppAuth(*an_app(hub)), base_url=stand_in.api)
    assert installed.get_access_token(installed.get_repo_installation("acme", "app").id).token in hub.tokens
    schemas = json.loads(EXCERPT.read_text(encoding="utf-8"))
    found = [
        fault
        for method, path, status, answer in stand_in.answers
        if path != "/graphql"
        for fault in faults(schemas[f"{method} {described(path)} {status}"], answer, f"{method} {path} {status}")
        if status < 300 and answer is not None
    ]
    assert found == []


def every_call(forge: GitHub, hub: Hub) -> None:
    issue = hub.add_issue("Bug", "text", "runplan")
    made = opened(forge)
    head = made.head
    hub.required, hub.reviews, hub.strict = ["ci"], 1, True
    hub.check(head, "lint", "failure")
    hub.statuses[head] = [{"context": "build", "state": "success", "target_url": None, "description": "ok"}]
    hub.logs[head] = "log"
    hub.rulesets = [allows("merge", "squash"), {"type": "required_linear_history"}]
    forge.read_repository()
    forge.read_target("main")
    forge.may_write("bob")
    hub.rulesets = []
    forge.find_pull_request(branch="work", base="main")
    forge.read_pull_request(made.number)
    forge.merge_later(made.number, by_squash(head), queue=False)
    forge.read_pull_request(made.number)
    forge.add_people(made.number, labels=["a"], assignees=["bob"], reviewers=["bob", "acme/core"])
    forge.set_status(head, state=PENDING, text="1 of 2", url="https://github.test/report")
    forge.list_checks(head)
    forge.read_failure_log(head)
    forge.list_open_files("main")
    hub.review(made.number, "Please rename it.")
    hub.review(made.number, "Why?", path="b.txt", line=1)
    for _ in range(2):
        for message in forge.read_activity(made.number, head).messages:
            forge.answer_message(made.number, message, marker="runplan", text=f"at {hub.now()} of {message.id}")
    forge.request_review(made.number, ["reviewer"])
    forge.edit_pull_request(made.number, body="new")
    forge.put_comment(issue.number, marker="m", text="t")
    forge.put_comment(issue.number, marker="m", text="other")
    forge.assign_issue(issue.number, is_assigned=True)
    forge.assign_issue(issue.number, is_assigned=False)
    forge.read_issue(issue.number)
    forge.list_issues("runplan")
    forge.label_issue(issue.number, add="a", remove="runplan")
    forge.close_issue(issue.number)
    hub.required, hub.reviews, hub.strict = [], 0, False
    merged(forge, made.number, head)
