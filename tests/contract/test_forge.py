"""What every forge promises: nothing twice, named refusals, states in our own words."""

import functools

import pytest

from runplan.adapters.forge.github import GitHub
from runplan.adapters.forge.gitlab import GitLab
from runplan.adapters.forge.protocol import (
    STATUS,
    Activity,
    CheckState,
    Forge,
    Merge,
    MergeState,
    NotMerged,
    PullRequest,
)
from runplan.domain.errors import NotAllowed, NotFound, TokenRefused
from runplan.engine.landing.merging import describe_change, read_issues
from tests.support.github.hub import Hub

PASSED, FAILED, PENDING = CheckState.PASSED, CheckState.FAILED, CheckState.PENDING


class Host:
    """A forge, and the means to change what it shows."""

    def __init__(self, forge: Forge, hub: Hub, *, rule: str = "checks ci") -> None:
        self.forge = forge
        self.hub = hub
        self.rule = rule  #: as which it shows that `ci` has to pass

    def open(self) -> PullRequest:
        return self.forge.create_pull_request(branch="work", base="main", title="Work", body="text")


@pytest.fixture(params=["github", "gitlab"])
def host(request: pytest.FixtureRequest) -> Host:
    if request.param == "github":
        github: GitHub = request.getfixturevalue("github")  # the annotation has mypy compare it with the protocol
        return Host(github, request.getfixturevalue("hub"))
    gitlab: GitLab = request.getfixturevalue("gitlab")
    return Host(gitlab, request.getfixturevalue("gitlab_hub"), rule="a successful pipeline")


@pytest.fixture
def like_github(github: GitHub, hub: Hub) -> Host:
    """A forge with reviews, drafts and people as GitHub has them; for GitLab's own see tests/forge/test_gitlab.py."""
    return Host(github, hub)


def by_squash(head: str) -> Merge:
    return Merge(head=head, method="squash", title="Work (#1)", message="Runplan-Plan: plans/X.md")


def test_a_pull_request_is_created_once_found_edited_and_merged_once(host: Host) -> None:
    forge, opened = host.forge, host.open()
    assert (opened.is_open, opened.head, opened.body) == (True, host.hub.tip("work"), "text")
    assert host.open().number == opened.number
    forge.edit_pull_request(opened.number, body="new")
    found = forge.find_pull_request(branch="work", base="main")
    assert found is not None
    assert (found.number, found.body) == (opened.number, "new")
    assert forge.find_pull_request(branch="other", base="main") is None
    assert forge.list_open_files("main") == {opened.number: ("b.txt",)}
    assert isinstance(forge.merge_pull_request(opened.number, by_squash("0" * 40)), NotMerged), "it has moved"
    merged = forge.merge_pull_request(opened.number, by_squash(opened.head))
    assert forge.merge_pull_request(opened.number, by_squash(opened.head)) == merged
    found = forge.read_pull_request(opened.number)
    assert (found.is_merged, found.is_open, found.merge_commit) == (True, False, merged)
    assert [pull.number for pull in forge.list_merged("work")] == [opened.number]
    assert forge.list_merged("other") == ()
    assert forge.list_open_files("main") == {}


def test_an_open_pull_request_can_be_led_to_another_branch(host: Host) -> None:
    forge, opened = host.forge, host.open()
    host.hub.git("update-ref", "refs/heads/next", host.hub.tip("main"))
    for _ in range(2):
        forge.retarget(opened.number, "next")
        moved = forge.read_pull_request(opened.number)
        assert (moved.base, moved.head, moved.is_open) == ("next", opened.head, True)
    found = forge.find_pull_request(branch="work", base="main")
    assert found is not None
    assert (found.number, found.base) == (opened.number, "next")


