"""There is one daemon per user, a second one learns which process it is, and each finds its repositories again."""

import os
import signal
import stat
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.hosts.daemon import state as daemon_state
from runplan.hosts.daemon.client import Client, NotRunning, Silent, connect_daemon
from runplan.hosts.daemon.state import Holder, Known, list_repositories, read_holder, remember_repository
from tests.support.dispatching import until
from tests.support.fake_daemon import ROOT, SINCE


def take(state: Path, *, wait_s: float = 0.0) -> AbstractContextManager[Holder]:
    return daemon_state.hold_lock(state, version="1.2", since=SINCE, wait_s=wait_s)


def test_a_second_daemon_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    running = f"the daemon is already running: runplan 1.2 \\(process {os.getpid()}, since {SINCE}\\)"
    with take(tmp_path / "a/b"):
        with pytest.raises(RefusedEarly, match=running), take(tmp_path / "a/b"):
            pass
        assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
        (tmp_path / "a/b" / daemon_state.RECORD).unlink()
        with pytest.raises(RefusedEarly, match="it is just starting"), take(tmp_path / "a/b", wait_s=0.05):
            pass
    assert read_holder(tmp_path / "a/b") is None
    with take(tmp_path / "a/b") as mine:
        assert read_holder(tmp_path / "a/b") == mine


def test_a_daemon_that_does_not_listen_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runplan.hosts.daemon.client.ANSWER_S", 0.05)
    env = {"HOME": str(tmp_path)}
    with take(state_directory(env)), pytest.raises(Silent, match=f"or end it: kill {os.getpid()}"):
        connect_daemon(env)


def test_a_killed_daemon_leaves_the_lock_free_and_is_not_named(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    state = state_directory(env)
    own = {**env, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-m", "tests.support.fake_daemon", "0.1.0"], env=own) as first:
        until(lambda: read_holder(state))
        first.send_signal(signal.SIGKILL)
    assert ((state / daemon_state.RECORD).exists(), read_holder(state)) == (True, None)
    with pytest.raises(NotRunning):
        Client(socket_path(env))
    with take(state):
        pass


def test_programs_that_are_started_do_not_inherit_the_lock(tmp_path: Path) -> None:
    with take(tmp_path):
        child = subprocess.Popen(["sleep", "30"], close_fds=False)
    with take(tmp_path):
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": "1:2:3"}'])
def test_a_damaged_record_names_no_daemon(tmp_path: Path, text: str) -> None:
    (tmp_path / daemon_state.RECORD).write_text(text)
    assert read_holder(tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_state_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(Unreachable, match="belongs to another user"), take(tmp_path / "theirs"):
        pass


# --- repositories -----------------------------------------------------------------------------------------


def a_repository(path: Path) -> Known:
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return Known(common=str(path / ".git"), root=str(path))


def test_repositories_are_remembered_with_their_newest_checkout(tmp_path: Path) -> None:
    one, two = a_repository(tmp_path / "one"), a_repository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    moved = replace(one, root=str(tmp_path / "elsewhere"))
    for repository in (one, two, moved):
        remember_repository(tmp_path / "state", repository)
    (tmp_path / "state/repositories/0.json").write_text("{")
    assert sorted(list_repositories(tmp_path / "state"), key=str) == sorted([moved, two], key=str)
