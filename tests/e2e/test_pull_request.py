"""Landing by pull request: one branch and one pull request per plan, merged when its checks pass."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from github import Auth

from runplan.forge.address import Access, parse_remote
from runplan.forge.github import git_settings
from runplan.gitfacts import PLAN, RUN, read_trailers
from tests.support.cli import a_project, end_processes_of, ended, fix, set_up, until, verify, work
from tests.support.daemons import kill_daemon
from tests.support.github.server import Fault, an_app, on_github

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.cli import Meanwhile, Project, Ran
    from tests.support.github.hub import Hub
    from tests.support.github.server import StandIn

BRANCH = "runplan/x/pr"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = a_project(tmp_path, "1", "2")
    yield project
    end_processes_of(project.home)


@pytest.fixture
def server(project: Project, tmp_path: Path) -> Iterator[StandIn]:
    with on_github(project, tmp_path) as running:
        yield running


@pytest.fixture
def hub(server: StandIn) -> Hub:
    return server.hub


def finished(project: Project, hub: Hub) -> Ran:
    """Start the plan; it ends with one merged pull request and nothing left behind."""
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 0, ran.err
    assert (hub.merges, [pull.merged for pull in hub.pulls.values()]) == (1, [True])
    assert "status: complete" in project.show("origin/main:plans/X.md")
    assert BRANCH not in hub.branches()
    assert project.leftovers() == []
    return ran


def test_a_plan_ends_with_a_merged_pull_request(project: Project, hub: Hub) -> None:
    ran = finished(project, hub)
    assert "pull request #1 is merged: https://github.test/acme/app/pull/1" in ran.err
    body = hub.pulls[1].body
    assert "- [x] 1" in body
    assert "- [x] 2" in body
    assert project.landed() == ["1", "2"]
    assert hub.git("ls-tree", "--name-only", "main:reports") == "plan-x.md"
    assert project.repo.head("main") == hub.tip("main")
    assert project.repo.status() == ""


def test_the_forge_is_called_rarely(tmp_path: Path) -> None:
    project = a_project(tmp_path, *map(str, range(1, 11)))
    with on_github(project, tmp_path) as server:
        finished(project, server.hub)
    assert len(server.requests) <= 26, server.requests
    assert read_trailers(server.hub.git("log", "-1", "--format=%B", "main")).keys() == {PLAN, RUN}


def test_one_phase_leaves_the_pull_request_open(project: Project, hub: Hub) -> None:
    ran = project.start("1", "auto", "pr")
    assert ran.code == 0, ran.err
    assert (hub.pulls[1].state, hub.merges) == ("open", 0)
    assert "- [x] 1" in hub.pulls[1].body
    assert "- [ ] 2" in hub.pulls[1].body
    assert project.repo.head("main") != hub.tip(BRANCH)
    view = project.runplan("status", "X", "--json").json
    assert ([phase["status"] for phase in view["phases"]], view["next"]) == (["done", "todo"], "2")
    assert finished(project, hub)


def test_words_of_a_reviewer_in_the_description_stay(project: Project, hub: Hub) -> None:
    assert project.start("1", "auto", "pr").code == 0
    hub.pulls[1].body = f"Please look at 1.\n\n{hub.pulls[1].body}\n\nThanks"
    finished(project, hub)
    assert hub.pulls[1].body.startswith("Please look at 1.")
    assert hub.pulls[1].body.endswith("Thanks")
    assert "- [x] 2" in hub.pulls[1].body


def test_the_daemon_merges_a_pull_request(project: Project, hub: Hub) -> None:
    ran = project.runplan("start", "X", "finish", "auto", "pr", "--wait")
    assert ran.code == 0, ran.err
    assert hub.merges == 1
    assert project.leftovers() == []


# --- checks ------------------------------------------------------------------------------------------------


def test_failed_checks_are_fixed_by_an_agent(project: Project, hub: Hub) -> None:
    set_up(project, agent=work() + work(phase="2") + fix('write = "fixed.txt"', 'commit = "Fix"', phase=""))
    hub.mirror(project.path)

    def check(branch: str, sha: str) -> None:
        good = "fixed.txt" in hub.git("ls-tree", "--name-only", sha)
        hub.check(sha, "ci", "success" if good else "failure", "fixed.txt is missing")

    hub.on_push = check
    finished(project, hub)
    prompts = [path.read_text() for path in (project.path / ".git/runplan/dispatch").glob("*/prompt.md")]
    assert any("fixed.txt is missing" in prompt for prompt in prompts)


def test_checks_that_stay_red_fail_the_run(project: Project, hub: Hub) -> None:
    set_up(project, settings="[run]\nmax_fix_cycles = 0\n")
    hub.mirror(project.path)
    hub.on_push = lambda _, sha: hub.check(sha, "ci", "failure")
    ran = project.start("finish", "auto", "pr")
    assert (ran.code, hub.merges) == (1, 0)
    assert "runplan: failed: ci-failed" in ran.last
    assert hub.pulls[1].state == "open"


def test_a_repository_without_checks_is_merged_after_a_while(project: Project, hub: Hub) -> None:
    hub.on_push = None
    finished(project, hub)


def test_late_checks_are_waited_for(project: Project, server: StandIn, hub: Hub) -> None:
    project.extra["RUNPLAN_PULL_REQUEST_CHECKS_WAIT"] = "60s"
    hub.on_push = None
    looks: list[str] = []

    def look(call: str) -> None:
        if "check-runs" in call:
            looks.append(call)
            sha = hub.tip(BRANCH)
            if len(looks) == 2:
                hub.check(sha, "ci", None)
            if len(looks) == 3:
                hub.check(sha, "ci", "success")

    server.on_request = look
    finished(project, hub)
    assert len(looks) >= 3


def test_mergeability_that_is_unknown_is_asked_for_again(project: Project, hub: Hub) -> None:
    hub.nulls = 3
    finished(project, hub)


# --- the target moves -----------------------------------------------------------------------------------


def test_a_branch_that_is_behind_is_brought_up_to_date(project: Project, hub: Hub) -> None:
    hub.strict = True
    theirs = once(hub, lambda: hub.commit("main", {"theirs.txt": "theirs\n"}))
    finished(project, hub)
    assert hub.git("merge-base", "--is-ancestor", theirs[0], "main") == ""
    assert project.dispatched().count("fix") == 0


def test_a_conflict_is_solved_by_an_agent(project: Project, hub: Hub) -> None:
    solve = fix('write = "1.txt"\ntext = "both\\n"', 'commit = "Solve"', phase="")
    set_up(project, agent=work() + work(phase="2") + solve)
    hub.mirror(project.path)
    once(hub, lambda: hub.commit("main", {"1.txt": "theirs\n"}))
    finished(project, hub)
    assert hub.git("show", "main:1.txt") == "both"


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


def test_a_base_that_was_modified_during_the_merge_is_tried_again(project: Project, hub: Hub) -> None:
    hub.base_moves = 1
    finished(project, hub)


# --- rules of the repository ------------------------------------------------------------------------------


def test_a_required_review_is_waited_for(project: Project, hub: Hub) -> None:
    hub.reviews, hub.allow_auto_merge = 1, False
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 4, ran.err
    assert "At least 1 approving review is required" in ran.err
    hub.pulls[1].approvals = 1
    finished(project, hub)


def test_a_draft_is_not_merged(project: Project, server: StandIn, hub: Hub) -> None:
    server.on_request = lambda _: hub.set_draft(is_draft=True)
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 4, ran.err
    assert "mark it as ready" in ran.err
    server.on_request = lambda _: hub.set_draft(is_draft=False)
    finished(project, hub)


def test_auto_merge_is_asked_for_where_rules_are_not_met_yet(project: Project, server: StandIn, hub: Hub) -> None:
    hub.reviews = 1

    def approve(call: str) -> None:
        if "POST /graphql" in server.requests and call.startswith("GET /pulls/1"):
            hub.pulls[1].approvals = 1
            hub.auto_merge_all()

    server.on_request = approve
    finished(project, hub)
    assert server.requests.count("PUT /pulls/1/merge") == 1


def test_a_merge_queue_is_used_where_there_is_one(project: Project, hub: Hub) -> None:
    hub.merge_queue = True
    finished(project, hub)


@pytest.mark.parametrize("methods", [{"squash"}, {"rebase"}])
def test_a_method_that_the_repository_allows_is_used(project: Project, hub: Hub, methods: set[str]) -> None:
    hub.methods = methods
    finished(project, hub)


def test_without_auto_a_person_merges(project: Project, server: StandIn, hub: Hub) -> None:
    ran = project.start("finish", "pr")
    assert ran.code == 4, ran.err
    assert "review and merge it: https://github.test/acme/app/pull/1" in ran.err
    view = project.runplan("status", "X", "--json").json
    assert ([phase["status"] for phase in view["phases"]], view["status"]) == (["done", "done"], "active")
    hub.do_merge(hub.pulls[1], "merge")
    ran = project.go_on(ran)
    assert ran.code == 0, ran.err
    assert "PUT /pulls/1/merge" not in server.requests


# --- people ----------------------------------------------------------------------------------------------


def test_a_closed_pull_request_ends_the_run(project: Project, server: StandIn, hub: Hub) -> None:
    def close(call: str) -> None:
        if "check-runs" in call:
            hub.pulls[1].state = "closed"

    server.on_request = close
    hub.nulls = 9
    ran = project.start("finish", "auto", "pr")
    assert (ran.code, hub.merges) == (1, 0)
    assert "runplan: failed: pr-closed" in ran.last
    parked = project.repo.git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked").split()
    assert parked == [hub.tip(BRANCH)]


def test_a_branch_that_the_server_deletes_is_no_failure(project: Project, hub: Hub) -> None:
    hub.delete_branch_on_merge = True
    finished(project, hub)


def test_a_branch_that_a_person_deletes_is_kept_and_the_plan_starts_over(
    project: Project, server: StandIn, hub: Hub
) -> None:
    tips: list[str] = []

    def delete(call: str) -> None:
        if "check-runs" in call and not tips:
            tips.append(hub.tip(BRANCH))
            before = hub.branches()
            hub.git("update-ref", "-d", f"refs/heads/{BRANCH}")
            hub.pushed(before)

    server.on_request = delete
    ran = project.start("finish", "auto", "pr")
    assert (ran.code, hub.merges) == (1, 0), ran.err
    assert "runplan: failed: pr-closed" in ran.last
    assert project.repo.git("for-each-ref", "--format=%(objectname)", "refs/runplan/parked").split() == tips
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 0, ran.err
    assert [(pull.state, pull.merged) for pull in hub.pulls.values()] == [("closed", False), ("closed", True)]


def test_a_merge_by_a_person_is_seen_when_the_server_deletes_the_branch(project: Project, hub: Hub) -> None:
    issue = hub.add_issue("Bug")
    set_up(project, plan=project.show("main:plans/X.md").replace("---\n", f"---\nissue: {issue.number}\n", 1))
    hub.mirror(project.path)
    hub.delete_branch_on_merge = True
    ran = project.start("finish", "pr")
    assert ran.code == 4, ran.err
    hub.do_merge(hub.pulls[2], "squash")
    ran = project.go_on(ran)
    assert ran.code == 0, ran.err
    assert "pull request #2 is merged" in ran.err
    assert len(issue.comments) == 1
    assert project.repo.head("main") == hub.tip("main")
    assert project.leftovers() == []


def test_a_phase_that_is_built_on_a_squashed_branch_is_built_again(
    project: Project, hub: Hub, meanwhile: Meanwhile
) -> None:
    set_up(project, agent=work() + work(phase="2") + verify(*meanwhile.pause("here"), "pass_all = true", phase="2"))
    hub.mirror(project.path)
    hub.delete_branch_on_merge = True
    with project.running("start", "X", "finish", "auto", "pr", "--foreground") as running:
        meanwhile.reached("here")
        hub.do_merge(hub.pulls[1], "squash")
        meanwhile.let_on("here")
        ran = ended(running)
    assert ran.code == 0, ran.err
    assert [pull.merged for pull in hub.pulls.values()] == [True, True]
    assert project.landed() == ["2"]


def test_a_commit_that_a_person_amends_is_not_merged_by_runplan(project: Project, server: StandIn, hub: Hub) -> None:
    def amend() -> str:
        message = hub.git("log", "-1", "--format=%B", BRANCH)
        parent = hub.git("rev-parse", f"{BRANCH}~1")
        hub.git(
            "update-ref",
            f"refs/heads/{BRANCH}",
            hub.git("commit-tree", f"{BRANCH}^{{tree}}", "-p", parent, "-m", message),
        )
        hub.pulls[1].sha = hub.tip(BRANCH)
        hub.check(hub.tip(BRANCH))
        return ""

    once(hub, amend)
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 4, ran.err
    assert "commits that runplan did not push" in ran.err
    assert "PUT /pulls/1/merge" not in server.requests


def test_commits_of_a_person_are_not_merged_by_runplan(project: Project, server: StandIn, hub: Hub) -> None:
    once(hub, lambda: hub.commit(BRANCH, {"theirs.txt": "theirs\n"}))
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 4, ran.err
    assert "commits that runplan did not push" in ran.err
    hub.do_merge(hub.pulls[1], "merge")
    assert project.go_on(ran).code == 0
    assert "PUT /pulls/1/merge" not in server.requests
    assert hub.git("show", "main:theirs.txt") == "theirs"


@pytest.mark.parametrize("default", ["main", "trunk"])
def test_issues_of_the_plan_are_closed_with_one_comment(project: Project, hub: Hub, default: str) -> None:
    """GitHub closes them itself only when the default branch is the target."""
    hub.default_branch = default
    issue = hub.add_issue("Bug")
    plan = project.show("main:plans/X.md").replace("---\n", f"---\nissue: {issue.number}\n", 1)
    set_up(project, plan=plan)
    hub.mirror(project.path)
    finished(project, hub)
    assert issue.state == "closed"
    assert len(issue.comments) == 1


def test_an_issue_that_is_not_there_is_a_note(project: Project, hub: Hub) -> None:
    plan = project.show("main:plans/X.md").replace("---\n", "---\nissue: 99\n", 1)
    set_up(project, plan=plan)
    hub.mirror(project.path)
    assert "issue #99 is not closed" in finished(project, hub).err


# --- faults ----------------------------------------------------------------------------------------------

CALLS = (
    "GET ",
    "GET /pulls",
    "POST /pulls",
    "GET /pulls/1",
    "PATCH /pulls/1",
    "GET /commits/.*/check-runs",
    "GET /commits/.*/status",
    "PUT /pulls/1/merge",
    "DELETE .*",
)


@pytest.mark.parametrize(("kind", "status"), [("before", 502), ("after", 502), ("after", 0)])
def test_a_fault_at_every_call_changes_nothing(
    project: Project, server: StandIn, hub: Hub, kind: str, status: int
) -> None:
    server.faults += [Fault(call=call, kind=kind, status=status) for call in CALLS]
    finished(project, hub)
    assert [fault.call for fault in server.faults if fault.times] == []


def test_rate_limits_are_waited_out(project: Project, server: StandIn, hub: Hub) -> None:
    headers, message = (("retry-after", "1"),), "secondary rate limit"
    for call in ("POST /pulls", "PUT /pulls/1/merge", "GET /commits/.*/status"):
        server.faults.append(Fault(call=call, kind="before", status=403, headers=headers, message=message))
    finished(project, hub)
    assert [fault.call for fault in server.faults if fault.times] == []


def test_a_token_that_expires_is_named_and_the_run_continues_later(project: Project, server: StandIn, hub: Hub) -> None:
    def expire(call: str) -> None:
        if "check-runs" in call:
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
    """Each token is replaced before its next use, as after hours of waiting."""
    app, key = an_app(hub)
    file = tmp_path / "app.pem"
    file.write_text(key)
    hub.tokens, hub.token_life_s = set(), 10
    del project.extra["GH_ENTERPRISE_TOKEN"]
    project.extra |= {"GITHUB_APP_ID": app, "GITHUB_APP_PRIVATE_KEY_FILE": str(file)}
    set_up(project, settings='[tests]\ncommand = "env"\nenv = ["GITHUB_APP_PRIVATE_KEY_FILE"]\n')
    hub.mirror(project.path)
    finished(project, hub)
    kept = [path.read_text(errors="replace") for path in (project.path / ".git/runplan").rglob("*") if path.is_file()]
    assert [text for text in kept if "ghs_" in text or key.splitlines()[1] in text or str(file) in text] == []
    assert rows(project, 0)["github"] == "acme/app; token from the GitHub App 77 may push"
    hub.app = None
    assert "the GitHub App 77 is not installed on acme/app" in rows(project, 2)["github"]
    file.write_text("")
    assert "is no private key that can be read" in rows(project, 2)["github"]


def test_a_renamed_repository_is_followed(project: Project, hub: Hub) -> None:
    hub.renamed_from, hub.name = hub.name, "product"
    finished(project, hub)


# --- together with other commands --------------------------------------------------------------------------


def phases(project: Project) -> list[str]:
    return [phase["status"] for phase in project.runplan("status", "X", "--json").json["phases"]]


def test_an_undo_before_the_merge_is_pushed_to_the_same_pull_request(project: Project, hub: Hub) -> None:
    ran = project.start("1", "auto", "pr")
    assert "pull request #1: https://github.test/acme/app/pull/1" in ran.err
    assert phases(project) == ["done", "todo"]
    assert project.runplan("undo", "X", "1").code == 0
    assert phases(project) == ["todo", "todo"]
    assert "- [ ] 1" in hub.pulls[1].body
    assert "1.txt" not in hub.git("ls-tree", "--name-only", BRANCH)
    finished(project, hub)


def test_an_undo_after_the_merge_opens_another_pull_request(project: Project, hub: Hub) -> None:
    finished(project, hub)
    ran = project.runplan("undo", "X", "2")
    assert ran.code == 0, ran.err
    assert "pull request #2: https://github.test/acme/app/pull/2" in ran.err
    assert (hub.pulls[2].state, hub.git("show", "main:2.txt")) == ("open", "2")
    assert phases(project) == ["done", "todo"]
    assert project.start("finish", "auto", "pr").code == 0
    assert (hub.pulls[2].merged, hub.merges) == (True, 2)


def test_a_run_that_was_stopped_while_it_waited_for_checks_is_continued(project: Project, hub: Hub) -> None:
    hub.on_push = lambda _, sha: hub.check(sha, "ci", None)
    assert project.runplan("start", "X", "finish", "auto", "pr").code == 0
    until(lambda: '"waiting_for": "checks"' in project.runplan("status", "X", "--json").out)
    assert project.runplan("stop", "X").code == 0
    assert phases(project) == ["done", "done"]
    assert "kept" not in project.runplan("gc", "--dry-run").out
    hub.check(hub.tip(BRANCH))
    ran = project.runplan("start", "X", "finish", "auto", "pr", "--wait")
    assert ran.code == 0, ran.err
    assert (hub.merges, len(hub.pulls)) == (1, 1)


def test_resume_brings_the_token_back_after_the_daemon_was_killed(project: Project, hub: Hub) -> None:
    hub.on_push = lambda _, sha: hub.check(sha, "ci", None)
    assert project.runplan("start", "X", "finish", "auto", "pr").code == 0
    until(lambda: '"waiting_for": "checks"' in project.runplan("status", "X", "--json").out)
    kill_daemon(project)
    ran = project.runplan("resume", "X")
    assert ran.code == 0, ran.err
    hub.check(hub.tip(BRANCH))
    until(lambda: hub.merges)


def test_a_schedule_pushes_phase_by_phase_and_ends_with_the_merge(project: Project, hub: Hub) -> None:
    assert project.runplan("start", "X", "every", "4h", "now", "pr").code == 0
    until(lambda: "1.txt" in hub.git("ls-tree", "--name-only", BRANCH, ok=(0, 128)))
    until(lambda: '"state": "done"' in project.runplan("status", "X", "--json").out)
    assert (hub.merges, hub.pulls[1].state) == (0, "open")
    assert project.runplan("now", "X").code == 0
    until(lambda: hub.merges)
    until(lambda: project.runplan("next").out == "No schedules.\n")
    assert len(hub.pulls) == 1


def test_phases_side_by_side_land_in_one_pull_request(project: Project, hub: Hub) -> None:
    plan = project.show("main:plans/X.md")
    for phase in ("1", "2"):
        plan = re.sub(rf"(?m)^(## Phase {phase}\b.*)$", rf"\1\n\nTouches: {phase}.txt", plan)
    set_up(project, plan=plan)
    hub.mirror(project.path)
    project.extra["RUNPLAN_RUN_PARALLEL"] = "2"
    assert "side by side" in finished(project, hub).err
    assert len(hub.pulls) == 1


# --- pull requests of others -----------------------------------------------------------------------------


def test_the_report_names_open_pull_requests_that_change_the_same_paths(project: Project, hub: Hub) -> None:
    plan = project.show("main:plans/X.md")
    for phase in ("1", "2"):
        plan = re.sub(rf"(?m)^(## Phase {phase}\b.*)$", r"\1\n\nTouches: 1.txt, 2.txt", plan)
    set_up(project, plan=plan)
    hub.mirror(project.path)
    for branch, file in (("same", "2.txt"), ("other", "3.txt")):
        hub.git("branch", branch, "main")
        hub.commit(branch, {"a.txt": "theirs\n", file: "theirs\n"})
        hub.create(branch, "main", "Theirs", "")
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 0, ran.err
    for told in (project.show("origin/main:reports/plan-x.md"), ran.err):
        found = re.findall(r"pull request #(\d+) is open and changes (\S+) too", told)
        assert found == [("1", "2.txt")] * 2  # in both phases, and never their own pull request


# --- the token -------------------------------------------------------------------------------------------


def test_git_signs_in_once_where_its_configuration_has_another_token(
    project: Project, server: StandIn, hub: Hub
) -> None:
    """actions/checkout leaves such a setting; GitHub answers two headers with 400."""
    project.repo.git("config", f"http.{server.address}/.extraHeader", "Authorization: Basic b2xkOm9sZA==")
    finished(project, hub)


def test_git_signs_in_with_the_token_which_no_argument_log_or_check_has(
    project: Project, hub: Hub, tmp_path: Path
) -> None:
    arguments, program = tmp_path / "arguments", tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{arguments}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    project.extra["PATH"] = f"{program.parent}:{project.env['PATH']}"
    set_up(project, settings='[tests]\ncommand = "env && git config --list"\n')
    hub.mirror(project.path)
    finished(project, hub)
    kept = [path for path in (project.path / ".git/runplan").rglob("*") if path.is_file()]
    assert any(b"RUNPLAN_PHASE" in path.read_bytes() for path in kept)  # the output of the check
    assert "push" in arguments.read_text()
    for secret in (b"t0ken", b64encode(b"x-access-token:t0ken")):
        assert [path for path in (*kept, arguments) if secret in path.read_bytes()] == []


def test_a_token_reaches_git_only_for_its_host_and_where_git_has_none() -> None:
    def settings(remote: str, *, is_gits: bool = False) -> tuple[str, ...]:
        address = parse_remote(remote)
        assert address is not None
        return git_settings(Access(address=address, auth=Auth.Token("s3cret"), source="$GH_TOKEN", is_gits=is_gits))

    basic = b64encode(b"x-access-token:s3cret").decode()
    header = f"http.https://github.com/.extraHeader=Authorization: Basic {basic}"
    assert settings("https://github.com/acme/app.git")[1:] == (header,)
    assert settings("https://github.com/acme/app.git", is_gits=True) == ()
    assert settings("git@github.com:acme/app.git") == ()
    assert settings("http://ghe.corp/acme/app.git") == ()  # a network could read it


# --- doctor ----------------------------------------------------------------------------------------------


def rows(project: Project, code: int) -> dict[str, str]:
    ran = project.runplan("doctor", "--json", RUNPLAN_RUN_LANDING="pr")
    assert ran.code == code, ran.out
    assert "t0ken" not in ran.out
    return {row["name"]: row["detail"] + (row["remedy"] and f"; {row['remedy']}") for row in ran.json}


def test_the_doctor_shows_the_token_and_how_a_pull_request_is_merged(project: Project, hub: Hub) -> None:
    hub.scopes, hub.methods, hub.required, hub.reviews = "repo, workflow", {"squash"}, ["ci", "lint"], 1
    found = rows(project, 0)
    assert found["github"] == "acme/app; token from $GH_ENTERPRISE_TOKEN (scopes repo, workflow) may push"
    assert found["merge"] == "squash, because merge is not allowed; auto-merge is allowed"
    assert found["rules"] == "main requires checks ci, lint, 1 approving review"


def test_the_doctor_fails_where_a_start_would_be_refused(project: Project, hub: Hub) -> None:
    hub.can_push = False
    assert rows(project, 2)["github"] == "the token may not push to acme/app; landing by pr needs write access"
    hub.tokens = set()
    assert "401 Bad credentials; check the token from $GH_ENTERPRISE_TOKEN" in rows(project, 2)["github"]
    del project.extra["GH_ENTERPRISE_TOKEN"]
    assert "set GH_ENTERPRISE_TOKEN, or run: gh auth login" in rows(project, 2)["github"]


# --- refused before any work -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "env", "expected"),
    [
        ("/srv/app.git", {}, "needs a repository on GitHub"),
        ("https://github.com/acme/app", {}, "set GH_TOKEN"),
    ],
)
def test_a_remote_without_a_forge_or_token_is_refused(
    project: Project, server: StandIn, remote: str, env: dict[str, str], expected: str
) -> None:
    project.repo.git("remote", "set-url", "origin", remote)
    ran = project.runplan("start", "X", "finish", "auto", "pr", "--foreground", **env)
    assert ran.code == 2, ran.err
    assert expected in ran.err
    assert server.hub.pulls == {}
