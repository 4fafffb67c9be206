"""What is told of runs in the hands of the daemon is true, also after a restart, and when they have ended."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
from typing import TYPE_CHECKING

import pytest

from runplan.settings.places import state_directory
from tests.support.cli import a_plan, a_project, ended, until, with_remote
from tests.support.daemons import (
    answering,
    approve,
    in_foreground,
    kill_daemon,
    log_of,
    none_left,
    run_of,
    shell_agent,
    states,
    until_runs_are,
    user_settings,
    waits,
)
from tests.support.scripts import Meanwhile, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1", "2")


@pytest.fixture
def meanwhile(tmp_path: Path) -> Meanwhile:
    return Meanwhile(tmp_path)


def long_ago(project: Project) -> None:
    """Everything that is recorded was recorded then."""
    with contextlib.closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute("UPDATE events SET at=?", (LONG_AGO,))
        journal.execute("UPDATE runs SET since=?", (LONG_AGO,))


# --- since when -----------------------------------------------------------------------------------------------


def test_a_run_that_waits_has_waited_since_it_began_to_however_often_the_daemon_is_started(project: Project) -> None:
    assert project.runplan("start", "X").code == 0
    until(lambda: run_of(project)["waiting_for"] == "approval")
    kill_daemon(project)
    long_ago(project)
    for _ in range(2):
        with in_foreground(project) as daemon:
            until(lambda: run_of(project) and project.runplan("status", "X", "--json").json["claim"]["alive"])
            assert run_of(project)["since"] == LONG_AGO
            metrics = project.runplan("metrics").out
            waited = re.search(r"^runplan_waiting_seconds\{.*\} (\d+)", metrics, re.MULTILINE)
            assert waited is not None, metrics
            assert int(waited[1]) > 1_000_000
            daemon.kill()
        until(lambda: not answering(project))


def test_a_run_that_has_ended_has_done_so_since_its_end_and_not_since_its_last_step(
    project: Project, meanwhile: Meanwhile
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto").code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    long_ago(project)
    with in_foreground(project):
        until(lambda: project.runplan("status", "X", "--json").json["claim"]["alive"])
        assert run_of(project)["since"] == LONG_AGO, "it is at the same step"
        assert project.runplan("stop", "X").code == 0
        until_runs_are(project, "stopped")
    assert run_of(project)["since"] > LONG_AGO


# --- what was asked for ---------------------------------------------------------------------------------------


def test_a_pause_is_told_while_the_agent_works_on_and_when_nothing_goes_on_any_more(
    project: Project, meanwhile: Meanwhile
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto").code == 0
    meanwhile.reached("agent")
    assert project.runplan("pause", "X").code == 0
    assert (run_of(project)["state"], run_of(project)["asked"]) == ("running", "pause")
    assert "\n  Pausing: phase 1, implement for " in project.runplan("status", "X").out
    meanwhile.let_on("agent")
    until(lambda: run_of(project)["waiting_for"] == "paused")
    told = project.runplan("status", "X").out
    assert "Going on" not in told
    assert re.search(r": paused by a person \(phase 1, \w+, since .*\); to let it go on: runplan resume", told), told


def test_a_run_that_is_being_stopped_is_not_said_to_go_on(project: Project, meanwhile: Meanwhile) -> None:
    """Its agent takes its time to end."""
    project.agent(work("stubborn = true", *meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto").code == 0
    meanwhile.reached("agent")
    assert project.runplan("stop", "X").code == 0
    assert run_of(project)["asked"] == "stop"
    assert "\n  Stopping: phase 1" in project.runplan("status", "X").out
    meanwhile.let_on("agent")
    until_runs_are(project, "stopped")
    assert run_of(project)["asked"] is None


# --- what becomes of it ---------------------------------------------------------------------------------------


def test_a_retry_that_meets_the_end_of_a_run_says_that_it_ended_well(project: Project, tmp_path: Path) -> None:
    """When it was typed the run was at work, and when it is carried out there is nothing to retry."""
    meanwhile = Meanwhile(tmp_path)
    hook = with_remote(project, tmp_path / "origin").path / "hooks/pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/push.here\nuntil test -e {tmp_path}/push.on; do sleep 0.01; done\n")
    hook.chmod(0o755)
    assert project.runplan("start", "X", "auto", "direct").code == 0
    meanwhile.reached("push")
    with project.running("retry", "X") as retry:
        assert retry.stderr is not None
        assert b"daemon busy (git or network); request queued" in retry.stderr.readline()
        meanwhile.let_on("push")
        assert retry.stderr.readline() == b"runplan: the last run of plans/X.md succeeded; nothing to retry\n"
        assert retry.wait(30) == 0
    assert states(project) == ["done"]


def test_what_is_rejected_is_told_as_that(project: Project) -> None:
    assert project.runplan("start", "X").code == 0
    until(lambda: run_of(project)["waiting_for"] == "approval")
    run = run_of(project)["id"]
    assert project.runplan("reject", "X").last == (
        f"runplan: Rejected {run}; its work stays on its branch. See: runplan status plans/X.md"
    )


def test_a_schedule_that_takes_the_place_of_another_says_so(project: Project) -> None:
    told = [project.runplan("start", "X", "auto", "every", every).last for every in ("4h", "4h", "2h")]
    assert [line.partition(", first at ")[0] for line in told] == [
        "runplan: Scheduled plans/X.md every 4h",
        "runplan: Scheduled plans/X.md every 4h",
        "runplan: Scheduled plans/X.md every 2h instead of every 4h",
    ]
    assert " every 3h instead of every 2h, " in project.runplan("start", "X", "auto", "every", "3h", "now").err


# --- who waits ------------------------------------------------------------------------------------------------


def test_a_start_that_waits_does_not_hang_on_a_checkout_that_is_in_the_way(project: Project) -> None:
    """Like an approval it waits for a person; unlike one it goes on by itself when that is settled."""
    project.repo.write("1.txt", "mine\n")
    for _ in range(2):
        ran = project.runplan("start", "X", "1", "auto", "--wait")
        assert (ran.code, "runplan retry plans/X.md" in ran.last) == (4, True), ran.err
        assert "goes on by itself" in ran.last
    (project.path / "1.txt").unlink()
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")


def test_whoever_leaves_while_it_waits_is_told_that_the_run_goes_on(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    with project.running("start", "X", "1", "auto", "--wait") as waits:
        meanwhile.reached("agent")
        told = waits.stderr
        assert told is not None
        until(lambda: b"implement" in told.readline())
        waits.send_signal(signal.SIGINT)
        ran = ended(waits)
    run = run_of(project)["id"]
    assert (ran.code, ran.last) == (
        130,
        f"runplan: detached; {run} continues. Follow it: runplan logs plans/X.md -f; stop it: runplan stop plans/X.md",
    )
    meanwhile.let_on("agent")
    until_runs_are(project, "done")


# --- issues ---------------------------------------------------------------------------------------------------


def plans_of_one_issue(project: Project) -> None:
    project.plan(a_plan("1", "2", front="status: active\nissue: 7"))
    project.plan(a_plan("3", front="status: active\nissue: 7"), name="plans/Y.md")
    project.agent(work() + work(phase="2") + work(phase="3"))


def claimed_by(project: Project) -> str:
    return f"issue #7 is claimed by the run {run_of(project)['id']} of plans/X.md; both runs continue"


@pytest.mark.parametrize("words", [("auto",), ("auto", "every", "4h", "now")], ids=["start", "schedule"])
def test_who_starts_a_plan_whose_issue_another_run_has_claimed_is_warned(
    project: Project, words: tuple[str, ...]
) -> None:
    plans_of_one_issue(project)
    assert project.runplan("start", "X", "1").code == 0
    until_runs_are(project, "waiting")
    second = project.runplan("start", "Y", *words)
    assert (second.code, f"runplan: warning: {claimed_by(project)}" in second.err.splitlines()) == (0, True), second.err
    until_runs_are(project, "done", plan="plans/Y.md")
    assert f"- Warning: {claimed_by(project)}" in project.runplan("report", "Y").out.replace("\\", "")
    approve(project)
    assert "Warning" not in project.runplan("report", "X").out


@pytest.mark.parametrize("where", ["daemon", "foreground"])
def test_a_run_that_waits_keeps_its_issue_when_its_process_is_gone(project: Project, where: str) -> None:
    plans_of_one_issue(project)
    if where == "daemon":
        assert project.runplan("start", "X", "finish").code == 0
        until_runs_are(project, "waiting")
        kill_daemon(project)
    else:
        assert project.start("finish").code == 4
        assert project.runplan("approve", "X").code == 4, "approved, and waits for the next phase"
    second = project.runplan("start", "Y", "auto", "--foreground")
    assert (second.code, f"runplan: warning: {claimed_by(project)}" in second.err) == (0, True), second.err
    with in_foreground(project):
        assert project.runplan("stop", "X").code == 0
        until_runs_are(project, "stopped")
        third = project.runplan("start", "X", "1")
        assert (third.code, "warning" in third.err) == (0, False), third.err


def test_a_person_is_called_once_to_a_run_whose_key_a_restart_has_lost(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    notice = "$RUNPLAN_NOTICE $RUNPLAN_REASON $RUNPLAN_COMMAND: $RUNPLAN_TEXT"
    user_settings(project, f'[notify]\ncommand = "echo \\"{notice}\\" >>{told}"\non = ["waiting"]\n')
    shell_agent(project, tmp_path, waits(tmp_path, "agent"), env='"ROBOT_KEY"')
    assert project.runplan("start", "X", "1", "auto", ROBOT_KEY="sesame").code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    meanwhile.let_on("agent")
    for _ in range(2):
        before = len(log_of(project, "waits"))
        with in_foreground(project):
            until(lambda before=before: len(log_of(project, "waits")) > before)  # type: ignore[misc]
            kill_daemon(project, signal.SIGTERM)  # it sends what there is to send
    (line,) = told.read_text().splitlines()
    assert line.startswith("waiting key runplan resume plans/X.md: the daemon restarted and lost $ROBOT_KEY"), line


def test_a_person_is_called_once_to_what_waits_for_them_however_often_the_daemon_is_started(
    project: Project, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_NOTICE $RUNPLAN_PHASE >>{told}"\n')
    assert project.runplan("start", "X", "finish").code == 0
    until(lambda: told.exists() and (state_directory(project.env) / "noticed.json").exists())
    kill_daemon(project)
    with in_foreground(project):
        until(lambda: len(log_of(project, "waits")) == 2)
        approve(project)
        until(lambda: "waiting 2" in told.read_text())
    assert told.read_text().splitlines() == ["waiting 1", "waiting 2"]
