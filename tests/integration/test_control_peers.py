"""The daemon acts for its own user only, and for nothing that descends from an agent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client
from runplan.daemon.protocol import peer_of
from runplan.processes import agent_above
from tests.support.dispatching import Stage, pid_in, stage, until
from tests.support.doors import Echo, a_door

if TYPE_CHECKING:
    from collections.abc import Iterator

Door = tuple[Path, Echo]
NOBODY = 65534

#: Asks for every verb named, and writes the answers into a file.
CALLS = textwrap.dedent("""
    import contextlib, json, os, socket, sys
    path, out, *verbs = sys.argv[1:]
    answers = {}
    for verb in verbs:
        with socket.socket(socket.AF_UNIX) as stream:
            try:
                stream.connect(path)
                with contextlib.suppress(BrokenPipeError):  # hung up, with a word of parting
                    stream.sendall(json.dumps({"v": 1, "verb": verb}).encode() + b"\\n")
                answers[verb] = json.loads(stream.makefile().readline())
            except OSError as error:
                answers[verb] = {"ok": False, "error": type(error).__name__}
    with open(out + ".new", "w") as file:
        json.dump(answers, file)
    os.rename(out + ".new", out)
""")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    path = tmp_path / "run" / "daemon.sock"
    with a_door(path) as (_, echo):
        yield path, echo


@pytest.fixture
def on_stage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def answers(path: Path) -> dict[str, dict[str, object]]:
    until(path.exists)
    found: dict[str, dict[str, object]] = json.loads(path.read_text())
    return found


# --- users --------------------------------------------------------------------------------------------


def as_nobody(path: Path, out: Path) -> dict[str, dict[str, object]]:
    """What another user is answered. The interpreter is root's, so it is started first."""
    leave = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
    code = f"import contextlib, json, os, socket; {leave}; exec({CALLS!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, path, out, "ping", "submit"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return answers(out)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_reach_the_socket(door: Door, tmp_path: Path) -> None:
    path, echo = door
    _let_in(tmp_path)
    assert {told["error"] for told in as_nobody(path, tmp_path / "told").values()} == {"PermissionError"}
    assert echo.asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_where_the_socket_was_left_open(door: Door, tmp_path: Path) -> None:
    path, echo = door
    _let_in(tmp_path)
    path.parent.chmod(0o755)
    path.chmod(0o666)
    told = as_nobody(path, tmp_path / "told")
    assert told["ping"] == {"ok": False, "v": 1, "error": f"this daemon serves the user 0, not {NOBODY}", "exit": 2}
    assert told["submit"]["ok"] is False
    assert echo.asked == []


def _let_in(path: Path) -> None:
    """Let everybody come as far as the socket's own directory, and write his answers."""
    path.chmod(0o777)
    for above in path.parents[:-1]:
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)


# --- agents -------------------------------------------------------------------------------------------


def test_a_person_is_answered(door: Door, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CALLS, door[0], tmp_path / "told", "submit", "status"], check=True)
    assert [told["ok"] for told in answers(tmp_path / "told").values()] == [True, True]


ACTS = ("submit", "drain", "reload")
WAYS = {
    "itself": "exec {call}",
    "with its environment cleared": "env -i {call}",
    "in a session of its own, cleared": "setsid env -i {call}",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_descendant_of_an_agent_may_ask_and_not_act(door: Door, on_stage: Stage, tmp_path: Path, way: str) -> None:
    path, echo = door
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    call = f"{sys.executable} -I -S {script} {path} {tmp_path}/told status {' '.join(ACTS)}"
    on_stage.sh(WAYS[way].format(call=call))

    told = answers(tmp_path / "told")

    assert told.pop("status")["ok"] is True
    for verb, answer in told.items():
        assert answer["exit"] == 2
        assert str(answer["error"]).startswith(f"{verb} does not run inside an agent (process ")
    assert echo.asked == ["status"]


@pytest.mark.parametrize("name", ["RUNPLAN_AGENT", "RUNPLAN_DISPATCH"])
def test_a_variable_of_a_parent_tells(name: str, tmp_path: Path) -> None:
    inner = f"env -i sh -c 'echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 30'; true"
    env = {"PATH": os.environ["PATH"], name: "1"}
    with subprocess.Popen(["sh", "-c", inner], env=env, start_new_session=True) as parent:
        pid = pid_in(tmp_path / "pid")
        assert agent_above(pid) == f"process {parent.pid} carries {name}"
        os.killpg(parent.pid, signal.SIGKILL)


def test_nothing_shows_that_this_process_is_an_agents() -> None:
    assert agent_above(os.getpid()) == ""


def test_who_cannot_be_traced_may_not_act() -> None:
    assert "cannot be traced" in agent_above(2**22 + 1)


def gone_caller(path: Path) -> tuple[socket.socket, int]:
    """A connection whose caller has ended, and the pid it had."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as caller:
            pass
        return listener.accept()[0], caller.pid


def test_a_caller_that_ended_may_not_act(tmp_path: Path) -> None:
    connection, _ = gone_caller(tmp_path / "s")
    with connection:
        assert "cannot be traced" in peer_of(connection).agent


@pytest.mark.skipif(not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="pids cannot be chosen")
def test_a_caller_that_ended_is_not_taken_for_whoever_has_its_pid_now(tmp_path: Path) -> None:
    for attempt in range(50):
        connection, pid = gone_caller(tmp_path / f"s{attempt}")
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        with connection, subprocess.Popen(["sleep", "30"]) as other:
            told, reused = peer_of(connection).agent, other.pid == pid
            other.kill()
        if reused:
            assert told == f"process {pid} ended before it could be looked at"
            return
    pytest.skip("somebody else was always faster")


def test_a_client_tells_nothing_to_another_users_daemon(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with pytest.raises(Exception, match=f"is served by the user {os.getuid()}; nothing was sent"):
        Client(door[0])
    monkeypatch.undo()
