"""The daemon's socket is taken away, as a logout does: whoever asks still finds the daemon, and it listens anew."""

from __future__ import annotations

import shutil
import stat
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client, find_socket
from runplan.errors import RunplanError
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


@pytest.mark.parametrize("words", [("X",)], ids=["one"])
@pytest.mark.parametrize("take_away", [the_whole_login])
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


def test_it_listens_anew_by_itself_at_its_next_look(project: Project, runtime: Path) -> None:
    with in_foreground(project, WATCHDOG_USEC="400000"):
        its_directory(runtime)
        until(lambda: (runtime / "runplan/daemon.sock").exists())


@pytest.mark.parametrize("verb", ["submit"])
def test_what_is_no_checkout_of_a_repository_is_refused_and_not_looked_after(
    project: Project, tmp_path: Path, verb: str
) -> None:
    with in_foreground(project), Client(socket_of(project)) as client:
        for root in (tmp_path / "nope", project.path / "plans"):
            with pytest.raises(RunplanError, match=f"{root} is not the checkout of a repository"):
                list(client.stream(verb, root=str(root), plan="plans/X.md", commands=[]))
        assert client.call("status")["repositories"] == []
    assert not (state_directory(project.env) / "repositories.json").exists()
