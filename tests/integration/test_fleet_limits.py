"""What the hosts of a fleet share: permits to work, labels of living workers, usage limits, and the budget of a day."""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import structlog
from procrastinate.worker import Worker

from runplan.adapters.store.heartbeat import Heartbeat, WorkerRow
from runplan.adapters.store.postgres import PostgresStore, connect, initialize
from runplan.adapters.store.sql import Append
from runplan.domain.decoding import to_json
from runplan.domain.fleet import ANY
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role, RunStatus
from runplan.domain.run.rows import Command, RunRow
from runplan.domain.settings.schema import Settings
from runplan.hosts.fleet.worker import FleetWorker, JobQueue
from tests.support.documents import read
from tests.support.postgres import a_location, create_database, start_server

NOW, LATER = "2026-03-01T12:00:00Z", "2026-03-01T13:30:00Z"
PLAN = "plans/X.md"


@pytest.fixture
def stores() -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """The stores of two repositories in one fleet."""
    with closing(PostgresStore(a_location())) as one, closing(PostgresStore(a_location())) as other:
        yield one, other


def add_worker(owner: str, *labels: str, seen_s: float = 0, draining: bool = False) -> None:
    add = "INSERT INTO workers (owner, host, labels, slots, version, seen, draining)"
    values = "(%s, 'h', %s, 1, '', now() - make_interval(secs => %s), %s)"
    execute(f"{add} VALUES {values}", owner, list(labels), seen_s, draining)


def record(
    store: PostgresStore, *events: e.Event, at: str = NOW, fence: int = 0, state: RunStatus = RunStatus.RUNNING
) -> None:
    claim = store.claim_plan(PLAN, run="r", owner="a")
    row = RunRow(id="r", plan=PLAN, started=NOW, state=state, since=NOW, landing="direct")
    rows = [(at, type(event).__name__, to_json(event)) for event in events]
    store.append(Append(rows, row, fence or getattr(claim, "fence", 0)))


def test_only_living_workers_that_take_plans_are_hosts(stores: tuple[PostgresStore, PostgresStore]) -> None:
    add_worker("new", "gpu", "docker", "new")
    add_worker("dead", "dead", seen_s=31)
    add_worker("draining", "draining", draining=True)
    labels = stores[0].list_host_labels()
    assert ("gpu", "docker", "new") in labels
    assert ("dead",) not in labels
    assert ("draining",) not in labels


def test_the_usage_of_a_day_is_that_of_all_repositories(stores: tuple[PostgresStore, PostgresStore]) -> None:
    for number, store in enumerate(stores):
        ended = e.DispatchEnded(id=f"day-{number}", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, usd=1.5)
        record(store, ended, at=LATER)
    facts = stores[0].list_shared_facts(e.DispatchEnded, since=LATER)
    assert {fact.event.id for fact in facts} >= {"day-0", "day-1"}
    assert len(stores[0].list_facts(e.DispatchEnded, since=LATER)) == 1


def test_a_command_that_a_worker_missed_is_queued_again(stores: tuple[PostgresStore, ...]) -> None:
    store = stores[0]
    mine = "SELECT 1 FROM procrastinate_jobs WHERE args->>'schema' = %s"
    store.add_command(Command(plan=PLAN, verb="stop", arguments={}, by="me", at=NOW))
    take_woken(stores)  # by a host that has declined it, and the one that owned the run did not hear of it
    execute("SELECT recover_plans()")
    assert execute(mine, store.location.schema)
    take_woken(stores)
    add_worker(owner := f"a/{store.location.schema}")
    store.claim_plan(PLAN, run="r", owner=owner)
    execute("SELECT recover_plans()")
    assert not execute(mine, store.location.schema)


def test_the_job_of_a_dead_worker_is_queued_for_any_host(stores: tuple[PostgresStore, ...]) -> None:
    """The phase that it worked on may need no label, though the one before did."""
    store = stores[0]
    store.queue_plan(PLAN, ["gpu"])
    execute("UPDATE procrastinate_jobs SET status = 'doing'")
    execute("SELECT recover_plans()")
    mine = "SELECT queue_name FROM procrastinate_jobs WHERE args->>'schema' = %s"
    assert execute(mine, store.location.schema) == [("any",)]


