"""Landing by pull request: one branch and one pull request per plan, merged when its checks pass."""

import re
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from github import Auth

from runplan.adapters.forge.access import Token, parse_remote
from runplan.adapters.forge.github import GitHub
from runplan.domain.gitfacts import PLAN, RUN, read_trailers
from runplan.domain.names import repository_id
from tests.support.cli import (
    Meanwhile,
    Project,
    Ran,
    a_plan,
    a_project,
    copied,
    end_processes_of,
    fix,
    set_up,
    until,
    verify,
    work,
)
from tests.support.github.hub import Hub
from tests.support.github.server import StandIn, an_app, on_github, publish
from tests.support.gitlab.server import on_gitlab
from tests.support.tools import write_script

BRANCH = "runplan/x/pr"


def finished(project: Project, hub: Hub) -> Ran:
    """Start the plan; it ends with one merged pull request and nothing left behind."""
    ran = project.start("finish", "auto", "pr").exits(0)
    assert (hub.merges, [pull.merged for pull in hub.pulls.values()]) == (1, [True])
    assert "status: complete" in project.show("origin/main:plans/X.md")
    assert BRANCH not in hub.branches()
    assert project.leftovers() == []
    return ran


@pytest.mark.promise
def test_a_plan_ends_with_a_merged_pull_request(project: Project, server: StandIn, hub: Hub) -> None:
    drafts: list[bool] = []
    server.on_request = lambda call: drafts.append(hub.pulls[1].draft) if "/pulls/1" in call else None
    ran = finished(project, hub)
    assert (drafts[0], drafts[-1]) == (True, False)
    shown = [hub.statuses[sha][0] for sha in hub.git("rev-list", "--reverse", "main").split() if sha in hub.statuses]
    counts = [(status["state"], status["description"]) for status in shown]
    assert counts == [("success", "2 of 2 items proven")]
    named = "\nPull request: #1 https://github.test/acme/app/pull/1\n"
    assert named in project.show("origin/main:reports/plan-x.md")
    assert project.runplan("report", "X").out.count(named) == 1
    assert read_trailers(hub.git("log", "-1", "--format=%B", "main")).keys() == {PLAN, RUN}
    assert "pull request #1 is merged: https://github.test/acme/app/pull/1" in ran.err
    body = hub.pulls[1].body
    assert "- [x] 1" in body
    assert "- [x] 2" in body
    assert "  - [x] Write 2.txt — 2.txt" in body
    assert project.landed() == ["1", "2"]
    assert hub.git("ls-tree", "--name-only", "main:reports") == "plan-x.md"
    assert project.repo.head("main") == hub.tip("main")
    assert project.repo.status() == ""


# --- checks ------------------------------------------------------------------------------------------------


@pytest.mark.promise
def test_failed_checks_are_fixed_by_an_agent(project: Project, hub: Hub) -> None:
    publish(project, hub, agent=work() + work(phase="2") + fix('write = "fixed.txt"', 'commit = "Fix"', phase=""))

    def check(branch: str, sha: str) -> None:
        good = "fixed.txt" in hub.git("ls-tree", "--name-only", sha)
        hub.check(sha, "ci", "success" if good else "failure", "fixed.txt is missing")

    hub.on_push = check
    finished(project, hub)
    assert any("fixed.txt is missing" in prompt for prompt in project.prompts())


