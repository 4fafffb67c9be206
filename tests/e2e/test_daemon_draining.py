"""The end of a daemon in two steps: agents may end, then they are ended; the next daemon goes on where it stood."""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan import __version__
from runplan.daemon import singleton, submitting as launching
from runplan.daemon.client import Client
from runplan.settings.places import state_directory
from runplan.times import iso, parse_iso
from tests.support.cli import copied, processes_of, until
from tests.support.daemons import (
    change_schedule,
    daemon_of,
    firings,
    in_foreground,
    kill_daemon,
    log_of,
    shell_agent,
    socket_of,
    states,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, steps, verify, work

if TYPE_CHECKING:
    from tests.support.cli import Project

LONG = '[daemon]\ngrace = "10m"\n'


def told_to_end(project: Project, number: int = signal.SIGTERM) -> int:
    """The daemon, which drains now."""
    daemon, before = daemon_of(project), len(log_of(project, "draining"))
    os.kill(daemon, number)
    until(lambda: len(log_of(project, "draining")) > before)
    return daemon


def gone(project: Project, daemon: int) -> bool:
    return daemon not in processes_of(project.home)


def in_flight(project: Project, meanwhile: Meanwhile, *words: str) -> None:
    """A run whose implementer does not end before it is let on."""
    user_settings(project, LONG)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"') + work(phase="2"))
    assert project.runplan("start", "X", *(words or ("1", "auto"))).code == 0
    meanwhile.reached("agent")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_the_first_word_begins_nothing_new_and_lets_agents_end(
    project: Project, meanwhile: Meanwhile, number: int
) -> None:
    in_flight(project, meanwhile)
    daemon = told_to_end(project, number)
    assert states(project) == ["running"]
    meanwhile.let_on("agent")
    until(lambda: gone(project, daemon))
    assert project.dispatched() == ["implement"], "the verifier would be something new"
    kinds = [kind for kind, _ in project.events()]
    assert "WorkTaken" in kinds, "what the agent did is recorded"
    assert states(project) == ["running"]
    until(lambda: processes_of(project.home) == [])
    with in_foreground(project):
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]


def test_a_word_that_the_kernel_gives_to_another_thread_is_heard_at_once(
    project: Project, meanwhile: Meanwhile
) -> None:
    in_flight(project, meanwhile)
    daemon = daemon_of(project)
    other = next(int(task.name) for task in Path(f"/proc/{daemon}/task").iterdir() if int(task.name) != daemon)
    assert ctypes.CDLL(None).tgkill(daemon, other, signal.SIGTERM) == 0
    until(lambda: log_of(project, "draining"), seconds=30)  # by itself it wakes once a minute
    meanwhile.let_on("agent")
    until(lambda: gone(project, daemon))


def test_what_is_past_its_last_agent_is_landed_before_the_end(project: Project, meanwhile: Meanwhile) -> None:
    user_settings(project, LONG)
    project.agent(work() + verify(*meanwhile.pause("verifier"), "pass_all = true"))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    meanwhile.reached("verifier")
    daemon = told_to_end(project)
    meanwhile.let_on("verifier")
    until(lambda: gone(project, daemon))
    assert project.landed() == ["1"]
    assert project.dispatched() == ["implement", "verify"], "the second phase is the next daemon's"
    assert states(project) == ["running"]


def test_a_daemon_at_which_nothing_runs_ends_at_once(project: Project) -> None:
    user_settings(project, LONG)
    assert project.runplan("start", "X", "1", "--wait").code == 4, "it waits for a person"
    daemon = daemon_of(project)
    until(lambda: processes_of(project.home) == [daemon])
    os.kill(daemon, signal.SIGTERM)
    until(lambda: gone(project, daemon))  # long before the grace is over
    assert states(project) == ["waiting"]


def test_the_second_word_ends_agents_and_charges_nobody(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    daemon = told_to_end(project)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: processes_of(project.home) == [])
    (ended,) = [body for kind, body in project.events() if kind == "DispatchEnded"]
    assert (ended["ending"], ended["role"]) == ("ended", "implement")
    assert states(project) == ["running"], "the run itself goes on with the next daemon"
    meanwhile.let_on("agent")
    with in_foreground(project):
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "implement", "verify"]
    attempts = [body["attempt"] for kind, body in project.events() if kind == "Leased"]
    assert attempts == [1]
    assert project.landed() == ["1"]