def test_plans_of_an_earlier_worker_occupy_slots() -> None:
    dsn = create_database()
    initialize(dsn, [])
    at_work: set[str] = set()
    most = 0
    done: list[str] = []

    async def work(schema: str, plan: str) -> None:
        nonlocal most
        at_work.add(plan)
        most = max(most, len(at_work))
        while plan == "left" and len(done) < 3:
            await asyncio.sleep(0)
        for _ in range(20):  # while the queue could take further jobs
            await queue.app.connector.execute_query_async("SELECT 1")
        at_work.remove(plan)
        done.append(plan)
        if len(done) == 4:
            queue.stop()

    log = structlog.get_logger()
    options: dict[str, Any] = {"recover_s": 60, "may_begin": lambda: True, "log": log}
    queue = JobQueue(dsn, queues=[ANY], slots=2, work=work, **options)
    with connect(dsn) as db:
        db.execute("SELECT queue_plan('runplan', number::text, 'any') FROM generate_series(1, 3) AS number")
    asyncio.run(queue.run_until_stopped([("s", "left")]))
    assert (most, sorted(done)) == (2, ["1", "2", "3", "left"])


def test_procrastinate_has_the_private_names_that_the_queue_uses() -> None:
    """docs/dependencies.md says why each method is overridden."""
    overridden = {name for name in vars(JobQueue) if name[0] == "_" and name[1] != "_" and hasattr(Worker, name)}
    assert overridden == {"_fetch_and_process_jobs", "_periodic_deferrer", "_persist_job_status", "_update_heartbeat"}
    source = inspect.getsource(Worker)
    for name in (*overridden, "_running_jobs", "_new_job_event", "_job_semaphore"):
        assert f"self.{name}" in source, name
        assert f"`{name}`" in read("docs/dependencies.md"), name
    assert read("docs/dependencies.md").count("github.com/procrastinate-org/procrastinate/") >= len(overridden)


# --- permits ----------------------------------------------------------------------------------------------


class Host:
    """A worker of two repositories."""

    def __init__(self, owner: str, stores: tuple[PostgresStore, ...]) -> None:
        self.owner = owner
        add_worker(owner)
        self.stores = stores

    def ask(self, repository: int, plan: str) -> bool:
        return self.stores[repository].request_permit(plan, self.owner, is_running=False)

    def release(self, repository: int, plan: str) -> None:
        self.stores[repository].release_permit(plan, self.owner)

    def die(self) -> None:
        execute("UPDATE workers SET seen = seen - INTERVAL '1 h' WHERE owner = %s", self.owner)


def execute(query: str, *values: object) -> list[tuple[str, ...]]:
    with connect(start_server().dsn) as db:
        cursor = db.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def set_capacity(*, fleet: int, repository: int) -> None:
    row = WorkerRow(owner="c", host="h", labels=[], slots=1, version="")
    with closing(Heartbeat(start_server().dsn, row)) as heartbeat:
        heartbeat.set_capacity(fleet=fleet, repository=repository)


def test_a_heartbeat_notices_the_plans_that_another_worker_has_taken_or_ended(
    stores: tuple[PostgresStore, ...], tmp_path: Path
) -> None:
    store, schema = stores[0], stores[0].location.schema
    row = WorkerRow(owner="h/away", host="h", labels=[], slots=1, version="")
    for plan, owner in (("own", "h/away"), ("left", "h/earlier"), ("taken", "other")):
        store.claim_plan(plan, run=plan, owner=owner)
    poked: list[str] = []
    owned = SimpleNamespace(runs={"own": 1, "left": 2, "taken": 3, "ended": 4})
    in_hand: Any = SimpleNamespace(owner=owned, lost=frozenset(), poke=lambda: poked.append("it"))
    user = msgspec.convert({"fleet": {"dsn": start_server().dsn}}, Settings)
    worker = FleetWorker({}, user, row, tmp_path, structlog.get_logger(), print)
    worker._plans[schema, "own"] = in_hand
    worker._queue = cast(Any, SimpleNamespace(worker_id=None))
    with closing(Heartbeat(start_server().dsn, row)) as heartbeat:
        rows = {(schema, "own", "own", "h/away"), (schema, "left", "left", "h/earlier")}
        assert {owned for owned in heartbeat.list_owned() if owned[0] == schema} == rows
        worker._beat(heartbeat)
        assert (in_hand.lost, poked) == ({"left", "taken", "ended"}, ["it"])


