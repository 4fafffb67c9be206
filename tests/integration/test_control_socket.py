"""The daemon's socket answers its user, whatever the others at it do, and nobody else."""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from runplan.core.errors import Exit, NotFound, RefusedEarly, Unreachable
from runplan.daemon import connection, protocol as control, singleton
from runplan.daemon.addresses import LONGEST as LONGEST_PATH
from runplan.daemon.client import Client, NotRunning
from runplan.daemon.server import CALLERS, ControlServer
from tests.support.dispatching import until
from tests.support.doors import ROOT, SINCE, Echo, a_door

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Door = tuple["Path", Echo]


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    path = tmp_path / "run" / "daemon.sock"
    with a_door(path) as (_, echo):
        yield path, echo


def raw(path: Path) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(30)
    stream.connect(str(path))
    return stream


def quiet(server: ControlServer) -> bool:
    """Whether nothing is there to be done for it; one that spins never is."""
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
        assert client.call("stop") == {"verb": "stop"}


def test_a_refusal_is_the_error_it_stands_for(door: Door) -> None:
    with Client(door[0]) as client:
        with pytest.raises(NotFound, match="there is no plan missing"):
            client.call("stop", plan="missing")
        with pytest.raises(RefusedEarly, match="does not know the verb 'dance'"):
            client.call("dance")
        assert client.call("stop", plan="x")["plan"] == "x"


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
        waits.sendall(control.request_line("stop", {"plan": "later"}))
        until(lambda: "stop" in echo.asked)
        assert other.call("status")["verb"] == "status"
        echo.callers[0].answer({"stopped": 2})
        assert said(waits)["stopped"] == 2


def test_a_second_request_before_the_answer_ends_the_talk(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(control.request_line("stop", {"plan": "later"}) + control.request_line("start", {}))
        assert "one thing at a time" in said(stream)["error"]
        assert said(stream) is None


def test_requests_in_one_piece_are_answered_in_turn(door: Door) -> None:
    with raw(door[0]) as stream:
        stream.sendall(control.request_line("status", {"n": 1}) + control.request_line("status", {"n": 2}))
        stream.shutdown(socket.SHUT_WR)
        assert [said(stream)["n"], said(stream)["n"]] == [1, 2]
        assert said(stream) is None


def test_an_answer_that_is_read_slowly_arrives_whole_and_nothing_spins(tmp_path: Path) -> None:
    path = tmp_path / "run/daemon.sock"
    text = "x" * 900_000
    with a_door(path) as (server, echo), raw(path) as slow:
        slow.sendall(control.request_line("status", {"text": text}))
        slow.shutdown(socket.SHUT_WR)
        until(lambda: echo.callers and echo.callers[0].leaving)
        assert echo.callers[0].unsent
        until(lambda: quiet(server))
        with slow.makefile("rb") as answer:
            assert json.loads(answer.read())["text"] == text


def test_a_daemon_that_dies_in_the_middle_is_told_of(tmp_path: Path) -> None:
    with a_door(tmp_path / "run/daemon.sock") as (_, echo):
        client = Client(tmp_path / "run/daemon.sock")
        client._send("stop", {"plan": "later"})
        until(lambda: echo.asked)
    with client, pytest.raises(Unreachable, match="hung up"):
        client._reply()


def test_a_daemon_that_does_not_answer_is_not_waited_for(door: Door) -> None:
    with Client(door[0]) as client, pytest.raises(Unreachable, match="has not answered for"):
        client.call("stop", plan="later", within_s=0.05)


def test_an_answer_longer_than_a_line_is_a_refusal(door: Door) -> None:
    with Client(door[0]) as client, pytest.raises(Unreachable, match="answer to status is longer"):
        client.call("status", plan="long")


def test_a_request_longer_than_a_line_is_not_even_sent(door: Door) -> None:
    with Client(door[0]) as client:
        with pytest.raises(RefusedEarly, match="longer than"):
            client.call("start", plan="x" * control.LONGEST)
        assert client.call("ping")["version"] == "0.1.0"


def test_where_nobody_listens_the_command_that_helps_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="not running; start it: runplan daemon") as caught:
        Client(tmp_path / "none.sock")
    assert caught.value.exit == Exit.UNREACHABLE


# --- bad callers --------------------------------------------------------------------------------------


def test_a_follower_that_does_not_read_is_dropped_and_delays_nobody(door: Door) -> None:
    path, echo = door
    with raw(path) as deaf, Client(path) as other:
        deaf.sendall(control.request_line("follow", {"plan": "endless"}))
        until(lambda: echo.callers and echo.callers[0].gone)
        assert other.call("status")["verb"] == "status"
        assert not echo.callers[0]._unsent or len(echo.callers[0]._unsent) <= connection.UNREAD


