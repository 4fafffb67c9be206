"""A run of a fleet continues on another host: nothing is landed twice, and at most one dispatch is repeated."""

import os
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from runplan.engine.context import context_at
from runplan.engine.repository import Environments, open_repository
from runplan.engine.worker import RepositoryWorker
from runplan.run import events as e
from runplan.run.kinds import Mode
from runplan.run.requests import RunRequest
from runplan.settings.load import load_settings
from tests.support.cli import Project, a_project, end_processes_of, set_up, with_remote, work
from tests.support.repos import Repo

PLAN = "plans/X.md"
GATED = '[tests]\ncommand = "echo 1 passed"\n'


class HostLost(BaseException):
    """The host ends at once, after an event was recorded."""


class Host(RepositoryWorker):
    """A worker on a host of its own: its clone, its home and its processes."""

    def __init__(self, name: str, project: Project) -> None:
        self.name = name
        self.project = project
        self._dies_at = ""

    def recorded(self, plan: str, run: str, event: e.Event, phase: str) -> None:
        if self._dies_at in (type(event).__name__, f"{type(event).__name__} {getattr(event, 'role', '')}"):
            raise HostLost

    def work_on_plan(self, *, landing: str = "", mode: Mode = Mode.FINISH, dies_at: str = "") -> bool:
        """Begin a run with this landing, or adopt the one in the journal; whether the host is alive at the end."""
        self._dies_at = dies_at
        env = {**os.environ, **self.project.env}
        with (
            context_at(self.project.path, env, lambda root, env: load_settings(root, env=env).settings) as context,
            open_repository(context) as repository,
        ):
            repository.claims.me = f"{self.name}/{repository.claims.me.rpartition('/')[2]}"
            self.open(context, repository, Environments(env))
            try:
                if landing:
                    started = e.RunStarted(
                        plan=PLAN, title="X", mode=mode, wanted="", auto=True, landing=landing, target="main", slug="x"
                    )
                    answer = self.begin(RunRequest(started=started))
                    assert answer is not None
                    assert not answer.declined, answer
                else:
                    self.adopt(PLAN)
                self.work()
            except HostLost:
                return False
        return True

    def wait(self, dispatches: list[str], wake: Any) -> bool:
        return bool(dispatches) and super().wait(dispatches, wake)


class Fleet:
    """Two hosts with clones of one remote; the journal is handed on, as a database would."""

    def __init__(self, place: Path, agent: str, settings: str = GATED) -> None:
        (place / "a").mkdir()
        project = a_project(place / "a", "1")
        set_up(project, agent=agent, settings=settings)
        self.remote = with_remote(project, place / "origin.git")
        (place / "b/home").mkdir(parents=True)
        self.remote.git("clone", "-q", str(self.remote.path), str(place / "b/repo"))
        other = Repo(path=place / "b/repo", env=dict(project.repo.env))
        for name in ("user.name", "user.email"):
            other.git("config", name, project.repo.git("config", name))
        self.a = Host("alpha", project)
        self.b = Host("beta", Project(repo=other, home=place / "b/home", extra=dict(project.extra)))

    def lose(self, host: Host, to: Host, *, without: str = "") -> None:
        """End the processes of a host, and give its journal to another; `without` these events."""
        end_processes_of(host.project.home)
        state = to.project.path / ".git/runplan"
        state.mkdir(exist_ok=True)
        for file in (host.project.path / ".git/runplan").glob("journal.db*"):
            shutil.copy(file, state / file.name)
        with closing(sqlite3.connect(state / "journal.db")) as journal, journal:
            journal.execute("DELETE FROM events WHERE type=?", (without,))

    def landings(self) -> Counter[str]:
        trailer = "%(trailers:key=Runplan-Landing,valueonly,separator=%x20)"
        log = self.remote.git("log", "--first-parent", f"--format=%s%x00{trailer}", "main").splitlines()
        rows = [line.split("\0") for line in log]
        return Counter(landing for subject, landing in rows if landing and ": record phase" in subject)

    def wip(self) -> list[str]:
        return self.remote.git("for-each-ref", "--format=%(refname)", "refs/runplan/").split()


@pytest.mark.parametrize(
    ("event", "repeated"),
    [
        ("DispatchStarted implement", "implement"),
        ("DispatchEnded implement", "implement"),
        ("WorkTaken", "implement"),
        ("WorkPushed", ""),
        ("DispatchStarted gate", "gate"),
        ("GateJudged", ""),
        ("DispatchEnded verify", "verify"),
        ("VerdictGiven", ""),
        ("LandingStarted", ""),
        ("Landed", ""),
        ("Landed, which is not recorded", ""),
    ],
)
def test_another_host_continues_the_attempt(tmp_path: Path, event: str, repeated: str) -> None:
    event, _, is_lost = event.partition(", ")
    fleet = Fleet(tmp_path, work())
    assert not fleet.a.work_on_plan(landing="direct", dies_at=event)
    fleet.lose(fleet.a, fleet.b, without=event if is_lost else "")
    assert fleet.b.work_on_plan()
    events = fleet.b.project.events()
    assert (events[-1][0], events[-1][1]["outcome"]) == ("RunEnded", "done"), events[-1]
    assert fleet.remote.git("show", "main:1.txt") == "1"
    assert list(fleet.landings().values()) == [1]
    once = Counter(["baseline", "implement", "gate", "verify"])
    assert list((Counter(fleet.b.project.dispatched()) - once).elements()) == repeated.split()
    assert fleet.wip() == []
    (moved,) = [body for kind, body in events if kind == "HostChanged"]
    assert (moved["host"], moved["before"]) == ("beta", "alpha")
