"""Whoever submits a command is told its answer, whoever was quicker."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from filelock import FileLock

from runplan.daemon.client import Client
from runplan.store.commands import Commands
from runplan.store.schedules import Schedules
from runplan.store.sqlite import Store
from tests.support.cli import ended, until
from tests.support.daemons import (
    in_foreground,
    kill_daemon,
    schedules,
    shell_agent,
    socket_of,
    states,
    until_runs_are,
    waits,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project


def queue_pause(project: Project) -> int:
    """As `runplan pause` does, before it asks the daemon."""
    with closing(Store(project.path / ".git/runplan")) as store:
        return Commands(store).add("plans/X.md", "pause", {}, by="a person", at="2026-03-01T12:00:00Z")


def is_answered(project: Project, number: int) -> bool:
    with closing(Store(project.path / ".git/runplan")) as store:
        return Commands(store).answer(number) is not None


def test_a_command_that_was_executed_before_its_caller_asked_is_answered(project: Project) -> None:
    """The worker may be awake for another reason when the row is stored."""
    with in_foreground(project):
        assert project.runplan("start", "X", "auto", "every", "4h").code == 0
        number = queue_pause(project)
        with Client(socket_of(project)) as client:
            client.call("submit", root=str(project.path))
            until(lambda: is_answered(project, number))
            reply = client.call("submit", root=str(project.path), commands=[number], wait=True)
    assert reply["answers"][0]["lines"] == ["Paused plans/X.md"]


def test_what_is_queued_while_no_daemon_runs_is_executed_by_the_next_one(project: Project) -> None:
    with in_foreground(project):
        assert project.runplan("start", "X", "auto", "every", "4h").code == 0
    number = queue_pause(project)
    with in_foreground(project):
        until(lambda: is_answered(project, number))
    assert [row.paused for row in schedules(project)] == ["paused by a person"]


def test_commands_that_wait_are_executed_with_the_one_of_a_caller_without_a_daemon(project: Project) -> None:
    with in_foreground(project):
        assert project.runplan("start", "X", "auto", "every", "4h").code == 0
    left = queue_pause(project)
    stopped = project.runplan("stop", "X")
    assert (stopped.code, is_answered(project, left)) == (0, True), stopped.err
    assert schedules(project) == []


def test_a_stop_refuses_a_start_that_is_queued(project: Project) -> None:
    """The worker may be busy with another plan, or the daemon may have died before it looked."""
    with in_foreground(project):
        assert project.runplan("start", "X", "auto", "every", "4h").code == 0
    with closing(Store(project.path / ".git/runplan")) as store:
        (row,) = Schedules(store).all()
        start = Commands(store).add("plans/Y.md", "start", {"started": row.request}, by="a person", at=row.made)
    stopped = project.runplan("stop")
    assert stopped.err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: plans/Y.md was about to begin and does not",
    ]
    assert is_answered(project, start)


def test_checkouts_of_one_bare_repository_are_worked_by_one_worker(project: Project, tmp_path: Path) -> None:
    """With two, whoever submits to the one would wait for ever when the other executes the command."""
    bare, places = tmp_path / "bare.git", [tmp_path / "one", tmp_path / "two"]
    project.repo.git("clone", "-q", "--bare", ".", str(bare))
    for name in ("user.name", "user.email"):
        project.repo.git("-C", str(bare), "config", name, project.repo.git("config", name).strip())
    for place in places:
        project.repo.git("-C", str(bare), "worktree", "add", "-q", "-b", place.name, str(place), "main")
    with in_foreground(project):
        assert project.runplan_in(places[0], "start", "X", "auto", "every", "4h").code == 0
        assert project.runplan_in(places[1], "pause", "X").code == 0
        with Client(socket_of(project)) as client:
            assert client.call("status")["repositories"] == [str(places[0])]
        assert project.runplan_in(places[1], "resume", "X").code == 0
        shutil.rmtree(places[0])
        assert "Paused plans/X.md" in project.runplan_in(places[1], "pause", "X").err


def test_the_first_answer_to_a_candidate_counts_and_the_later_ones_are_declined(project: Project) -> None:
    """They were given at the same time, so each caller saw a candidate that waits."""
    with in_foreground(project) as daemon:
        assert project.runplan("start", "X", "1").code == 0
        until_runs_are(project, "waiting")
        daemon.send_signal(signal.SIGSTOP)
        assert [project.runplan(*words).code for words in (("approve", "X"), ("reject", "X", "-m", "no"))] == [5, 5]
        daemon.send_signal(signal.SIGCONT)
        until_runs_are(project, "done")
    assert project.landed() == ["1"]
    answers = [json.loads(text) for (text,) in project.rows("SELECT answer FROM commands ORDER BY seq")][1:]
    assert [(bool(one["run"]), one["why"].partition(";")[0]) for one in answers] == [
        (True, ""),
        (False, "no change of plans/X.md waits for an answer"),
    ]


def in_flight(project: Project, place: Path) -> None:
    shell_agent(project, place, waits(place, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    until((place / "agent.here").exists)


def test_a_stop_whose_daemon_dies_is_executed_by_its_caller(project: Project, tmp_path: Path) -> None:
    in_flight(project, tmp_path)
    with FileLock(project.path / ".git/runplan/locks/commands.lock"):  # the worker is about to execute it
        stop, start = project.popen("stop", "X"), project.popen("start", "X", "2", "auto")
        until(lambda: len(project.rows("SELECT seq FROM commands WHERE answer IS NULL")) == 2)
        kill_daemon(project)
    stopped, queued = ended(stop), ended(start)
    assert (stopped.code, states(project)) == (0, ["stopped"]), stopped.err
    assert queued.code == 5
    assert "the request is queued, and the next daemon executes it" in queued.last


def test_a_stop_is_left_to_a_daemon_that_came_up_meanwhile(project: Project, tmp_path: Path) -> None:
    in_flight(project, tmp_path)
    kill_daemon(project)
    with FileLock(project.path / ".git/runplan/locks/commands.lock"):
        stop = project.popen("stop", "X")
        until(lambda: project.rows("SELECT seq FROM commands WHERE answer IS NULL"))
        daemon = project.popen("daemon")
        until(lambda: project.rows("SELECT owner FROM claims WHERE owner LIKE ?", f"{daemon.pid}:%"))
        daemon.send_signal(signal.SIGSTOP)
    assert "queued" in ended(stop).last
    daemon.send_signal(signal.SIGCONT)
    until_runs_are(project, "stopped")
    kill_daemon(project)
    ended(daemon)


def test_a_start_whose_answer_was_not_recorded_is_not_executed_again(project: Project) -> None:
    """The daemon was killed between the first fact of the run and the answer to the command."""
    with in_foreground(project):
        assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute("UPDATE commands SET answer=NULL")
    with in_foreground(project):
        until(lambda: project.rows("SELECT 1 FROM commands WHERE answer IS NULL") == [])
        assert (states(project), project.landed()) == (["done"], ["1"])