def take_woken(stores: tuple[PostgresStore, ...]) -> list[tuple[int, str]]:
    """The plans that were queued since the last call, by repository."""
    rows = execute("DELETE FROM procrastinate_jobs RETURNING args->>'schema', args->>'plan'")
    schemas = [store.location.schema for store in stores]
    return sorted((schemas.index(schema), plan) for schema, plan in rows if schema in schemas)


@pytest.fixture
def hosts(stores: tuple[PostgresStore, PostgresStore]) -> Iterator[tuple[Host, Host]]:
    execute("DELETE FROM permits")
    execute("DELETE FROM procrastinate_jobs")
    here, there = (Host(f"{name}/{stores[0].location.schema}", stores) for name in "ab")
    set_capacity(fleet=2, repository=1)
    yield here, there
    execute("DELETE FROM permits")


Stores = tuple[PostgresStore, PostgresStore]


def test_hosts_take_turns_and_a_full_repository_holds_up_no_other(stores: Stores, hosts: tuple[Host, Host]) -> None:
    here, there = hosts
    assert here.ask(0, "first")
    assert not there.ask(0, "second"), "the repository is full"
    assert there.ask(1, "other"), "another repository is not"
    assert not here.ask(1, "third")
    assert take_woken(stores) == []
    there.release(1, "other")
    assert take_woken(stores) == [(1, "third")], "the second one waits for its repository"
    assert not there.ask(1, "newcomer"), "it came later"
    assert there.ask(1, "third"), "on any host"
    here.release(0, "first")
    assert take_woken(stores) == [(0, "second")]
    set_capacity(fleet=0, repository=2)
    assert take_woken(stores) == [(0, "second"), (1, "newcomer")]


def test_permits_of_a_dead_host_do_not_count(stores: Stores, hosts: tuple[Host, Host]) -> None:
    here, there = hosts
    assert here.ask(0, "first")
    assert here.ask(1, "moved")
    assert not there.ask(0, "second")
    here.die()
    assert there.ask(1, "moved"), "there is room"
    execute("SELECT recover_plans()")
    assert take_woken(stores) == [(0, "second")]
    assert there.ask(0, "second")
    assert not there.ask(0, "third")
    assert not there.ask(0, "first"), "it is continued when there is room"
    there.release(0, "second")
    assert take_woken(stores) == [(0, "first")], "it has kept its place"
    assert there.ask(0, "first")


def test_a_restart_of_the_server_costs_no_permit(hosts: tuple[Host, Host]) -> None:
    here, _ = hosts
    assert here.ask(0, "first")
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename='member'"
    execute(ended)
    assert here.ask(0, "first")
    assert not here.ask(0, "second")


def test_who_came_first_is_served_first_over_all_repositories(stores: Stores, hosts: tuple[Host, Host]) -> None:
    here, there = hosts
    set_capacity(fleet=1, repository=1)
    assert here.ask(0, "first")
    assert not there.ask(1, "second")
    assert not here.ask(0, "third")
    here.release(0, "first")
    assert take_woken(stores) == [(1, "second")]


def test_a_permit_ends_with_the_claim_and_a_wait_keeps_its_place(stores: Stores, hosts: tuple[Host, Host]) -> None:
    """In one transaction, so that a host can be killed at any moment."""
    here, there = hosts
    assert here.ask(0, "first")
    assert not there.ask(0, PLAN)
    record(stores[0], e.Queued(), state=RunStatus.QUEUED)
    stores[0].release_plan(PLAN, run="r", owner="a")
    stores[0].claim_plan("first", run="f", owner="a")
    stores[0].release_plan("first", run="f", owner="a")
    assert take_woken(stores) == [(0, PLAN)]
    record(stores[0], e.Halted(by="me"), state=RunStatus.WAITING)
    stores[0].release_plan(PLAN, run="r", owner="a")
    assert there.ask(0, "next"), "the run waits for something else now"
