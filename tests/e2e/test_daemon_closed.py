"""A repository in which the daemon can do nothing for now: `status` says so, and why, until it can again."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.support.cli import until
from tests.support.daemons import daemon_of, log_of, shell_agent, until_runs_are, waits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project
    from tests.support.scripts import Meanwhile

STILL = "Stands still: the daemon cannot work in this repository for now."


def change_journal(project: Project, statement: str) -> None:
    with closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute(statement)


def test_status_tells_of_it_and_why(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    change_journal(project, "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END")
    assert STILL not in project.runplan("status").out
    meanwhile.let_on("agent")
    until(lambda: log_of(project, "closed"))
    daemon = daemon_of(project)
    for words in ((), ("X",)):
        told = project.runplan("status", *words).out
        assert f"\n  {STILL}\n" in told
        last = told.splitlines()[-1]
        assert last.startswith(f"The daemon (process {daemon}) cannot work here since ")
        assert ": no room; nothing was recorded; " in last
        assert "; it tries again at " in last
    seen = project.runplan("status", "X", "--json").json
    assert (seen["daemon"]["state"], seen["daemon"]["pid"]) == ("closed", daemon)
    assert "no room" in seen["daemon"]["error"]
    assert seen["run"]["stuck"] == {"level": "look", "sentence": STILL}

    change_journal(project, "DROP TRIGGER full")
    os.kill(daemon, signal.SIGHUP)
    until_runs_are(project, "done")
    assert project.runplan("status", "X", "--json").json["daemon"] is None