def test_a_merge_is_refused_until_the_rules_are_met_and_can_be_asked_for_before(host: Host) -> None:
    forge, opened = host.forge, host.open()
    clean = forge.merge_later(opened.number, by_squash(opened.head), queue=False)
    assert isinstance(clean, NotMerged), "it could be merged at once"
    host.hub.required = ["ci"]
    assert forge.read_target("main").requirements == host.rule
    assert isinstance(forge.merge_pull_request(opened.number, by_squash(opened.head)), NotMerged)
    states = [forge.read_pull_request(opened.number).state for _ in range(2)]
    assert states[-1] is MergeState.BLOCKED
    assert forge.merge_later(opened.number, by_squash(opened.head), queue=False) is None
    waiting = forge.read_pull_request(opened.number)
    assert (waiting.auto_merge, waiting.is_merged) == (True, False)
    assert "Runplan-Plan: plans/X.md" in waiting.merge_message
    forge.cancel_merge(opened.number)
    host.hub.check(opened.head, "ci")
    assert forge.read_pull_request(opened.number).is_open
    host.hub.required = ["ci", "lint"]
    assert forge.merge_later(opened.number, by_squash(opened.head), queue=False) is None
    host.hub.check(opened.head, "lint")
    assert forge.read_pull_request(opened.number).is_merged


def test_mergeability_is_unknown_at_first(host: Host) -> None:
    number = host.open().number
    states = [host.forge.read_pull_request(number).state for _ in range(2)]
    assert states == [MergeState.UNKNOWN, MergeState.READY]


def test_the_method_of_a_merge_is_one_that_is_allowed(host: Host) -> None:
    host.hub.methods = {"squash", "rebase"}
    target = host.forge.read_target("main")
    assert (target.choose_method("squash"), target.choose_method("merge")) == ("squash", "rebase")


def test_checks_have_states_and_failed_ones_a_log(host: Host) -> None:
    forge, head = host.forge, host.hub.tip("work")
    assert forge.list_checks(head) == ()
    host.hub.check(head, "unit", None)
    host.hub.check(head, "lint", "failure", "too long")
    host.hub.check(head, "build")
    states = {check.name: check.state for check in forge.list_checks(head)}
    assert states == {"unit": PENDING, "lint": FAILED, "build": PASSED}
    assert forge.read_failure_log(head) == "lint: too long"


def test_a_draft_is_marked_ready_once(host: Host) -> None:
    forge = host.forge
    made = forge.create_pull_request(branch="work", base="main", title="Work", body="", draft=True)
    assert made.draft
    assert isinstance(forge.merge_pull_request(made.number, by_squash(made.head)), NotMerged)
    for _ in range(2):
        forge.mark_ready(made.number)
        assert not forge.read_pull_request(made.number).draft
    assert isinstance(forge.merge_pull_request(made.number, by_squash(made.head)), str)


def test_a_plain_pull_request_is_opened_where_drafts_are_not_allowed(like_github: Host) -> None:
    like_github.hub.drafts_allowed = False
    made = like_github.forge.create_pull_request(branch="work", base="main", title="Work", body="", draft=True)
    assert (made.draft, made.is_open) == (False, True)


def test_labels_and_people_are_added_and_the_refused_ones_are_named(like_github: Host) -> None:
    number = like_github.open().number
    remarks = like_github.forge.add_people(
        number, labels=["plan", "x" * 51], assignees=["bob", "nobody"], reviewers=["acme/core", "stranger", "octocat"]
    )
    assert len(remarks) == 4
    assert [name for name in ("x" * 51, "nobody", "stranger", "octocat") if name not in " ".join(remarks)] == []
    assert like_github.forge.add_people(number, labels=["plan"], assignees=["bob"], reviewers=["bob"]) == ()


def test_the_status_of_a_commit_is_set_again_and_is_no_check(host: Host) -> None:
    forge, head = host.forge, host.hub.tip("work")
    url = forge.file_url("reports/plan-x.md", "runplan/x/pr")
    assert ("/acme/app/" in url, url.endswith("/blob/runplan/x/pr/reports/plan-x.md")) == (True, True)
    forge.set_status(head, state=PENDING, text="1 of 2", url=url)
    forge.set_status(head, state=FAILED, text="x" * 141, url=url)
    (status,) = host.hub.statuses[head]
    assert [status[name] for name in ("context", "state", "target_url")] == [STATUS, "failure", url]
    assert (len(status["description"]), forge.list_checks(head)) == (140, ())
    host.hub.statuses_allowed = False
    with pytest.raises(NotAllowed):
        forge.set_status(head, state=PASSED, text="2 of 2", url=url)


