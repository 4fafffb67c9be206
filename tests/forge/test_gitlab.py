"""What is GitLab's own: pipelines, approvals, states of a merge, drafts, limits, and answers that are not its own."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runplan.adapters.forge.access import find_forge, forge_kind, parse_remote
from runplan.adapters.forge.gitlab import GitLab, find_token, open_forge
from runplan.adapters.forge.protocol import Address, CheckState, Merge, MergeState, NotMerged, PullRequest
from runplan.adapters.git.command import Git
from runplan.domain.errors import NotAllowed, RateLimited, RefusedEarly, Unreachable
from runplan.domain.text import inert
from tests.forge.conftest import git
from tests.support.github.server import Fault
from tests.support.gitlab.hub import GitLabHub
from tests.support.gitlab.server import GitLabStandIn

PASSED, FAILED, PENDING = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING


def opened(gitlab: GitLab) -> PullRequest:
    return gitlab.create_pull_request(branch="work", base="main", title="Work", body="text")


def state_of(gitlab: GitLab, number: int) -> MergeState:
    """The state when GitLab has computed it."""
    return [gitlab.read_pull_request(number).state for _ in range(2)][-1]


def a_merge(pull: PullRequest, method: str = "merge") -> Merge:
    return Merge(head=pull.head, method=method, title="Work (!1)", message="Runplan-Plan: plans/X.md")


# --- the way to it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://gitlab.com/group/sub/sub2/app.git", ("gitlab.com", "group/sub/sub2", "app")),
        ("git@gitlab.com:group/sub/app.git", ("gitlab.com", "group/sub", "app")),
        ("ssh://git@altssh.gitlab.com:443/group/app", ("gitlab.com", "group", "app")),
    ],
)
def test_groups_of_a_remote_may_be_nested(url: str, expected: tuple[str, str, str]) -> None:
    address = parse_remote(url, {})
    assert address is not None
    assert (address.host, address.owner, address.repository) == expected


@pytest.mark.parametrize(
    ("host", "env", "expected"),
    [
        ("gitlab.com", {}, "gitlab"),
        ("gitlab.corp", {}, "gitlab"),
        ("github.com", {"GITLAB_HOST": "git.corp"}, "github"),
        ("git.corp", {}, "github"),
        ("git.corp", {"GITLAB_HOST": "https://git.corp"}, "gitlab"),
        ("git.corp:8443", {"CI_SERVER_FQDN": "git.corp:8443"}, "gitlab"),
        ("git.corp", {"GITLAB_API_URL": "https://git.corp/gitlab/api/v4"}, "gitlab"),
    ],
)
def test_the_host_of_a_remote_decides_about_the_forge(host: str, env: dict[str, str], expected: str) -> None:
    assert forge_kind(host, env) == expected


@pytest.mark.parametrize(
    ("env", "answers", "expected"),
    [
        ({"GITLAB_TOKEN": "a", "GITLAB_ACCESS_TOKEN": "b"}, {"glab": "c"}, ("a", "$GITLAB_TOKEN")),
        ({"GITLAB_ACCESS_TOKEN": "b"}, {"glab": "c"}, ("b", "$GITLAB_ACCESS_TOKEN")),
        ({"GH_TOKEN": "x", "CI_JOB_TOKEN": "y"}, {"glab": "c\n", "git": "password=d"}, ("c", "glab config")),
        ({}, {"git": "username=u\npassword=d\n"}, ("d", "git credential")),
        ({"CI_JOB_TOKEN": "y"}, {}, None),
    ],
)
def test_a_token_is_found_by_variable_program_and_credential_helper(
    env: dict[str, str], answers: dict[str, str], expected: tuple[str, str] | None
) -> None:
    address = Address(host="gitlab.com", owner="o", repository="r")
    token = find_token(address, env, lambda argv, _: answers.get(argv[0], ""))
    assert (token and (token.value, token.source)) == expected


def test_the_server_is_that_of_the_remote_unless_its_api_is_named() -> None:
    address = Address(host="gitlab.corp", owner="o", repository="r")
    token = {"GITLAB_TOKEN": "t"}
    git = Git(Path(), {})  # it is not asked
    assert open_forge(git, address, token).file_url("a", "b") == "https://gitlab.corp/o/r/-/blob/b/a"
    named = open_forge(git, address, {**token, "GITLAB_API_URL": "https://corp/gitlab/api/v4/"})
    assert named.file_url("a", "b") == "https://corp/gitlab/o/r/-/blob/b/a"


def test_a_remote_on_gitlab_is_opened_or_refused_with_what_is_missing(
    place: Path, gitlab_hub: GitLabHub, gitlab_server: GitLabStandIn
) -> None:
    gitlab_hub.owner = "acme/tools"
    url = f"{gitlab_server.address}/acme/tools/app.git"
    git("remote", "add", "origin", url, cwd=place / "clone")
    env = {"GITLAB_API_URL": gitlab_server.api, "PATH": ""}
    with Git(place / "clone", env=dict(os.environ)) as here:
        with pytest.raises(RefusedEarly, match="set GITLAB_TOKEN to one with the scopes api and write_repository"):
            find_forge(here, remote="origin", env=env)
        with pytest.raises(RefusedEarly, match="CI_JOB_TOKEN may neither open merge requests"):
            find_forge(here, remote="origin", env={**env, "CI_JOB_TOKEN": "j"})
        with pytest.raises(RefusedEarly, match="is no repository on GitHub"):
            find_forge(here, remote="origin", env={"GH_ENTERPRISE_TOKEN": "t"})
        forge = find_forge(here, remote="origin", env={**env, "GITLAB_TOKEN": "t0ken"})
        assert (forge.read_repository().name, forge.token_source) == ("acme/tools/app", "$GITLAB_TOKEN")
        assert forge.git_settings()[0] == f"http.{gitlab_server.address}/.extraHeader="


def test_without_the_library_its_installation_is_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("remote", "add", "origin", "https://gitlab.com/acme/app", cwd=place / "clone")
    for name in ("runplan.adapters.forge.gitlab", "runplan.adapters.forge.gitlab_calls"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gitlab", None)
    with (
        Git(place / "clone", env=dict(os.environ)) as here,
        pytest.raises(RefusedEarly, match="run: pip install") as raised,
    ):
        find_forge(here, remote="origin", env={"GITLAB_TOKEN": "t"})
    assert str(raised.value).endswith("pip install 'runplan[gitlab]'")


# --- merges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merge_method", "squash_option", "methods", "strict"),
    [
        ("merge", "default_off", ("merge", "squash"), False),
        ("rebase_merge", "never", ("merge",), True),
        ("ff", "default_on", ("rebase", "squash"), True),
        ("ff", "always", ("squash",), True),
    ],
)
def test_the_settings_of_the_project_become_methods(
    gitlab: GitLab, gitlab_hub: GitLabHub, merge_method: str, squash_option: str, methods: tuple[str, ...], strict: bool
) -> None:
    gitlab_hub.merge_method, gitlab_hub.squash_option = merge_method, squash_option
    target = gitlab.read_target("main")
    assert (target.methods, target.strict) == (methods, strict)
    pull = opened(gitlab)
    merged = gitlab.merge_pull_request(pull.number, a_merge(pull, methods[-1]))
    assert merged == gitlab_hub.tip("main") == gitlab.read_pull_request(pull.number).merge_commit
    assert (merged == pull.head) is (merge_method == "ff" and methods[-1] == "rebase")
    if merged != pull.head:
        assert "Runplan-Plan: plans/X.md" in gitlab_hub.git("log", "-1", "--format=%B", "main")


def test_rules_that_are_not_met_block_and_their_words_are_shown(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.required, gitlab_hub.must_resolve, gitlab_hub.reviews = ["ci"], True, 2
    words = "2 approving reviews, a successful pipeline, resolved discussions"
    assert gitlab.read_target("main").requirements == words
    assert gitlab.read_target("main", number=pull.number).requirements == words
    assert state_of(gitlab, pull.number) is MergeState.BLOCKED
    gitlab_hub.check(pull.head, "ci")
    for name in ("reviewer", "bob"):
        assert state_of(gitlab, pull.number) is MergeState.BLOCKED
        gitlab_hub.review(pull.number, "", by=name, state="APPROVED")
    gitlab_hub.review(pull.number, "Why?", path="b.txt", line=1)
    assert state_of(gitlab, pull.number) is MergeState.BLOCKED
    gitlab_hub.resolve(pull.number)
    assert state_of(gitlab, pull.number) is MergeState.READY
    gitlab_hub.is_premium, gitlab_hub.reviews = False, 0
    assert gitlab.read_target("main").reviews == gitlab.read_target("main", number=pull.number).reviews == 0


def test_a_fast_forward_needs_a_branch_that_is_up_to_date(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    gitlab_hub.merge_method = "ff"
    pull = opened(gitlab)
    gitlab_hub.commit("main", {"theirs.txt": "theirs\n"})
    assert state_of(gitlab, pull.number) is MergeState.BEHIND
    refused = gitlab.merge_pull_request(pull.number, a_merge(pull, "rebase"))
    assert refused == NotMerged(said="Branch cannot be merged")
    gitlab_hub.commit("main", {"b.txt": "theirs\n"})
    assert state_of(gitlab, pull.number) is MergeState.CONFLICT


def test_an_account_that_may_not_merge_is_no_dead_token(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.can_merge = False
    assert gitlab.merge_pull_request(pull.number, a_merge(pull)) == NotMerged(said="401 Unauthorized")
    gitlab_hub.tokens.clear()
    with pytest.raises(NotAllowed, match="expired or was revoked"):
        gitlab.merge_pull_request(pull.number, a_merge(pull))


def test_a_merge_train_takes_a_merge_request_once(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.merge_trains = True
    assert gitlab.read_target("main").queue
    for _ in range(2):
        assert gitlab.merge_later(pull.number, a_merge(pull), queue=True) is None
    assert gitlab_hub.train == [pull.number]


def test_a_later_merge_of_a_person_is_not_taken_for_runplans(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.required = ["ci"]
    assert state_of(gitlab, pull.number) is MergeState.BLOCKED
    assert gitlab.merge_later(pull.number, a_merge(pull), queue=True) is None
    assert "Runplan-Plan: " in gitlab.read_pull_request(pull.number).merge_message
    gitlab_hub.merge_users[pull.number] = "bob"
    assert gitlab.read_pull_request(pull.number).merge_message == ""
    gitlab_hub.commit("work", {"c.txt": "c\n"})
    assert not gitlab.read_pull_request(pull.number).auto_merge, "a push ends the wait"
    gitlab.cancel_merge(pull.number)


def test_a_draft_has_a_prefix_that_is_not_part_of_the_title(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    made = gitlab.create_pull_request(branch="work", base="main", title="Work", body="", draft=True)
    assert (made.title, made.draft, gitlab_hub.pulls[1].title, made.name) == (
        *("Work", True, "Draft: Work", "merge request !1"),
    )
    gitlab.mark_ready(made.number)
    assert gitlab_hub.pulls[1].title == "Work"


def test_people_that_gitlab_does_not_take_are_named(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    number = opened(gitlab).number
    gitlab_hub.people_limit = 1
    people = {"assignees": ["bob", "nobody"], "reviewers": ["bob", "reviewer"]}
    remarks = gitlab.add_people(number, labels=["plan", "bot"], **people)
    assert [remark.split(":")[0] for remark in remarks] == [
        "GitLab did not take nobody as assignee",
        "GitLab did not take reviewer as reviewer",
    ]
    assert (gitlab_hub.pulls[number].labels, gitlab_hub.pulls[number].assignees) == (["plan", "bot"], ["bob"])
    gitlab_hub.review(number, "", by="bob", state="CHANGES_REQUESTED")
    gitlab.request_review(number, ["bob"])
    assert gitlab_hub.reviewers[number] == {"bob": "unreviewed"}


# --- pipelines and conversation ----------------------------------------------------------------------------


def test_jobs_that_may_fail_block_nothing_and_a_failed_one_has_a_log(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    head = gitlab_hub.tip("work")
    gitlab_hub.allowed_failures = {"flaky", "deploy"}
    states = {"unit": "success", "flaky": "failure", "deploy": "manual", "gate": "manual", "old": "canceled"}
    for name, state in {**states, "later": "created", "rest": "skipped"}.items():
        gitlab_hub.check(head, name, state)
    assert {check.name: check.state for check in gitlab.list_checks(head)} == {
        "unit": PASSED,
        "flaky": PASSED,
        "deploy": PASSED,
        "gate": PENDING,
        "old": FAILED,
        "later": PENDING,
        "rest": PASSED,
    }
    gitlab_hub.logs[head] = "x" * 9000 + "the end"
    log = gitlab.read_failure_log(head)
    assert log.startswith("## old\n")
    assert (log.endswith("the end"), len(log) < 3000) == (True, True)


def test_a_pipeline_for_the_result_of_the_merge_counts(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    result = gitlab_hub.results[pull.number] = gitlab_hub.tip("main")
    gitlab_hub.check(result, "unit", "failure")
    assert gitlab.read_pull_request(pull.number).head == pull.head
    assert [(check.name, check.state) for check in gitlab.list_checks(pull.head)] == [("unit", FAILED)]


def test_a_status_can_be_set_to_what_it_is(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    head = gitlab_hub.tip("work")
    for state in (PENDING, PENDING, PASSED, PASSED, PENDING):
        gitlab.set_status(head, state=state, text="1 of 2", url="https://x")
    assert [status["state"] for status in gitlab_hub.statuses[head]] == ["pending"]


def test_an_objection_has_its_authors_newest_words_and_an_approval_none(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.review(pull.number, "Why?", path="b.txt", line=3, first=1)
    gitlab_hub.review(pull.number, "Rename it.", state="CHANGES_REQUESTED")
    gitlab_hub.review(pull.number, "/runplan stop")
    gitlab_hub.review(pull.number, "", by="bob", state="APPROVED")
    gitlab_hub.review(pull.number, "Hello", by="stranger")
    gitlab.read_pull_request(pull.number)
    messages = gitlab.read_activity(pull.number, pull.head).messages
    assert [(message.id.split()[0], message.author, message.text, message.place) for message in messages] == [
        ("line", "reviewer", "Why?", "b.txt:1-3"),
        ("review", "reviewer", "Rename it.", ""),
        ("comment", "reviewer", "/runplan stop", ""),
        ("review", "bob", "", ""),
        ("comment", "stranger", "Hello", ""),
    ]
    assert [message.is_approval for message in messages] == [False, False, False, True, False]
    gitlab_hub.resolve(pull.number)
    assert "Why?" not in [message.text for message in gitlab.read_activity(pull.number, pull.head).messages]


def test_an_approval_is_not_later_than_the_words_after_it(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.review(pull.number, "", state="APPROVED")
    gitlab_hub.review(pull.number, "Wait, rename it.", path="b.txt", line=1)
    gitlab_hub.add_note("merge_requests", pull.number, "changed the milestone", by="reviewer", system=True)
    gitlab.read_pull_request(pull.number)
    messages = gitlab.read_activity(pull.number, pull.head).messages
    assert [message.is_approval for message in messages] == [True, False]


def test_a_request_for_a_review_that_gitlab_refuses_is_left_out(
    gitlab: GitLab, gitlab_server: GitLabStandIn, gitlab_hub: GitLabHub
) -> None:
    pull = opened(gitlab)
    gitlab_server.faults.append(Fault(call="POST /merge_requests/1/notes", kind="before", status=422))
    gitlab.request_review(pull.number, ["stranger"])
    gitlab.request_review(pull.number, ["reviewer"])
    assert gitlab_hub.reviewers[pull.number] == {"reviewer": "unreviewed"}


def test_an_issue_of_a_stranger_is_trusted_until_a_stranger_edits_it(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    issue = gitlab_hub.add_issue("Bug", "text", "runplan", by="stranger", labeller="bob")
    assert gitlab.is_issue_trusted(issue.number, "runplan")
    issue.edited, issue.editor = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "stranger"
    assert not gitlab.is_issue_trusted(issue.number, "runplan")


def test_texts_of_agents_run_no_quick_action(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    hostile = "Done.\n/close\n /merge\n/label ~x"
    body = inert(hostile)
    number = gitlab.create_pull_request(branch="work", base="main", title="Work", body=body).number
    gitlab.edit_pull_request(number, body=f"{body}\n{body}")
    gitlab.put_comment(gitlab_hub.add_issue("Bug").number, marker="one", text=body)
    assert gitlab_hub.ran == []
    gitlab.edit_pull_request(number, body=hostile)
    assert gitlab_hub.ran == ["/close", "/label ~x"], "the stand-in runs them"


def test_merge_requests_and_issues_are_counted_apart(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    issue, pull = gitlab_hub.add_issue("Bug"), opened(gitlab)
    assert issue.number == pull.number
    gitlab.put_comment(issue.number, marker="one", text="Done.")
    assert gitlab.read_activity(pull.number, pull.head).messages == ()
    gitlab.put_comment(pull.number, marker="one", text="Failed.", is_pull=True)
    (message,) = gitlab.read_activity(pull.number, pull.head).messages
    assert (message.text, len(gitlab.list_comments(issue.number))) == ("Failed.\n\n<!-- one -->", 1)


def test_a_branch_of_a_fork_with_the_same_name_is_not_ours(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    pull = opened(gitlab)
    gitlab_hub.forked.add(pull.number)
    assert gitlab.find_pull_request(branch="work", base="main") is None


# --- faults ------------------------------------------------------------------------------------------------


def test_a_lost_answer_repeats_no_write(gitlab: GitLab, gitlab_hub: GitLabHub, gitlab_server: GitLabStandIn) -> None:
    calls = ("POST /merge_requests", "PUT /merge_requests/1/merge", "POST /issues/1/notes", "GET /merge_requests/1")
    gitlab_server.faults += [Fault(call=call, kind="after", status=0) for call in calls]
    gitlab_hub.add_issue("Bug")
    pull = opened(gitlab)
    assert gitlab.merge_pull_request(pull.number, a_merge(pull)) == gitlab_hub.tip("main")
    gitlab.put_comment(1, marker="one", text="Done.")
    assert (len(gitlab_hub.pulls), gitlab_hub.merges, len(gitlab_hub.notes[("issues", 1)])) == (1, 1, 1)
    assert [fault.call for fault in gitlab_server.faults if fault.times] == []


@pytest.mark.parametrize(
    ("headers", "wait_s"), [((("Retry-After", "30"),), 30.0), ((("RateLimit-Reset", "1090"),), 90.0), ((), 60.0)]
)
def test_a_rate_limit_is_raised_at_once_with_its_end(
    gitlab: GitLab,
    gitlab_server: GitLabStandIn,
    slept: list[float],
    headers: tuple[tuple[str, str], ...],
    wait_s: float,
) -> None:
    gitlab_server.faults.append(Fault(call="GET ", kind="before", status=429, message="Retry later", headers=headers))
    with pytest.raises(RateLimited) as raised:
        gitlab.read_repository()
    assert (raised.value.until, slept, len(gitlab_server.requests)) == (1000.0 + wait_s, [], 1)


def test_an_outage_is_retried_by_our_layer(gitlab: GitLab, gitlab_server: GitLabStandIn, slept: list[float]) -> None:
    gitlab_server.faults.append(Fault(call="GET ", kind="before", status=503, times=99))
    with pytest.raises(Unreachable, match="the forge answers 503"):
        gitlab.read_repository()
    assert (slept, len(gitlab_server.requests)) == ([0.5, 2.0, 5.0], 4)


def test_a_web_page_or_host_is_no_gitlab(gitlab: GitLab, gitlab_hub: GitLabHub, gitlab_server: GitLabStandIn) -> None:
    elsewhere = (("Location", "http://127.0.0.2:9/login"),)
    gitlab_server.faults.append(Fault(call="GET ", kind="before", status=302, headers=elsewhere))
    with pytest.raises(Unreachable, match=r"redirects to http://127\.0\.0\.2:9"):
        gitlab.read_repository()
    gitlab_hub.page = "<html>Sign in</html>"
    with pytest.raises(Unreachable, match="sends text/html instead of JSON"):
        gitlab.read_repository()


def test_a_token_that_may_only_read_is_named(gitlab: GitLab, gitlab_hub: GitLabHub) -> None:
    gitlab.require_may_open("main")
    gitlab_hub.read_only = {"t0ken"}
    with pytest.raises(NotAllowed, match="insufficient_scope"):
        gitlab.require_may_open("main")
    gitlab_hub.token_scopes, gitlab_hub.can_push = None, False
    there = gitlab.read_repository()
    assert (there.scopes, there.can_push) == ((), False)