def test_a_comment_has_the_daemon_retry_a_failed_run(project: Project, hub: Hub) -> None:
    publish(project, hub, settings="[run]\nmax_fix_cycles = 0\n")
    hub.on_push = lambda _, sha: hub.check(sha, "ci", "failure")
    assert project.runplan("start", "X", "finish", "auto", "pr").code == 0
    until(lambda: project.rows("SELECT 1 FROM waits WHERE times>1"))
    assert "2 of 2 done" in project.runplan("status", "X").out  # on the branch
    assert "failed: plans/X.md, X" in project.runplan("inbox").out
    (status,) = hub.statuses[hub.tip(BRANCH)]
    failed = ("failure", "ci-failed: checks of pull request #\u200b1 failed: ci")
    assert (status["state"], status["description"]) == failed
    (comment,) = hub.pulls[1].comments
    assert "(plan `plans/X.md`): failed. Reason: `ci-failed`." in comment["body"]
    assert "or comment `/runplan retry` here" in comment["body"]
    hub.check(hub.tip(BRANCH))
    hub.comment(1, "/runplan retry", by="stranger")
    (before,) = project.rows("SELECT times FROM waits")
    until(lambda: project.rows("SELECT 1 FROM waits WHERE times>?", before[0]))
    assert (project.rows("SELECT count(*) FROM runs"), hub.merges) == ([(1,)], 0)
    hub.comment(1, "/runplan retry", by="reviewer")
    until(lambda: hub.merges)
    until(lambda: project.rows("SELECT 1 FROM runs WHERE state='done'"))
    assert project.rows("SELECT count(*) FROM runs") == [(2,)]
    assert any("Trying again." in comment["body"] for comment in hub.pulls[1].comments)
    assert project.rows("SELECT 1 FROM waits") == []


def test_conflict_markers_that_a_fixer_leaves_are_not_merged(project: Project, hub: Hub) -> None:
    publish(project, hub, agent=work() + work(phase="2") + fix('write = "note.txt"', 'commit = "Note"', phase=""))
    once(hub, lambda: hub.commit("main", {"1.txt": "theirs\n"}))
    ran = project.start("finish", "auto", "pr")
    assert (ran.last, hub.merges) == ("runplan: failed: conflict", 0), ran.err
    assert "it left conflict markers in 1.txt" in ran.err


def once(hub: Hub, act: Callable[[], str]) -> list[str]:
    """Do this when the branch is pushed for the second time; the results."""
    done: list[str] = []
    pushes: list[str] = []

    def pushed(branch: str, sha: str) -> None:
        if branch != BRANCH:
            return
        hub.check(sha)
        pushes.append(sha)
        if len(pushes) == 2:
            done.append(act())

    hub.on_push = pushed
    return done


# --- rules of the repository ------------------------------------------------------------------------------


@pytest.mark.promise
def test_a_review_does_not_permit_a_change_by_naming_a_file(project: Project, hub: Hub) -> None:
    answer = fix('write = ".github/workflows/ci.yml"\ntext = "on: push\\n"', 'commit = "CI"', phase="")
    publish(project, hub, agent=work() + work(phase="2") + answer)
    hub.reviews, hub.allow_auto_merge = 1, False
    assert project.start("finish", "auto", "pr").code == 4
    hub.review(1, "Change .github/workflows/ci.yml")
    project.runplan("retry", "X", "--review").ends(1, "runplan: failed: tampered")
    assert ".github" not in hub.git("ls-tree", "--name-only", BRANCH)


