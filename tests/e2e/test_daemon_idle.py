"""A daemon whose agents are silent sleeps: what it waits with, as the kernel has it, says when it wakes by itself."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, processes_of, until
from tests.support.daemons import in_foreground, run_of
from tests.support.scripts import steps

if TYPE_CHECKING:
    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile

MINUTE_MS = 60_000
FOR_EVER = 2**32 - 1  #: as the kernel shows a time-out of -1

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="asks /proc")


def timeouts(pid: int) -> list[int]:
    """For how many milliseconds the threads of a process sleep, of those that wait for descriptors."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            call = (task / "syscall").read_text().split()
            if len(call) > 4 and "eventpoll" in str(Path(f"/proc/{pid}/fd/{int(call[1], 16)}").readlink()):
                found.append(int(call[4], 16) & FOR_EVER)
    return sorted(found)


def shims(project: Project) -> list[int]:
    """The processes that supervise agents: of those that came from a spawner, the ones that wait for descriptors."""
    found = []
    for pid in processes_of(project.home):
        with contextlib.suppress(OSError):  # it has ended
            if b".spawner" in Path(f"/proc/{pid}/cmdline").read_bytes() and timeouts(pid):
                found.append(pid)
    return found


def wakes_in_a_minute(pid: int) -> list[bool]:
    """By itself, for each thread that waits for descriptors."""
    return [timeout <= MINUTE_MS for timeout in timeouts(pid)]


def test_with_a_silent_agent_and_a_run_that_waits_no_thread_polls(project: Project, meanwhile: Meanwhile) -> None:
    resets = int((datetime.now(UTC) + timedelta(hours=2)).timestamp())
    limit = f'tell = {{trouble = "limit", words = "You have hit your limit", resets = {resets}}}'
    project.repo.write("plans/Y.md", a_plan("2"))
    project.repo.write("agent.toml", steps(limit, "exit = 1") + steps(*meanwhile.pause("silent"), phase="2"))
    project.repo.commit("Two plans")
    with in_foreground(project) as daemon:
        assert project.runplan("start", "Y", "auto").code == 0
        meanwhile.reached("silent")
        assert project.runplan("start", "X", "1", "auto").code == 0
        until(lambda: run_of(project, "X")["state"] == "waiting")
        # The worker sleeps until the limit has reset or an agent ends.
        until(lambda: wakes_in_a_minute(daemon.pid) == [False])
        until(lambda: [wakes_in_a_minute(shim) for shim in shims(project)] == [[False]])
        meanwhile.let_on("silent")
