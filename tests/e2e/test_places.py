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


def test_what_is_rejected_is_kept_and_nothing_lands(project: Project) -> None:
    assert project.start("1", **DEV).code == 4
    before = project.repo.head("main"), project.repo.head("dev")
    assert project.runplan("reject", "X").code == 1
    assert (project.repo.head("main"), project.repo.head("dev")) == before
    assert on(project.repo, "runplan/x/1") == 1


@pytest.mark.parametrize("point", ["Lease.Leased.after", "Land.LandingStarted.after", "Land.Landed.before"])
def test_a_killed_run_goes_on_where_it_was_asked_to_land(project: Project, point: str) -> None:
    assert project.start("1", "auto", RUNPLAN_TEST_KILL=point, **DEV).code == -signal.SIGKILL
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


@pytest.mark.parametrize("point", ["direct.push.before", "direct.push.after", "Land.Landed.before"])
def test_a_push_is_looked_for_on_the_remote_it_went_to(project: Project, tmp_path: Path, point: str) -> None:
    origin, two = two_remotes(project, tmp_path)
    assert project.start("1", "auto", RUNPLAN_TEST_KILL=point, **TWO).code == -signal.SIGKILL
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert (on(origin, "main"), on(two, "main")) == (0, 1)


def test_a_failed_phase_is_retried_where_it_was_asked_to_land(project: Project) -> None:
    project.extra["RUNPLAN_AGENTS_IMPLEMENTER"] = "nobody"
    assert project.start("1", "auto", **DEV).code != 0
    del project.extra["RUNPLAN_AGENTS_IMPLEMENTER"]
    assert project.start("1", **DEV).code == 4
    assert project.runplan("reject", "X").code == 1
    again = project.runplan("retry", "X", "2")
    assert again.code == 4, again.err
    assert project.runplan("approve", "X").code == 0
    assert "2.txt" in project.repo.git("ls-tree", "--name-only", "dev")
    assert "2.txt" not in project.repo.git("ls-tree", "--name-only", "main")


def test_a_plan_is_shown_and_taken_back_where_it_landed(project: Project) -> None:
    assert project.start("1", "auto", **DEV).code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "done"
    assert "## Phase — 1 Step 1" in project.runplan("report", "X").out
    undone = project.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "dev")


def test_a_new_start_may_land_elsewhere_and_ends_the_old_run_at_its_own_place(project: Project) -> None:
    killed = project.start("1", "auto", RUNPLAN_TEST_KILL="Land.Landed.before", **DEV)
    assert killed.code == -signal.SIGKILL
    again = project.start("1", "auto")
    assert again.code == 0, again.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (1, 1)
    assert project.leftovers() == []


def test_a_branch_that_is_gone_is_forgotten_when_the_plan_is_shown(project: Project) -> None:
    assert project.start("1", "auto", **DEV).code == 0
    project.repo.git("branch", "-D", "dev")
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "todo"


# --- the target is not what is checked out --------------------------------------------------------------


@pytest.mark.parametrize("checkout", [("checkout", "-q", "-b", "feature"), ("checkout", "-q", "--detach")])
def test_a_checkout_of_something_else_holds_the_plan_as_it_was_and_that_is_no_edit(
    project: Project, checkout: tuple[str, ...]
) -> None:
    project.repo.git(*checkout)
    assert project.start("1", "auto").code == 0
    again = project.start("2", "auto")
    assert again.code == 0, again.err
    assert project.repo.git("status", "--porcelain") == ""


def test_an_edit_that_nobody_committed_is_one_on_any_branch(project: Project) -> None:
    project.repo.git("checkout", "-q", "-b", "feature")
    assert project.start("1", "auto").code == 0
    with (project.path / "plans/X.md").open("a") as plan:
        plan.write("\nMore.\n")
    refused = project.start("2", "auto")
    assert refused.code == 2
    assert "plan-not-committed: plans/X.md in the checkout differs from main" in refused.last


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


def test_retry_with_a_phase_works_that_phase_also_after_an_undo(project: Project) -> None:
    assert project.start("finish", "auto").code == 0
    assert project.runplan("undo", "X", "1").code == 0
    assert project.runplan("undo", "X", "2").code == 0
    again = project.runplan("retry", "X", "1")
    assert again.code == 0, again.err
    assert (project.path / "1.txt").exists()
    assert not (project.path / "2.txt").exists()


def test_retry_with_a_phase_asks_before_it_lands_when_the_work_did(project: Project) -> None:
    """An undo asks nobody, and says nothing about how the work is to be landed."""
    assert project.start("1").code == 4
    assert project.runplan("approve", "X").code == 0
    assert project.runplan("undo", "X", "1").code == 0
    assert project.runplan("retry", "X", "1").code == 4
