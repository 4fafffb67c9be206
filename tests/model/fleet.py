"""A fleet in one process: three workers, one database, cuts, freezes and kills, in virtual time.

The hosts, their claims, the journal and the store with its SQL are real. The database is SQLite behind the interface
of psycopg, and the world is that of `simulation`. Each host runs in a thread, and one thread at a time has the turn:
who is next, and what happens to whom, is drawn from one seed, so a seed is a night.
"""

import contextlib
import random
import re
import select
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import psycopg
import pytest
import structlog
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan.adapters.store import postgres
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import SCHEMA_VERSION, PostgresStore, StatementResult
from runplan.adapters.store.sql import AGENDA
from runplan.adapters.store.sqlite import TABLES
from runplan.domain.errors import Unreachable
from runplan.domain.plan.model import Status
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import HostChanged, WorkPushed
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Command
from runplan.domain.run.state import RunState
from runplan.domain.times import iso
from runplan.engine.loop.advance import advance
from runplan.hosts.background import Services
from runplan.hosts.fleet.host import FleetHost
from tests.model.simulation import (
    START,
    STEPS,
    Crash,
    SimulatedContext,
    SimulatedRules,
    Target,
    VirtualClock,
    World,
    act,
)
from tests.support.builders import a_plan

HOSTS = ("alpha", "beta", "gamma")
PLANS = {"plans/a.md": 2, "plans/b.md": 1}  #: with the number of phases
LEASE_S = 30.0
BEAT_S = LEASE_S / 6
POLL_S = 5.0
LATE_S = 3 * BEAT_S  #: in which a host that was away ends the agents of plans that it has lost
NIGHT_S = 400.0  #: in which faults begin
LIMIT_S = 6 * 3600.0  #: after which a plan is stuck
SLOTS = 2
LUCK = 0.95
SWITCHES = 0.1  #: of the turns between two effects, how many go to another one
FREEZES = 0.004  #: how many of them freeze the worker
CUTS = {"COMMIT": 0.03}  #: of statements, how many the network breaks off
URL = "example.com/acme/app"
FLEET_TABLES = f"""
CREATE TABLE version (version); INSERT INTO version VALUES ({SCHEMA_VERSION});
CREATE TABLE repositories (schema);
CREATE TABLE workers (owner TEXT PRIMARY KEY, seen REAL, draining BOOLEAN DEFAULT false,
    sick TEXT DEFAULT '', labels TEXT DEFAULT '');
CREATE TABLE permits (schema, plan, owner, works);
CREATE TABLE outputs (dispatch, name, start, content, place, written);
CREATE VIEW all_events AS SELECT * FROM events;
"""


class Broken(BaseException):
    """The fleet did not keep a promise; no host catches it."""


# --- turns ----------------------------------------------------------------------------------------------


class Task:
    """A thread that runs only when it has the turn."""

    def __init__(self, worker: "Worker", work: Callable[[], None]) -> None:
        self.worker = worker
        self.is_ready: Callable[[], bool] = lambda: False
        self.until = 0.0  #: when it is ready anyway
        self.is_over = False
        self._work = work
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.worker.is_dead:
                self._work()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the night
            self.error = error
        self.is_over = True
        self._back.release()

    def take_turn(self) -> None:
        """Let it run until it gives the turn back; called by the night."""
        if not self._thread.is_alive():
            self._thread.start()
        self._turn.release()
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def give_back(self, is_ready: Callable[[], bool] = lambda: False, until: float = 0.0) -> None:
        """Called by the task itself; returns when it has the turn again."""
        self.is_ready, self.until = is_ready, until
        self._back.release()
        self._turn.acquire()
        if self.worker.is_dead:
            raise Crash


# --- the database -----------------------------------------------------------------------------------------


class Job(Struct):
    plan: str
    due: float = 0.0
    worker: str = ""  #: the owner that has it in hand
    is_wake: bool = False


