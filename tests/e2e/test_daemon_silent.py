"""A daemon that does not answer: agents are ended, the request is queued, and the caller is told so."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from runplan import processes
from runplan.daemon.client import reach
from tests.support.cli import processes_of, until
from tests.support.daemons import daemon_of, run_of, schedules, shell_agent, until_runs_are, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


@pytest.fixture
def stopped(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> int:
    """The daemon, stopped by a signal while an agent of its is at work; the plan has a schedule, too."""
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    daemon = daemon_of(project)
    os.kill(daemon, signal.SIGSTOP)
    until(lambda: processes.stopped(daemon))
    return daemon


def goes_on(_project: Project, daemon: int) -> None:
    os.kill(daemon, signal.SIGCONT)


def another_comes(project: Project, daemon: int) -> None:
    os.kill(daemon, signal.SIGKILL)
    until(lambda: daemon not in processes_of(project.home))
    with reach(project.env):
        assert daemon_of(project) not in (0, daemon)


def queued(project: Project) -> list[tuple[str, str]]:
    rows = project.rows("SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq")
    return [(plan, verb) for plan, verb in rows]


QUEUED = "the request is queued and takes effect when the daemon responds"


def silence(daemon: int) -> str:
    return f"the daemon (process {daemon}) is stopped; continue it: kill -CONT {daemon}"


@pytest.mark.parametrize(("words", "then"), [(("X",), goes_on)], ids=["one"])
def test_a_stop_ends_agents_at_once_and_the_rest_when_somebody_can(
    project: Project, tmp_path: Path, stopped: int, words: tuple[str, ...], then: Callable[[Project, int], None]
) -> None:
    ran = project.runplan("stop", *words)
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            "runplan: Ended the agent of plans/X.md; its work is kept",
            f"runplan: {QUEUED}; {silence(stopped)}",
        ],
    )
    assert int((tmp_path / "agent.here").read_text()) not in processes_of(project.home)
    assert queued(project) == [("plans/X.md", "stop")]
    then(project, stopped)
    until_runs_are(project, "stopped")
    until(lambda: queued(project) == [])
    assert (schedules(project), project.landed(), project.dispatched()) == ([], [], ["implement"])


def test_what_only_reads_says_what_helps(project: Project, stopped: int) -> None:
    began = time.monotonic()
    ran = project.runplan("metrics")
    assert (ran.code, ran.last, time.monotonic() - began < 20) == (5, f"runplan: {silence(stopped)}", True)


def test_who_looks_is_told_that_it_is_stopped_and_that_nothing_goes_on(
    project: Project, tmp_path: Path, stopped: int
) -> None:
    helps = f"continue it: kill -CONT {stopped}"
    for words in ((), ("X",)):
        assert project.runplan("status", *words).out.endswith(
            f"The daemon (process {stopped}) is stopped and does nothing; {helps}\n"
        )
    assert project.runplan("next").out.endswith(
        f"\nThe daemon (process {stopped}) is stopped, so nothing fires; {helps}\n"
    )
    (tmp_path / "agent.on").touch()
    until(lambda: not run_of(project)["dispatched"])
    seen = project.runplan("status", "X", "--json").json
    assert (seen["daemon"]["state"], seen["daemon"]["pid"]) == ("stopped", stopped)
    assert seen["run"]["stuck"] == {"level": "look", "sentence": "Stands still: the daemon is stopped."}