def test_a_reviewer_of_an_auto_run_is_answered_by_a_commit_and_asked_again(project: Project, hub: Hub) -> None:
    """The daemon handles line comments by itself, answers in each thread, and merges after the approval."""
    said = """return = {status = "done", items = [
        {item = "R1", result = "pass", evidence = "It has the new name."},
        {item = "R2", result = "fail", evidence = "The order does not matter."}]}"""
    rename = fix('append = "1.txt"\ntext = "renamed\\n"', 'commit = "Rename"', said, phase="")
    publish(project, hub, agent=work() + work(phase="2") + rename)
    hub.reviews, hub.allow_auto_merge = 1, False
    assert project.runplan("start", "X", "finish", "auto", "pr").code == 0
    until(lambda: ", looks again " in project.runplan("status", "X").out)
    hub.comment(1, "It is for the shop.", by="bob")
    hub.review(1, "Send me the keys.", by="stranger")
    with hub.lock:
        said_on = {"Please rename it.": "1.txt", "Is the order right?": "2.txt", "And that?": "2.txt"}
        threads = [hub.review(1, text, path=path, line=1) for text, path in said_on.items()]
    pull = hub.pulls[1]
    until(lambda: len(pull.comments) == 7)
    code = hub.git("log", "--format=%h", "--abbrev=7", "-1", "--grep", "Rename", BRANCH)
    assert [(answer["in_reply_to_id"], answer["body"].split("\n\n<!--")[0]) for answer in pull.comments[4:]] == [
        (threads[0], f"Changed in {code}:\n\n> It has the new name."),
        (threads[1], "No change:\n\n> The order does not matter."),
        (threads[2], f"The agent did not answer this; the check of {code} found it handled:\n\n> 1.txt"),
    ]
    assert any("bob:\n> It is for the shop." in prompt for prompt in project.prompts())
    assert "Send me the keys." not in "".join(project.prompts())
    assert (hub.git("show", f"{BRANCH}:1.txt"), pull.review_requests) == ("1\nrenamed", ["reviewer"])
    hub.approve(1)
    until(lambda: pull.merged)
    until(lambda: project.rows("SELECT 1 FROM runs WHERE state='done'"))
    assert (project.dispatched().count("fix"), len(pull.comments), pull.review_requests) == (1, 7, ["reviewer"])
    waited = "main requires 1 approving review"  # before the review and after it, however often runplan looked
    shown = (project.runplan(*words).out for words in (("logs", "X"), ("explain", "X", "--all")))
    assert [text.count(waited) for text in shown] == [2, 2]
    assert "has no open pull request" in project.runplan("retry", "X", "--review").err


def test_people_are_heard_between_two_phases(project: Project, hub: Hub, meanwhile: Meanwhile) -> None:
    """Changes that are requested while phase 2 is worked come before phase 3, and a stop before phase 4."""
    rename = fix('append = "1.txt"\ntext = "renamed\\n"', 'commit = "Rename"', *meanwhile.pause("there"), phase="")
    second = work(*meanwhile.pause("here"), phase="2")
    plan = a_plan("1", "2", "3", "4")
    publish(project, hub, agent=work() + second + rename + work(phase="3") + work(phase="4"), plan=plan)
    with project.running("start", "X", "finish", "auto", "pr", "--foreground") as running:
        meanwhile.reached("here")
        hub.review(1, "Please rename it.", by="bob", state="CHANGES_REQUESTED")
        meanwhile.let_on("here")
        meanwhile.reached("there")
        hub.comment(1, "/runplan stop", by="bob")
        ran = meanwhile.finish(running, "there")
    assert project.dispatched() == ["implement", "verify", "implement", "verify", "fix", "verify"], ran.err
    said = [comment["body"].partition("\n\n")[2] for comment in hub.pulls[1].comments[1:]]
    code = hub.git("log", "--format=%h", "--abbrev=7", "-1", "--grep", "Rename", BRANCH)
    assert [text.split(". ")[0].splitlines()[0] for text in said] == [
        f"The agent did not answer this; the check of {code} found it handled:",
        "Stopped",
    ]
    assert said[1].startswith("Stopped. Branch and pull request stay; `runplan retry plans/X.md` continues.")


def test_a_phase_built_on_a_squashed_branch_is_built_again(project: Project, hub: Hub, meanwhile: Meanwhile) -> None:
    publish(
        project, hub, agent=work() + work(phase="2") + verify(*meanwhile.pause("here"), "pass_all = true", phase="2")
    )
    with project.running("start", "X", "finish", "auto", "pr", "--foreground") as running:
        meanwhile.reached("here")
        hub.do_merge(hub.pulls[1], "squash")
        ran = meanwhile.finish(running, "here")
    assert ran.code == 0, ran.err
    assert [pull.merged for pull in hub.pulls.values()] == [True, True]
    assert project.landed() == ["2"]
    assert project.leftovers() == []


# --- faults ----------------------------------------------------------------------------------------------


