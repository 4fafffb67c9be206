"""Where a run lands, and under which names: fixed when the run starts."""

import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, copied, with_remote, writes
from tests.support.repos import Repo

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


@pytest.mark.promise
def test_an_approved_change_lands_on_the_target_of_its_run(project: Project) -> None:
    assert project.start("1", **DEV).code == 4
    approved = project.runplan("approve", "X")
    assert approved.code == 0, approved.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


def test_an_approved_change_is_pushed_to_the_remote_of_its_run(project: Project, tmp_path: Path) -> None:
    origin, two = two_remotes(project, tmp_path)
    assert project.start("1", **TWO).code == 4
    assert project.runplan("approve", "X").code == 0
    assert (on(origin, "main"), on(two, "main")) == (0, 1)


def test_a_killed_run_continues_on_its_own_target(project: Project) -> None:
    assert project.start("1", "auto", TEST_KILL="after LandingStarted", **DEV).code == -signal.SIGKILL
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.leftovers() == []


@pytest.mark.promise
def test_status_report_and_undo_use_the_target_of_the_last_run(project: Project) -> None:
    assert project.start("1", "auto", **DEV).code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "done"
    assert "## Phase — 1 Step 1" in project.runplan("report", "X").out
    undone = project.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "dev")


@pytest.mark.promise
def test_two_phases_land_from_a_worktree_of_a_bare_repository(project: Project, tmp_path: Path) -> None:
    project.repo.git("clone", "-q", "--bare", ".", str(tmp_path / "hub.git"))
    hub = Repo(path=tmp_path / "hub.git", env=dict(project.repo.env))
    for key, value in (("user.name", "Uma"), ("user.email", "uma@example.org")):
        hub.git("config", key, value)
    hub.git("worktree", "add", "-q", "-b", "feature", str(tmp_path / "checkout"), "main")
    for phase in ("1", "2"):
        ran = project.runplan_in(tmp_path / "checkout", "start", "X", phase, "auto", "--foreground")
        assert ran.code == 0, ran.err


def test_retry_of_an_undone_phase_asks_for_approval_as_before(project: Project) -> None:
    """An undo needs no approval and does not change how the work lands."""
    assert project.start("1").code == 4
    assert project.runplan("approve", "X").code == 0
    assert project.runplan("undo", "X", "1").code == 0
    assert project.runplan("retry", "X", "1").code == 4


def test_two_plans_with_one_base_name_have_separate_reports(tmp_path: Path) -> None:
    """Branch, worktree and report of both carry a hash of the path."""
    project = a_project(tmp_path, "1")
    project.plan(a_plan("7"), "plans/old/X.md")
    project.agent(writes("1", "7"))
    for path in ("plans/X.md", "plans/old/X.md"):
        assert project.runplan("start", path, "auto", "--foreground").code == 0
    reports = project.repo.git("ls-tree", "--name-only", "main", "reports/").split()
    assert len({report for report in reports if report.startswith("reports/plan-x-")}) == 2


def test_a_plan_keeps_its_report_when_a_namesake_appears(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    assert project.start("1", "auto").code == 0
    project.plan(a_plan("1"), "plans/other/X.md")
    assert project.runplan("start", "plans/X.md", "2", "auto", "--foreground").code == 0
    reports = project.repo.git("ls-tree", "--name-only", "main", "reports/").split()
    assert reports == ["reports/README.md", "reports/plan-x.md"]
    assert project.runplan("report", "plans/X.md").out.count("## Phase") == 2


SPACED = "plans/My Plan.md"


@pytest.fixture
def spaced(tmp_path: Path) -> Project:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2", depends={"2": "Phase 1."}), SPACED)
    return project


def suggested(printed: str) -> list[list[str]]:
    """The commands in what was said, as a shell would take them apart."""
    found = re.findall(r"(?:: |; )((?:runplan|git) [^;\n]*)", printed)
    return [shlex.split(one) for one in found]


def test_suggested_commands_quote_a_path_with_a_blank(spaced: Project) -> None:
    needs = spaced.runplan("start", SPACED, "2", "auto", "--foreground")
    assert suggested(needs.err) == [["runplan", "start", SPACED, "1"]]
    waits = spaced.runplan(*suggested(needs.err)[0][1:], "--foreground")
    assert waits.code == 4, waits.err
    diff, approve, _, reject = suggested(waits.last)
    assert [diff, approve, reject] == [["runplan", verb, SPACED, "1"] for verb in ("diff", "approve", "reject")]
    assert f"runplan approve '{SPACED}'" in spaced.runplan("status", SPACED).out
    landed = spaced.runplan(*approve[1:])
    assert landed.code == 0, landed.err
    assert suggested(landed.last) == [["runplan", "report", SPACED]]
    assert spaced.runplan(*suggested(landed.last)[0][1:]).code == 0
    assert spaced.runplan("start", SPACED, "2", "auto", "--foreground").code == 0
    upon = spaced.runplan("undo", SPACED, "1")
    assert suggested(upon.last) == [["runplan", "undo", SPACED, "2"]]
    assert spaced.runplan(*suggested(upon.last)[0][1:]).code == 0


@pytest.mark.promise
def test_the_suggested_commit_command_quotes_a_path_with_a_blank(spaced: Project) -> None:
    with (spaced.path / SPACED).open("a") as plan:
        plan.write("\nMore.\n")
    refused = spaced.runplan("start", SPACED, "--foreground")
    assert refused.code == 2
    commit = refused.last.partition("run: ")[2]
    subprocess.run(commit, shell=True, check=True, cwd=spaced.path, env=spaced.env, capture_output=True)
    assert spaced.repo.status() == ""
