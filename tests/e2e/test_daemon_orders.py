"""What people ask for is done, or refused in words, whatever has become of the daemon and of what it reads."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.times import iso
from tests.support.cli import processes_of, until
from tests.support.daemons import (
    approve,
    change_schedule,
    daemon_of,
    firings,
    in_foreground,
    kill_daemon,
    run_of,
    schedules,
    shell_agent,
    states,
    until_runs_are,
    user_settings,
    waits,
)
from tests.support.scripts import Meanwhile, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def started_and_orphaned(project: Project, meanwhile: Meanwhile, *words: str) -> None:
    """An agent is at work, and the daemon is dead."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    assert project.runplan("start", "X", *words).code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    assert processes_of(project.home), "the agent lives on"


# --- without a daemon -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("X",)], ids=["all", "one"])
def test_a_stop_without_a_daemon_ends_what_the_dead_one_left(
    project: Project, meanwhile: Meanwhile, words: tuple[str, ...]
) -> None:
    started_and_orphaned(project, meanwhile, "1", "auto")
    ran = project.runplan("stop", *words)
    assert (ran.code, ran.err.splitlines()) == (0, ["runplan: Stopping plans/X.md; its work is kept"])
    until(lambda: processes_of(project.home) == [])
    assert states(project) == ["stopped"]
    assert project.show("runplan/x/1:1.txt") == "1"
    assert "Nothing to stop here" in project.runplan("stop").err
    meanwhile.let_on("agent")
    with in_foreground(project):
        assert project.runplan("start", "X", "2", "auto", "--wait").code == 0
    assert (states(project), project.landed()) == (["stopped", "done"], ["2"])


def test_a_stop_after_a_drain_ends_what_waited_and_its_schedule(project: Project) -> None:
    project.agent(work())
    for words in (("auto", "every", "4h"), ("1",)):
        assert project.runplan("start", "X", *words).code == 0
    until(lambda: states(project) == ["waiting"])
    kill_daemon(project, signal.SIGTERM)
    ran = project.runplan("stop", "X")
    assert ran.code == 0, ran.err
    assert [line.partition(",")[0] for line in ran.err.splitlines()] == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    assert (states(project), daemon_of(project)) == (["stopped"], 0)


@pytest.mark.parametrize("daemon", [False, True], ids=["no-daemon", "daemon"])
def test_a_stop_ends_what_a_killed_terminal_left(project: Project, meanwhile: Meanwhile, *, daemon: bool) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    if daemon:
        assert project.runplan("start", "X", "every", "4h").code == 0
    foreground = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("agent")
    foreground.kill()
    foreground.communicate()
    ran = project.runplan("stop")
    assert (ran.code, ran.last) == (0, "runplan: Stopping plans/X.md; its work is kept")
    until_runs_are(project, "stopped")
    until(lambda: processes_of(project.home) == ([daemon_of(project)] if daemon else []))


def test_a_pause_without_a_daemon_holds_for_the_next_one(project: Project, meanwhile: Meanwhile) -> None:
    started_and_orphaned(project, meanwhile, "1", "auto")
    ran = project.runplan("pause", "X")
    assert (ran.code, ran.last.endswith("runplan resume plans/X.md")) == (0, True), ran.err
    meanwhile.let_on("agent")
    until(lambda: processes_of(project.home) == [])
    with in_foreground(project):
        until(lambda: states(project) == ["waiting"])
        assert run_of(project)["about"] == "paused by a person"
        assert project.dispatched() == ["implement"]
        assert project.runplan("resume", "X").code == 0
        until_runs_are(project, "done")
    assert project.landed() == ["1"]


def test_a_pause_of_what_nobody_works_on_is_refused(project: Project) -> None:
    ran = project.runplan("pause", "X")
    assert (ran.code, "plans/X.md has no daemon run and no schedule" in ran.last) == (3, True), ran.err


# --- what nobody waits for ------------------------------------------------------------------------------------


def change_journal(project: Project, statement: str) -> None:
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute(statement)


def test_a_slot_that_cannot_be_answered_is_told_and_tried_again_until_it_is(project: Project) -> None:
    assert project.runplan("start", "X", "auto", "every", "4h").code == 0
    kill_daemon(project)
    made = iso(datetime.now(UTC) - timedelta(hours=9))
    change_schedule(project, anchor=made, made=made)
    change_journal(project, "CREATE TRIGGER full BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no room'); END")
    with in_foreground(project):
        log = project.home / ".local/state/runplan/daemon.log"
        until(lambda: log.read_text().count('"trouble"') == 2)
        trouble = [line for line in log.read_text().splitlines() if '"trouble"' in line]
        assert all("no room" in line and "plans/X.md" in line and '"again"' in line for line in trouble), trouble
        assert (states(project), len(firings(project))) == ([], 1), "the older slot was missed, the newer one is due"
        change_journal(project, "DROP TRIGGER full")
        until_runs_are(project, "done")
    assert firings(project) == [("missed", "it was not fired in time"), ("fired", run_of(project)["id"])]
    assert (len(schedules(project)), project.landed()) == (1, ["1"])


