"""Settings are taken up by the daemon that runs; those that cannot be used leave it with what was good before."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from runplan.daemon.client import Client
from runplan.daemon.protocol import DaemonStatus, Status
from tests.support.cli import SETTINGS, until
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    kill_daemon,
    log_of,
    schedules,
    several_plans,
    socket_of,
    states,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, steps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def asked(project: Project) -> DaemonStatus:
    """The status of the daemon; with every request it checks the files."""
    with Client(socket_of(project)) as client:
        return client.call(Status(), DaemonStatus)


def hang_up(project: Project) -> None:
    os.kill(daemon_of(project), signal.SIGHUP)


# --- the user's file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [hang_up], ids=["hangup"])
def test_more_runs_at_once_are_let_in_without_a_restart(project: Project, meanwhile: Meanwhile, by: Any) -> None:
    user_settings(project, "[daemon]\nmax_parallel = 1\n")
    first, second = several_plans(project, 2)
    project.agent("".join(steps(*meanwhile.pause(n), f'write = "{n}.txt"', phase=n) for n in ("1", "2")))
    for plan in (first, second):
        assert project.runplan("start", plan, "auto").code == 0
    meanwhile.reached("1")
    until(lambda: states(project, second) == ["queued"])
    daemon = daemon_of(project)
    user_settings(project, "[daemon]\nmax_parallel = 2\n")
    by(project)
    meanwhile.reached("2")
    assert states(project, first) == ["running"]
    for n in ("1", "2"):
        meanwhile.let_on(n)
    for plan in (first, second):
        until_runs_are(project, "done", plan=plan)
    assert daemon_of(project) == daemon


def test_who_is_told_of_runs_can_be_changed_without_a_restart(project: Project, tmp_path: Path) -> None:
    told = tmp_path / "told"
    project.runplan("start", "X", "1", "auto", "--wait")
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_NOTICE $RUNPLAN_PLAN >>{told}"\n')
    assert project.runplan("start", "X", "2", "auto", "--wait").code == 0
    until(lambda: told.exists() and told.read_text() == "done plans/X.md\n")


def test_settings_that_cannot_be_used_are_told_once_and_change_nothing(project: Project, tmp_path: Path) -> None:
    told = tmp_path / "told"
    good = f'[notify]\ncommand = "echo $RUNPLAN_REASON: $RUNPLAN_TEXT >>{told}"\n'
    user_settings(project, good)
    assert project.runplan("start", "X", "1", "--wait").code == 4
    until(lambda: told.exists())
    told.unlink()
    daemon = daemon_of(project)
    user_settings(project, f"{good}[daemon]\nmax_parallel = = 2\n")
    file = project.home / ".config/runplan/runplan.toml"
    for _ in range(3):
        assert asked(project).settings == (f"{file}:4: invalid TOML: Invalid value",)
    hang_up(project)
    until(lambda: told.exists() and told.read_text().endswith("\n"))
    words = f"{file}:4: invalid TOML: Invalid value; what was set before holds until that is mended."
    assert told.read_text() == f"settings: {words}\n"
    (error,) = log_of(project, "settings")
    assert (error["level"], f"{file}:4: " in error["words"]) == ("error", True)
    seen = project.runplan("status")
    assert (seen.code, f"{file}:4: invalid TOML" in seen.err) == (2, True)
    user_settings(project, good)
    assert asked(project).settings == ()
    assert len(log_of(project, "settings-mended")) == 1
    assert daemon_of(project) == daemon


# --- the repository's file --------------------------------------------------------------------------------------


def test_a_schedule_follows_the_zone_and_what_is_made_of_missed_slots(project: Project) -> None:
    assert project.runplan("start", "X", "auto", "every", "day at 9am").code == 0
    project.settings('[run]\ntimezone = "Europe/Berlin"\nmisfire = "skip"\n')
    asked(project)
    until(lambda: [(row.zone, row.misfire) for row in schedules(project)] == [("Europe/Berlin", "skip")])
    (row,) = schedules(project)
    assert (row.spec, json.loads(row.request)["landing"]) == ("day at 9am", "cherry-pick")


def test_what_its_caller_gives_by_variables_ranks_above_the_files_for_a_schedule_too(project: Project) -> None:
    """Not only until the next look at them, and after a restart as well."""
    project.settings('[run]\ntimezone = "Europe/Berlin"\n')
    made = project.runplan("start", "X", "auto", "every", "day at 9:15", RUNPLAN_RUN_TIMEZONE="Asia/Tokyo")
    assert (made.code, made.last.endswith(" 09:15 JST")) == (0, True), made.err
    project.settings('[run]\ntimezone = "America/New_York"\nmisfire = "skip"\n')
    asked(project)
    until(lambda: [row.misfire for row in schedules(project)] == ["skip"])
    kill_daemon(project)
    with in_foreground(project):
        assert project.runplan("now").code == 0
        until_runs_are(project, "done")
        assert " 09:15 JST in " in project.runplan("next").out
        assert project.runplan("start", "X", "auto", "every", "day at 9:15").code == 0
        assert schedules(project)[0].zone == "America/New_York", "asked anew without it"


def test_a_repository_without_good_settings_is_opened_when_they_are_mended(project: Project) -> None:
    assert project.runplan("start", "X", "1", "--wait").code == 4
    os.kill(daemon_of(project), signal.SIGKILL)
    until(lambda: not daemon_of(project))
    project.repo.write("runplan.toml", "[run\n")
    daemon = project.popen("daemon")
    until(lambda: daemon_of(project) == daemon.pid and log_of(project, "closed"))
    project.repo.git("checkout", "-q", "--", "runplan.toml")
    asked(project)
    assert project.runplan("approve", "X").code == 0
    until_runs_are(project, "done")
    daemon.kill()
    daemon.communicate()


# --- what a caller has set by variables ---------------------------------------------------------------------------

OTHER = '[agents.other]\nkind = "script"\nscript = "agent.toml"\n'


def sent(project: Project, plan: str = "plans/X.md") -> list[str]:
    """Who was sent by the plan's run, as role:agent."""
    started = [body for kind, body in project.events(plan) if kind == "DispatchStarted" and body["agent"]]
    return [f"{body['role']}:{body['agent']}" for body in started]


