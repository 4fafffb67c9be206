"""Work that git refuses ends its attempt by name; the plan can be stopped and begun anew, and the files are kept."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def test_a_stop_that_git_refuses_says_so_and_does_not_signal_itself(project: Project) -> None:
    """It owns the run that it ends, so the claim leads to its own process."""
    assert project.start("1", "auto", RUNPLAN_TEST_KILL="TakeWork.begin").code == -signal.SIGKILL
    lock = project.path / ".git/packed-refs.lock"
    lock.touch()
    refused = project.runplan("stop", "X")
    assert refused.code == 5, refused.err
    assert "then stop it again" in refused.err
    lock.unlink()
    assert project.runplan("stop", "X").code == 0
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "stopped"