# --- what callers bring ---------------------------------------------------------------------------------------


KEY = "k-77ab01-of-the-first"


def keyed_agent(project: Project, place: Path) -> None:
    """Works only with the first caller's key, before and after it was held up."""
    knows = f'test "$ROBOT_KEY" = {KEY}'
    shell_agent(project, place, f"{knows}\n{waits(place, 'agent')}", knows, env='"ROBOT_KEY"')


@pytest.mark.parametrize("words", [("finish",), ("auto", "every", "4h", "now")], ids=["start", "schedule"])
def test_a_start_of_what_is_at_work_takes_no_key_away(
    project: Project, meanwhile: Meanwhile, tmp_path: Path, words: tuple[str, ...]
) -> None:
    keyed_agent(project, tmp_path)
    assert project.runplan("start", "X", "finish", ROBOT_KEY=KEY).code == 0
    meanwhile.reached("agent")
    again = project.runplan("start", "X", *words)
    assert (again.code, "plans/X.md is already running" in again.last) == (0, True), again.err
    meanwhile.let_on("agent")
    until(lambda: states(project) == ["waiting"])
    approve(project)
    approve(project)
    assert (states(project), project.landed()) == (["done"], ["1", "2"])


@pytest.mark.parametrize("agent", ["ended", "at work"])
@pytest.mark.parametrize("words", [("1", "auto"), ("auto", "every", "4h")], ids=["start", "schedule"])
def test_a_start_brings_its_key_to_a_run_that_has_lost_it(
    project: Project, meanwhile: Meanwhile, tmp_path: Path, agent: str, words: tuple[str, ...]
) -> None:
    keyed_agent(project, tmp_path)
    assert project.runplan("start", "X", "1", "auto", ROBOT_KEY=KEY).code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    if agent == "ended":
        meanwhile.let_on("agent")
    with in_foreground(project):
        until(lambda: "Halted" in [kind for kind, _ in project.events()])
        if agent == "ended":
            until(lambda: states(project) == ["waiting"])
        assert project.runplan("start", "X", *words, ROBOT_KEY=KEY).code == 0
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
    assert project.landed() == ["1"]


# --- what cannot be read --------------------------------------------------------------------------------------


BROKEN = {
    "repository": "runplan.toml:1: invalid TOML: ",
    "user": "/.config/runplan/runplan.toml:1: invalid TOML: ",
}


@pytest.mark.parametrize("whose", BROKEN)
@pytest.mark.parametrize("daemon", [False, True], ids=["no-daemon", "daemon"])
def test_settings_that_are_broken_keep_nobody_from_looking_and_stopping(
    project: Project, meanwhile: Meanwhile, whose: str, *, daemon: bool
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    if not daemon:
        kill_daemon(project)
    if whose == "user":
        user_settings(project, "[run\n")
    else:
        project.repo.write("runplan.toml", "[run\n")
    looks = ("status", "status X", "next", "logs X", "explain X", *(() if daemon else ("metrics",)))
    for words in map(str.split, (*looks, "pause X", "stop X")):
        ran = project.runplan(*words)
        assert ran.code == (0 if words[0] in ("pause", "stop") else 2), (words, ran.err)
        assert ran.out or words[0] in ("pause", "stop")
        warning = ran.err.splitlines()[0]
        assert (warning.startswith("runplan: warning: "), BROKEN[whose] in warning) == (True, True), (words, warning)
        assert warning.endswith("; ignoring this source")
    until_runs_are(project, "stopped")
    assert project.runplan("start", "X", "1", "auto").code == 2, "nothing is begun with them"


@pytest.mark.parametrize("words", [("stop", "X"), ("stop", "plans/X.md"), ("stop",)], ids=" ".join)
def test_a_plan_that_was_taken_away_while_it_is_worked_is_shown_and_stopped(
    project: Project, meanwhile: Meanwhile, words: tuple[str, ...]
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    (project.path / "plans/X.md").unlink()
    project.repo.commit("No plan")
    (view,) = project.runplan("status", "--json").json
    gone = "plans/X.md: the plan is gone, from main and from the checkout"
    assert (view["plan"], view["status"], view["error"]) == ("plans/X.md", "unreadable", gone)
    assert (view["run"]["state"], view["schedule"]["spec"], view["claim"]["alive"]) == ("running", "every 4h", True)
    for shown in (project.runplan("status").out, project.runplan("status", "X").out):
        assert shown.splitlines()[0] == gone
        assert f"run {view['run']['id']}: phase 1, implement by robot" in shown
        assert "  every 4h  next " in shown
    assert project.runplan("pause", "X").code == 0
    ran = project.runplan(*words)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    until_runs_are(project, "stopped")
    assert project.runplan("status").out.splitlines()[0] == gone, "whatever has been run can be looked up"