class Database:
    """PostgreSQL in memory: the tables of one repository, and of the fleet what hosts use."""

    def __init__(self, night: "Night") -> None:
        self._night = night
        self.schema = FleetLocation("", URL).schema
        self.jobs: list[Job] = []
        self.transactions = 0
        self.steady_since = 0.0  #: heartbeats arrive without a gap
        self.committed: set[int] = set()
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.sqlite.executescript(f"{TABLES.read_text()}{FLEET_TABLES}")
        self.sqlite.execute("INSERT INTO repositories VALUES (?)", (self.schema,))
        functions: dict[str, tuple[int, Callable[..., Any]]] = {
            "now": (0, lambda: night.now),
            "lease": (0, lambda: LEASE_S),
            "queue_plan": (3, lambda _schema, plan, _queue: self.queue_plan(plan)),
            "wake_plan_at": (3, lambda _schema, plan, due: self.jobs.append(Job(plan, due, is_wake=True))),
            "request_permit": (4, lambda *_: True),
            "pg_notify": (2, lambda *_: night.notify()),
            "pg_advisory_xact_lock": (1, lambda _key: None),
            "hashtextextended": (2, lambda text, _seed: text),
            "current_schema": (0, lambda: self.schema),
            "to_regnamespace": (1, lambda name: name),
            "pg_current_xact_id_if_assigned": (0, lambda: str(self.transactions)),
            "pg_xact_status": (1, lambda xact: "committed" if int(xact) in self.committed else "aborted"),
        }
        for name, (count, function) in functions.items():
            self.sqlite.create_function(name, count, function)

    def queue_plan(self, plan: str) -> None:
        if not any(job.plan == plan and not job.worker and not job.is_wake for job in self.jobs):
            self.jobs.append(Job(plan))

    def recover_plans(self) -> None:
        """As the function of this name in the fleet's schema."""
        owners = dict(self.sqlite.execute("SELECT key, owner FROM claims WHERE kind='plan'").fetchall())
        commanded = {plan for (plan,) in self.sqlite.execute("SELECT DISTINCT plan FROM commands WHERE answer IS NULL")}
        for plan in sorted({*owners, *commanded}):
            is_in_jobs = any(job.plan == plan and not job.is_wake for job in self.jobs)
            if not self.is_seen(owners.get(plan, "")) and not is_in_jobs:
                self.queue_plan(plan)
        for job in [job for job in self.jobs if job.worker and not self.is_seen(job.worker)]:
            self.jobs.remove(job)
            self.queue_plan(job.plan)

    def is_seen(self, owner: str) -> bool:
        seen = self.sqlite.execute("SELECT seen FROM workers WHERE owner=?", (owner,)).fetchone()
        return seen is not None and seen[0] > self._night.now - LEASE_S

    def take_job(self, owner: str) -> Job | None:
        for job in [job for job in self.jobs if job.is_wake and job.due <= self._night.now]:
            self.jobs.remove(job)
            self.queue_plan(job.plan)
        in_hand = {job.plan for job in self.jobs if job.worker}
        free = (job for job in self.jobs if not job.is_wake and not job.worker and job.plan not in in_hand)
        taken = next(free, None)
        if taken is not None:
            taken.worker = owner
        return taken


