"""Planners that misbehave: each run ends with a named outcome, and the user's checkout and refs stay as they were."""

import re

import pytest

from tests.support.cli import Project, steps
from tests.support.mounts import obstacle
from tests.support.planning import CONTENT, GREET, PLAN, asked, plan, planner, planning_project, said, what_is_the_users


def of(role: str, *played: str) -> str:
    return steps(*played, phase="*", role=role)


def failed(project: Project, script: str, more: str = "") -> str:
    """The reason for which planning fails; nothing of the user's differs then."""
    planning_project(project, script, more)
    mine = what_is_the_users(project)
    ran = plan(project).exits(1)
    assert what_is_the_users(project) == mine
    assert asked(project) == []
    assert project.leftovers() == []
    return ran.last.removeprefix("runplan: failed: ")


def test_the_sandbox_keeps_a_planner_from_writing(project: Project) -> None:
    if why := obstacle():
        pytest.skip(why)
    writes = f"echo x >>{project.path}/README; git -C {project.path} branch stray; echo x >>agent.toml; true"
    script = of("draft", f'run = "{writes}"') + said({"plan": PLAN})
    planning_project(project, planner(draft=script, critique=CONTENT))
    mine = what_is_the_users(project)
    plan(project, RUNPLAN_AGENTS_SANDBOX="bwrap").exits(4)
    assert project.dispatched(GREET) == ["explore", "draft", "critique"]
    assert what_is_the_users(project) == mine


def test_commits_and_refs_of_a_planner_stay_its_own(project: Project) -> None:
    commits = [
        'write = "new.txt"',
        'git = ["add", "-A"]',
        'git = ["commit", "-qm", "Mine"]',
        'git = ["branch", "-f", "x"]',
    ]
    reason = failed(project, planner(draft=of("draft", *commits) + said({"plan": PLAN})))
    assert reason == "readonly-violated"
    assert "files were changed (HEAD)" in project.runplan("report", "greet-people").out


@pytest.mark.promise
def test_a_planner_that_moves_a_ref_of_the_user_violates_a_guard(project: Project) -> None:
    planning_project(
        project, planner(draft=of("draft", f'run = "git -C {project.path} branch stray"') + said({"plan": PLAN}))
    )
    mine = what_is_the_users(project)
    plan(project).ends(1, "runplan: failed: guard-violated")
    assert what_is_the_users(project).keys() - mine.keys() == {"refs/heads/stray", ".git/refs/heads/stray"}
    assert asked(project) == []


def test_a_planner_that_never_satisfies_a_check_ends_the_run(project: Project) -> None:
    """F21"""
    assert failed(project, planner(draft={"plan": "# Words\n\nGerne!\n"})) == "plan-invalid"
    assert project.dispatched(GREET) == ["explore", "draft", "draft", "draft"]
    report = project.runplan("report", "greet-people").out
    kept = re.findall(r"refused, kept in (\S+): no phases found", report)
    assert len(kept) == 3
    assert all("Gerne!" in (project.path / place / "out.log").read_text() for place in kept)


def test_a_retry_of_planning_begins_at_the_refused_step(project: Project) -> None:
    assert failed(project, planner(draft={"plan": "# Words\n\nGerne!\n"})) == "plan-invalid"
    planning_project(project, planner(draft={"plan": PLAN}, critique=CONTENT))
    project.runplan("retry", "greet-people", "--foreground").exits(4)
    assert project.dispatched(GREET)[4:] == ["draft", "critique"], "the exploration is not paid for twice"
