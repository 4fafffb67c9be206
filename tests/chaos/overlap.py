"""Never two live dispatches of a phase: agents hold a lock per phase during random commands, kills and stops."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.cli import SETTINGS, Project, a_plan, a_project, end_processes_of, until
from tests.support.daemons import daemon_of, states

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


def overlap(place: Path, *, seed: int) -> list[str]:
    """Run random commands against two plans; the violations."""
    chance, project = random.Random(seed), _project(place)
    try:
        for _ in range(16):
            verb, *words = chance.choice(COMMANDS)
            project.runplan(verb, chance.choice("XY"), *words)
            time.sleep(chance.uniform(0, 0.2))  # the moment is random on purpose
            if chance.random() < 0.5:
                _disturb(project, chance)
        _finish(project)
        return list(_violations(project))
    finally:
        end_processes_of(project.home)


def _project(place: Path) -> Project:
    made = a_project(place, *PHASES)
    (made.home / "agent.py").write_text(AGENT)
    argv = [sys.executable, "-I", "-S", str(made.home / "agent.py"), str(made.home)]
    table = f'[agents.locking]\nkind = "command"\nargv = {argv}\n'
    made.commit_file("runplan.toml", SETTINGS.replace('implementer = "robot"', 'implementer = "locking"') + table)
    made.plan(a_plan(*PHASES), "plans/Y.md")
    return made


def _finish(project: Project) -> None:
    """Let both plans come to their end; a start while a run is active only reports it."""
    for plan in "XY":
        project.runplan("resume", plan)
        started = project.runplan("start", plan, "finish", "auto")
        path = f"plans/{plan}.md"
        # A stop that comes after the last landing ends the run as stopped, and its plan is complete.
        is_complete = "the plan is already complete" in started.err
        until(lambda path=path, done=is_complete: done or states(project, path)[-1] == "done")  # type: ignore[misc]


def _violations(project: Project) -> Iterator[str]:
    yield from (note.name for note in project.home.glob("overlap-*"))
    begun = (project.home / "begun").read_text().splitlines()
    if len(begun) < 2 * len(PHASES):
        yield f"only {len(begun)} agents began"
    if sorted(project.landed()) != sorted(PHASES * 2):
        yield f"landed: {project.landed()}"


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
