"""There is one daemon per user, and whoever comes second learns who it is."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from runplan.daemon import singleton
from runplan.daemon.client import Client, NotRunning, find_socket
from runplan.daemon.singleton import Answer, Held, Occupied
from runplan.errors import Unreachable
from runplan.settings.places import socket_path, state_directory
from tests.support.dispatching import until
from tests.support.doors import ROOT, SINCE

if TYPE_CHECKING:
    from pathlib import Path


def take(state: Path, *, wait_s: float = 0.0) -> Answer:
    return singleton.take(state, version="1.2", since=SINCE, socket=state / "daemon.sock", wait_s=wait_s)


def held(state: Path) -> Held:
    answer = take(state)
    assert isinstance(answer, Held)
    return answer


def a_daemon(home: Path, version: str = "0.1.0") -> subprocess.Popen[bytes]:
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "tests.support.doors", version], env=env)


def test_a_second_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with held(tmp_path):
        second = take(tmp_path)

        assert isinstance(second, Occupied)
        assert second.by
        assert second.by.pid == os.getpid()
        assert str(second) == f"the daemon is already running: runplan 1.2 (process {os.getpid()}, since {SINCE})"


def test_whoever_has_not_told_yet_is_just_starting(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / singleton.RECORD).unlink()
        assert str(take(tmp_path)) == "the daemon is already running: it is just starting"


def test_what_is_let_go_can_be_taken(tmp_path: Path) -> None:
    first = held(tmp_path)
    first.release()
    first.release()

    assert singleton.holder(tmp_path) is None
    with held(tmp_path) as second:
        assert second.held


def test_the_next_one_waits_for_one_that_is_about_to_let_go(tmp_path: Path) -> None:
    first = held(tmp_path)
    goes = threading.Timer(0.05, first.release)
    goes.start()
    with take(tmp_path, wait_s=10) as second:  # type: ignore[union-attr]
        assert second.held
    goes.join()


def test_one_that_drains_says_until_when(tmp_path: Path) -> None:
    with held(tmp_path) as first:
        assert (first.holder.draining, singleton.may_drain(tmp_path)) == ("", False)
        first.drains("2026-01-01T00:00:30Z")
        assert singleton.may_drain(tmp_path)
        assert singleton.holder(tmp_path) == first.holder
        assert first.holder.draining == "2026-01-01T00:00:30Z"
    first.drains("2026-01-01T00:00:40Z")
    assert singleton.holder(tmp_path) is None, "who has let go tells nothing any more"
    assert not singleton.may_drain(tmp_path)


def test_waiting_ends(tmp_path: Path) -> None:
    begun = time.monotonic()
    with held(tmp_path):
        assert isinstance(take(tmp_path, wait_s=0.05), Occupied)
    assert time.monotonic() - begun < 30


def test_a_killed_daemon_leaves_the_lock_free_and_is_not_named(tmp_path: Path) -> None:
    state = state_directory({"HOME": str(tmp_path)})
    with a_daemon(tmp_path) as first:
        until(lambda: singleton.holder(state))
        assert isinstance(take(state), Occupied)
        first.send_signal(signal.SIGKILL)
    assert (state / singleton.RECORD).exists()
    assert singleton.holder(state) is None
    with pytest.raises(NotRunning):
        Client(find_socket({"HOME": str(tmp_path)}))
    held(state).release()


def test_of_many_that_start_at_once_one_runs(tmp_path: Path) -> None:
    many = [a_daemon(tmp_path) for _ in range(4)]
    until(lambda: sum(one.poll() is None for one in many) == 1)
    until(lambda: singleton.holder(state_directory({"HOME": str(tmp_path)})))
    until(find_socket({"HOME": str(tmp_path)}).exists)
    with Client(find_socket({"HOME": str(tmp_path)})) as client:
        assert client.hello.pid in {one.pid for one in many if one.poll() is None}
    for one in many:
        one.terminate()
        assert one.wait() == 0


def test_programs_that_are_started_do_not_inherit_the_lock(tmp_path: Path) -> None:
    first = held(tmp_path)
    with subprocess.Popen(["sleep", "30"], close_fds=False) as child:
        first.release()
        held(tmp_path).release()
        child.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": "1:2:3"}'])
def test_a_record_that_cannot_be_read_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / singleton.RECORD).write_text(text)
    assert singleton.holder(tmp_path) is None


def test_a_state_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / singleton.LOCK).mkdir()
    with pytest.raises(Unreachable, match=r"daemon\.lock cannot be opened"):
        take(tmp_path)


# --- places -------------------------------------------------------------------------------------------


def test_the_socket_lies_with_the_login_and_else_with_the_state(tmp_path: Path) -> None:
    env = {"HOME": "/home/uma", "XDG_RUNTIME_DIR": str(tmp_path)}

    assert socket_path(env) == tmp_path / "runplan/daemon.sock"
    assert str(socket_path({"HOME": "/home/uma"})) == "/home/uma/.local/state/runplan/daemon.sock"
    assert str(socket_path(env | {"XDG_RUNTIME_DIR": "/nowhere"})) == "/home/uma/.local/state/runplan/daemon.sock"
    assert str(state_directory({"HOME": "/h", "XDG_STATE_HOME": "/s"})) == "/s/runplan"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_runtime_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "theirs")}
    assert socket_path(env) == tmp_path / ".local/state/runplan/daemon.sock"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_state_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(Unreachable, match="belongs to another user"):
        take(tmp_path / "theirs")


def test_a_daemon_is_found_from_a_login_with_other_directories(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    socket = socket_path({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)})
    with singleton.take(state_directory({"HOME": str(tmp_path)}), version="1", since=SINCE, socket=socket):  # type: ignore[union-attr]
        assert find_socket({"HOME": str(tmp_path)}) == socket


def test_the_state_is_the_users_own(tmp_path: Path) -> None:
    with held(tmp_path / "a" / "b"):
        assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
