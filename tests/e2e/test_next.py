"""Schedules and metrics are told truthfully from any terminal, with or without a daemon."""

from __future__ import annotations

import contextlib
import fcntl
import re
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.daemon import singleton
from runplan.run.rows import ScheduleRow
from runplan.settings.places import state_directory
from runplan.store.schedules import Schedules
from runplan.store.sqlite import Store
from runplan.times import iso
from tests.support.cli import RUNPLAN, Project, a_project
from tests.support.doors import a_door
from tests.support.imports import imported
from tests.support.journals import record
from tests.support.prometheus import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def journal(project: Project) -> Iterator[Store]:
    store = Store(project.path / ".git/runplan")
    try:
        yield store
    finally:
        store.close()


def plan_every(store: Store, spec: str, plan: str = "plans/X.md", *, since: datetime, **more: str) -> None:
    told = {"zone": "Europe/Berlin", "misfire": "skip", "request": "{}", "anchor": iso(since), "made": iso(since)}
    Schedules(store).put(ScheduleRow(plan=plan, spec=spec, **{**told, **more}))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def test_without_schedules_next_says_so_and_makes_nothing(project: Project) -> None:
    told = project.runplan("next")
    assert (told.code, told.out, told.err) == (0, "No schedules.\n", "")
    assert project.runplan("next", "--json").json == []
    assert not (project.path / ".git/runplan").exists()


def test_next_tells_the_clock_of_the_zone_and_the_time_left(project: Project) -> None:
    now = datetime.now(UTC)
    with journal(project) as store:
        plan_every(store, "4h", since=now - timedelta(minutes=105))
        plan_every(store, "2d", "plans/longer name.md", since=now, paused="phase 2 failed")
    told = project.runplan("next")
    assert told.code == 0
    first, second, empty, daemon = told.out.splitlines()
    when = r"(?:\w{3} )?\d\d:\d\d CES?T \(in "
    assert re.fullmatch(rf"plans/X\.md            every 4h, next {when}2h 1[45]m\)", first)
    assert re.fullmatch(rf"plans/longer name\.md  every 2d, paused: phase 2 failed; otherwise next {when}2d\)", second)
    assert (empty, daemon) == ("", "No daemon is running, so nothing fires. Start it with: runplan daemon")
    one, two = project.runplan("next", "--json").json
    assert one == {
        "plan": "plans/X.md",
        "spec": "every 4h",
        "next": iso((now - timedelta(minutes=105)).replace(microsecond=0) + timedelta(hours=4)),
        "paused": None,
        "due": False,
        "zone": "Europe/Berlin",
    }
    assert two["paused"] == "phase 2 failed"
    view = project.runplan("status", "X", "--json").json
    assert view["schedule"] == {name: one[name] for name in ("spec", "next", "paused", "due")}
    assert "every 4h, next " in project.runplan("status", "X").out


def test_what_was_missed_is_said_to_fire_as_soon_as_a_daemon_is_there(project: Project) -> None:
    with journal(project) as store:
        plan_every(store, "4h", since=datetime.now(UTC) - timedelta(hours=5), misfire="run-once")
    told = project.runplan("next")
    first, _, daemon = told.out.splitlines()
    assert re.search(r"  every 4h, due now, then next .* \(in (2h 59m|3h)\)$", first)
    assert daemon == (
        "No daemon is running, so nothing fires. Schedules that are due fire as soon as you start it: runplan daemon"
    )
    assert project.runplan("next", "--json").json[0]["due"] is True
    assert "  every 4h, due now, then next " in project.runplan("status", "X").out


@pytest.mark.parametrize(("words", "spec"), [(("status",), "30 6 * * 1-5")])
def test_a_schedule_that_a_daemon_has_armed_is_told_without_the_scheduler(
    project: Project, spec: str, words: tuple[str, ...]
) -> None:
    """Importing it takes longer than all the rest."""
    with journal(project) as store:
        plan_every(store, spec, since=datetime.now(UTC))
        Schedules(store).arm("plans/X.md", iso(datetime.now(UTC) + timedelta(hours=2, seconds=30)))
    assert f"every {spec}, next " in project.runplan(*words).out
    assert not {name for name in imported(project, *words) if name.partition(".")[0] in ("apscheduler", "asyncio")}


def test_a_dead_dispatch_is_not_told_to_run(project: Project) -> None:
    now = datetime.now(UTC)
    with journal(project) as store:
        started = {"id": "r1.1", "role": "implement", "agent": "robot", "cycle": 1}
        record(store, "r1", "plans/X.md", ("PlanRead", {}), ("DispatchStarted", started), now=now, owner="1:2:3")
    directory = project.path / ".git/runplan/dispatch/r1.1"
    directory.mkdir(parents=True)
    (directory / "lock").touch()
    (directory / "out.log").write_text("something\n")
    run = project.runplan("status", "X", "--json").json["run"]
    assert (run["agent"], run["dispatched"], run["output"], run["stuck"]["level"]) == (None, None, None, "look")
    assert "interrupted; no process is working on it" in run["stuck"]["sentence"]
    with (directory / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = project.runplan("status", "X", "--json").json["run"]
    assert (run["agent"], bool(run["dispatched"]), bool(run["output"])) == ("robot", True, True)


def test_watching_goes_on_until_ctrl_c_and_ends_well(project: Project) -> None:
    watching = subprocess.Popen(
        [RUNPLAN, "status", "--watch"],
        cwd=project.path,
        env=project.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == b"X  (plans/X.md, active, 0 of 1 done)\n"
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=100)
    assert (watching.returncode, err) == (0, b"")
    assert b"\x1b" not in out


# --- metrics ------------------------------------------------------------------------------------------


def test_metrics_come_from_the_journal_when_no_daemon_runs(project: Project) -> None:
    nothing = project.runplan("metrics")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "")
    with journal(project) as store:
        record(store, "r1", "plans/X.md", ("Landed", {"phase": "1"}), state="done", outcome="done")
    told = project.runplan("metrics")
    assert (told.code, told.err) == (0, "")
    where = {"repository": str(project.path), "plan": "plans/X.md"}
    assert ("runplan_phases_landed_total", where, 1.0) in read(told.out)
    assert not any(name.startswith("runplan_daemon") for name, _, _ in read(told.out))


@contextlib.contextmanager
def answering(state: Path) -> Iterator[None]:
    with singleton.take(state, version="1", since=iso(datetime.now(UTC))), a_door(state / "daemon.sock"):
        yield


def test_metrics_come_from_the_daemon_where_one_runs_also_outside_of_a_repository(
    project: Project, tmp_path: Path
) -> None:
    with answering(state_directory(project.env)):
        told = project.runplan_in(tmp_path, "metrics")
        with journal(project) as store:
            plan_every(store, "4h", since=datetime.now(UTC))
        attended = project.runplan("next")
    assert (told.code, told.out, told.err) == (0, "runplan_daemon_threads 3\n", "")
    assert "No daemon is running" not in attended.out