def test_variables_rank_above_files_for_the_run_that_was_started_with_them(
    project: Project, meanwhile: Meanwhile
) -> None:
    """The files are read anew while it is at work, and another plan is worked by what they say."""
    project.repo.write("runplan.toml", SETTINGS + OTHER)
    first = steps(*meanwhile.pause("agent"), 'write = "1.txt"')
    project.repo.write("agent.toml", first + "".join(steps(f'write = "{n}.txt"', phase=n) for n in ("2", "3")))
    *_, third = several_plans(project, 3)
    assert project.runplan("start", "X", "finish", "auto", RUNPLAN_AGENTS_IMPLEMENTER="other").code == 0
    meanwhile.reached("agent")
    assert project.runplan("start", third, "auto").code == 0
    project.repo.write("runplan.toml", f'{SETTINGS}{OTHER}[limits]\nwall = "1h"\n')
    hang_up(project)
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    until_runs_are(project, "done", plan=third)
    assert sent(project) == 2 * ["implement:other", "verify:robot"]
    assert sent(project, third) == ["implement:robot", "verify:robot"]


@pytest.mark.parametrize("restart", [True], ids=["next-daemon"])
def test_what_its_caller_gave_by_variables_stays_with_the_run(
    project: Project, meanwhile: Meanwhile, restart: bool
) -> None:
    """Also when it fits the files no more, and after a restart."""
    project.repo.write("runplan.toml", SETTINGS + OTHER)
    project.repo.write("agent.toml", steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    project.repo.commit("Set up")
    assert project.runplan("start", "X", "1", "auto", RUNPLAN_AGENTS_VERIFIER="other").code == 0
    meanwhile.reached("agent")
    project.repo.write("runplan.toml", SETTINGS)
    if restart:
        kill_daemon(project)
    with in_foreground(project) if restart else contextlib.nullcontext():
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
    assert sent(project) == ["implement:robot", "verify:other"]
