"""A plan keeps its name in branch, worktree and report, whatever other plans are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.cli import a_plan, a_project, writes

if TYPE_CHECKING:
    from pathlib import Path


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
