"""A repository that is away for a while: nothing is concluded from that, and nobody is sent a second time."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client
from runplan.run.dispatch import Ending
from runplan.run.events import DispatchEnded, to_json
from runplan.store.sqlite import Store
from runplan.times import iso
from tests.support.cli import ended, processes_of, until
from tests.support.daemons import kill_daemon, log_of, run_of, shell_agent, socket_of, until_runs_are, waits
from tests.support.mounts import inside
from tests.support.repos import init_repo

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        client.call("submit", root=str(project.path), commands=[])
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


def test_a_run_in_a_terminal_leaves_its_agent_and_is_gone_on_with(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    runner = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("agent")
    with away(project, tmp_path):
        meanwhile.let_on("agent")
        ran = ended(runner)
        assert (ran.code, "is not where it was" in ran.err) == (5, True), ran.err
    assert project.start("1", "auto").code == 0
    assert_done_once(project, tmp_path)


def test_a_repository_that_was_moved_for_good_has_nobody_beside_its_agent_and_the_run_says_so(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    an_agent_at_work(project, meanwhile, tmp_path)
    moved = tmp_path / "moved"
    project.path.rename(moved)
    look(project)
    there = replace(project, repo=replace(project.repo, path=moved))
    assert "is already running" in there.runplan("retry", "X").err
    assert len(sent(tmp_path)) == 1
    meanwhile.let_on("agent")
    until_runs_are(there, "failed")
    [refused] = [body["detail"] for kind, body in there.events() if kind == "WorkRefused"]
    told, _, left = refused.partition("; what the agent did lies in ")
    assert told == "the repository was moved while the agent worked, and its worktree belongs to where it was"
    assert (Path(left) / "1.txt").exists()
    assert there.dispatched() == ["implement"]
    assert len(sent(tmp_path)) == 1
    assert not project.path.exists()


def test_another_repository_around_the_place_is_not_taken_for_it(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    an_agent_at_work(project, meanwhile, tmp_path)
    around = init_repo(tmp_path)
    around.write("a.txt", "a")
    around.git("add", "a.txt")
    around.git("commit", "-qm", "Begin")
    with away(project, tmp_path):
        look(project)
        look(project)
    assert not (tmp_path / ".git/runplan").exists()


def test_whom_the_journal_takes_for_lost_is_ended_before_another_is_sent(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    an_agent_at_work(project, meanwhile, tmp_path)
    kill_daemon(project)
    [(run, plan)] = project.rows("SELECT id, plan FROM runs")
    lost = DispatchEnded(id=f"{run}.1", role="implement", ending=Ending.LOST, code=None)
    with contextlib.closing(Store(project.path / ".git/runplan")) as store, store.transaction():
        words = "INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)"
        store.run(words, run, plan, iso(datetime.now(UTC)), "DispatchEnded", to_json(lost))
    assert project.runplan("resume", "X").code == 0
    until(lambda: len(sent(tmp_path)) == 2)
    first, second = map(int, sent(tmp_path))
    assert (first in processes_of(project.home), second in processes_of(project.home)) == (False, True)
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    assert project.landed() == ["1"]


@pytest.mark.parametrize("stopped", [False, True], ids=["goes on", "is stopped"])
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
