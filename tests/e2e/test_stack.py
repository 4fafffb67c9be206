"""A stack of pull requests: one for each group of phases, each on the one below."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, end_processes_of, fix, set_up, work
from tests.support.github.hub import Hub
from tests.support.github.server import StandIn
from tests.support.gitlab.server import on_gitlab

STACKED = {"RUNPLAN_PULL_REQUEST_STACK": "true"}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = a_project(tmp_path, "1", "2", "3", **STACKED)
    yield project
    end_processes_of(project.home)


@pytest.mark.promise
def test_a_stack_is_merged_from_below_by_squash(project: Project, server: StandIn, hub: Hub) -> None:
    project.extra["RUNPLAN_PULL_REQUEST_METHOD"] = "squash"
    bases: dict[int, list[str]] = {}
    drafts: set[tuple[int, ...]] = set()

    def look(_call: str) -> None:
        for pull in hub.pulls.values():
            seen = bases.setdefault(pull.number, [])
            seen += [pull.base] if seen[-1:] != [pull.base] else []
        drafts.add(tuple(pull.number for pull in hub.pulls.values() if pull.state == "open" and not pull.draft))

    server.on_request = look
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 0, ran.err
    assert bases == {1: ["main"], 2: ["runplan/x/pr-1", "main"], 3: ["runplan/x/pr-2", "main"]}
    assert drafts == {(), (1,), (2,), (3,)}, "only the lowest one is ready"
    assert [(pull.merged, pull.title) for pull in hub.pulls.values()] == [(True, f"X: Step {n}") for n in (1, 2, 3)]
    subjects = hub.git("log", "--reverse", "--format=%s", "--first-parent", "main").splitlines()[-3:]
    assert subjects == [f"X: Step {n} (#{n})" for n in (1, 2, 3)]
    changed = [hub.git("diff", "--name-only", f"main~{n + 1}", f"main~{n}", "--", "*.txt") for n in (2, 1, 0)]
    assert changed == ["1.txt", "2.txt", "3.txt"]
    assert list(hub.branches()) == ["main"]
    assert "status: complete" in project.show("origin/main:plans/X.md")
    assert project.leftovers() == []
    table = "| #1 | Step 1 | merged |\n| #2 | Step 2 | merged |\n|  | Step 3 | you are here |"
    assert table in hub.pulls[3].body
    assert "| #3 | Step 3 | draft |" in hub.pulls[1].body
    assert "pull request #3 is merged" in ran.err
    ran = project.runplan("undo", "X", "2")
    assert ran.code == 0, ran.err
    assert (hub.pulls[4].head, hub.pulls[4].base) == ("runplan/x/pr", "main")
    assert hub.git("diff", "--name-only", "--diff-filter=D", "main", "runplan/x/pr") == "2.txt"


def group(project: Project, **groups: str) -> str:
    """The plan in which phases have a `Pull-request:` line."""
    plan = project.show("main:plans/X.md")
    for phase, name in groups.items():
        heading = f"## Phase {phase[1:]} — Step {phase[1:]}\n"
        plan = plan.replace(heading, f"{heading}\nPull-request: `{name}`\n")
    return plan


def test_a_repair_of_a_lower_one_is_merged_into_those_above(project: Project, hub: Hub) -> None:
    repair = fix('write = "fixed.txt"', 'commit = "Fix"', phase="")
    set_up(project, agent=work() + work(phase="2") + work(phase="3") + repair)
    hub.mirror(project.path)
    heads: list[tuple[str, str, str]] = []

    def check(branch: str, sha: str) -> None:
        heads.append((branch.removeprefix("runplan/x/"), hub.git("log", "-1", "--format=%s", sha), sha))
        is_good = branch != "runplan/x/pr-1" or "fixed.txt" in hub.git("ls-tree", "--name-only", sha)
        hub.check(sha, "ci", "success" if is_good else "failure")

    hub.on_push = check
    ran = project.start("finish", "auto", "pr")
    assert ran.code == 0, ran.err
    assert (hub.merges, [pull.merged for pull in hub.pulls.values()]) == (3, [True] * 3)
    repaired = "x: repair the pull request"
    pushed = [(branch, subject) for branch, subject, _ in heads if branch != "main"]
    assert pushed[-3:] == [("pr-1", repaired), ("pr-2", repaired), ("pr", repaired)]
    assert hub.git("log", "--format=%s", "--grep", "Merge runplan/x/pr-1 into runplan/x/pr-2", "main")
    assert [project.dispatched().count(role) for role in ("implement", "fix")] == [3, 1]
    assert hub.git("ls-tree", "--name-only", "main").split()[0] == "1.txt"
    assert "fixed.txt" in hub.git("diff", "--name-only", "main~3", "main~2")
    assert list(hub.branches()) == ["main"]


def test_neighbours_of_one_name_share_a_merge_request_of_gitlab(project: Project, tmp_path: Path) -> None:
    set_up(project, plan=group(project, p2="rest", p3="rest"))
    with on_gitlab(project, tmp_path) as server:
        hub = server.hub
        hub.squash_option = "always"
        assert "pull request: rest" in project.runplan("check", "X").out
        ran = project.start("finish", "auto", "pr")
        assert ran.code == 0, ran.err
        assert [(pull.merged, pull.title) for pull in hub.pulls.values()] == [(True, "X: Step 1"), (True, "X: rest")]
        assert "| !1 | Step 1 | merged |\n|  | rest | you are here |" in hub.pulls[2].body
        assert "**2 of 2 phases**" in hub.pulls[2].body
        assert hub.git("log", "--format=%s", "--first-parent", "main", "--", "2.txt", "3.txt").count("\n") == 0
        assert list(hub.branches()) == ["main"]
        assert project.leftovers() == []


def test_what_a_stack_cannot_have_is_refused_before_any_work(project: Project, hub: Hub) -> None:
    for variable, words in {
        "RUNPLAN_RUN_PARALLEL": ("2", "set run.parallel to 1"),
        "RUNPLAN_PULL_REQUEST_BOOKKEEPING": ("squash", 'set bookkeeping to "phase"'),
    }.items():
        ran = project.start("finish", "auto", "pr", **{variable: words[0]})
        assert (ran.code, words[1] in ran.err) == (2, True), ran.err
    set_up(project, plan=group(project, p1="a", p3="a"))
    hub.mirror(project.path)
    ran = project.start("finish", "auto", "pr")
    assert (ran.code, "phase 2 is between phases with Pull-request: `a`" in ran.err) == (2, True), ran.err
    del project.repo.env["RUNPLAN_PULL_REQUEST_STACK"]
    assert "Pull-request: has no effect, because pull_request.stack is not set" in project.runplan("check", "X").out
    assert hub.pulls == {}
