"""Work as nobody makes it by accident: it lands whole, or ends by a name that says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def command_agent(project: Project, script: str) -> None:
    """A shell script implements; the scripted agent still verifies."""
    (project.home / "agent.sh").write_text(script)
    project.settings(f'[agents.sh]\nkind = "command"\nargv = ["sh", "{project.home / "agent.sh"}"]\n')
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "sh"')
    project.commit_file("runplan.toml", text)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_edit_that_git_was_told_to_overlook_lands_like_any_other(project: Project, flag: str) -> None:
    project.commit_file("README.md", "hello\n")
    command_agent(project, f"echo 1 >1.txt; git update-index {flag} README.md; echo more >>README.md\n")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.show("main:README.md") == "hello\nmore"
    assert project.leftovers() == []
