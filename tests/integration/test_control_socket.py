"""The daemon's socket answers its user, whatever the others at it do, and nobody else."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from runplan.daemon import protocol as control
from runplan.daemon.client import LONGEST as LONGEST_PATH, Client, NotRunning
from runplan.errors import Exit, NotFound, RefusedEarly, Unreachable
from runplan.run.requests import Answer
from runplan.settings.places import socket_path
from tests.support.dispatching import until
from tests.support.doors import ROOT, SINCE, Echo, a_door

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.daemon.server import ControlServer

Door = tuple["Path", Echo]
SOON_S = 0.2  #: after which the server of a test takes a caller for idle


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


def quiet(server: ControlServer) -> bool:
    """Whether nobody waits to be accepted; a loop that spins never sees that."""
    return select.select([server], [], [], 0.03)[0] == []


def said(stream: socket.socket) -> Any:
    """The next line, as a record; None when it hung up."""
    text = b""
    while not text.endswith(b"\n"):
        if not (piece := stream.recv(1)):
            return None
        text += piece
    return json.loads(text)


# --- talking ------------------------------------------------------------------------------------------


def test_a_call_is_answered_after_a_greeting(door: Door) -> None:
    with Client(door[0]) as client:
        assert client.hello == control.Hello(version="0.1.0", pid=os.getpid(), since=SINCE, speaks=(1,))
        assert client.understood
        assert client.call("status", plan="x", new="field") == {"verb": "status", "plan": "x", "new": "field"}
        assert client.call("submit") == {"verb": "submit"}


def test_a_refusal_is_the_error_it_stands_for(door: Door) -> None:
    with Client(door[0]) as client:
        with pytest.raises(NotFound, match="there is no plan missing"):
            client.call("submit", plan="missing")
        with pytest.raises(RefusedEarly, match="does not know the verb 'dance'"):
            client.call("dance")
        assert client.call("submit", plan="x")["plan"] == "x"


def test_another_protocol_is_refused_and_the_connection_stays(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(b'{"v": 7, "verb": "status"}\n')
        assert said(stream)["error"] == "this daemon speaks protocol 1, not 7"
        stream.sendall(control.request_line("status", {}))
        assert said(stream)["ok"] is True


def test_an_unexpected_error_is_a_refusal_that_names_it_and_is_logged(door: Door) -> None:
    path, echo = door
    with Client(path) as client:
        with pytest.raises(Unreachable, match="unexpected ZeroDivisionError in the daemon: by zero; see its log"):
            client.call("status", plan="broken")
        assert client.call("status")["verb"] == "status"
    assert echo.failed == ["status: by zero"]


def test_events_are_told_until_the_stream_is_answered(door: Door) -> None:
    with Client(door[0]) as client:
        assert [event["seq"] for event in client.stream(plan="three")] == [0, 1, 2]
        assert client.call("status")["verb"] == "status"


def test_an_event_longer_than_a_line_is_told_of_without_its_text(door: Door) -> None:
    with Client(door[0]) as client:
        assert [set(event) for event in client.stream(plan="huge")] == [{"left_out"}]


def test_an_answer_may_come_later_and_holds_up_nobody(door: Door) -> None:
    path, echo = door
    with raw(path) as waits, Client(path) as other:
        waits.sendall(control.request_line("submit", {"plan": "later"}))
        until(lambda: "submit" in echo.asked)
        assert other.call("status")["verb"] == "status"
        echo.later.set_result(Answer(run="r1"))
        assert said(waits)["run"] == "r1"


def test_requests_in_one_piece_are_answered_in_turn(door: Door) -> None:
    path, echo = door
    with raw(path) as stream:
        stream.sendall(control.request_line("submit", {"plan": "later"}) + control.request_line("status", {"n": 2}))
        stream.shutdown(socket.SHUT_WR)
        until(lambda: echo.asked == ["submit"])
        echo.later.set_result(Answer(run="r1"))
        assert [said(stream)["run"], said(stream)["n"]] == ["r1", 2]
        assert said(stream) is None


def test_an_answer_that_is_read_slowly_arrives_whole_and_nothing_spins(path: Path) -> None:
    text = "x" * 900_000
    with a_door(path) as (server, echo), raw(path) as slow:
        slow.sendall(control.request_line("status", {"text": text}))
        slow.shutdown(socket.SHUT_WR)
        until(lambda: echo.asked)
        until(lambda: quiet(server))
        with slow.makefile("rb") as answer:
            assert json.loads(answer.read())["text"] == text


def test_a_daemon_that_dies_in_the_middle_is_told_of(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.doors", "0.1.0"]
    with subprocess.Popen(command, env=env, cwd=ROOT) as daemon:
        until(socket_path(env).exists)
        with Client(socket_path(env)) as client:
            client._send("submit", {"plan": "later"})
            daemon.send_signal(signal.SIGKILL)
            with pytest.raises(Unreachable, match="closed the connection"):
                client._reply()


def test_a_daemon_that_does_not_answer_is_not_waited_for(door: Door) -> None:
    with Client(door[0]) as client, pytest.raises(Unreachable, match="has not answered for"):
        client.call("submit", plan="later", within_s=0.05)


def test_an_answer_longer_than_a_line_is_a_refusal(door: Door) -> None:
    with Client(door[0]) as client, pytest.raises(Unreachable, match="answer to status is longer"):
        client.call("status", plan="long")


def test_a_request_longer_than_a_line_is_not_even_sent(door: Door) -> None:
    with Client(door[0]) as client:
        with pytest.raises(RefusedEarly, match="longer than"):
            client.call("submit", plan="x" * control.LONGEST)
        assert client.call("ping")["version"] == "0.1.0"


def test_where_nobody_listens_the_command_that_helps_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="not running; start it: runplan daemon") as caught:
        Client(tmp_path / "none.sock")
    assert caught.value.exit == Exit.UNREACHABLE


# --- bad callers --------------------------------------------------------------------------------------


def test_garbage_is_refused_line_by_line(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(b"hello\n\xff\xfe\n\n")
        assert [said(stream)["error"] for _ in range(3)] == ["a request is one JSON object on a line of its own"] * 3
        stream.sendall(control.request_line("status", {}))
        assert said(stream)["ok"] is True


def test_a_line_without_end_is_given_up(door: Door) -> None:
    path, _ = door
    with raw(path) as endless, Client(path) as other:
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            endless.sendall(b"x" * 20 * control.LONGEST)
        assert other.call("status")["verb"] == "status"


def test_a_line_that_is_too_long_is_refused_with_words(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(b"x" * (control.LONGEST + 1))
        assert said(stream)["error"] == f"a line has at most {control.LONGEST} bytes"
        assert said(stream) is None


def test_half_a_request_delays_nobody(door: Door) -> None:
    path, _ = door
    with raw(path) as half, Client(path) as other:
        half.sendall(b'{"v": 1, "verb"')
        assert other.call("status")["verb"] == "status"
        half.sendall(b': "status"}\n')
        assert said(half)["ok"] is True


def test_a_caller_that_says_nothing_is_hung_up_on(path: Path) -> None:
    with a_door(path, idle_s=SOON_S), raw(path) as silent, raw(path) as half:
        half.sendall(b'{"v": 1, "verb"')
        assert said(silent) is None
        assert said(half) is None


@pytest.mark.parametrize("plan", ["later", "silent"])
def test_a_caller_that_waits_may_be_silent_for_long(path: Path, plan: str) -> None:
    with a_door(path, idle_s=SOON_S) as (_, echo), raw(path) as waits:
        waits.sendall(control.request_line("follow", {"plan": plan}))
        until(lambda: echo.asked)
        assert select.select([waits], [], [], 5 * SOON_S)[0] == []
        assert echo.left == []


@pytest.mark.parametrize("plan", ["later", "silent", "endless"])
def test_a_caller_that_dies_is_forgotten(path: Path, plan: str) -> None:
    with a_door(path, idle_s=SOON_S) as (_, echo):
        with raw(path) as dies:
            dies.sendall(control.request_line("follow", {"plan": plan}))
            until(lambda: echo.asked)
        until(lambda: echo.left)
        with Client(path) as other:
            assert other.call("status")["verb"] == "status"
    assert echo.failed == []


def test_a_follower_that_does_not_read_is_dropped_and_delays_nobody(path: Path) -> None:
    with a_door(path, idle_s=SOON_S) as (_, echo), raw(path) as deaf:
        deaf.sendall(control.request_line("follow", {"plan": "endless"}))
        until(lambda: echo.asked)
        with Client(path) as other:
            assert other.call("status")["verb"] == "status"
        until(lambda: echo.left)


def test_without_descriptors_callers_wait_and_the_loop_does_not_spin(tmp_path: Path) -> None:
    """The listener stays readable: only a pause keeps the loop from going round as fast as it can."""
    done = subprocess.run(
        [sys.executable, "-c", _NO_DESCRIPTORS, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["waits", "paused", "answered"], done.stderr


_NO_DESCRIPTORS = """
import pathlib, resource, select, socket, sys, time
from tests.support.doors import Echo
from runplan.daemon.server import ControlServer
from runplan.daemon import protocol as control
path = pathlib.Path(sys.argv[1]) / "run/daemon.sock"
server = ControlServer(Echo(), path)
server.handle_request()
early = socket.socket(socket.AF_UNIX)
early.connect(str(path))
early.sendall(control.request_line("ping", {}))
resource.setrlimit(resource.RLIMIT_NOFILE, (early.fileno() + 1, 4096))
began = time.monotonic()
server.handle_request()
print("answered" if select.select([early], [], [], 0)[0] else "waits")
print("paused" if time.monotonic() - began >= 0.05 else "spins")
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
server.handle_request()
select.select([early], [], [], 30)
print("answered" if b'"ok":true' in early.recv(1000) else "refused")
"""


def test_a_server_with_silent_callers_has_nothing_to_do(path: Path) -> None:
    with a_door(path) as (server, echo), Client(path) as client, raw(path) as follower:
        follower.sendall(control.request_line("follow", {"plan": "later"}))
        client.call("status")
        until(lambda: "follow" in echo.asked)
        until(lambda: quiet(server))


# --- the place ----------------------------------------------------------------------------------------


def test_nobody_but_the_user_can_look_at_the_socket(door: Door) -> None:
    path, _ = door
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_directory_that_was_open_is_closed(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    with a_door(path):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_path_longer_than_the_kernel_takes_is_reached(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "daemon.sock"
    assert len(str(path)) > LONGEST_PATH
    with a_door(path), Client(path) as client:
        assert client.call("status")["verb"] == "status"
    assert not path.exists()


def test_a_socket_left_by_a_dead_daemon_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NotRunning):
        Client(path)
    with a_door(path), Client(path) as client:
        assert client.understood


def test_a_server_whose_socket_was_taken_away_knows_it_and_keeps_its_callers(path: Path) -> None:
    with a_door(path) as (server, _), Client(path) as client:
        before = server.is_reachable
        path.unlink()
        assert (before, server.is_reachable) == (True, False)
        assert client.call("status")["verb"] == "status"


def test_a_socket_that_is_somebody_elses_by_now_is_not_taken_away(path: Path) -> None:
    with a_door(path):
        path.rename(path.with_name("aside"))
        path.write_text("another's")
    assert path.read_text() == "another's"
