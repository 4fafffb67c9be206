"""A plan keeps its name in branch, worktree and report, whatever other plans are called."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, writes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def test_two_plans_of_one_base_name_do_not_meet(tmp_path: Path) -> None:
    """B16: branch, worktree and report of both carry a hash of the path."""
    project = a_project(tmp_path, "1")
    project.plan(a_plan("7"), "plans/old/X.md")
    project.agent(writes("1", "7"))
    for path in ("plans/X.md", "plans/old/X.md"):
        assert project.runplan("start", path, "auto", "--foreground").code == 0
    reports = project.repo.git("ls-tree", "--name-only", "main", "reports/").split()
    assert len(set(reports)) == 2
    assert all(report.startswith("reports/plan-x-") for report in reports)


def test_a_plan_that_was_run_keeps_its_name_when_a_namesake_appears(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    assert project.start("1", "auto").code == 0
    project.plan(a_plan("1"), "plans/other/X.md")
    assert project.runplan("start", "plans/X.md", "2", "auto", "--foreground").code == 0
    assert project.repo.git("ls-tree", "--name-only", "main", "reports/").split() == ["reports/plan-x.md"]
    assert project.runplan("report", "plans/X.md").out.count("## Phase") == 2


SPACED = "plans/My Plan.md"


@pytest.fixture
def spaced(tmp_path: Path) -> Project:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2", depends={"2": "Phase 1."}), SPACED)
    return project


def suggested(told: str) -> list[list[str]]:
    """The commands in what was said, as a shell would take them apart."""
    found = re.findall(r"(?:: |; )((?:runplan|git) [^;\n]*)", told)
    return [shlex.split(one) for one in found]


def test_a_suggested_command_can_be_copied_when_the_plans_path_has_a_blank(spaced: Project) -> None:
    needs = spaced.runplan("start", SPACED, "2", "auto", "--foreground")
    assert suggested(needs.err) == [["runplan", "start", SPACED, "1"]]
    waits = spaced.runplan(*suggested(needs.err)[0][1:], "--foreground")
    assert waits.code == 4, waits.err
    approve, reject = suggested(waits.last)
    assert (approve, reject) == (["runplan", "approve", SPACED], ["runplan", "reject", SPACED])
    assert suggested(spaced.runplan("status", SPACED).out) == [["runplan", "diff", SPACED], approve]
    landed = spaced.runplan(*approve[1:])
    assert landed.code == 0, landed.err
    assert suggested(landed.last) == [["runplan", "report", SPACED]]
    assert spaced.runplan(*suggested(landed.last)[0][1:]).code == 0
    assert spaced.runplan("start", SPACED, "2", "auto", "--foreground").code == 0
    upon = spaced.runplan("undo", SPACED, "1")
    assert suggested(upon.last) == [["runplan", "undo", SPACED, "2"]]
    assert spaced.runplan(*suggested(upon.last)[0][1:]).code == 0


def test_the_command_that_commits_a_plan_can_be_copied_when_its_path_has_a_blank(spaced: Project) -> None:
    with (spaced.path / SPACED).open("a") as plan:
        plan.write("\nMore.\n")
    refused = spaced.runplan("start", SPACED, "--foreground")
    assert refused.code == 2
    commit = refused.last.partition("run: ")[2]
    subprocess.run(commit, shell=True, check=True, cwd=spaced.path, env=spaced.env, capture_output=True)
    assert spaced.repo.status() == ""
