"""The worker of a repository: runs in other hands, and a repository in which nothing can be done."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.clock import SystemClock
from runplan.adapters.configuration.load import load_settings
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.protocol import open_store
from runplan.domain.errors import Fenced
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Answer, ClaimResult, Command
from runplan.domain.times import iso
from runplan.engine.loop.context import RepositoryContext, context_at
from runplan.engine.loop.repository import open_repository
from runplan.engine.loop.runs import fail_run
from runplan.engine.steps.context import OpenRepository
from runplan.hosts.daemon.host import ConcurrencyLimit, DaemonHost
from runplan.hosts.daemon.state import Known
from runplan.hosts.foreground import ForegroundHost, Interruption
from runplan.hosts.owner import RunOwner
from tests.support.builders import record, started
from tests.support.cli import Meanwhile, Project, a_project, steps, until
from tests.support.daemons import kill_daemon, none_left, run_of, until_runs_are


class Timers:
    """Timers that only the test fires."""

    def __init__(self) -> None:
        self.armed: dict[str, tuple[datetime, Callable[[], None]]] = {}

    def at(self, key: str, moment: datetime, call: Callable[[], None]) -> None:
        self.armed[key] = (moment, call)


class Log:
    """The log of a daemon, and its notifier."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, event: str, **_: object) -> None:
        self.warnings.append(event)

    def bind(self, **_: object) -> "Log":
        return self

    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: None


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1", "2")


@contextlib.contextmanager
def a_repository(project: Project, wakeup: int | None = None) -> Iterator[tuple[RepositoryContext, OpenRepository]]:
    read = lambda root, env: load_settings(root, env=env).settings  # noqa: E731
    with context_at(project.path, project.env, read) as context, open_repository(context, wakeup=wakeup) as repository:
        yield context, repository


@contextlib.contextmanager
def an_open_worker(project: Project) -> Iterator[RunOwner]:
    """A worker in this thread."""
    with a_repository(project) as (context, repository):
        owner = ForegroundHost(Interruption(0.0), project.env).owner
        owner.open(context, repository)
        yield owner


@contextlib.contextmanager
def a_worker(
    project: Project,
    timers: Timers,
    log: Log,
    clock: SystemClock | None = None,
    limit: ConcurrencyLimit | None = None,
    *,
    is_draining: bool = False,
) -> Iterator[DaemonHost]:
    services: Any = SimpleNamespace(
        open_repository=lambda _, wakeup: a_repository(project, wakeup),
        environment=project.env,
        clock=clock or SystemClock(),
        links=LinkMaker("", project.path),
        log=log,
        notifier=log,
        may_begin=lambda: not is_draining,
    )
    limit = limit or ConcurrencyLimit(host=4, repository=4, wake=lambda _: None)
    known = Known(common=str(project.path / ".git"), root=str(project.path))
    worker = DaemonHost(known, services, limit, call_at=timers.at, on_idle=lambda: None)
    try:
        yield worker
    finally:
        worker.close()
        until(lambda: worker.is_idle)


def orphaned(project: Project, place: Path) -> Meanwhile:
    """The agent of phase 1, which waits to be let on; its daemon is dead."""
    meanwhile = Meanwhile(place)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    return meanwhile


ASKED = replace(started(Mode.NEXT), plan="plans/X.md", slug="x")
BEGAN = ("RunStarted", to_builtins(ASKED))


def test_a_retry_after_success_begins_no_run(project: Project) -> None:
    with an_open_worker(project) as worker:
        facts = (BEGAN, ("RunEnded", {"outcome": "done"}))
        record(worker.repository.store, "r1", ASKED.plan, *facts, state="done", outcome="done")  # type: ignore[arg-type]
        answer = worker.begin(RunRequest(started=ASKED, again=True))
        assert answer == Answer(declined=True, why="the last run of plans/X.md succeeded; nothing to retry")
        assert [row.id for row in worker.repository.store.list_runs()] == ["r1"]
        assert worker.repository.store.list_owners() == {}


