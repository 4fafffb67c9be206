"""Where a run lands, and under which names: fixed when the run starts."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, copied
from tests.support.repos import Repo

DEV = {"RUNPLAN_RUN_TARGET": "dev"}


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


@pytest.mark.promise
def test_an_approved_change_lands_on_the_target_of_its_run_which_status_report_and_undo_use(project: Project) -> None:
    assert project.start("1", **DEV).code == 4
    project.runplan("approve", "X").exits(0)
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "done"
    assert "## Phase — 1 Step 1" in project.runplan("report", "X").out
    project.runplan("undo", "X", "1").exits(0)
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "dev")
    assert project.leftovers() == []


def test_a_killed_run_continues_on_its_own_target(project: Project) -> None:
    assert project.start("1", "auto", TEST_KILL="after LandingStarted", **DEV).code == -signal.SIGKILL
    project.runplan("retry", "X").exits(0)
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


def test_a_plan_keeps_its_report_when_a_namesake_appears(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    assert project.start("1", "auto").code == 0
    project.plan(a_plan("1"), "plans/other/X.md")
    assert project.runplan("start", "plans/X.md", "2", "auto", "--foreground").code == 0
    reports = project.repo.git("ls-tree", "--name-only", "main", "reports/").split()
    assert reports == ["reports/README.md", "reports/plan-x.md"]
    assert project.runplan("report", "plans/X.md").out.count("## Phase") == 2


@pytest.mark.promise
def test_the_suggested_commit_command_quotes_a_path_with_a_blank(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    project.repo.write("plans/My Plan.md", a_plan("1"))
    refused = project.runplan("start", "plans/My Plan.md", "--foreground").exits(2)
    commit = refused.last.partition("run: ")[2]
    subprocess.run(commit, shell=True, check=True, cwd=project.path, env=project.env, capture_output=True)
    assert project.repo.status() == ""


@pytest.mark.parametrize("how", ["--foreground", "--wait"])
def test_a_run_ends_well_although_it_removes_the_directory_of_its_start(project: Project, how: str) -> None:
    project.commit_file("old/a.txt", "a")
    project.shell_agent("git rm -qr old; echo 1 >1.txt; git add -A; git commit -qm Work")
    words = ("start", "X", "1", "auto", how)
    ran = project.runplan_in(project.path / "old", *words)
    assert (ran.code, project.landed(), (project.path / "old").exists()) == (0, ["1"], False), ran.err
    (project.path / "old").mkdir()
    gone = project.runplan_from('rmdir ../old; exec "$@"', *words, cwd=project.path / "old")
    assert (gone.code, gone.err) == (2, "runplan: the current directory is gone; go to the repository first\n")