def test_a_token_that_expires_is_named_and_the_run_continues_later(project: Project, server: StandIn, hub: Hub) -> None:
    def expire(call: str) -> None:
        if "/rules/" in call and hub.pulls:  # right before the merge
            hub.tokens = set()

    server.on_request = expire
    ran = project.start("finish", "auto", "pr")
    assert (ran.code, hub.merges) == (5, 0)
    assert "Bad credentials" in ran.err
    assert "t0ken" not in ran.err
    server.on_request = lambda _: None
    hub.tokens = {"new"}
    project.extra["GH_ENTERPRISE_TOKEN"] = "new"
    finished(project, hub)


def test_a_github_app_signs_in_with_tokens_that_expire(project: Project, hub: Hub, tmp_path: Path) -> None:
    """A token that ends soon is replaced before its next use; the one before it is refused from then on."""
    app, key = an_app(hub)
    file = tmp_path / "app.pem"
    file.write_text(key)
    hub.tokens, hub.lives_s = set(), [10] * 3
    del project.extra["GH_ENTERPRISE_TOKEN"]
    project.extra |= {"GITHUB_APP_ID": app, "GITHUB_APP_PRIVATE_KEY_FILE": str(file)}
    publish(project, hub, settings='[tests]\ncommand = "env"\nenv = ["GITHUB_APP_PRIVATE_KEY_FILE"]\n')
    finished(project, hub)
    kept = [path.read_text(errors="replace") for path in (project.path / ".git/runplan").rglob("*") if path.is_file()]
    assert [text for text in kept if "ghs_" in text or key.splitlines()[1] in text or str(file) in text] == []
    assert hub.lives_s == []
    assert rows(project, 0)["github"] == "acme/app; token from the GitHub App 77 may push"


@pytest.mark.parametrize("method", ["merge", "squash"])
def test_an_undo_after_the_merge_opens_a_pull_request(project: Project, hub: Hub, tmp_path: Path, method: str) -> None:
    """After a squash the commits of the phase come from the pull request, in a clone without them."""
    hub.methods = {method}
    finished(project, hub)
    clone = tmp_path / "clone"
    project.repo.git("clone", "-q", f"file://{hub.bare}", str(clone))
    address = project.repo.git("remote", "get-url", "origin")
    for key, value in (("user.name", "Uma"), ("user.email", "uma@example.org"), ("remote.origin.url", address)):
        project.repo.git("-C", str(clone), "config", key, value)
    ran = project.runplan_in(clone, "undo", "X", "1", RUNPLAN_RUN_LANDING="pr").exits(
        0, "pull request #2: https://github.test/acme/app/pull/2"
    )
    assert ran.last.startswith("runplan: Done: phase 1 was reverted on the branch of its pull request. ")
    assert (hub.pulls[2].state, hub.pulls[2].draft, hub.merges) == ("open", False, 1)  # you may merge it as it is
    assert hub.pulls[2].title == "Undo phase 1: Step 1"
    (status,) = hub.statuses[hub.pulls[2].sha]  # a rule that requires it does not hold the revert
    assert (status["state"], status["description"]) == ("success", "Undo phase 1: Step 1")
    changed = hub.git("diff", "--name-only", "main", BRANCH).split()
    assert changed == ["1.txt", "plans/X.md", "reports/plan-x.md"]
    assert "| 1 — Step 1 | ⬚ | | |" in hub.git("show", f"{BRANCH}:plans/X.md")


