"""The daemon's socket answers its user and no other, and no caller delays another."""

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.configuration.places import socket_path
from runplan.domain.errors import Exit, NotFound, Unreachable
from runplan.hosts.daemon.client import LONGEST_ADDRESS, Client, NotRunning
from runplan.hosts.daemon.process import Connection, ControlServer
from runplan.hosts.daemon.protocol import Done, Hello, Metrics, MetricsText, Wake, line_of
from runplan.hosts.daemon.state import Known
from tests.support.dispatching import until
from tests.support.fake_daemon import ROOT, SINCE, Echo, a_door

Door = tuple["Path", Echo]
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "daemon.sock"


@pytest.fixture
def door(path: Path) -> Iterator[Door]:
    with a_door(path) as (_, echo):
        yield path, echo


def raw(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(30)
    stream.connect(str(path))
    return stream


def wake(word: str) -> Wake:
    """A request that the daemon of the test answers as the word says."""
    return Wake(repository=Known(root=word, common="/r/.git"))


def is_answered(client: Client) -> bool:
    return client.call(wake(""), Done) == Done()


def is_quiet(server: ControlServer) -> bool:
    """Whether no caller waits to be accepted; a loop that spins never sees that."""
    return select.select([server], [], [], 0.03)[0] == []


def reply(stream: socket.socket) -> Any:
    """The next line, as a record; None when the daemon hung up."""
    text = b""
    while not text.endswith(b"\n"):
        if not (piece := stream.recv(1)):
            return None
        text += piece
    return json.loads(text)


# --- requests -----------------------------------------------------------------------------------------


def test_a_call_is_answered_after_a_ping(door: Door) -> None:
    with Client(door[0]) as client:
        assert client.hello == Hello(version="0.1.0", pid=os.getpid(), since=SINCE)
        assert client.call(Metrics(), MetricsText).text == "runplan_daemon_threads 3\n"


def test_an_error_of_the_daemon_is_raised(door: Door) -> None:
    with Client(door[0]) as client:
        with pytest.raises(NotFound, match="there is no plan missing"):
            client.call(wake("missing"), Done)
        with pytest.raises(Unreachable, match="unexpected ZeroDivisionError in the daemon: by zero"):
            client.call(wake("broken"), Done)
        assert is_answered(client)
    assert [type(error) for error in door[1].failed] == [ZeroDivisionError]


def test_an_answer_may_come_later_and_delays_no_other_caller(path: Path) -> None:
    with a_door(path) as (server, echo), raw(path) as waits, Client(path) as other:
        waits.sendall(line_of(wake("later")) + line_of(wake("")))
        until(lambda: echo.asked)
        until(lambda: is_quiet(server))
        assert is_answered(other)
        echo.may_answer.set()
        assert [reply(waits), reply(waits)] == [{"result": {}}, {"result": {}}]


def test_a_daemon_that_dies_or_is_silent_is_reported(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.fake_daemon", "0.1.0"]
    with subprocess.Popen(command, env=env, cwd=ROOT) as daemon:
        until(socket_path(env).exists)
        with Client(socket_path(env)) as client:
            with pytest.raises(Unreachable, match="has not answered for"):
                client.call(wake("later"), Done, within_s=0.05)
            daemon.send_signal(signal.SIGSTOP)
            daemon.send_signal(signal.SIGKILL)
            with pytest.raises(Unreachable, match=r"closed the connection|is stopped"):
                client.call(wake(""), Done)


@pytest.mark.parametrize("verb", ["environment", "wake"])
def test_a_process_below_an_agent_may_not_act(door: Door, verb: str) -> None:
    request = {"verb": verb, "repository": {"root": "/r", "common": "/r/.git"}, "name": "n", "env": {}}
    inner = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
    inner += "s.sendall(sys.argv[2].encode()); print(s.recv(9999).decode())"
    outer = "import os, subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], env={}))"
    command = [sys.executable, "-c", outer, sys.executable, "-c", inner, str(door[0]), json.dumps(request) + "\n"]
    ran = subprocess.run(command, env={"RUNPLAN_AGENT": "1"}, capture_output=True, text=True, check=True)
    assert f"an agent may not send {verb}" in json.loads(ran.stdout)["error"]
    assert door[1].asked == []


def test_without_a_daemon_the_command_that_helps_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="not running; start it: runplan daemon") as caught:
        Client(tmp_path / "none.sock")
    assert caught.value.exit == Exit.UNREACHABLE


# --- bad callers --------------------------------------------------------------------------------------


def test_invalid_lines_are_refused_one_by_one(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(b"hello\n\xff\xfe\n\n")
        assert [reply(stream)["error"].partition(":")[0] for _ in range(3)] == ["invalid request"] * 3
        stream.sendall(line_of(wake("")))
        assert reply(stream) == {"result": {}}


def test_a_caller_that_is_silent_for_too_long_is_hung_up_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Connection.timeout
    monkeypatch.setattr(Connection, "timeout", Connection.timeout / 600)
    with a_door(path) as (_, echo), raw(path) as waits, raw(path) as half, Client(path) as other:
        waits.sendall(line_of(wake("later")))  # its answer may take longer
        half.sendall(b'{"verb"')
        assert is_answered(other)
        assert reply(half) is None
        echo.may_answer.set()
        assert reply(waits) == {"result": {}}


# --- who may use it, and where it is ------------------------------------------------------------------


def test_only_the_user_can_reach_the_socket(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    with a_door(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_even_where_the_modes_were_changed(door: Door, tmp_path: Path) -> None:
    path, echo = door
    for place, mode in ((tmp_path, 0o777), (path.parent, 0o755), (path, 0o666)):
        place.chmod(mode)
    for above in tmp_path.parents[:-1]:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    code = (
        f"import os, socket; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"stream = socket.socket(socket.AF_UNIX); stream.connect({str(path)!r}); print(stream.makefile().readline())"
    )
    answer = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == {"error": f"this daemon serves the user 0, not {NOBODY}"}
    assert echo.asked == []


def test_a_path_longer_than_the_kernel_takes_is_reached(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "daemon.sock"
    assert len(str(path)) > LONGEST_ADDRESS
    with a_door(path), Client(path) as client:
        assert is_answered(client)
    assert not path.exists()


def test_a_socket_left_by_a_dead_daemon_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NotRunning):
        Client(path)
    with a_door(path), Client(path) as client:
        assert is_answered(client)
