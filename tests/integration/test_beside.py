"""What is done for a repository whose desk cannot: agents are ended, and whoever goes on sees that."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.places import state_directory
from runplan.adapters.repositories import Repositories
from runplan.core.errors import Unreachable
from runplan.core.rows import Wish
from runplan.wiring.beside import Besides
from tests.support.cli import a_project, processes_of, until
from tests.support.daemons import daemon_of, in_foreground, kill_daemon, none_left, shell_agent, until_runs_are, waits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1")


def test_agents_are_ended_and_the_next_daemon_starts_the_same_ones_again(project: Project, tmp_path: Path) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    until(lambda: (tmp_path / "agent.here").exists())
    daemon = daemon_of(project)
    os.kill(daemon, signal.SIGSTOP)
    Besides(Repositories(state_directory(project.env))).end_agents(str(project.path))
    agent = int((tmp_path / "agent.here").read_text())
    assert agent not in processes_of(project.home)
    kill_daemon(project)
    (tmp_path / "agent.on").touch()
    with in_foreground(project):
        until_runs_are(project, "done")
    endings = [body["ending"] for kind, body in project.events() if kind == "DispatchEnded"]
    assert endings == ["ended", "exited", "exited"]
    assert project.landed() == ["1"]
    assert project.rows("SELECT attempt FROM runs") == [(1,)]


def test_agents_of_a_terminal_are_its_own(project: Project, tmp_path: Path) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    known = Repositories(state_directory(project.env))
    known.add(common=project.path / ".git", root=project.path, at="2026-01-01T00:00:00Z")
    with project.running("start", "X", "1", "auto", "--foreground") as terminal:
        until(lambda: (tmp_path / "agent.here").exists())
        Besides(known).end_agents(str(project.path))
        (tmp_path / "agent.on").touch()
        _, err = terminal.communicate(timeout=60)
        assert terminal.returncode == 0, err


def test_a_repository_that_is_not_known_is_told_of(project: Project) -> None:
    with pytest.raises(Unreachable, match=f"the daemon does not know {project.path}"):
        Besides(Repositories(state_directory(project.env))).note(str(project.path), Wish(plan="", by="a test"))