def test_a_start_has_a_stopped_run_that_waits_for_git_try_again_at_once(project: Project) -> None:
    pause = {"kind": "unreachable", "until": iso(SystemClock().now() + timedelta(minutes=1))}
    with an_open_worker(project) as worker:
        facts = (BEGAN, ("StopRequested", {"by": "a person"}), ("Paused", pause))
        record(worker.repository.store, "r1", ASKED.plan, *facts)  # type: ignore[arg-type]
        assert worker.adopt(ASKED.plan) == ""
        assert worker.begin(RunRequest(started=ASKED)) is None
        assert worker.runs[ASKED.plan].state.pause is None
        worker.work()
        assert [row.state for row in worker.repository.store.list_runs()] == ["stopped"]


@pytest.mark.parametrize(("state", "dead"), [("waiting", ""), ("running", "1:1:gone")])
def test_a_process_that_left_its_run_waiting_is_not_recorded_as_dead(project: Project, state: str, dead: str) -> None:
    with an_open_worker(project) as worker:
        record(worker.repository.store, "r1", ASKED.plan, BEGAN, owner="1:1:gone", state=state)  # type: ignore[arg-type]
        assert worker.adopt(ASKED.plan) == ""
    assert [body["took_over"] for body in project.bodies("ClaimTaken")] == [dead]


def test_a_run_that_began_between_the_look_and_the_claim_is_resumed(project: Project) -> None:
    """Another process began it, and died before the claim was taken."""

    class Late(Claims):
        def take_plan(self, plan: str, *, run: str) -> ClaimResult:
            if self._store.get_newest_run(plan) is None:
                record(self._store, "r-theirs", plan, BEGAN, owner="1:1:gone")  # type: ignore[arg-type]
            return super().take_plan(plan, run=run)

    with an_open_worker(project) as worker:
        repository = worker.repository
        worker.repository = replace(repository, claims=Late(repository.store, project.path / ".git/runplan/locks"))
        answer = worker.begin(RunRequest(started=ASKED))
        assert answer is not None
        assert (answer.run, answer.resumed) == ("r-theirs", True)
        assert [row.id for row in repository.store.list_runs()] == ["r-theirs"]


def test_a_run_that_another_process_took_over_is_forgotten(project: Project) -> None:
    with an_open_worker(project) as worker:
        store = worker.repository.store
        record(store, "r1", ASKED.plan, BEGAN, owner="1:1:gone")  # type: ignore[arg-type]
        assert worker.adopt(ASKED.plan) == ""
        with store.transaction():
            store.set_claim("plan", ASKED.plan, run="r1", owner="2:2:other")
        with pytest.raises(Fenced):
            worker.step(ASKED.plan)
        assert worker.runs == {}


def test_a_planning_run_can_be_failed(project: Project) -> None:
    chosen = ("PlanningChosen", {"tip": "c0", "title": "Add OAuth", "planning": {"goal": "Add OAuth"}})
    with an_open_worker(project) as worker:
        record(worker.repository.store, "r1", ASKED.plan, BEGAN, chosen, owner="1:1:gone")  # type: ignore[arg-type]
        assert worker.adopt(ASKED.plan) == ""
        fail_run(worker.runs[ASKED.plan], "runplan's own repository is gone")
    assert run_of(project)["state"] == "failed"
    assert [(body["title"], body["attempt"]) for body in project.bodies("PhaseFailed")] == [("Add OAuth", 1)]


def test_a_run_of_another_process_is_continued_when_that_releases_it(project: Project, tmp_path: Path) -> None:
    meanwhile, timers, log = orphaned(project, tmp_path), Timers(), Log()
    other = project.popen("start", "X", "1", "auto", "--foreground")
    until(lambda: run_of(project)["state"] == "running" and claimed_by(project) == str(other.pid))
    key = f"wake {project.path}"
    with a_worker(project, timers, log) as worker:
        before = SystemClock().now()
        worker.wake()
        until(lambda: key in timers.armed)
        moment, call = timers.armed.pop(key)
        assert timedelta(seconds=55) < moment - before < timedelta(seconds=90)
        assert log.warnings == ["declined"]
        seen = run_of(project)
        assert (seen["waiting_for"], seen["wake"]) == ("claim", iso(moment))
        assert f"process {other.pid} works on this run" in seen["about"]

        other.kill()
        other.communicate()
        call()
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
    assert project.rows("SELECT kind FROM waits") == []
    assert project.landed() == ["1"]
    assert project.dispatched().count("implement") == 1


