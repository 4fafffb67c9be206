"""Where a run lands is settled once: whoever goes on with it sees the place as the run did."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_project, copied, with_remote
from tests.support.repos import Repo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project

DEV = {"RUNPLAN_RUN_TARGET": "dev"}
TWO = {"RUNPLAN_RUN_LANDING": "direct", "RUNPLAN_RUN_REMOTE": "two"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = a_project(tmp_path_factory.mktemp("model"), "1", "2")
    project.repo.git("branch", "dev")
    return project


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Project:
    return copied(model, tmp_path)


def on(repo: Repo, branch: str) -> int:
    """How often phase 1 landed there."""
    return repo.git("log", "--format=%s", branch).split("\n").count("Write 1")


def two_remotes(project: Project, place: Path) -> tuple[Repo, Repo]:
    one = with_remote(project, place / "one.git")
    project.repo.git("clone", "-q", "--bare", ".", str(place / "two.git"))
    project.repo.git("remote", "add", "two", str(place / "two.git"))
    project.repo.git("fetch", "-q", "two")
    return one, Repo(path=place / "two.git", env=dict(project.repo.env))


def test_what_is_approved_lands_where_the_run_was_asked_to(project: Project) -> None:
    assert project.start("1", **DEV).code == 4
    approved = project.runplan("approve", "X")
    assert approved.code == 0, approved.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


def test_what_is_approved_is_pushed_to_the_remote_that_was_asked_for(project: Project, tmp_path: Path) -> None:
    origin, two = two_remotes(project, tmp_path)
    assert project.start("1", **TWO).code == 4
    assert project.runplan("approve", "X").code == 0
    assert (on(origin, "main"), on(two, "main")) == (0, 1)


@pytest.mark.parametrize("point", ["after LandingStarted"])
def test_a_killed_run_goes_on_where_it_was_asked_to_land(project: Project, point: str) -> None:
    assert project.start("1", "auto", TEST_KILL=point, **DEV).code == -signal.SIGKILL
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


def test_a_plan_is_shown_and_taken_back_where_it_landed(project: Project) -> None:
    assert project.start("1", "auto", **DEV).code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "done"
    assert "## Phase — 1 Step 1" in project.runplan("report", "X").out
    undone = project.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "dev")


# --- the target is not what is checked out --------------------------------------------------------------


def test_a_worktree_of_a_bare_repository_goes_on_after_the_first_phase(project: Project, tmp_path: Path) -> None:
    project.repo.git("clone", "-q", "--bare", ".", str(tmp_path / "hub.git"))
    hub = Repo(path=tmp_path / "hub.git", env=dict(project.repo.env))
    for key, value in (("user.name", "Uma"), ("user.email", "uma@example.org")):
        hub.git("config", key, value)
    hub.git("worktree", "add", "-q", "-b", "feature", str(tmp_path / "desk"), "main")
    for phase in ("1", "2"):
        ran = project.runplan_in(tmp_path / "desk", "start", "X", phase, "auto", "--foreground")
        assert ran.code == 0, ran.err


# --- retry with a phase ---------------------------------------------------------------------------------


def test_retry_with_a_phase_asks_before_it_lands_when_the_work_did(project: Project) -> None:
    """An undo asks nobody, and says nothing about how the work is to be landed."""
    assert project.start("1").code == 4
    assert project.runplan("approve", "X").code == 0
    assert project.runplan("undo", "X", "1").code == 0
    assert project.runplan("retry", "X", "1").code == 4
