"""What callers ask and how many there are does not end the daemon, and locks nobody out."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client, reachable
from runplan.errors import RunplanError, Unreachable
from tests.support.daemons import (
    answering,
    descriptors_left,
    in_foreground,
    log_of,
    shell_agent,
    socket_of,
    until_runs_are,
    user_settings,
    waits,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


def test_an_unexpected_error_in_a_request_is_answered_logged_and_survived(project: Project) -> None:
    """No file name has 300 characters: the kernel refuses to look for one."""
    with in_foreground(project) as daemon:
        with Client(socket_of(project)) as client, pytest.raises(Unreachable, match="File name too long"):
            client.call("submit", root="/" + 300 * "x", commands=[])
        (logged,) = log_of(project, "request-failed")
        assert (logged["verb"], "File name too long" in logged["error"]) == ("submit", True)
        assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
        assert answering(project) == daemon.pid


def test_a_daemon_without_free_descriptors_goes_on_when_there_are_some(project: Project) -> None:
    """Whatever it lacks them for: a caller, a settings file, a journal, a thread, a process."""
    with in_foreground(project) as daemon:
        for free in (0, 1, 2, 4, 6, 9):
            with descriptors_left(daemon.pid, free):
                user_settings(project, f"[daemon]\nmax_parallel = {free + 1}\n")
                for verb in ("status", "metrics", "submit"):
                    with contextlib.suppress(RunplanError), Client(socket_of(project), answer_s=2) as client:
                        client.call(verb, root=str(project.path), within_s=2)
        assert answering(project) == daemon.pid
        assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
        assert answering(project) == daemon.pid


def test_a_stop_is_heard_however_many_callers_say_nothing(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    with in_foreground(project), contextlib.ExitStack() as idle:
        assert project.runplan("start", "X", "auto").code == 0
        meanwhile.reached("agent")
        address = idle.enter_context(reachable(socket_of(project)))
        for _ in range(129):
            idle.enter_context(socket.socket(socket.AF_UNIX)).connect(address)
        ran = project.runplan("stop", "X")
        assert ran.code == 0, ran.err
        until_runs_are(project, "stopped")
