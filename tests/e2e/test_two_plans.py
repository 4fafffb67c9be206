"""A landing that was killed is brought to its end by whoever comes by, for whatever plan and with whatever verb."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, writes
from tests.support.landings import leftovers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project

KILLS = ["land.staged", "land.prepared", "land.swapped", "land.committed"]
SWAPPED = ("land.committed",)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Plan X with the phases 1 and 3, plan Y with the phase 2."""
    project = a_project(tmp_path, "1", "3")
    project.agent(writes("1", "2", "3"))
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    return project


def killed(project: Project, point: str, *words: str) -> None:
    ran = project.runplan(*words, RUNPLAN_TEST_KILL=point)
    assert ran.code == -9, ran.err


def left(project: Project) -> list[str]:
    """Locks of git and things of ours beside the index."""
    return [name for name in leftovers(project.repo) if not name.startswith("runplan/")]


def is_whole(project: Project, *phases: str) -> None:
    """Each phase landed once, with its code, and nothing is left of any landing."""
    assert sorted(project.landed()) == sorted(phases)
    assert all((project.path / f"{phase}.txt").read_text() == f"{phase}\n" for phase in phases)
    assert project.repo.status() == ""
    assert left(project) == []


@pytest.mark.parametrize("point", KILLS)
def test_a_landing_killed_in_one_plan_is_ended_by_the_start_of_another(project: Project, point: str) -> None:
    killed(project, point, "start", "X", "1", "auto", "--foreground")
    ran = project.runplan("start", "Y", "2", "auto", "--foreground")
    assert ran.code == 0, ran.err
    is_whole(project, *(("1", "2") if point in SWAPPED else ("2",)))
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    is_whole(project, "1", "2")


@pytest.mark.parametrize("point", ["land.swapped", "land.committed"])
def test_a_landing_killed_in_one_plan_is_ended_by_an_undo_in_another(project: Project, point: str) -> None:
    assert project.runplan("start", "Y", "2", "auto", "--foreground").code == 0
    killed(project, point, "start", "X", "1", "auto", "--foreground")
    ran = project.runplan("undo", "Y", "2")
    assert ran.code == 0, ran.err
    assert not (project.path / "2.txt").exists()
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert (project.path / "1.txt").read_text() == "1\n"
    assert project.repo.status() == ""
    assert left(project) == []


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize("point", ["land.swapped", "land.committed"])
def test_a_landing_killed_in_one_plan_is_ended_by_an_answer_to_another(project: Project, verb: str, point: str) -> None:
    assert project.runplan("start", "Y", "2", "--foreground").code == 4
    killed(project, point, "start", "X", "1", "auto", "--foreground")
    project.runplan(verb, "Y")
    assert left(project) == []
    assert project.repo.status() == ""
    assert (project.path / "1.txt").exists() == (point in SWAPPED)


@pytest.mark.parametrize("point", ["land.swapped", "land.committed"])
def test_an_undo_that_was_killed_and_forgotten_is_ended_by_the_next_one(project: Project, point: str) -> None:
    assert project.start("1", "auto").code == 0
    killed(project, point, "undo", "X", "1")
    shutil.rmtree(project.path / ".git/runplan")
    ran = project.runplan("undo", "X", "1")
    assert left(project) == []
    assert project.repo.status() == ""
    assert ran.code == (2 if point in SWAPPED else 0), ran.err
    assert not (project.path / "1.txt").exists()


# --- a person between the two ---------------------------------------------------------------------------


def test_somebody_who_removes_the_lock_and_lands_another_plan_gets_no_staged_revert(project: Project) -> None:
    killed(project, "land.committed", "start", "X", "1", "auto", "--foreground")
    (project.path / ".git/index.lock").unlink()
    assert project.runplan("start", "Y", "2", "auto", "--foreground").code == 0
    is_whole(project, "1", "2")
    assert project.runplan("retry", "X").code == 0
    is_whole(project, "1", "2")


def test_files_that_somebody_committed_after_the_crash_are_theirs(project: Project) -> None:
    killed(project, "land.swapped", "start", "X", "1", "auto", "--foreground")
    (project.path / ".git/index.lock").unlink()
    for lock in ("HEAD.lock", "refs/heads/main.lock"):
        (project.path / ".git" / lock).unlink(missing_ok=True)
    project.repo.git("add", "-A")
    project.repo.git("commit", "-qm", "What lay there")
    ran = project.runplan("retry", "X")
    assert project.repo.status() == "", ran.err
    assert (project.path / "1.txt").read_text() == "1\n"
    assert left(project) == []
