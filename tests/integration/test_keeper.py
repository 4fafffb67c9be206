"""Who looks after a repository: runs of ours that are in other hands."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.clock import SystemClock
from runplan.adapters.configurations import Configurations
from runplan.adapters.places import state_directory
from runplan.adapters.repositories import Repositories
from runplan.app.daemon import SharedTurns
from runplan.app.keeper import Keeper
from runplan.core.turns import Turns
from runplan.wiring.beside import Besides
from runplan.wiring.desks import Environments, open_desk
from tests.support.cli import a_project, until
from tests.support.daemons import kill_daemon, none_left, run_of, shell_agent, until_runs_are, waits
from tests.support.scripts import Meanwhile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from tests.support.cli import Project


class Timers:
    """Nobody is called by them but by the test."""

    def __init__(self) -> None:
        self.armed: dict[str, tuple[datetime, Callable[[], None]]] = {}

    def at(self, key: str, moment: datetime, call: Callable[[], None]) -> None:
        self.armed[key] = (moment, call)

    def cancel(self, key: str) -> None:
        self.armed.pop(key, None)

    def look_again(self) -> None: ...


class Audience:
    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, object]]] = []

    def happened(self, root: str, event: str, **fields: object) -> None:
        self.heard.append((event, fields))

    def told(self, *told: object) -> None: ...

    def ended(self, *told: object) -> None: ...

    def waits(self, *told: object) -> None: ...


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1", "2")


def a_keeper(project: Project, timers: Timers, audience: Audience, clock: SystemClock | None = None) -> Keeper:
    environments = Environments(project.env)
    configurations = Configurations(project.env, lambda _, __: None)
    root = str(project.path)
    opens = functools.partial(open_desk, root, environments=environments, configurations=configurations)
    turns = SharedTurns(Turns(host=4, repository=4), lambda _: None)
    return Keeper(
        root,
        opens,
        timers=timers,
        clock=clock or SystemClock(),
        audience=audience,
        turns=turns,
        rested=lambda: None,
        beside=Besides(Repositories(state_directory(project.env))),
    )


def test_a_run_in_other_hands_is_looked_at_again_and_gone_on_with_when_they_let_go(
    project: Project, tmp_path: Path
) -> None:
    meanwhile, timers, audience = Meanwhile(tmp_path), Timers(), Audience()
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    other = project.popen("start", "X", "1", "auto", "--foreground")
    until(lambda: run_of(project)["state"] == "running" and claimed_by(project) == str(other.pid))
    keeper = a_keeper(project, timers, audience)
    key = f"foreign {project.path} plans/X.md"
    try:
        before = SystemClock().now()
        keeper.look()
        until(lambda: key in timers.armed)
        moment, call = timers.armed.pop(key)
        assert timedelta(seconds=55) < moment - before < timedelta(seconds=90)
        assert [event for event, _ in audience.heard] == ["declined"]

        other.kill()
        other.communicate()
        call()
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
        assert key not in timers.armed
    finally:
        assert keeper.close(20)
    assert project.landed() == ["1"]
    assert project.dispatched().count("implement") == 1


def test_a_repository_that_stays_closed_is_so_since_it_was_closed_and_tried_less_and_less_often(
    project: Project, tmp_path: Path
) -> None:
    """It can be opened each time, and then no step can be taken."""
    meanwhile, timers, audience, clock = Meanwhile(tmp_path), Timers(), Audience(), Moving()
    shell_agent(project, tmp_path, waits(tmp_path, "agent"))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    keeper = a_keeper(project, timers, audience, clock)
    try:
        keeper.look()
        until(lambda: claimed_by(project) == str(os.getpid()))
        full = "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END"
        change_journal(project, full)
        meanwhile.let_on("agent")
        told: list[tuple[str, timedelta]] = []
        while len(told) < 11:
            until(lambda: closed(audience) == len(told) + 1 and keeper.at_rest)
            assert keeper.trouble is not None
            told.append((keeper.trouble.since, timers.armed.pop(f"wake {project.path}")[0] - clock.now()))
            clock.ahead += timedelta(minutes=10)
            keeper.look()
        assert {since for since, _ in told} == {told[0][0]}
        assert [round(again.total_seconds() / 60) for _, again in told] == [*[1] * 9, 10, 10]
        until(lambda: closed(audience) == len(told) + 1 and keeper.at_rest)
        change_journal(project, "DROP TRIGGER full")
        keeper.look()
        until_runs_are(project, "done")
        assert keeper.trouble is None
    finally:
        assert keeper.close(20)


def closed(audience: Audience) -> int:
    return [event for event, _ in audience.heard].count("closed")


class Moving(SystemClock):
    """A clock that the test puts forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def change_journal(project: Project, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute(statement)


def claimed_by(project: Project) -> str:
    claim = project.runplan("status", "X", "--json").json["claim"]
    return str(claim["owner"]).partition(":")[0] if claim else ""