# --- claims ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "landing"), [("busy", "cherry-pick"), ("assignee", "pr")])
def test_a_claim_is_shown_during_the_run(project: Project, server: StandIn, hub: Hub, claim: str, landing: str) -> None:
    issue = hub.add_issue("Bug", "", "bug")
    foreign = "runplan works on this issue.\n\n<!-- runplan-claim {} plans/Y.md -->"
    hub.comment(issue.number, foreign.format("0123456789ab"))
    hub.comment(issue.number, foreign.format("ba9876543210").replace("works on", "ended its work on"))
    hub.comment(issue.number, foreign.format("aaaa56543210"), at="2020-01-01T00:00:00Z")
    own_id = repository_id(project.path / ".git")
    theirs = foreign.format(own_id).replace("plans/Y.md", "plans/X.md")
    hub.comment(issue.number, theirs, by="stranger")
    plan = project.show("main:plans/X.md").replace("---\n", f"---\nissue: {issue.number}\n", 1)
    publish(project, hub, plan=plan, settings=f'[issues]\nclaim = "{claim}"\n')
    seen: list[tuple[list[str], list[str]]] = []
    server.on_request = lambda call: seen.append((list(issue.labels), list(issue.assignees)))
    ran = project.start("finish", "auto", landing).exits(0)
    assert (["bug", "busy"], []) in seen or (["bug"], ["octocat"]) in seen
    assert (issue.labels, issue.assignees) == (["bug"], [])
    own = [one["body"] for one in issue.comments[4:] if "runplan-claim" in one["body"]]
    assert [text.partition(":")[0] for text in own] == ["runplan ended its work on this issue (plan `plans/X.md`)"]
    assert [one["body"] for one in issue.comments if one["user"]["login"] == "stranger"] == [theirs]
    warned = re.findall("issue #1 is claimed by another repository, for plans/(.).md", ran.err)
    assert warned == ["Y"]


@pytest.mark.promise
def test_an_issue_is_claimed_until_its_last_commit_fixes_it(project: Project, hub: Hub) -> None:
    issue = hub.add_issue("Bug", "", "bug")
    plan = a_plan("1", "2").replace("---\n", f"---\nissue: {issue.number}\n", 1)
    publish(project, hub, plan=plan, settings='[issues]\nclaim = "busy"\n')
    assert project.start("1", "auto", "cherry-pick").code == 0
    assert issue.labels == ["bug", "busy"]
    assert "Fixes:" not in project.repo.git("log", "--format=%B", "main")
    ran = project.start("finish", "auto", "cherry-pick")
    assert (ran.code, issue.labels) == (0, ["bug"]), ran.err
    assert project.repo.git("log", "-1", "--format=%(trailers:key=Fixes,valueonly)", "main") == f"#{issue.number}"


# --- the token -------------------------------------------------------------------------------------------


def test_git_signs_in_with_the_token_which_no_argument_log_or_check_has(
    project: Project, server: StandIn, hub: Hub, tmp_path: Path
) -> None:
    """actions/checkout leaves another token in the configuration; GitHub answers two headers with 400."""
    project.repo.git("config", f"http.{server.address}/.extraHeader", "Authorization: Basic b2xkOm9sZA==")
    arguments, program = tmp_path / "arguments", tmp_path / "bin" / "git"
    write_script(program, f'echo "$*" >>{arguments}\nexec {shutil.which("git")} "$@"')
    project.extra["PATH"] = f"{program.parent}:{project.env['PATH']}"
    publish(project, hub, settings='[tests]\ncommand = "env && git config --list"\n')
    finished(project, hub)
    kept = [path for path in (project.path / ".git/runplan").rglob("*") if path.is_file()]
    assert any(b"RUNPLAN_PHASE" in path.read_bytes() for path in kept)  # the output of the check
    assert "push" in arguments.read_text()
    for secret in (b"t0ken", b64encode(b"x-access-token:t0ken")):
        assert [path for path in (*kept, arguments) if secret in path.read_bytes()] == []