def test_only_an_account_with_write_access_objects(host: Host) -> None:
    forge, number = host.forge, host.open().number
    host.hub.review(number, "No.", by="stranger", state="CHANGES_REQUESTED")
    assert forge.read_target("main", number=number).objections == ()
    host.hub.review(number, "No.", state="CHANGES_REQUESTED")
    host.hub.review(number, "Well …")
    host.hub.review(number, "")
    assert forge.read_target("main", number=number).objections == ("reviewer",)
    assert (forge.may_write("reviewer"), forge.may_write("stranger")) == (True, False)


def test_the_activity_has_checks_and_messages_with_their_kinds(like_github: Host) -> None:
    forge, hub, opened = like_github.forge, like_github.hub, like_github.open()
    assert forge.read_activity(opened.number, opened.head) == Activity(checks=(), messages=(), is_open=True)
    hub.check(opened.head, "unit", None)
    hub.check(opened.head, "lint", "failure", "too long")
    hub.check(opened.head, "build")
    hub.review(opened.number, "No.", state="CHANGES_REQUESTED")
    hub.review(opened.number, "Well …")
    hub.review(opened.number, "", by="bob", state="APPROVED")
    hub.review(opened.number, "")
    hub.review(opened.number, "Why?", path="b.txt", line=1)
    hub.comment(opened.number, "Hello", by="stranger")
    activity = forge.read_activity(opened.number, opened.head)
    assert set(activity.checks) == set(forge.list_checks(opened.head))
    shown = [
        (message.id.split()[0], message.author, message.text, message.place, bool(message.thread))
        for message in activity.messages
    ]
    assert shown == [
        ("review", "reviewer", "No.", "", False),
        ("review", "reviewer", "Well …", "", False),
        ("review", "bob", "", "", False),
        ("line", "reviewer", "Why?", "b.txt:1", True),
        ("comment", "stranger", "Hello", "", False),
    ]
    assert [message.is_approval for message in activity.messages] == [False, False, True, False, False]


def test_a_message_is_answered_once_where_it_was_written(host: Host) -> None:
    forge, number = host.forge, host.open().number
    host.hub.review(number, "Why?", path="b.txt", line=1)
    host.hub.review(number, "Well …")
    read = functools.partial(forge.read_activity, number, host.hub.tip("work"))
    asked = {message.text: message for message in read().messages}
    for text in ("Because.", "Because.", "Handled."):
        forge.answer_message(number, asked["Why?"], marker="runplan 1", text=text)
        forge.answer_message(number, asked["Well …"], marker="runplan 2", text=text)
    before = {message.id for message in asked.values()}
    answers = [(one.author, one.thread, one.text) for one in read().messages if one.id not in before]
    assert sorted(answers) == [
        (forge.own_login, "", "Handled.\n\n<!-- runplan 2 -->"),
        (forge.own_login, asked["Why?"].thread, "Handled.\n\n<!-- runplan 1 -->"),
    ]
    forge.request_review(number, ["reviewer", forge.own_login, "stranger"])


def test_a_reaction_shows_once_that_a_message_was_seen(host: Host) -> None:
    number = host.open().number
    host.hub.review(number, "Why?", path="b.txt", line=1)
    host.hub.comment(number, "/runplan stop", by="bob")
    messages = host.forge.read_activity(number, host.hub.tip("work")).messages
    for message in (*messages, *messages):
        host.forge.react_to(number, message.id)
    assert sorted(host.hub.reactions) == sorted((int(message.id.split()[1]), "eyes") for message in messages)
    host.forge.react_to(number, "review 99")


