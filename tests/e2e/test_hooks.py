"""Hooks that a project keeps in its tree, as husky does: runplan runs none, an agent those that the setup installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project

if TYPE_CHECKING:
    from pathlib import Path

INSTALLS = '[run]\nsetup = "git config core.hooksPath .husky"\n'


def add_hook(project: Project, name: str, more: str = "") -> None:
    script = f'#!/bin/sh\necho "{name} $PWD" >>{project.home}/ran\n{more}\n'
    project.repo.write(f".husky/{name}", script).chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Every hook leaves a line; `commit-msg` refuses each message but those with an issue."""
    project = a_project(tmp_path, "1", "2")
    for name, more in (("pre-commit", ""), ("commit-msg", 'grep -q "#" "$1"'), ("post-checkout", "")):
        add_hook(project, name, more)
    project.repo.commit("Add hooks")
    return project


def ran(project: Project) -> list[str]:
    """The hooks that ran, and where."""
    file = project.home / "ran"
    return file.read_text().splitlines() if file.exists() else []


def test_hooks_of_the_project_run_neither_for_an_agent_nor_for_the_landing(project: Project) -> None:
    add_hook(project, "reference-transaction")
    project.repo.commit("Add a hook that runs for every ref")
    project.repo.git("config", "core.hooksPath", ".husky")
    done = project.start("finish", "auto")
    assert done.code == 0, done.err
    assert project.landed() == ["1", "2"]
    assert project.runplan("undo", "X", "2").code == 0
    assert ran(project) == []


def test_hooks_that_the_setup_installs_run_for_the_agents_own_commits_alone(project: Project) -> None:
    project.settings(INSTALLS)
    project.agent((project.path / "agent.toml").read_text().replace('"Write ', '"#7: Write '))
    done = project.start("finish", "auto")
    assert done.code == 0, done.err
    assert project.landed() == ["1", "2"]
    where = project.home / ".cache/runplan/worktrees"
    assert [line.partition(" ")[0] for line in ran(project)] == ["pre-commit", "commit-msg"] * 2
    assert all(f" {where}/" in line for line in ran(project))


def test_work_whose_commit_a_hook_refused_is_committed_by_runplan(project: Project) -> None:
    project.shell_agent("echo 1 >1.txt; git add .; git commit -qm Work || true", INSTALLS)
    done = project.start("1", "auto")
    assert done.code == 0, done.err
    assert project.landed() == ["1"]
    assert [line.partition(" ")[0] for line in ran(project)] == ["pre-commit", "commit-msg"]