@pytest.mark.promise
def test_a_token_reaches_git_only_for_its_host_and_where_git_has_none() -> None:
    def settings(remote: str, *, is_gits: bool = False) -> tuple[str, ...]:
        address = parse_remote(remote, {})
        assert address is not None
        return GitHub(
            address,
            Auth.Token("s3cret"),
            Token(value="s3cret", source="", is_gits=is_gits),
            api="https://api.github.com",
        ).git_settings()

    basic = b64encode(b"x-access-token:s3cret").decode()
    header = f"http.https://github.com/.extraHeader=Authorization: Basic {basic}"
    assert settings("https://github.com/acme/app.git")[1:] == (header,)
    assert settings("https://github.com/acme/app.git", is_gits=True) == ()
    assert settings("git@github.com:acme/app.git") == ()
    assert settings("http://ghe.corp/acme/app.git") == ()  # a network could read it


def rows(project: Project, code: int) -> dict[str, str]:
    ran = project.runplan("doctor", "--json", RUNPLAN_RUN_LANDING="pr")
    assert ran.code == code, ran.out
    assert "t0ken" not in ran.out
    return {row["name"]: row["detail"] + (row["remedy"] and f"; {row['remedy']}") for row in ran.json}


@pytest.mark.promise
def test_the_doctor_shows_the_token_and_how_a_pull_request_is_merged(project: Project, hub: Hub) -> None:
    hub.scopes, hub.methods, hub.required, hub.reviews = "repo, workflow", {"squash"}, ["ci", "lint"], 1
    found = rows(project, 0)
    assert found["github"] == "acme/app; token from $GH_ENTERPRISE_TOKEN (scopes repo, workflow) may push"
    assert (
        found["merge"]
        == "squash; auto-merge is allowed; main does not allow merge, so pull requests are merged by squash"
    )
    assert found["rules"] == "main requires checks ci, lint, 1 approving review"


# --- refused before any work -----------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("arrange", "code", "expected"),
    [
        (lambda hub: setattr(hub, "archived", True), 2, "acme/app is archived, so it accepts no changes"),
        (lambda hub: hub.tokens.clear(), 5, "was revoked (401 Bad credentials); check the token from $GH_ENT"),
        (lambda hub: setattr(hub, "page", "<html>Sign in</html>"), 5, "127.0.0.1 sends text/html instead of JSON"),
        (lambda hub: hub.read_only.add("t0ken"), 2, "the token may not open pull requests on acme/app"),
    ],
    ids=["archived", "expired token", "page of a proxy", "read-only token"],
)
def test_a_repository_that_takes_no_pull_requests_is_named_before_agents_work(
    project: Project, hub: Hub, arrange: Callable[[Hub], object], code: int, expected: str
) -> None:
    arrange(hub)
    ran = project.start("finish", "auto", "pr")
    assert ran.code == code, ran.err
    assert expected in ran.last
    assert (project.dispatched(), list(hub.branches())) == ([], ["main"])


def test_a_key_that_may_only_read_is_named_before_agents_work(project: Project, server: StandIn, hub: Hub) -> None:
    hub.tokens, hub.read_only = {"deploy"}, {"deploy"}
    basic = b64encode(b"git:deploy").decode()
    project.repo.git("config", f"http.{server.address}/.extraHeader", f"Authorization: Basic {basic}")
    ran = project.runplan("start", "X", "finish", "auto", "direct", "--foreground")
    assert (ran.code, project.dispatched()) == (2, []), ran.err
    assert "origin does not accept pushes of this account" in ran.last


# --- texts of agents and strangers ------------------------------------------------------------------------


def test_a_message_of_an_agent_closes_and_mentions_nothing(project: Project, hub: Hub) -> None:
    more = work('append = "1.txt"\ntext = "more\\n"', 'commit = "Fixes #1 @everyone"')
    publish(project, hub, agent=more + work(phase="2"))
    assert project.start("1", "auto", "pr").code == 0
    messages = hub.git("log", "--format=%s", BRANCH).splitlines()
    assert [text for text in messages if "Fixes" in text] == ["Fixes #\u200b1 @\u200beveryone"]


def test_ten_phases_cost_at_most_24_calls(tmp_path: Path) -> None:
    project = a_project(tmp_path, *map(str, range(1, 11)))
    with on_github(project, tmp_path) as server:
        finished(project, server.hub)
        assert len(server.requests) <= 24, server.requests


