"""Never two live dispatches of a phase: real agents hold a lock per phase while commands, kills and stops rain."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import SETTINGS, Project, a_plan, a_project, end_processes_of
from tests.support.daemons import daemon_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PHASES = ("1", "2")
START = ("start", "finish", "auto")
COMMANDS = (START, START, ("stop",), ("pause",), ("resume",), ("retry",))

#: Takes the lock of its phase, works for a while, and notes when another agent already holds that lock.
AGENT = """
import fcntl, os, pathlib, sys, time
notes = pathlib.Path(sys.argv[1])
phase = os.environ["RUNPLAN_PLAN"].replace("/", "_") + "-" + os.environ["RUNPLAN_PHASE"]
lock = open(notes / f"{phase}.lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (notes / f"overlap-{phase}").touch()
with open(notes / "begun", "a") as begun:
    begun.write(phase + "\\n")
time.sleep(0.8)
pathlib.Path(phase + ".txt").write_text(phase)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = a_project(tmp_path, *PHASES)
    (made.home / "agent.py").write_text(AGENT)
    argv = [sys.executable, "-I", "-S", str(made.home / "agent.py"), str(made.home)]
    table = f'[agents.locking]\nkind = "command"\nargv = {argv}\n'
    made.commit_file("runplan.toml", SETTINGS.replace('implementer = "robot"', 'implementer = "locking"') + table)
    made.plan(a_plan(*PHASES), "plans/Y.md")
    try:
        yield made
    finally:
        end_processes_of(made.home)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_phase_never_has_two_live_dispatches(project: Project, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(16):
        verb, *words = chance.choice(COMMANDS)
        project.runplan(verb, chance.choice("XY"), *words)
        time.sleep(chance.uniform(0, 0.2))  # the moment is random on purpose
        if chance.random() < 0.5:
            _disturb(project, chance)
    for plan in "XY":
        project.runplan("resume", plan)
        ran = project.runplan("start", plan, "finish", "auto", "--wait")
        assert ran.code == 0, ran.err
    assert [note.name for note in project.home.glob("overlap-*")] == []
    assert len((project.home / "begun").read_text().splitlines()) >= 2 * len(PHASES)
    assert sorted(project.landed()) == sorted(PHASES * 2)


def _disturb(project: Project, chance: random.Random) -> None:
    """Kill the daemon, or stop it for a moment."""
    if not (pid := daemon_of(project)):
        return
    if chance.random() < 0.8:
        os.kill(pid, signal.SIGKILL)
        return
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0, 0.3))
    os.kill(pid, signal.SIGCONT)