def test_a_comment_is_made_once_per_marker_and_one_of_another_account_stays(host: Host) -> None:
    forge, number = host.forge, host.hub.add_issue("Bug").number
    host.hub.comment(number, "mine\n\n<!-- one -->", by="stranger")
    quoting = "it said <!-- one -->"
    for marker, text in (("two", quoting), ("one", "hello"), ("one", "hello"), ("one", "bye")):
        forge.put_comment(number, marker=marker, text=text)
    comments = [(comment.author, comment.text) for comment in forge.list_comments(number)]
    assert comments == [
        ("stranger", "mine\n\n<!-- one -->"),
        ("octocat", f"{quoting}\n\n<!-- two -->"),
        ("octocat", "bye\n\n<!-- one -->"),
    ]


def test_issues_with_a_label_are_listed_assigned_closed_and_labelled(host: Host) -> None:
    forge, issue, other = host.forge, host.hub.add_issue("Bug", "text", "runplan"), host.hub.add_issue("Other")
    assert [listed.number for listed in forge.list_issues("runplan")] == [issue.number]
    forge.label_issue(issue.number, add="working", remove="runplan")
    forge.label_issue(other.number, remove="runplan")
    assert [listed.number for listed in forge.list_issues("working")] == [issue.number]
    for is_assigned in (True, True, False):
        forge.assign_issue(issue.number, is_assigned=is_assigned)
    forge.close_issue(issue.number)
    found = forge.read_issue(issue.number)
    assert (found.is_open, found.title, found.body, found.author) == (False, "Bug", "text", "reporter")
    assert forge.list_issues("working") == ()


def test_an_issue_that_is_dropped_or_edited_before_the_merge_is_told(host: Host) -> None:
    numbers = [host.hub.add_issue("Bug", "text").number for _ in range(4)]
    before = list(read_issues(host.forge, [*numbers, 77]))
    host.hub.drop_issue(numbers[0], by="reviewer")
    host.hub.edit_text(numbers[1], "another text")
    host.hub.edit_text(numbers[2], "text\r\n")
    changes = [*map(describe_change, before, read_issues(host.forge, [*numbers, 77]))]
    closed = "closed by reviewer" if isinstance(host.forge, GitLab) else "closed as not planned by reviewer"
    edited = "was edited: its text changed"
    assert changes == [f"issue #{numbers[0]} was {closed}", f"issue #{numbers[1]} {edited}", "", "", ""]
    if not isinstance(host.forge, GitLab):  # it knows no reasons
        host.forge.close_issue(numbers[3])
        assert describe_change(before[3], *read_issues(host.forge, [numbers[3]])) == ""


@pytest.mark.parametrize(
    ("by", "labeller", "expected"), [("reporter", "", True), ("stranger", "", False), ("stranger", "bob", True)]
)
def test_an_issue_is_trusted_for_its_author_or_its_labeller(host: Host, by: str, labeller: str, expected: bool) -> None:
    issue = host.hub.add_issue("Bug", "text", "runplan", by=by, labeller=labeller)
    assert host.forge.is_issue_trusted(issue.number, "Runplan") is expected


def test_what_is_not_there_or_not_allowed_is_a_named_error(host: Host) -> None:
    number = host.open().number
    repository = host.forge.read_repository()
    assert (repository.can_push, repository.default_branch) == (True, "main")
    with pytest.raises(NotAllowed, match=r"cannot read (pull|merge) request [0-9]+: 404 "):
        host.forge.read_pull_request(number + 7)
    with pytest.raises(NotFound):
        host.forge.read_issue(number + 7)
    host.hub.tokens.clear()
    with pytest.raises(TokenRefused):
        host.forge.read_pull_request(number)
    with pytest.raises(TokenRefused):
        host.forge.require_may_open("main")


def test_a_reopened_issue_is_newer_than_the_pull_request_that_closed_it(host: Host) -> None:
    forge = host.forge
    number = host.hub.add_issue("Bug").number
    assert forge.find_reopening(number) == 0.0
    pull = host.open()
    assert pull.ended == 0.0
    forge.merge_pull_request(pull.number, by_squash(pull.head))
    ended = forge.read_pull_request(pull.number).ended
    host.hub.reopen(number, by="stranger")
    assert forge.find_reopening(number) < ended
    host.hub.reopen(number)
    assert forge.find_reopening(number) > ended > 0.0