@pytest.mark.rest
def test_a_closed_repository_keeps_its_time_and_is_retried_less_often(project: Project, tmp_path: Path) -> None:
    """It can be opened each time, and then no step can be taken."""
    meanwhile, timers, log, clock = orphaned(project, tmp_path), Timers(), Log(), Moving()
    limit = ConcurrencyLimit(host=1, repository=1, wake=lambda _: None)
    with a_worker(project, timers, log, clock, limit) as worker:
        worker.wake()
        until(lambda: claimed_by(project) == str(os.getpid()))
        until(lambda: limit.working == ((str(project.path), "plans/X.md"),))
        full = "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no room'); END"
        change_journal(project, full)
        meanwhile.let_on("agent")
        looks: list[tuple[str, timedelta]] = []
        while len(looks) < 3:
            until(lambda: closed(log) == len(looks) + 1 and worker.is_idle)
            assert worker.trouble is not None
            assert limit.working == ()  # runs of other repositories may begin
            looks.append((worker.trouble.since, timers.armed.pop(f"wake {project.path}")[0] - clock.now()))
            clock.ahead += timedelta(minutes=10)
            worker.wake()
        assert {since for since, _ in looks} == {looks[0][0]}
        assert [round(again.total_seconds() / 60) for _, again in looks] == [1, 2, 4]
        until(lambda: closed(log) == len(looks) + 1 and worker.is_idle)
        change_journal(project, "DROP TRIGGER full")
        worker.wake()
        until_runs_are(project, "done")
        assert worker.trouble is None


def test_a_remote_that_does_not_answer_pauses_the_run(project: Project, tmp_path: Path) -> None:
    timers, log = Timers(), Log()
    project.repo.git("remote", "add", "origin", str(tmp_path / "gone.git"))
    began = ("RunStarted", to_builtins(replace(ASKED, landing="direct", remote="origin", daemon=True)))
    with contextlib.closing(open_store(project.path / ".git/runplan")) as store:
        record(store, "r1", ASKED.plan, began, owner="1:1:gone")  # type: ignore[arg-type]
    with a_worker(project, timers, log) as worker:
        worker.wake()
        until(lambda: f"wake {project.path}" in timers.armed)
        seen = run_of(project)
        assert (seen["waiting_for"], seen["wake"]) == ("unreachable", iso(timers.armed[f"wake {project.path}"][0]))


def test_a_worker_that_gets_no_thread_is_tried_again(project: Project) -> None:
    timers, log = Timers(), Log()
    threading.stack_size(1 << 46)  # larger than the system allows
    with a_worker(project, timers, log) as worker:
        try:
            worker.wake()
        finally:
            threading.stack_size(0)
        assert (worker.is_idle, closed(log)) == (True, 1)
        assert worker.trouble is not None
        assert worker.trouble.error.startswith("can't start new thread; end some processes")
        timers.armed.pop(f"wake {project.path}")[1]()
        until(lambda: worker.is_idle)
    assert closed(log) == 1


def test_a_draining_worker_carries_out_a_stop_though_its_wake_up_kills_git(project: Project, tmp_path: Path) -> None:
    """A queued stop ends long git commands. Here the worker executes the stop before its wake-up arrives."""
    orphaned(project, tmp_path)

    class Late(Log):
        def info(self, event: str, **_: object) -> None:
            if event == "StopRequested":
                worker.wake(commands=True)

    with contextlib.closing(open_store(project.path / ".git/runplan")) as store:
        now = iso(SystemClock().now())
        store.add_command(Command(plan="plans/X.md", verb="stop", arguments={}, by="a person", at=now))
    with a_worker(project, Timers(), Late(), is_draining=True) as worker:
        worker.wake(commands=True)
        until(lambda: worker.is_idle)
    assert run_of(project)["state"] == "stopped"


def closed(log: Log) -> int:
    return log.warnings.count("closed")


class Moving(SystemClock):
    """A clock that the test puts forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def change_journal(project: Project, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(project.path / ".git/runplan/journal.db")) as journal, journal:
        journal.execute(statement)


def claimed_by(project: Project) -> str:
    owners = project.rows("SELECT owner FROM claims WHERE key='plans/X.md'")
    return str(owners[0][0]).partition(":")[0] if owners else ""
