"""The daemon notifies the service manager and never waits for it."""

import os
import socket
import uuid
from pathlib import Path

import pytest

from runplan.hosts.daemon.service import READY, STOPPING, WATCHDOG, extend_timeout, notify_manager, watchdog_s


@pytest.mark.parametrize("abstract", [False, True])
def test_each_word_arrives(tmp_path: Path, abstract: bool) -> None:
    name = f"runplan-{uuid.uuid4().hex}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        env = {"NOTIFY_SOCKET": f"@{name}" if abstract else name}
        assert notify_manager(env, READY, "STATUS=2 runs")
        assert notify_manager(env, WATCHDOG)
        assert notify_manager(env, STOPPING)
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1\nSTATUS=2 runs", b"WATCHDOG=1", b"STOPPING=1"]


def test_a_manager_that_does_not_listen_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        answers = [notify_manager({"NOTIFY_SOCKET": str(tmp_path / "notify")}, WATCHDOG) for _ in range(2000)]
    assert answers[0]
    assert not answers[-1]


@pytest.mark.parametrize("env", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/gone"}])
def test_without_a_manager_nothing_is_sent(env: dict[str, str]) -> None:
    assert not notify_manager(env, READY)


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({"WATCHDOG_USEC": "180000000"}, 180.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_time_until_we_are_called_stuck_is_known(env: dict[str, str], seconds: float) -> None:
    assert watchdog_s(env) == seconds


def test_time_is_asked_for_in_the_words_of_the_manager() -> None:
    assert extend_timeout(90.5) == "EXTEND_TIMEOUT_USEC=90500000"