class Connection:
    """A connection of psycopg to the database. Nobody else has the turn during a transaction."""

    closed = broken = False

    def __init__(self, night: "Night", worker: "Worker | None") -> None:
        self._night = night
        self._worker = worker
        self._is_open = False  #: a transaction
        self._reach("")

    @property
    def info(self) -> "Connection":
        return self

    @property
    def transaction_status(self) -> psycopg.pq.TransactionStatus:
        return psycopg.pq.TransactionStatus.INTRANS if self._is_open else psycopg.pq.TransactionStatus.IDLE

    def _reach(self, statement: str) -> None:
        if self._worker is None:
            return
        if not self._is_open:
            self._night.step(self._worker)
        if self._worker.is_dead:
            raise Crash
        if self._night.cuts_at(self._worker, statement) or self._worker.cut_until > self._night.now:
            self._break_off()

    def _break_off(self) -> None:
        self.closed = self.broken = True
        if self._is_open:
            self._is_open = False
            self._night.database.sqlite.execute("ROLLBACK")
        raise psycopg.OperationalError("the connection was cut")

    def execute(self, sql: str, values: Sequence[object] | None = None) -> sqlite3.Cursor:
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        database = self._night.database
        if sql == "COMMIT":
            return self._commit(database)
        self._reach(sql)
        statement = re.sub(r"::\w+|\brunplan\.", "", sql.replace("%s", "?")).replace("SELECT FROM", "SELECT 1 FROM")
        given = [value.timestamp() if isinstance(value, datetime) else value for value in values or ()]
        if "json_agg" in statement:
            agenda = [[dict(enumerate(row)) for row in database.sqlite.execute(query)] for query in AGENDA]
            return cast(sqlite3.Cursor, SimpleNamespace(fetchall=lambda: [agenda]))
        if statement == "BEGIN":
            self._is_open = True
            database.transactions += 1
        elif statement == "ROLLBACK":
            self._is_open = False
        return database.sqlite.execute(statement, given)

    def execute_together(self, batch: Sequence[tuple[str, Sequence[object]]]) -> list[StatementResult]:
        cursors = [self.execute(sql.replace("?", "%s"), values) for sql, values in batch]
        return [StatementResult(cursor.rowcount, cursor.fetchall()) for cursor in cursors]

    def _commit(self, database: Database) -> sqlite3.Cursor:
        """A cut comes before it, or after it and before the answer."""
        is_lost = self._worker is not None and self._night.cuts_at(self._worker, "COMMIT")
        if is_lost and self._night.chance.random() < 0.5:
            self._break_off()
        cursor = database.sqlite.execute("COMMIT")
        self._is_open = False
        database.committed.add(database.transactions)
        if is_lost:
            self._break_off()
        return cursor

    def close(self) -> None:
        self.closed = True
        if self._is_open:  # its process died
            self._is_open = False
            self._night.database.sqlite.execute("ROLLBACK")

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- workers ----------------------------------------------------------------------------------------------


class Agent(Struct):
    id: str
    run: str
    plan: str
    machine: str
    born: float  #: before its start was recorded


class Machine:
    """What outlives a worker: its agents, and its locks."""

    def __init__(self, night: "Night", name: str) -> None:
        self.night = night
        self.name = name
        self.agents: dict[str, Agent] = {}
        self.disturbed = -1.0  #: when its worker was last seen again, after it was cut off or frozen
        self.locks = night.place / name / "runplan/locks"
        self.locks.parent.mkdir(parents=True)


class MachineAgents(Struct, frozen=True):
    """The dispatches of a machine, as a host sees them."""

    machine: Machine

    def wait(self, _ids: Sequence[str], *, timeout_s: float | None) -> None:
        night = self.machine.night
        host = night.current_host()
        seconds = night.chance.choice([1.0, 10.0, 60.0])
        night.wait(lambda: host.is_poked, min(seconds, timeout_s) if timeout_s is not None else seconds)

    def end(self, ids: Sequence[str], grace_s: float) -> None:
        del grace_s
        for id_ in ids:
            self.machine.agents.pop(id_, None)

    def list_live(self) -> dict[str, str]:
        return {agent.id: agent.run for agent in self.machine.agents.values()}

    def __contains__(self, id_: object) -> bool:
        return id_ in self.machine.agents

    def __delitem__(self, id_: str) -> None:
        del self.machine.agents[id_]

    def pop(self, id_: str, default: None) -> None:
        self.machine.agents.pop(id_, default)


class NightHost(FleetHost):
    """The host of a plan, which is poked without a pipe."""

    is_poked = False

    def poke(self) -> None:
        self.is_poked = True

    def _clear_pipe(self) -> None:
        self.is_poked = False


