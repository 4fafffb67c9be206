"""A repository that is away for a while: nothing is concluded from that, and nobody is sent a second time."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client
from runplan.daemon.protocol import Answers, Submit
from tests.support.cli import processes_of, until
from tests.support.daemons import log_of, run_of, shell_agent, socket_of, until_runs_are, waits
from tests.support.mounts import inside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


def an_agent_at_work(project: Project, meanwhile: Meanwhile, place: Path) -> None:
    shell_agent(project, place, waits(place, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")


@contextlib.contextmanager
def away(project: Project, place: Path) -> Iterator[Path]:
    """Within the block the repository is elsewhere; in its place nothing is made."""
    elsewhere = place / "elsewhere"
    project.path.rename(elsewhere)
    try:
        yield elsewhere
    finally:
        assert not project.path.exists()
        elsewhere.rename(project.path)


def look(project: Project) -> None:
    """Let the daemon look at its runs, and wait until it has found that it cannot."""
    seen = len(log_of(project, "closed"))
    with Client(socket_of(project)) as client:
        client.call(Submit(root=str(project.path), common=f"{project.path}/.git"), Answers)
        until(lambda: len(log_of(project, "closed")) > seen)


def sent(place: Path) -> list[str]:
    """The processes of all who were sent to implement."""
    return (place / "agent.here").read_text().split()


def assert_done_once(project: Project, place: Path) -> None:
    assert len(sent(place)) == 1
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]
    assert project.leftovers() == []


def test_an_agent_at_work_meanwhile_is_gone_on_with(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    an_agent_at_work(project, meanwhile, tmp_path)
    with away(project, tmp_path):
        look(project)
        assert "is not where it was" in log_of(project, "closed")[-1]["error"]
        look(project)
        assert int(sent(tmp_path)[0]) in processes_of(project.home)
    assert run_of(project)["state"] == "running"
    assert project.runplan("retry", "X").code == 0
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert_done_once(project, tmp_path)


def test_an_agent_that_ended_meanwhile_is_not_sent_again(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    an_agent_at_work(project, meanwhile, tmp_path)
    with away(project, tmp_path) as elsewhere:
        meanwhile.let_on("agent")
        until(lambda: list(elsewhere.glob(".git/runplan/dispatch/*/exit.json")))
        look(project)
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")
    assert_done_once(project, tmp_path)


@pytest.mark.parametrize("stopped", [False], ids=["goes on"])
def test_a_disk_that_was_unmounted_and_is_back(
    project: Project, meanwhile: Meanwhile, tmp_path: Path, *, stopped: bool
) -> None:
    disk = replace(project, repo=replace(project.repo, path=tmp_path / "disk"))
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    project.path.rename(disk.path)
    project.path.mkdir()
    mount = 'mount --bind "$1" "$2"', disk.path, project.path
    with inside(project) as there:
        there.sh(*mount)
        assert there.runplan("start", "X", "1", "auto").code == 0
        meanwhile.reached("agent")
        there.sh('cd /; umount --lazy "$1"', project.path)
        look(project)
        assert list(project.path.iterdir()) == []
        there.sh(f"cd /; {mount[0]}", *mount[1:])
        assert there.runplan("retry", "X").code == 0
        if stopped:
            assert there.runplan("stop", "X").code == 0
            until_runs_are(disk, "stopped")
            assert int(sent(tmp_path)[0]) not in processes_of(project.home)
            return
        meanwhile.let_on("agent")
        until_runs_are(disk, "done")
        assert_done_once(disk, tmp_path)
