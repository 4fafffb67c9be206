"""A landing that was killed is brought to its end by whoever comes by, for whatever plan and with whatever verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, writes
from tests.support.landings import leftovers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project

KILLS = ["before rename index", "before Landed"]
SWAPPED = ("before Landed",)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Plan X with the phases 1 and 3, plan Y with the phase 2."""
    project = a_project(tmp_path, "1", "3")
    project.agent(writes("1", "2", "3"))
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    return project


def killed(project: Project, point: str, *words: str) -> None:
    ran = project.runplan(*words, TEST_KILL=point)
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


# --- a person between the two ---------------------------------------------------------------------------


def test_files_that_somebody_committed_after_the_crash_are_theirs(project: Project) -> None:
    killed(project, "before rename index", "start", "X", "1", "auto", "--foreground")
    (project.path / ".git/index.lock").unlink()
    for lock in ("HEAD.lock", "refs/heads/main.lock"):
        (project.path / ".git" / lock).unlink(missing_ok=True)
    project.repo.git("add", "-A")
    project.repo.git("commit", "-qm", "What lay there")
    ran = project.runplan("retry", "X")
    assert project.repo.status() == "", ran.err
    assert (project.path / "1.txt").read_text() == "1\n"
    assert left(project) == []
