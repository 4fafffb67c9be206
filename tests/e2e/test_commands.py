"""Commands take effect, and once, in every state of the daemon and the disk."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from runplan.adapters import processes
from tests.support.cli import Meanwhile, Project, a_plan, processes_of, until, with_remote, work
from tests.support.daemons import (
    daemon_of,
    freeze_daemon,
    in_foreground,
    kill_daemon,
    run_of,
    schedules,
    states,
    until_runs_are,
)
from tests.support.tools import write_script

#: The remote lets the caller wait, and then takes nothing.
HOOK = "touch {place}/push.here\nuntil test -e {place}/push.on; do sleep 0.01; done\nexit 1"


def test_a_pause_takes_effect_once_the_daemon_is_not_busy(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    """The worker of the repository waits for a remote."""
    project.plan(a_plan("2"), name="plans/Y.md")
    meanwhile.start(project)
    remote = with_remote(project, tmp_path / "origin")
    write_script(remote.path / "hooks/pre-receive", HOOK.format(place=tmp_path))
    assert project.runplan("start", "Y", "2", "auto", "direct").code == 0
    meanwhile.reached("push")
    with project.popen("pause", "X") as asks:
        assert asks.stderr is not None
        said = iter(asks.stderr.readline, b"")
        assert any(b"daemon busy (git or network); request queued" in line for line in said)
        meanwhile.let_on("push")
        assert asks.wait(60) == 0
    meanwhile.let_on("agent")
    until_runs_are(project, "waiting")
    assert run_of(project)["about"] == "paused by a person"
    assert len(project.bodies("Halted")) == 1
    assert project.rows("SELECT verb FROM commands WHERE answer IS NULL") == []


# --- without a daemon ---------------------------------------------------------------------------------


def orphaned_agent(project: Project, meanwhile: Meanwhile, *words: str) -> None:
    """An agent is running, and its daemon is dead."""
    meanwhile.start(project, "auto", *words)
    kill_daemon(project)
    assert processes_of(project.home)


def test_a_stop_without_a_daemon_ends_agent_and_schedule_and_keeps_work(project: Project, meanwhile: Meanwhile) -> None:
    orphaned_agent(project, meanwhile, "every", "4h", "now")
    ran = project.runplan("stop", "X")
    assert (ran.code, ran.err.splitlines()[-2:]) == (
        0,
        ["runplan: Cancelled the schedule of plans/X.md (every 4h)", "runplan: Stopping plans/X.md; its work is kept"],
    )
    until(lambda: processes_of(project.home) == [])
    assert (states(project), daemon_of(project)) == (["stopped"], 0)
    assert project.show("runplan/x/1:1.txt") == "1"
    assert "Nothing to stop here" in project.runplan("stop").err


def test_a_foreground_run_that_ctrl_z_stopped_is_ended(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    with project.running("start", "X", "1", "auto", "--foreground") as foreground:
        meanwhile.reached("agent")
        foreground.send_signal(signal.SIGSTOP)
        until(lambda: processes.stopped(foreground.pid))
        shown = project.runplan("status", "X").out
        assert f"its process is stopped; continue it: kill -CONT {foreground.pid}" in shown
        assert "Needs attention: phase 1" in shown
        project.runplan("stop", "X", "--force").exits(0, f"Stopped the run of plans/X.md in process {foreground.pid}")
    until_runs_are(project, "stopped")
    until(lambda: processes_of(project.home) == [])


@pytest.mark.promise
def test_a_pause_without_a_daemon_is_obeyed_by_the_next_one(project: Project, meanwhile: Meanwhile) -> None:
    orphaned_agent(project, meanwhile, "1")
    ran = project.runplan("pause", "X")
    assert (ran.code, ran.last.endswith("runplan resume plans/X.md")) == (0, True), ran.err
    meanwhile.let_on("agent")
    until(lambda: processes_of(project.home) == [])
    with in_foreground(project):
        until(lambda: states(project) == ["waiting"])
        assert project.dispatched() == ["implement"]
        assert project.runplan("resume", "X").code == 0
        until_runs_are(project, "done")
    assert project.landed() == ["1"]


def test_a_start_whose_answer_was_not_recorded_is_not_executed_again(project: Project) -> None:
    with in_foreground(project):
        assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute("UPDATE commands SET answer=NULL")
    with in_foreground(project):
        until(lambda: project.rows("SELECT 1 FROM commands WHERE answer IS NULL") == [])
        assert (states(project), project.landed()) == (["done"], ["1"])


def test_with_broken_settings_status_and_stop_still_work(project: Project, meanwhile: Meanwhile) -> None:
    """In the user's file, without a daemon; in the repository's, with one."""
    meanwhile.start(project)
    own = project.home / ".config/runplan/runplan.toml"
    for file, verbs in ((project.path / "runplan.toml", "status,next,logs X,explain X"), (own, "pause X,stop X")):
        if file == own:
            kill_daemon(project)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[run\n")
        for words in map(str.split, verbs.split(",")):
            ran = project.runplan(*words)
            assert ran.code == 0, (words, ran.err)
            warning = next(line for line in ran.err.splitlines() if "warning" in line)  # after the death of the daemon
            assert (warning.startswith("runplan: warning: "), f"{file.name}: invalid TOML: " in warning) == (True, True)
            assert warning.endswith("; using the default settings")
    until_runs_are(project, "stopped")
    assert project.runplan("start", "X", "1", "auto").code == 2


# --- a daemon that does not answer --------------------------------------------------------------------


def test_a_stop_ends_a_frozen_daemon_s_agents_and_waits(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    meanwhile.start(project, "auto", "every", "4h", "now", first=f'run = "echo $PPID >{tmp_path}/agent"')
    frozen = freeze_daemon(project)
    silence = f"the daemon (process {frozen}) is stopped; continue it: kill -CONT {frozen}"
    ran = project.runplan("stop", "X")
    assert (ran.code, ran.err.splitlines()) == (
        5,
        [
            "runplan: Ended the agent of plans/X.md; its work is kept",
            f"runplan: the request is queued and takes effect when the daemon responds; {silence}",
        ],
    )
    assert int((tmp_path / "agent").read_text()) not in processes_of(project.home)
    os.kill(frozen, signal.SIGCONT)
    until_runs_are(project, "stopped")
    until(lambda: project.rows("SELECT 1 FROM commands WHERE answer IS NULL") == [])
    assert (schedules(project), project.landed(), project.dispatched()) == ([], [], ["implement"])


@pytest.mark.promise
def test_the_first_answer_to_a_pending_change_counts_and_later_ones_are_declined(project: Project) -> None:
    with in_foreground(project) as daemon:
        assert project.runplan("start", "X", "1").code == 0
        until_runs_are(project, "waiting")
        freeze_daemon(project)
        assert [project.runplan(*words).code for words in (("approve", "X"), ("reject", "X", "-m", "no"))] == [5, 5]
        daemon.send_signal(signal.SIGCONT)
        until_runs_are(project, "done")
    assert project.landed() == ["1"]
    answers = [json.loads(text) for (text,) in project.rows("SELECT answer FROM commands ORDER BY seq")][1:]
    assert [(bool(one["run"]), one["why"].partition(";")[0]) for one in answers] == [
        (True, ""),
        (False, "no change of plans/X.md waits for an answer"),
    ]


def test_status_shows_a_queued_start_and_why_it_was_refused(project: Project) -> None:
    """The daemon died before it executed the start, and a stop came first."""
    with in_foreground(project) as daemon:
        daemon.send_signal(signal.SIGSTOP)
        assert project.runplan("start", "X", "auto").code == 5
        daemon.kill()
    assert (
        "Queued: start; the daemon, or a worker of the fleet, executes it when it responds"
        in project.runplan("status").out
    )
    assert project.runplan("status", "X", "--json").json["queued"] == "start"
    project.runplan("stop", "X").exits(0, "Cancelled the queued start of plans/X.md")
    seen = project.runplan("status", "X", "--json").json
    why = "plans/X.md was stopped before it began"
    assert (seen["queued"], seen["refused"], seen["refused_verb"]) == (None, why, "start")
    assert f"The last start was refused: {why}" in project.runplan("status", "X").out