class Worker:
    """One process of a machine: the queue, the heartbeat and a host for each plan in hand."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.night = machine.night
        self.machine = machine
        self.name = f"{machine.name}-{number}"
        self.me = f"{machine.name}/{number}"
        self.is_dead = False
        self.is_disturbed = False  #: it was cut off or frozen, and has not been seen since
        self.cut_until = 0.0
        self.sick_until = 0.0  #: it can open no repository
        self.frozen_until = 0.0
        self.hosts: dict[str, tuple[NightHost, Job | None]] = {}
        self._beat_at = self._look_at = 0.0
        self.location = FleetLocation(f"user={self.name}", URL, host=machine.name)

    @property
    def is_up(self) -> bool:
        return not self.is_dead and self.frozen_until <= self.night.now

    @property
    def is_sick(self) -> bool:
        return self.sick_until > self.night.now

    @property
    def due(self) -> float:
        return max(min(self._beat_at, self._look_at), self.frozen_until)

    def tick(self) -> None:
        """Show that it lives, and take plans, where the database can be reached."""
        night = self.night
        is_cut = self.cut_until > night.now
        if self._beat_at <= night.now:
            self._beat_at = night.now + BEAT_S
            if not is_cut:
                self.beat()
        self._look_at = night.now + POLL_S
        while (
            not is_cut
            and not self.is_sick
            and len(self.hosts) < SLOTS
            and (job := night.database.take_job(self.me)) is not None
        ):
            self.begin(job.plan, job)

    def beat(self) -> None:
        database = self.night.database
        if not database.sqlite.execute("SELECT 1 FROM workers WHERE seen > now() - lease() / 2").fetchall():
            database.steady_since = self.night.now
        upsert = "INSERT INTO workers (owner, seen) VALUES (?,?) ON CONFLICT (owner) DO UPDATE SET seen=excluded.seen"
        database.sqlite.execute(upsert, (self.me, self.night.now))
        if self.is_disturbed:
            self.is_disturbed = False
            self.machine.disturbed = self.night.now
        claims = dict(database.sqlite.execute("SELECT key, owner FROM claims WHERE kind='plan'").fetchall())
        for host, _ in self.hosts.values():
            if lost := {plan for plan in list(host.owner.runs) if claims.get(plan) != self.me}:
                host.lost |= frozenset(lost)
                host.poke()
        if self.night.now - database.steady_since > LEASE_S:
            database.recover_plans()

    def begin(self, plan: str, job: Job | None = None, left: str = "") -> None:
        """Work on a plan in a task; one that is in hand already looks at its commands."""
        night = self.night
        if plan in self.hosts:
            self.hosts[plan][0].ask(commands=False)
            if job in night.database.jobs:
                night.database.jobs.remove(job)
            return
        services = Services(
            log=night.log,
            notifier=cast(Any, SimpleNamespace(send=lambda _notice: None)),
            links=cast(Any, SimpleNamespace(link_to_page=lambda *_: "", link_to_answer=lambda *_: "")),
            clock=cast(Any, night.clock),
            environment={},
            may_begin=lambda: not self.is_dead and not self.is_sick,
            is_sick=lambda: self.is_sick,
            open_repository=cast(Any, self._open_repository),
        )
        root = night.place / self.machine.name
        host = NightHost(plan, root, services, self.location, left)
        host._me = self.me
        host.owner.rules = SimulatedRules()
        host.owner.repository = cast(Any, SimpleNamespace(dispatches=MachineAgents(self.machine)))
        host.owner._open_run = cast(Any, self._open_run)
        host.owner._advance_run = lambda journal, run, may_begin: advance(journal, run, may_begin, self._act)
        self.hosts[plan] = (host, job)

        def work() -> None:
            night.hosts[threading.get_ident()] = host
            host.run()
            del self.hosts[plan]
            if job in night.database.jobs:  # the queue deletes it, or another worker has queued it again
                night.database.jobs.remove(job)

        night.tasks.append(Task(self, work))

    @contextlib.contextmanager
    def _open_repository(self, _root: str, _wakeup: int) -> Iterator[tuple[Any, Any]]:
        if self.is_sick:
            raise Unreachable("the disk is full")
        store = PostgresStore(self.location)
        claims = Claims(store, self.machine.locks)
        claims.me = self.me
        try:
            repository = SimpleNamespace(
                store=store,
                claims=claims,
                clock=self.night.clock,
                workspace=SimpleNamespace(restore=lambda: None),
                dispatches=MachineAgents(self.machine),
                labels=(),
            )
            yield Here(env={}, state=self.night.place / "none"), repository
        finally:
            claims.close()
            store.close()

    def _open_run(
        self, context: Any, repository: Any, *, run: str, started: e.RunStarted, seen: object = None
    ) -> SimulatedContext:
        del seen
        world = self.night.worlds[started.plan]
        return SimulatedContext(
            run=run,
            plan=started.plan,
            store=repository.store,
            clock=self.night.clock,
            world=world,
            env=context.env,
            lander=Target(world),
            running=cast(Any, MachineAgents(self.machine)),
        )

    def _act(self, action: a.Action, state: RunState, context: Any) -> Iterator[e.Event]:
        if self.is_sick:
            raise Unreachable("the disk is full")
        if action.step == "push-work":
            left = context.world.branches.get(state.work.chosen.phase)
            yield WorkPushed(head=left.change if left else "")
            return
        if action.step == "take-over":
            if running := state.running:
                self.machine.agents.pop(running.id, None)
                yield e.DispatchEnded(
                    id=running.id, role=running.role, phase=running.phase, ending=Ending.LOST, code=None
                )
            yield HostChanged(host=state.host, before=state.home)
            return
        if not isinstance(action, a.Start):
            yield from act(action, state, context)
            return
        born = self.night.now
        for event in STEPS["start"](action, state, replace(context, running={})):  # type: ignore[union-attr]
            self.night.step(self)
            yield event
            self.night.step(self)
            if isinstance(event, e.DispatchStarted):
                self.machine.agents[event.id] = Agent(event.id, context.run, context.plan, self.machine.name, born)
                self.night.check_agents()

    def die(self) -> None:
        self.is_dead = True


class Here(Struct, frozen=True):
    env: dict[str, str]
    state: Path


# --- the night ------------------------------------------------------------------------------------------


class Night:
    """A seed; `play` raises `Broken` for a promise that was not kept."""

    def __init__(self, seed: int, place: Path) -> None:
        self.seed = seed
        self.place = place
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.log = structlog.wrap_logger(None, processors=[_drop])
        self.database = Database(self)
        self.tasks: list[Task] = []
        self.hosts: dict[int, NightHost] = {}
        self.machines = [Machine(self, name) for name in HOSTS]
        self.worlds: dict[str, World] = {}
        for plan, phases in PLANS.items():
            world = World(self.clock, {plan: a_plan({str(number + 1): "todo" for number in range(phases)})})
            world._number = 1000 * len(self.worlds)  # the ids of two plans differ
            world.choose = self._choose
            world.toss = self.chance.choice
            world.crash_perhaps = lambda: self.step(self._current().worker)  # type: ignore[method-assign]
            self.worlds[plan] = world
        self._incarnations: Counter[str] = Counter()
        self.workers = {machine.name: self._start_worker(machine) for machine in self.machines}
        self.is_quiet = False  #: no more faults

    @property
    def now(self) -> float:
        return self.clock._now.timestamp()

    def _choose(self, words: Sequence[str]) -> str:
        words = [word for word in words if word != "asks"]  # nobody is there to answer
        if words[:2] == ["done", "running"] and self.chance.random() < 0.5:
            return "running"
        return words[0] if self.is_quiet or self.chance.random() < LUCK else self.chance.choice(words)

    # --- called by tasks

    def _current(self) -> Task:
        return next(task for task in self.tasks if task._thread.ident == threading.get_ident())

    def current_host(self) -> NightHost:
        return self.hosts[threading.get_ident()]

    def step(self, worker: Worker) -> None:
        """Between two effects of a worker another one may have the turn, and this one may freeze or die."""
        if worker.is_dead:
            raise Crash
        drawn = self.chance.random()
        if drawn < FREEZES and not self.is_quiet:
            self._freeze(worker)
        if drawn < SWITCHES:
            self._current().give_back()

    def wait(self, is_ready: Callable[[], bool], seconds: float) -> None:
        self._current().give_back(is_ready, self.now + seconds)

    def notify(self) -> None:
        for worker in self.workers.values():
            if worker.is_up and worker.cut_until <= self.now:
                for host, _ in worker.hosts.values():
                    host.ask(commands=False)

    def connect(self, conninfo: str, **_options: object) -> Connection:
        name = str(psycopg.conninfo.conninfo_to_dict(conninfo)["user"])
        return Connection(self, next((worker for worker in self.workers.values() if worker.name == name), None))

    def select(self, _read: object, _write: object, _error: object, seconds: float) -> None:
        host = self.current_host()
        self.wait(lambda: host.is_poked, seconds)

    def cuts_at(self, worker: Worker, statement: str) -> bool:
        """A cut begins here, mostly at the end of a transaction."""
        if self.is_quiet or self.chance.random() >= CUTS.get(statement, 0.001):
            return False
        worker.cut_until = self.now + self.chance.choice([1.0, 8.0, 50.0])
        worker.is_disturbed = True
        return True

    # --- faults

    def _freeze(self, worker: Worker) -> None:
        worker.frozen_until = max(worker.frozen_until, self.now + self.chance.choice([5.0, 45.0, 100.0]))
        worker.is_disturbed = True

    def _start_worker(self, machine: Machine) -> Worker:
        """Start a worker: what another one of this machine has left is continued, or ended."""
        self._incarnations[machine.name] += 1
        worker = Worker(machine, self._incarnations[machine.name])
        old = f"{machine.name}/%"
        query = "SELECT key, run FROM claims WHERE kind='plan' AND owner LIKE ?"
        left = dict(self.database.sqlite.execute(query, (old,)).fetchall())
        self.database.sqlite.execute("UPDATE workers SET seen=0 WHERE owner LIKE ?", (old,))
        for agent in [agent for agent in machine.agents.values() if agent.run not in left.values()]:
            del machine.agents[agent.id]
        worker.beat()
        for plan, run in left.items():
            worker.begin(plan, left=run)
        return worker

    def _hurt(self) -> None:
        """Something happens to a worker."""
        name = self.chance.choice(HOSTS)
        worker = self.workers[name]
        seconds = self.chance.choice([2.0, 20.0, 100.0])
        match self.chance.choice(["cut", "freeze", "kill", "sick"]):
            case "cut":
                worker.cut_until = max(worker.cut_until, self.now + seconds)
                worker.is_disturbed = True
            case "freeze":
                self._freeze(worker)
            case "sick":
                worker.sick_until = self.now + seconds
            case "kill":
                worker.die()
                for task in [task for task in self.tasks if task.worker is worker]:
                    if task._thread.is_alive():
                        task.take_turn()  # it ends
                    self.tasks.remove(task)
                self.workers[name] = self._start_worker(worker.machine)

    def submit_start(self, plan: str) -> None:
        started = replace(START, plan=plan, mode=Mode.FINISH, landing="direct")
        command = Command(
            plan=plan,
            verb="start",
            arguments=to_builtins(RunRequest(started=started)),
            by="a person",
            at=iso(self.clock.now()),
        )
        with contextlib.closing(PostgresStore(FleetLocation("user=desk", URL))) as store:
            store.add_command(command)

    def play(self) -> None:
        with self.patched():
            self._play()

    def finish_tasks(self) -> None:
        """Let the hosts that have a plan in hand work undisturbed, until they have left it."""
        self.is_quiet = True
        with self.patched():
            while self.tasks:
                self._take_turn()

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Connections to the database and waits are those of this night; at the end all workers die."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres.FleetConnection, "connect", self.connect)
            patch.setattr(select, "select", self.select)
            try:
                yield
            finally:
                for worker in self.workers.values():
                    worker.die()
                for task in self.tasks:
                    if task._thread.is_alive():
                        with contextlib.suppress(BaseException):
                            task.take_turn()

    def _play(self) -> None:
        begun = self.now
        faults = sorted(begun + self.chance.random() * NIGHT_S for _ in range(self.chance.randrange(8)))
        for plan in PLANS:
            self.submit_start(plan)
        person_at = begun + 60.0
        while True:
            while faults and faults[0] <= self.now:
                faults.pop(0)
                self._hurt()
            self.is_quiet = self.now > begun + NIGHT_S
            if person_at <= self.now:
                person_at = self.now + 60.0
                if self._ask_for_more() and self.is_quiet and not self.tasks:
                    self._check_end()
                    return
                if self.now > begun + LIMIT_S:
                    raise Broken(f"stuck: {self._describe()}")
            if not self._take_turn():
                moments = [*faults[:1], person_at, *(worker.due for worker in self.workers.values())]
                moments += [max(task.until, task.worker.frozen_until) for task in self.tasks if task.until > self.now]
                moments += [worker.frozen_until for worker in self.workers.values()]
                self.clock.jump(max(0.001, min(moment for moment in moments if moment > self.now) - self.now))

    def _take_turn(self) -> bool:
        """One task or one worker goes on; False when all of them wait."""
        self.check_agents()
        tasks = (task for task in self.tasks if task.worker.is_up)
        ready: list[Task | Worker] = [task for task in tasks if task.until <= self.now or task.is_ready()]
        ready += [worker for worker in self.workers.values() if worker.is_up and worker.due <= self.now]
        if not ready:
            return False
        chosen = self.chance.choice(ready)
        if isinstance(chosen, Worker):
            chosen.tick()
            return True
        chosen.take_turn()
        self.tasks = [task for task in self.tasks if not task.is_over]
        return True

    def _ask_for_more(self) -> bool:
        """A person starts again what was refused or has failed; whether all plans are complete."""
        is_complete = True
        with contextlib.closing(PostgresStore(FleetLocation("user=desk", URL))) as store:
            commanded = {command.plan for command in store.list_queued_commands()}
            for plan, world in self.worlds.items():
                if all(phase.status is Status.DONE for phase in world.plan.phases):
                    row = store.get_newest_run(plan)
                    is_complete = is_complete and row is not None and not row.is_active
                    continue
                is_complete = False
                if plan not in commanded and store.get_interrupted_run(plan) is None:
                    self.submit_start(plan)
        return is_complete

    # --- promises

    def check_agents(self) -> None:
        """One agent works on a plan. On a machine that was cut off or frozen another one may, for a moment."""
        agents: dict[str, list[Agent]] = {plan: [] for plan in PLANS}
        for machine in self.machines:
            for agent in machine.agents.values():
                is_recent = machine.disturbed >= agent.born and self.now < machine.disturbed + LATE_S
                if not is_recent and not self.workers[machine.name].is_disturbed:
                    agents[agent.plan].append(agent)
        if doubled := [both for both in agents.values() if len(both) > 1]:
            raise Broken(f"two agents work on one plan: {doubled[0]}")
        for plan, world in self.worlds.items():
            for phase, count in Counter(landing.phase for landing in world.landings).items():
                if phase and count > 1:
                    raise Broken(f"phase {phase} of {plan} landed {count} times")

    def _check_end(self) -> None:
        if live := [agent for machine in self.machines for agent in machine.agents.values()]:
            raise Broken(f"agents were left: {live}")
        if self.claims:
            raise Broken(f"claims were left: {self.claims}")
        crashes = self.database.sqlite.execute("SELECT body FROM events WHERE type='StepCrashed'").fetchall()
        if crashes:
            raise Broken(f"a step crashed: {crashes[0]}")

    @property
    def claims(self) -> list[tuple[str, str, str]]:
        return self.database.sqlite.execute("SELECT key, owner, run FROM claims WHERE kind='plan'").fetchall()

    def _describe(self) -> str:
        runs = self.database.sqlite.execute("SELECT plan, id, state, waiting_for FROM runs").fetchall()
        in_hand = {worker.name: list(worker.hosts) for worker in self.workers.values()}
        return f"claims {self.claims}, runs {runs}, in hand {in_hand}, jobs {self.database.jobs}"


def _drop(*_: object) -> NoReturn:
    raise structlog.DropEvent


def play_nights(seeds: Iterable[int], place: Path) -> None:
    for seed in seeds:
        night = Night(seed, place / str(seed))
        try:
            night.play()
        except Broken as broken:
            raise Broken(f"NIGHT={seed}: {broken}") from broken
        finally:
            night.database.sqlite.close()
