"""`make bench-fleet`: a fleet against one machine, as ratios in one run. All hosts share the cores of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg

from runplan.adapters.store.postgres import PostgresStore
from runplan.adapters.store.sqlite import SqliteStore
from tests.fleet.scenarios import is_ended, make_plans, running
from tests.support.cli import until
from tests.support.environment import own_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.adapters.store.sql import Store
    from tests.support.fleet import Fleet, Host

#: The moment of each command, by the clock of the server.
STAMPS = """
CREATE TABLE {schema}.stamps (plan TEXT, at TIMESTAMPTZ DEFAULT clock_timestamp());
CREATE FUNCTION {schema}.stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO {schema}.stamps VALUES (NEW.plan); RETURN NEW;
END $$;
CREATE TRIGGER stamp AFTER INSERT ON {schema}.commands FOR EACH ROW EXECUTE FUNCTION {schema}.stamp();
"""
COUNTED = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
TABLES = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind = 'r' AND nspname = %s AND relname NOT IN ('stamps', 'takings')
"""
START = ("finish", "auto", "direct")
QUEUED = "SELECT count(*) FROM commands"
RUNS = 10_000


def main() -> None:
    print(f"{os.cpu_count()} cores for all hosts, agents, PostgreSQL and git", flush=True)
    with own_environment(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        enqueue_to_dispatch(Path(place, "latency"), plans=10)
        throughput(Path(place), plans=16, phases=2)
        phase_on_both_stores(Path(place, "phase"), phases=10)
        idle(Path(place, "idle"), seconds=60)
        status(Path(place, "status"), rounds=7)


def enqueue_to_dispatch(place: Path, *, plans: int) -> None:
    """From the commit of the command to the first line of the agent, on an idle fleet."""
    named = make_plans(plans, 1)
    with running(place, named, workers=2) as fleet:
        _execute(fleet, STAMPS.format(schema=fleet.location.schema))
        commands = []
        for plan in named:
            began = time.monotonic()
            start(fleet, [plan])
            commands.append(time.monotonic() - began)
            until(lambda plan=plan: is_ended(fleet, [plan]))  # type: ignore[misc]
        offset = time.time() - time.monotonic()
        rows = fleet.rows("SELECT plan, extract(epoch FROM at) FROM stamps")
        queued = {Path(plan).stem: float(at) - offset for plan, at in rows}
        begun = {mark.plan: mark.at for mark in reversed(fleet.read_marks("begin"))}
        took = sorted(begun[plan] - queued[plan] for plan in named if plan != "P1")  # the first one clones
        print(
            f"enqueue to dispatch {statistics.median(took) * 1000:.0f} ms (most {took[-1] * 1000:.0f}), with a clone "
            f"to make {(begun['P1'] - queued['P1']) * 1000:.0f} ms; the command `start` took "
            f"{statistics.median(commands) * 1000:.0f} ms",
            flush=True,
        )


def throughput(place: Path, *, plans: int, phases: int) -> None:
    """Plans that do nothing, one slot for each worker."""
    named = make_plans(plans, phases)
    rates = []
    for workers in (1, 2, 4):
        with running(place / f"workers-{workers}", named, workers=workers, slots=1) as fleet:
            hosts = [host for name, host in fleet.hosts.items() if name != "desk"]
            for host in hosts:  # so that every plan is queued when they begin
                host.freeze()
            with ThreadPoolExecutor(plans) as pool:
                for plan in named:
                    pool.submit(fleet.hosts["desk"].run, "start", plan, *START)
                until(lambda fleet=fleet: fleet.rows(QUEUED) == [(plans,)], seconds=60)  # type: ignore[misc]
                for host in hosts:
                    host.thaw()
                began = time.monotonic()
                until(lambda fleet=fleet: is_ended(fleet, list(named)), seconds=600)  # type: ignore[misc]
            rates.append(60 * plans / (time.monotonic() - began))
    words = ", ".join(f"{rate:.1f}" for rate in rates)
    ratios = " and ".join(f"{rate / rates[0]:.2f}" for rate in rates[1:])
    print(f"plans per minute ({phases} phases without work), 1, 2 and 4 workers: {words}; ratios {ratios}", flush=True)


def phase_on_both_stores(place: Path, *, phases: int) -> None:
    """The same plan to the same remote, by `start --foreground` on SQLite and by a worker; and what a phase stores."""
    named = make_plans(2, phases)
    with running(place, named, workers=1) as fleet:
        desk = fleet.hosts["desk"]
        began = time.monotonic()
        ran = desk.run("start", "P1", *START, "--foreground", RUNPLAN_FLEET_DSN="")
        local = (time.monotonic() - began) / phases
        assert ran.code == 0, ran.err
        size, count = _count(fleet, TABLES, fleet.location.schema), _count(fleet, COUNTED)
        began = time.monotonic()
        start(fleet, ["P2"])
        until(lambda: is_ended(fleet, ["P2"]), seconds=300)
        there = (time.monotonic() - began) / phases
        transactions = (_count(fleet, COUNTED) - count) / phases
        print(
            f"a phase without work by direct landing: SQLite {local * 1000:.0f} ms, fleet {there * 1000:.0f} ms, "
            f"ratio {there / local:.2f}",
            flush=True,
        )
        events = _count(fleet, "SELECT count(*) FROM events") / phases
        bodies = _count(fleet, "SELECT sum(length(body)) FROM events") / phases
        outputs = _count(fleet, "SELECT count(*) FROM outputs") / phases
        stored = (_count(fleet, TABLES, fleet.location.schema) - size) / phases
        print(
            f"  a phase stores {events:.1f} events ({bodies:.0f} bytes), {outputs:.1f} rows of output, with indexes "
            f"{stored / 1024:.1f} kB; about {transactions:.0f} transactions with heartbeats and queue",
            flush=True,
        )


def idle(place: Path, *, seconds: float) -> None:
    """What one worker and the database do while there is no plan."""
    with running(place, make_plans(1, 1), workers=1) as fleet:
        time.sleep(3)  # its first looks
        worker = psutil.Process(fleet.hosts["alpha"].worker)
        count, cpu, switches = _count(fleet, COUNTED), sum(worker.cpu_times()[:2]), _wakeups(worker)
        server = psutil.Process(fleet.database.pid)
        served = _cpu_of_children(server)
        time.sleep(seconds)
        connections = _count(fleet, "SELECT count(*) FROM pg_stat_activity WHERE backend_type='client backend'")
        share = (sum(worker.cpu_times()[:2]) - cpu) / seconds
        print(
            f"idle worker: {100 * share:.2f} % of a core, {60 * (_wakeups(worker) - switches) / seconds:.0f} wake-ups "
            f"a minute, {worker.memory_info().rss / 1e6:.0f} MB, {connections - 1} connections; database: "
            f"{(_count(fleet, COUNTED) - count) / seconds:.1f} transactions/s, "
            f"{100 * (_cpu_of_children(server) - served) / seconds:.2f} % of a core",
            flush=True,
        )


def status(place: Path, *, rounds: int) -> None:
    """`status` of a plan with many finished runs, on both stores."""
    with running(place, make_plans(2, 1), workers=1) as fleet:
        desk = fleet.hosts["desk"]
        start(fleet, ["P1"])
        until(lambda: is_ended(fleet, ["P1"]))
        ran = desk.run("start", "P2", *START, "--foreground", RUNPLAN_FLEET_DSN="")
        assert ran.code == 0, ran.err
        dsn = desk.env["RUNPLAN_FLEET_DSN"]
        took = {"SQLite": [_time_status(desk, rounds, dsn="")], "PostgreSQL": [_time_status(desk, rounds, dsn=dsn)]}
        with contextlib.closing(SqliteStore(desk.clone / ".git/runplan")) as store:
            fill(store)
        with contextlib.closing(PostgresStore(fleet.location)) as store:
            fill(store)
        took["SQLite"].append(_time_status(desk, rounds, dsn=""))
        took["PostgreSQL"].append(_time_status(desk, rounds, dsn=dsn))
        for name, (empty, full) in took.items():
            print(
                f"status with {RUNS} runs on {name}: {full * 1000:.0f} ms, with one {empty * 1000:.0f} ms, "
                f"ratio {full / empty:.2f}",
                flush=True,
            )
        ratio = took["PostgreSQL"][1] / took["SQLite"][1]
        print(f"  PostgreSQL / SQLite {ratio:.2f}", flush=True)


def fill(store: Store) -> None:
    """Repeat the events of the newest run as many runs that have ended."""
    run = store.list_runs(limit=1)[0]
    events = store.list_events(run.id)
    with store.transaction():
        for number in range(RUNS):
            name = f"{run.id}-{number}"
            row = json.dumps({**_read_row(store, run.id), "id": name})
            store.execute("INSERT INTO runs (id, row) VALUES (?,?)", name, row)
            for event in events:
                values = (name, run.plan, event.at, event.type, event.body)
                store.execute("INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)", *values)


def start(fleet: Fleet, plans: Sequence[str]) -> None:
    for plan in plans:
        ran = fleet.hosts["desk"].run("start", plan, *START)
        assert ran.code == 0, ran.err


def _read_row(store: Store, run: str) -> dict[str, object]:
    ((text,),) = store.query("SELECT row FROM runs WHERE id=?", run)
    return dict(json.loads(text))


def _time_status(desk: Host, rounds: int, *, dsn: str) -> float:
    took = []
    for _ in range(rounds):
        began = time.monotonic()
        ran = desk.run("status", RUNPLAN_FLEET_DSN=dsn)
        took.append(time.monotonic() - began)
        assert ran.code == 0, ran.err
    return statistics.median(took)


def _count(fleet: Fleet, query: str, *values: object) -> int:
    return int(fleet.rows(query, *values)[0][0] or 0)


def _execute(fleet: Fleet, text: str) -> None:
    with psycopg.connect(fleet.location.dsn, autocommit=True) as db:
        db.execute(text)


def _wakeups(process: psutil.Process) -> int:
    """How often any thread of the process was put to sleep."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/status")
    lines = (line for task in tasks for line in task.read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _cpu_of_children(process: psutil.Process) -> float:
    return float(sum(sum(child.cpu_times()[:2]) for child in process.children()))


if __name__ == "__main__":
    main()