def test_a_line_without_end_is_given_up(door: Door) -> None:
    path, _ = door
    with raw(path) as endless, Client(path) as other:
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            endless.sendall(b"x" * 20 * control.LONGEST)
        assert other.call("status")["verb"] == "status"


def test_half_a_request_delays_nobody(door: Door) -> None:
    path, _ = door
    with raw(path) as half, Client(path) as other:
        half.sendall(b'{"v": 1, "verb"')
        assert other.call("status")["verb"] == "status"
        half.sendall(b': "status"}\n')
        assert said(half)["ok"] is True


@pytest.mark.parametrize("plan", ["later", "endless"])
def test_a_caller_that_dies_is_forgotten(door: Door, plan: str) -> None:
    path, echo = door
    with raw(path) as dies:
        dies.sendall(control.request_line("follow", {"plan": plan}))
        until(lambda: echo.asked)
    until(lambda: echo.callers[0].gone)
    echo.callers[0].tell({"seq": 1})
    echo.callers[0].answer({})
    with Client(path) as other:
        assert other.call("status")["verb"] == "status"


def test_too_many_callers_that_wait_for_an_answer_are_sent_away_until_some_go(door: Door) -> None:
    path, echo = door
    many = [raw(path) for _ in range(CALLERS)]
    for stream in many:
        stream.sendall(control.request_line("follow", {"plan": "later"}))
    until(lambda: len(echo.asked) == CALLERS)
    with raw(path) as one_more:
        assert "too many callers" in said(one_more)["error"]
    for stream in many:
        stream.close()
    until(lambda: _answers(path))


def _answers(path: Path) -> bool:
    try:
        with Client(path) as client:
            return client.understood
    except RefusedEarly:
        return False


def test_without_descriptors_callers_are_turned_away_and_nothing_spins(tmp_path: Path) -> None:
    """Else the listener would stay readable, and the daemon's loop would go round for ever."""
    done = subprocess.run(
        [sys.executable, "-c", _NO_DESCRIPTORS, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == ["turned-away", "quiet", "answered"], done.stderr


_NO_DESCRIPTORS = """
import os, pathlib, resource, select, socket, sys
from tests.support.doors import Echo, SINCE
from runplan.daemon import singleton
from runplan.daemon.server import ControlServer
from runplan.daemon import protocol as control
base = pathlib.Path(sys.argv[1])
path = base / "run/daemon.sock"
held = singleton.take(base / "state", version="1", since=SINCE, socket=path)
echo = Echo()
with held, ControlServer(echo, path=path, held=held, failed=echo.fail) as server:
    def call():
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(path))
        return stream
    early = call()
    resource.setrlimit(resource.RLIMIT_NOFILE, (early.fileno() + 1, 4096))
    server.ready()
    print("turned-away" if early.recv(1) == b"" else "kept")
    print("spins" if select.select([server], [], [], 0)[0] else "quiet")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    late = call()
    late.sendall(control.request_line("ping", {}))
    while not select.select([late], [], [], 0)[0]:
        server.ready(0.1)
    print("answered" if b'"ok":true' in late.recv(1000) else "refused")
"""


def test_a_server_with_silent_callers_has_nothing_to_do(tmp_path: Path) -> None:
    path = tmp_path / "run/daemon.sock"
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


def test_a_directory_that_was_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    with a_door(tmp_path / "run/daemon.sock"):
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_a_path_longer_than_the_kernel_takes_is_reached(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "daemon.sock"
    assert len(str(path)) > LONGEST_PATH
    with a_door(path), Client(path) as client:
        assert client.call("status")["verb"] == "status"
    assert not path.exists()


def test_a_socket_left_by_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run/daemon.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NotRunning):
        Client(path)
    with a_door(path), Client(path) as client:
        assert client.understood


def test_without_the_lock_no_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run/daemon.sock"
    held = singleton.take(tmp_path / "state", version="1", since=SINCE, socket=path)
    assert isinstance(held, singleton.Held)
    held.release()
    with pytest.raises(Unreachable, match="lock was let go"):
        ControlServer(Echo(), path=path, held=held, failed=Echo().fail)
    assert not path.exists()


def test_a_socket_that_is_somebody_elses_by_now_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "run/daemon.sock"
    with a_door(path):
        path.rename(path.with_name("aside"))
        path.write_text("another's")
    assert path.read_text() == "another's"
