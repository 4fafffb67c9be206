"""The daemon of a project under test, its clock and its service manager."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters import processes
from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.errors import Unreachable
from runplan.domain.run.rows import ScheduleRow
from runplan.hosts.daemon.client import Client
from runplan.hosts.daemon.state import read_holder
from tests.support.calls import FILE as MEASURED
from tests.support.cli import Project, a_plan, end_processes_of, processes_of, until
from tests.support.forks import Process


def daemon_of(project: Project) -> int:
    """The process of the living daemon; 0 when there is none."""
    found = read_holder(state_directory(project.env))
    return found.pid if found else 0


def freeze_daemon(project: Project) -> int:
    """Stop the daemon by SIGSTOP, but not inside a transaction, where it would lock the journal for everybody."""
    daemon = daemon_of(project)

    def is_frozen() -> bool:
        os.kill(daemon, signal.SIGSTOP)
        until(lambda: processes.stopped(daemon))
        try:
            with contextlib.closing(sqlite3.connect(project.path / ".git/runplan/journal.db", timeout=0)) as journal:
                journal.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.kill(daemon, signal.SIGCONT)
            return False
        return True

    until(is_frozen)
    return daemon


@contextlib.contextmanager
def in_foreground(project: Project, **env: str) -> Iterator[Process]:
    """`runplan daemon`, from when it answers to the end of the block."""
    with project.running("daemon", **env) as process:
        until(lambda: answering(project) == process.pid)
        yield process


def answering(project: Project) -> int:
    """The process of the daemon that answers; 0 while none does, as when it is not done with its beginning."""
    try:
        with Client(socket_path(project.env)) as client:
            return client.hello.pid
    except Unreachable:
        return 0


def kill_daemon(project: Project, number: int = signal.SIGKILL) -> None:
    """Send it the signal, and wait until it is gone."""
    pid = daemon_of(project)
    assert pid, "no daemon runs"
    os.kill(pid, number)
    until(lambda: pid not in processes_of(project.home) and daemon_of(project) != pid)


@contextlib.contextmanager
def none_left(home: Path) -> Iterator[None]:
    """Afterwards no process with this home is left: neither the daemon nor what it started."""
    try:
        yield
    finally:
        if MEASURED in os.environ:  # a daemon writes its calls when it ends by itself
            for pid in processes_of(home):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            with contextlib.suppress(AssertionError):
                until(lambda: not processes_of(home), seconds=5)
        while processes_of(home):
            end_processes_of(home)


def run_of(project: Project, plan: str = "X") -> dict[str, Any]:
    """The newest run of the plan in `status`; empty for none."""
    seen = project.runplan("status", plan, "--json").exits(0)
    return dict(seen.json["run"] or {})


def until_waits_for_phase(project: Project, phase: str) -> None:
    """Wait until the phase is written, and waits for the landing of the one that it began on."""
    until(lambda: ("phase", phase) in [(lane["waiting_for"], lane["phase"]) for lane in run_of(project)["lanes"]])


def log_of(project: Project, event: str = "") -> list[dict[str, Any]]:
    """The lines of the daemon's log, or those of one event; none while there is no log."""
    log = state_directory(project.env) / "daemon.log"
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines() if log.exists() else ())
    return [line for line in lines if event in ("", line["event"])]


def states(project: Project, plan: str = "plans/X.md") -> list[str]:
    """The states of the plan's runs, oldest first."""
    return [state for (state,) in project.rows("SELECT state FROM runs WHERE plan=? ORDER BY number", plan)]


def until_runs_are(project: Project, *wanted: str, plan: str = "plans/X.md") -> None:
    until(lambda: states(project, plan) == list(wanted))


def approve(project: Project, plan: str = "plans/X.md") -> None:
    """Say yes to the candidate that waits; back when the run has ended or asks again."""
    before = times_asked(project, plan)
    assert project.runplan("approve", plan).code == 0
    until(lambda: states(project, plan)[-1] == "done" or times_asked(project, plan) > before)


def times_asked(project: Project, plan: str) -> int:
    return sum(1 for kind, _ in project.events(plan) if kind == "ApprovalAsked")


def schedules(project: Project) -> list[ScheduleRow]:
    with contextlib.closing(SqliteStore(project.path / ".git/runplan")) as store:
        return store.list_schedules()


def change_schedule(project: Project, plan: str = "plans/X.md", **fields: str) -> None:
    """Change what is on record of a schedule, while no daemon runs."""
    until(lambda: not daemon_of(project))
    with contextlib.closing(SqliteStore(project.path / ".git/runplan")) as store:
        row = store.get_schedule(plan)
        assert row is not None
        store.put_schedule(replace(row, **fields))


def firings(project: Project, plan: str = "plans/X.md") -> list[tuple[str, str]]:
    """The answers to the schedule's slots, oldest first: answer, why."""
    return [(answer, why) for answer, why in project.rows("SELECT answer, why FROM firings WHERE plan=?", plan)]


def several_plans(project: Project, count: int) -> list[str]:
    """Plans P1, P2 and so on, of one phase each with the same number; their names."""
    for number in range(1, count + 1):
        project.repo.write(f"plans/P{number}.md", a_plan(str(number)))
    project.repo.commit("Plans")
    return [f"plans/P{number}.md" for number in range(1, count + 1)]


def user_settings(project: Project, text: str) -> None:
    """Write the user's settings."""
    place = project.home / ".config/runplan/runplan.toml"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


#: The C library returns a time that is as many seconds ahead as the file says.
SOURCE = Path(__file__).with_name("clock.c").read_text(encoding="utf-8")


class Wall:
    """The clock as the processes with `env` see it."""

    def __init__(self, place: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler to make a clock with")
        self._ahead = place / "ahead"
        source, self._library = place / "clock.c", place / "clock.so"
        source.write_text(SOURCE.replace("AHEAD", str(self._ahead)))
        subprocess.run([compiler, "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True)
        self.jump_to(0)

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library)}

    def jump_to(self, seconds: int) -> None:
        """So many seconds ahead of the real one, or behind it."""
        draft = self._ahead.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self._ahead)


#: A file in its home makes it deaf or refuse.
MANAGER = """\
#!/bin/sh
echo "${0##*/} $*" >>"$HOME/manager.log"
case "$*" in
  *show-environment*|"print gui/"[0-9]*) test ! -e "$HOME/deaf" ;;
  *is-active*) test -e "$HOME/active" ;;
  *enable*--now*|bootstrap*)
    test ! -e "$HOME/broken" || { echo "Unit is masked." >&2; exit 1; }
    : >"$HOME/active" ;;
esac
"""


def a_manager(directory: Path, name: str = "systemctl") -> Path:
    """The directory, with a program of that name in it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(MANAGER)
    (directory / name).chmod(0o755)
    return directory
