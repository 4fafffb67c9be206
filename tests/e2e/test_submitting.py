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
from runplan.daemon.protocol import DaemonStatus, Status
from runplan.store.commands import Commands
from runplan.store.sqlite import Store
from tests.support.cli import until
from tests.support.daemons import (
    in_foreground,
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


def test_what_is_queued_while_no_daemon_runs_is_executed_by_the_next_one(project: Project) -> None:
    with in_foreground(project):
        assert project.runplan("start", "X", "auto", "every", "4h").code == 0
    number = queue_pause(project)
    with in_foreground(project):
        until(lambda: is_answered(project, number))
    assert [row.paused for row in schedules(project)] == ["paused by a person"]


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
            assert client.call(Status(), DaemonStatus).repositories == (str(places[0]),)
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


def test_status_shows_a_queued_start_and_why_it_was_refused(project: Project) -> None:
    """The daemon died before it executed the start, and a stop came first."""
    with in_foreground(project) as daemon:
        daemon.send_signal(signal.SIGSTOP)
        assert project.runplan("start", "X", "auto").code == 5
        daemon.kill()
    assert "Queued: start; the daemon executes it when it responds" in project.runplan("status").out
    assert project.runplan("status", "X", "--json").json["queued"] == "start"
    stopped = project.runplan("stop", "X")
    assert (stopped.code, "plans/X.md was about to begin and does not" in stopped.err) == (0, True), stopped.err
    seen = project.runplan("status", "X", "--json").json
    assert (seen["queued"], seen["refused"]) == (None, "plans/X.md was stopped before it began")
    assert "The last start was refused: plans/X.md was stopped before it began" in project.runplan("status").out


def test_a_process_that_is_stopped_while_it_executes_commands_does_not_block_the_worker(
    project: Project, tmp_path: Path
) -> None:
    """As with Ctrl-Z: it holds the lock of the queue until it is continued."""
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    until((tmp_path / "agent.here").exists)
    with FileLock(project.path / ".git/runplan/locks/commands.lock"):
        paused = project.runplan("pause", "X")
        assert (paused.code, "request queued" in paused.err) == (0, True), paused.err
        (tmp_path / "agent.on").touch()
        until_runs_are(project, "done")
    until(lambda: project.rows("SELECT 1 FROM commands WHERE answer IS NULL") == [])


def test_a_start_whose_answer_was_not_recorded_is_not_executed_again(project: Project) -> None:
    """The daemon was killed between the first fact of the run and the answer to the command."""
    with in_foreground(project):
        assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute("UPDATE commands SET answer=NULL")
    with in_foreground(project):
        until(lambda: project.rows("SELECT 1 FROM commands WHERE answer IS NULL") == [])
        assert (states(project), project.landed()) == (["done"], ["1"])
