"""From a goal to an approved plan that is worked on."""

import pytest

from tests.support.cli import SETTINGS, Project, Ran, writes
from tests.support.planning import planner

GREET = "plans/greet-people.md"


@pytest.fixture
def project(project: Project) -> Project:
    project.commit_file("runplan.toml", SETTINGS.replace("[agents]\n", '[agents]\nplanner = "robot"\n'))
    project.agent(planner() + writes("1") + writes("2"))
    return project


def plan(project: Project, *words: str, **env: str) -> Ran:
    return project.runplan("plan", "Greet people", "--foreground", *words, **env)


def test_a_goal_becomes_a_plan_that_is_approved_and_worked(project: Project) -> None:
    before = project.repo.head("main")
    files = project.repo.git("status", "--porcelain", "--ignored")

    ran = plan(project)

    assert ran.code == 4, ran.err
    assert project.dispatched(GREET) == [
        *("understand", "explore", "alternatives", "draft"),
        *("critique", "revise", "critique", "revise"),
    ]
    assert project.repo.head("main") == before
    assert project.repo.git("status", "--porcelain", "--ignored") == files
    assert not (project.path / GREET).exists()
    shown = project.runplan("diff", "greet-people")
    assert "with the word bye" in shown.out
    assert "status: proposed" in shown.out

    approved = project.runplan("approve", "greet-people")

    assert approved.code == 0, approved.err
    text = project.show(f"main:{GREET}")
    assert "status: active" in text
    assert "with the word bye" in text
    assert project.repo.git("diff", "--name-only", before, "main") == GREET
    done = project.runplan("start", "greet-people", "finish", "auto", "--foreground")
    assert done.code == 0, done.err
    assert project.landed() == ["plan", "1", "2"]
    assert "status: complete" in project.show(f"main:{GREET}")