def test_agents_that_do_not_listen_are_ended_at_the_same_time(project: Project, tmp_path: Path) -> None:
    user_settings(project, LONG)
    deaf = f"trap 'date +%s >>{tmp_path}/asked' TERM; trap '' INT; touch {tmp_path}/$(basename $RUNPLAN_PLAN).here"
    shell_agent(project, tmp_path, f"{deaf}; while :; do sleep 0.02 || :; done")
    plans = ("plans/X.md", "plans/Y.md", "plans/Z.md")
    for plan in plans[1:]:
        project.plan((project.path / "plans/X.md").read_text(), name=plan)
    for plan in plans:
        assert project.runplan("start", plan, "1", "auto").code == 0
    for plan in plans:
        until((tmp_path / f"{plan.removeprefix('plans/')}.here").exists)
    daemon = told_to_end(project)
    os.kill(daemon, signal.SIGTERM)
    until(lambda: processes_of(project.home) == [])
    for plan in plans:
        assert [body["ending"] for kind, body in project.events(plan) if kind == "DispatchEnded"] == ["ended"]
    asked = [int(word) for word in (tmp_path / "asked").read_text().split()]
    ends = [parse_iso(at).timestamp() for (at,) in project.rows("SELECT at FROM events WHERE type='DispatchEnded'")]
    assert len(asked) >= len(plans)
    assert max(asked) <= min(ends) + 1, "the last was asked before the first was forced, which takes seconds"


# --- asked while it drains ------------------------------------------------------------------------------------


def test_while_it_drains_status_says_so_and_a_start_is_told_when_to_ask_again(
    project: Project, meanwhile: Meanwhile
) -> None:
    in_flight(project, meanwhile)
    assert "draining" not in project.runplan("status").out
    daemon = told_to_end(project)
    assert f"The daemon (process {daemon}) is draining" in project.runplan("status").out
    assert project.runplan("status", "X", "--json").json["daemon"]["state"] == "draining"
    project.plan((project.path / "plans/X.md").read_text(), name="plans/Y.md")
    for words in (("start", "Y", "1", "auto"), ("resume", "X"), ("retry", "X")):
        ran = project.runplan(*words)
        assert ran.code == 5, ran.err
        assert "the daemon is shutting down and starts nothing new; try again in " in ran.last
    assert states(project, "plans/Y.md") == []
    ran = project.runplan("stop", "X")
    assert (ran.code, "Stopping plans/X.md" in ran.err) == (0, True), "to end something is always possible"
    until(lambda: gone(project, daemon))
    assert states(project) == ["stopped"]


def test_a_slot_that_comes_due_while_it_drains_is_the_next_daemons(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    project.plan((project.path / "plans/X.md").read_text(), name="plans/Y.md")
    assert project.runplan("start", "Y", "auto", "every", "4h").code == 0
    kill_daemon(project)
    began = datetime.now(UTC)
    with in_foreground(project):
        kill_daemon(project)
    due = datetime.now(UTC) + 3 * (datetime.now(UTC) - began) + timedelta(seconds=2)  # it drains by then
    change_schedule(project, "plans/Y.md", anchor=iso(due - timedelta(hours=4)), made=iso(due - timedelta(hours=4)))
    with in_foreground(project):
        daemon = told_to_end(project)
        assert datetime.now(UTC) < due, "what comes due before it drains is no slot of the next daemon's"
        until(lambda: datetime.now(UTC) > due + timedelta(seconds=1))
        assert firings(project, "plans/Y.md") == []
        meanwhile.let_on("agent")
        until(lambda: gone(project, daemon))
    assert states(project, "plans/Y.md") == []
    with in_foreground(project):
        until(lambda: [answer for answer, _ in firings(project, "plans/Y.md")] == ["fired"])


def test_an_older_daemon_drains_before_it_hands_over(project: Project, meanwhile: Meanwhile) -> None:
    in_flight(project, meanwhile)
    daemon = daemon_of(project)
    with Client(socket_of(project)) as client:
        client.call("drain")
        client.call("drain")
        assert client.call("status")["draining"]
    assert not gone(project, daemon), "said twice it is no second word"
    meanwhile.let_on("agent")
    until(lambda: gone(project, daemon))
    later = launching.reach(project.env, version=__version__)
    with later:
        until_runs_are(project, "done")
    assert project.dispatched() == ["implement", "verify"]


def test_a_state_that_cannot_be_written_to_does_not_keep_it_from_draining(project: Project) -> None:
    with in_foreground(project) as daemon:
        (state_directory(project.env) / f"{singleton.RECORD}.new").mkdir()  # as a full disk would
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(timeout=30) == 0
    (untold,) = log_of(project, "record-failed")
    assert untold["words"] == "daemon.json cannot be written: Is a directory"
    assert log_of(project, "draining")
    assert log_of(project, "stopped")


def test_a_notification_that_hangs_does_not_outlive_it(project: Project, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    user_settings(project, f'[notify]\ncommand = "echo $$ >{pid}; sleep 60; :"\non = ["done"]\n')
    assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
    until(pid.exists)
    told_to_end(project)
    until(lambda: processes_of(project.home) == [])


def test_a_plan_of_a_repository_at_rest_is_stopped_and_paused_while_another_drains(
    project: Project, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = replace(copied(project, tmp_path / "other"), home=project.home)
    assert other.runplan("start", "X", "auto", "every", "4h").code == 0
    assert other.runplan("start", "X", "1").code == 0
    until_runs_are(other, "waiting")
    in_flight(project, meanwhile)
    told_to_end(project)
    assert "Paused plans/X.md" in other.runplan("pause", "X").err
    assert other.runplan("stop", "X").err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    until_runs_are(other, "stopped")