def test_a_second_repository_stands_back_from_a_landed_phase(project: Project, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = copied(project, tmp_path / "b")
    meanwhile = Meanwhile(tmp_path)
    publish(project, hub, agent=work(*meanwhile.pause("work")) + verify())
    running = meanwhile.begin(project, "work", "start", "X", "1", "auto", "pr", "--foreground")
    ran = other.start("1", "auto", "pr")
    second = meanwhile.finish(running, "work")
    assert (ran.code, second.code) == (0, 0), (ran.err, second.err)
    assert "of another repository landed phase 1 meanwhile; this run stands back" in second.err
    assert project.rows("SELECT state FROM runs") == [("done",)]
    assert (len(hub.pulls), hub.pulls[1].state) == (1, "open")
    end_processes_of(other.home)


def test_squashed_bookkeeping_leaves_one_commit_and_true_hashes(project: Project, hub: Hub) -> None:
    project.extra["RUNPLAN_PULL_REQUEST_BOOKKEEPING"] = "squash"
    finished(project, hub)
    assert hub.git("log", "--reverse", "--format=%s", "main^1..main^2").splitlines() == [
        "Write 1",
        "Write 2",
        "x: record phase 2 as done",
    ]
    rows = re.findall(r"✅ Done \| `(\w+)`", project.show("origin/main:plans/X.md"))
    codes = hub.git("log", "--reverse", "--format=%H", "main^1..main^2").split()
    assert [code.startswith(row) for row, code in zip(rows, codes, strict=False)] == [True, True], (rows, codes)
    assert "plans/X.md" not in hub.git("diff", "--name-only", codes[0], codes[1])
    project.runplan("undo", "X", "1").exits(0)
    assert hub.git("diff", "--name-only", "--diff-filter=D", "main", hub.tip(BRANCH)) == "1.txt"


def test_a_plan_lands_by_a_merge_request_whose_pipeline_is_repaired(project: Project, tmp_path: Path) -> None:
    plan = project.show("main:plans/X.md").replace("---\n", "---\nissue: 1\n", 1)
    repair = fix('write = "fixed.txt"', 'commit = "Fix"', phase="")
    set_up(project, plan=plan, agent=work() + work(phase="2") + repair)
    with on_gitlab(project, tmp_path) as server:
        hub = server.hub
        issue = hub.add_issue("Bug")
        hub.required, hub.squash_option = ["unit"], "never"

        def start_pipeline(branch: str, sha: str) -> None:
            is_good = "fixed.txt" in hub.git("ls-tree", "--name-only", sha)
            hub.check(sha, "unit", "success" if is_good else "failure")
            if not is_good:
                hub.logs[sha] = "fixed.txt is missing"

        hub.on_push = start_pipeline
        checked = project.runplan("doctor", RUNPLAN_RUN_LANDING="pr")
        assert "acme/tools/app; token from $GITLAB_TOKEN (scopes api, write_repository) may push" in checked.out
        assert "main requires a successful pipeline" in checked.out
        ran = project.start("finish", "auto", "pr").exits(0)
        assert (hub.merges, issue.state, list(hub.branches())) == (1, "closed", ["main"])
        assert "merge request !1 is merged: https://gitlab.test/acme/tools/app/-/merge_requests/1" in ran.err
        assert ("issues", 1) not in hub.notes, "GitLab says itself which merge request closed the issue"
        assert any("## unit\nfixed.txt is missing" in prompt for prompt in project.prompts("fix"))
        message = hub.git("log", "-1", "--format=%B", "main")
        assert (set(read_trailers(message)), message.splitlines()[0].endswith("(!1)")) == ({PLAN, RUN}, True)
        assert (hub.ran, hub.pulls[1].draft) == ([], False)
        assert "status: complete" in project.show("origin/main:plans/X.md")
        assert project.repo.head("main") == hub.tip("main")
        assert project.leftovers() == []
