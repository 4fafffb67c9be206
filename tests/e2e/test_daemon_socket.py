"""The daemon's socket is taken away, as a logout does: whoever asks still finds the daemon, and it listens anew."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from typing import TYPE_CHECKING

import pytest

from runplan.daemon import singleton
from runplan.daemon.client import Client, find_socket
from runplan.errors import RunplanError
from runplan.processes import stopped
from runplan.settings.places import state_directory
from tests.support.cli import until
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    log_of,
    schedules,
    shell_agent,
    socket_of,
    until_runs_are,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


@pytest.fixture
def runtime(project: Project, tmp_path: Path) -> Path:
    """The directory of a login; a daemon that is started from now on listens there."""
    place = tmp_path / "runtime"
    place.mkdir(mode=0o700)
    project.extra["XDG_RUNTIME_DIR"] = str(place)
    return place


@pytest.fixture
def at_work(project: Project, runtime: Path, meanwhile: Meanwhile, tmp_path: Path) -> int:
    """The daemon, while an agent of its is at work; the plan has a schedule, too."""
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    assert find_socket(project.env).is_relative_to(runtime)
    return daemon_of(project)


def its_directory(runtime: Path) -> None:
    shutil.rmtree(runtime / "runplan")


def the_whole_login(runtime: Path) -> None:
    shutil.rmtree(runtime)


def for_a_file(runtime: Path) -> None:
    shutil.rmtree(runtime / "runplan")
    (runtime / "runplan").touch()


@pytest.mark.parametrize("words", [("X",), ()], ids=["one", "all"])
@pytest.mark.parametrize("take_away", [its_directory, the_whole_login, for_a_file])
def test_a_stop_reaches_the_daemon_and_nothing_lands(
    project: Project, runtime: Path, at_work: int, take_away: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    take_away(runtime)
    ran = project.runplan("stop", *words)
    assert (ran.code, "Stopping plans/X.md" in ran.err) == (0, True), ran.err
    until_runs_are(project, "stopped")
    assert (schedules(project), project.landed(), daemon_of(project)) == ([], [], at_work)
    at = find_socket(project.env)
    assert (stat.S_IMODE(at.stat().st_mode), stat.S_IMODE(at.parent.stat().st_mode)) == (0o600, 0o700)
    assert [line["socket"] for line in log_of(project, "socket")] == [str(at)]


@pytest.mark.parametrize("words", [("start", "X"), ("now", "X"), ("metrics",)], ids=" ".join)
def test_whatever_else_is_asked_reaches_it_too(
    project: Project, runtime: Path, at_work: int, words: tuple[str, ...]
) -> None:
    its_directory(runtime)
    ran = project.runplan(*words)
    assert (ran.code, daemon_of(project)) == (0, at_work), ran.err


def test_a_pause_holds_for_the_run_too(project: Project, runtime: Path, at_work: int, tmp_path: Path) -> None:
    its_directory(runtime)
    assert project.runplan("pause", "X").code == 0
    (tmp_path / "agent.on").touch()
    until_runs_are(project, "waiting")
    assert (project.dispatched(), daemon_of(project)) == (["implement"], at_work)


def test_a_stop_is_noted_when_it_does_nothing_besides(project: Project, runtime: Path, at_work: int) -> None:
    its_directory(runtime)
    os.kill(at_work, signal.SIGSTOP)
    until(lambda: stopped(at_work))
    ran = project.runplan("stop", "X")
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            "runplan: Ended the agent of plans/X.md; its work is kept",
            "runplan: the request is queued and takes effect when the daemon responds; "
            f"the daemon (process {at_work}) has not been listening at {runtime}/runplan/daemon.sock for 1 s; "
            f"it is stopped; continue it: kill -CONT {at_work}",
        ],
    )
    os.kill(at_work, signal.SIGCONT)
    until_runs_are(project, "stopped")
    assert project.landed() == []


def test_it_listens_anew_by_itself_at_its_next_look(project: Project, runtime: Path) -> None:
    with in_foreground(project, WATCHDOG_USEC="400000"):
        its_directory(runtime)
        until(lambda: (runtime / "runplan/daemon.sock").exists())


def test_a_daemon_that_has_just_begun_survives_whoever_rings(project: Project) -> None:
    state = state_directory(project.env)
    with project.running("daemon") as process:
        while process.poll() is None and not (state / "daemon.sock").exists():
            if (state / singleton.RECORD).exists():
                os.kill(process.pid, signal.SIGHUP)
        assert process.poll() is None


@pytest.mark.parametrize("verb", ["submit", "follow"])
def test_what_is_no_checkout_of_a_repository_is_refused_and_not_looked_after(
    project: Project, tmp_path: Path, verb: str
) -> None:
    with in_foreground(project), Client(socket_of(project)) as client:
        for root in (tmp_path / "nope", project.path / "plans"):
            with pytest.raises(RunplanError, match=f"{root} is not the checkout of a repository"):
                list(client.stream(verb, root=str(root), plan="plans/X.md", commands=[]))
        assert client.call("status")["repositories"] == []
    assert not (state_directory(project.env) / "repositories.json").exists()
