"""A stack of pull requests: one for each group of phases, each on the one below."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, a_project, end_processes_of, ended, fix, set_up, until, work
from tests.support.github.hub import Hub, Issue
from tests.support.github.server import StandIn, publish
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
    hub.issues[77] = Issue(number=77, title="Three steps", body="")
    publish(project, hub, plan=a_plan("1", "2", "3", front="status: active\nissue: 77"))
    ran = project.start("finish", "auto", "pr").exits(0)
    assert ["Fixes #77" in pull.body for pull in hub.pulls.values()] == [False, False, True]
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
    assert "|  | Step 1 | you are here |\n| #2 | Step 2 |  |\n| #3 | Step 3 |  |" in hub.pulls[1].body
    assert "pull request #3 is merged" in ran.err
    project.runplan("undo", "X", "2").exits(0)
    assert (hub.pulls[4].head, hub.pulls[4].base) == ("runplan/x/pr", "main")
    assert hub.git("diff", "--name-only", "--diff-filter=D", "main", "runplan/x/pr") == "2.txt"


def group(project: Project, **groups: str) -> str:
    """The plan in which phases have a `Pull-request:` line."""
    plan = project.show("main:plans/X.md")
    for phase, name in groups.items():
        heading = f"## Phase {phase[1:]} — Step {phase[1:]}\n"
        plan = plan.replace(heading, f"{heading}\nPull-request: `{name}`\n")
    return plan


def rename(answer: str) -> str:
    """A fixer that handles a review."""
    said = f'return = {{status = "done", items = [{{item = "R1", result = "pass", evidence = "{answer}"}}]}}'
    return fix('append = "1.txt"\ntext = "renamed\\n"', 'commit = "Rename"', said, phase="")


def test_a_review_of_a_lower_one_reaches_the_phases_after_it(project: Project, hub: Hub, meanwhile: Meanwhile) -> None:
    """Its change is merged into the branches above before the next phase begins on them."""
    third = work(*meanwhile.pause("here"), phase="3")
    agent = work() + work(phase="2") + third + work(phase="4") + rename("Done.")
    publish(project, hub, agent=agent, plan=a_plan("1", "2", "3", "4"))
    hub.on_push = lambda branch, sha: hub.check(sha) if "/pr" in branch else None
    with project.running("start", "X", "finish", "auto", "pr", "--foreground") as running:
        meanwhile.reached("here")
        hub.review(1, "Please rename it.", by="bob", state="CHANGES_REQUESTED")
        assert "| #2 | Step 2 |  |" in hub.pulls[1].body
        meanwhile.let_on("here")
        until(lambda: len(hub.pulls) == 4)
        hub.review(1, "", by="bob", state="APPROVED")
        ran = ended(running)
    assert ran.code == 0, ran.err
    assert project.dispatched() == ["implement", "verify"] * 3 + ["fix", "verify"] + ["implement", "verify"] + [
        "verify"
    ]
    assert hub.git("show", f"{hub.git('log', '--format=%H', '-1', '--grep', 'Write 4', 'main')}:1.txt") == "1\nrenamed"
    assert (hub.merges, [pull.merged for pull in hub.pulls.values()]) == (4, [True] * 4)
    assert "Done." in hub.pulls[1].comments[0]["body"]
    assert "| #3 | Step 3 |" in hub.pulls[1].body
    assert list(hub.branches()) == ["main"]


def test_a_review_in_the_middle_is_handled_while_the_lowest_one_waits(project: Project, hub: Hub) -> None:
    hub.reviews, hub.allow_auto_merge = 1, False
    publish(project, hub, agent=work() + work(phase="2") + work(phase="3") + rename("Done."))
    project.start("finish", "auto", "pr").exits(4)
    hub.review(2, "Please rename it.", by="bob", state="CHANGES_REQUESTED")
    project.start("finish", "auto", "pr").exits(4)
    assert project.dispatched().count("fix") == 1
    assert hub.git("show", "runplan/x/pr-2:1.txt") == "1\nrenamed"


def test_one_that_a_person_merged_into_the_one_below_is_not_merged_again_and_again(project: Project, hub: Hub) -> None:
    """The target gets it with the one below, by a squash; the one above needs one merge of the target."""
    hub.on_push = lambda branch, sha: hub.check(sha) if "/pr" in branch else None
    project.start("finish", "pr").exits(4)
    before = hub.branches()
    hub.do_merge(hub.pulls[2], "merge")
    hub.pushed(before)
    hub.do_merge(hub.pulls[1], "squash")
    project.start("finish", "auto", "pr").exits(0)
    assert (hub.merges, [pull.merged for pull in hub.pulls.values()]) == (3, [True] * 3)
    assert hub.git("log", "--format=%s", "main").count("x: repair the pull request") == 1
    assert hub.git("ls-tree", "--name-only", "main").split()[:3] == ["1.txt", "2.txt", "3.txt"]
    assert project.dispatched().count("fix") == 0
    assert list(hub.branches()) == ["main"]


def test_neighbours_of_one_name_share_a_merge_request_of_gitlab(project: Project, tmp_path: Path) -> None:
    set_up(project, plan=group(project, p2="rest", p3="rest"))
    with on_gitlab(project, tmp_path) as server:
        hub = server.hub
        hub.squash_option = "always"
        assert "pull request: rest" in project.runplan("check", "X").out
        project.start("finish", "auto", "pr").exits(0)
        assert [(pull.merged, pull.title) for pull in hub.pulls.values()] == [(True, "X: Step 1"), (True, "X: rest")]
        assert "| !1 | Step 1 | merged |\n|  | rest | you are here |" in hub.pulls[2].body
        assert "**2 of 2 phases**" in hub.pulls[2].body
        assert "- phases 2, 3: no tests ran\n" in hub.pulls[2].body
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
    publish(project, hub, plan=group(project, p1="a", p3="a"))
    project.start("finish", "auto", "pr").exits(2, "phase 2 is between phases with Pull-request: `a`")
    del project.repo.env["RUNPLAN_PULL_REQUEST_STACK"]
    assert "Pull-request: has no effect, because pull_request.stack is not set" in project.runplan("check", "X").out
    assert hub.pulls == {}
