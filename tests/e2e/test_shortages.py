"""A run that gets no process or descriptor waits, as on a full disk, and is never called crashed."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.cli import RUNPLAN, until
from tests.support.daemons import descriptors_left, in_foreground, log_of, states
from tests.support.scripts import work

if TYPE_CHECKING:
    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile


@pytest.mark.parametrize("most", [20])
def test_in_the_foreground_it_is_exit_5_with_what_helps(project: Project, most: int) -> None:
    """Before the run, at its beginning, and when the agent is to be started."""
    words = ["start", "X", "finish", "auto", "--foreground"]
    project.agent(work() + work(phase="2"))
    ran = subprocess.run(
        ["sh", "-c", f'ulimit -Sn {most}; exec "$@"', "sh", str(RUNPLAN), *words],
        cwd=project.path,
        env=project.env,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (ran.returncode, "Too many open files; raise the limit" in ran.stderr) == (5, True), ran.stderr
    assert project.runplan(*words).code == 0


@pytest.mark.parametrize("free", [3])
def test_a_run_that_gets_no_descriptor_waits_and_goes_on(project: Project, meanwhile: Meanwhile, free: int) -> None:
    """Wherever it lacks one: for git, for the journal, for the next agent."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    with in_foreground(project) as daemon:
        assert project.runplan("start", "X", "finish", "auto").code == 0
        meanwhile.reached("agent")
        with descriptors_left(daemon.pid, free):
            meanwhile.let_on("agent")
            until(lambda: troubles(project) or states(project) == ["done"])
        if free < 7:  # with more it needs none
            assert re.search("raise the limit|unable to open database file", troubles(project)[0])
        assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
        assert states(project) == ["done"]


def test_an_agent_that_the_system_cannot_start_is_started_again(project: Project, meanwhile: Meanwhile) -> None:
    """Its shim lacks a descriptor for a pipe."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    with in_foreground(project) as daemon:
        assert project.runplan("start", "X", "finish", "auto").code == 0
        meanwhile.reached("agent")
        (waiting,) = (shim for shim in shims(daemon.pid) if not shim.children())
        with descriptors_left(waiting.pid, 8):
            meanwhile.let_on("agent")
            until(lambda: troubles(project))
        assert re.match("cannot start .*: Too many open files; raise the limit", troubles(project)[0])
        assert states(project) == ["waiting"]
        assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
        assert states(project) == ["done"]


def shims(daemon: int) -> list[psutil.Process]:
    """The children of the spawner: one for each agent, and one that waits for the next."""
    return [shim for spawner in psutil.Process(daemon).children() for shim in spawner.children()]


def troubles(project: Project) -> list[str]:
    return [line["error"] for event in ("closed", "trouble") for line in log_of(project, event)]
