"""A hundred workers on one PostgreSQL, with sleeps for agents: `python -m bench.crowd --workers 100 --plans 1000`.

Each worker is a process with the real queue, heartbeat, permits and store. In place of a repository and agents it
writes the rows of phases as they were recorded in a real run, and sleeps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import structlog

from runplan import __version__
from runplan.adapters.configuration.load import load_user
from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.heartbeat import WorkerRow
from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import PostgresStore, initialize
from runplan.adapters.store.sql import Append
from runplan.domain.run.kinds import RunOutcome, RunStatus
from runplan.domain.run.rows import Acquired, Answer, Command, RunRow
from runplan.hosts.fleet.worker import FleetWorker
from tests.support import postgres
from tests.support.environment import own_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REPOSITORIES = 10
#: Of one phase of a real run: the transactions, with the number of events in each; and the size of an event.
TRANSACTIONS = (3, 2, 5, 3, 3)
BODY = '{"words": "' + "x" * 300 + '"}'
NOW = "2026-01-01T00:00:00Z"


class SleepingWorker(FleetWorker):
    """Has everything of a worker but repositories and agents."""

    phases = 3
    pace_s = 5.0
    log_path = Path()

    def _work_on_plan(self, schema: str, plan: str) -> None:  # noqa: ARG002
        begun = time.time()
        url = f"example.com/acme/{plan.split('/')[1]}"
        with contextlib.closing(PostgresStore(FleetLocation(self._dsn, url, host=self.row.host))) as store:
            claim = store.claim_plan(plan, run=f"r {plan}", owner=self.row.owner)
            if not isinstance(claim, Acquired):
                return
            for command in store.list_queued_commands():
                if command.plan == plan:
                    store.answer_command(command.seq, Answer(run=f"r {plan}"))
                    self._record(f"{plan} {begun} {float(command.arguments['at'])}")
            store.request_permit(plan, self.row.owner, is_running=False)
            self._sleep_through_phases(store, plan, claim.fence)

    def _sleep_through_phases(self, store: PostgresStore, plan: str, fence: int) -> None:
        row = RunRow(id=f"r {plan}", plan=plan, started=NOW, state=RunStatus.RUNNING, landing="direct")
        for _ in range(self.phases):
            for number, events in enumerate(TRANSACTIONS):
                store.append(Append([(NOW, "Leased", BODY)] * events, row, fence))
                if number in (1, 2):  # the implementer, the verifier
                    time.sleep(self.pace_s / 2)
        ended = RunRow(
            id=row.id, plan=plan, started=NOW, state=RunStatus.DONE, landing="direct", outcome=RunOutcome.DONE
        )
        store.append(Append([(NOW, "RunEnded", BODY)], ended, fence))

    def _record(self, line: str) -> None:
        with self.log_path.open("a") as log:
            log.write(f"{line}\n")


@dataclass(frozen=True)
class Load:
    """Counters of the database and of its machine at a moment."""

    at: float
    transactions: int
    server_s: float  #: CPU time of all processes of the server
    workers_s: float

    def until(self, later: Load) -> str:
        took = later.at - self.at
        rate = (later.transactions - self.transactions) / took
        server = (later.server_s - self.server_s) / took
        workers = (later.workers_s - self.workers_s) / took
        return f"{rate:.0f} transactions/s, server {100 * server:.0f} % of a core, workers {100 * workers:.0f} %"


class Crowd:
    """Workers, and the server that they use."""

    def __init__(self, place: Path, count: int, *, slots: int, phases: int, pace_s: float) -> None:
        self.place = place
        self.server = postgres.Server()
        self.urls = [f"https://example.com/acme/app{number}" for number in range(REPOSITORIES)]
        initialize(self.server.dsn, self.urls)
        SleepingWorker.phases, SleepingWorker.pace_s, SleepingWorker.log_path = phases, pace_s, place / "begun"
        self.workers = [self._fork(f"host{number}", slots) for number in range(count)]
        while self.query("SELECT count(*) FROM runplan.workers") != count:
            time.sleep(0.1)

    def _fork(self, host: str, slots: int) -> psutil.Process:
        if pid := os.fork():
            return psutil.Process(pid)
        env = {**os.environ, "RUNPLAN_FLEET_DSN": self.server.dsn, "HOME": str(self.place)}
        row = WorkerRow(owner=name_owner(host), host=host, labels=[], slots=slots, version=__version__)
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        try:
            SleepingWorker(env, load_user(env), row, self.place / host, structlog.get_logger(), lambda _: None).run()
        finally:
            os._exit(0)

    def query(self, text: str) -> int:
        with psycopg.connect(self.server.dsn, autocommit=True) as db:
            row = db.execute(text).fetchone()
        return int(row[0]) if row else 0

    def measure(self) -> Load:
        counted = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"
        server = psutil.Process(self.server.pid)
        return Load(time.time(), self.query(counted), _cpu(server), sum(map(_cpu, self.workers)))

    def enqueue(self, plans: Sequence[tuple[str, str]], *, every_s: float) -> None:
        """(url, plan): a start of each, in the transaction that queues it."""
        with contextlib.ExitStack() as stores:
            opened = {url: stores.enter_context(contextlib.closing(self._open(url))) for url in self.urls}
            for url, plan in plans:
                arguments = {"at": time.time()}
                opened[url].add_command(Command(plan=plan, verb="start", arguments=arguments, by="bench", at=NOW))
                time.sleep(every_s)

    def _open(self, url: str) -> PostgresStore:
        return PostgresStore(FleetLocation(self.server.dsn, normalize_url(url)))

    def latencies(self, plans: Sequence[tuple[str, str]]) -> list[float]:
        """From each enqueueing to the start of the work, once all have begun."""
        names = {plan for _, plan in plans}
        while True:
            log = self.place / "begun"
            lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
            begun = {plan: float(at) - float(queued) for plan, at, queued in lines if plan in names}
            if len(begun) == len(names):
                return sorted(begun.values())
            time.sleep(0.2)

    def make_plans(self, count: int, name: str) -> list[tuple[str, str]]:
        indices = [number % REPOSITORIES for number in range(count)]
        return [(self.urls[i], f"plans/app{i}/{name}{number}.md") for number, i in enumerate(indices)]

    def close(self) -> None:
        for worker in self.workers:
            worker.send_signal(signal.SIGKILL)
        for worker in self.workers:
            worker.wait()
        self.server.stop()


def _cpu(process: psutil.Process) -> float:
    """CPU seconds of a process, and of its living and ended children."""
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += times.user + times.system
    return float(total)


@contextlib.contextmanager
def opened(asked: argparse.Namespace) -> Iterator[Crowd]:
    postgres.SETTINGS.update({"max_connections": "1500", "shared_buffers": "256MB"})
    with own_environment(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        crowd = Crowd(Path(place), asked.workers, slots=asked.slots, phases=asked.phases, pace_s=asked.pace)
        try:
            yield crowd
        finally:
            crowd.close()


def percentile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def in_words(latencies: Sequence[float]) -> str:
    median = statistics.median(latencies)
    return f"{median * 1000:.0f} ms, p95 {percentile(latencies, 0.95) * 1000:.0f}, most {latencies[-1] * 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crowd", description=__doc__)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--pace", type=float, default=5.0, help="seconds that the agents of a phase sleep")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds without a plan")
    asked = parser.parse_args()
    print(f"{asked.workers} workers of {asked.slots} slots on {os.cpu_count()} cores, one PostgreSQL", flush=True)
    with opened(asked) as crowd:
        time.sleep(3)  # their first looks
        before = crowd.measure()
        time.sleep(asked.idle)
        connections = crowd.query("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        print(f"idle: {before.until(crowd.measure())}, {connections} connections", flush=True)

        trickle = crowd.make_plans(60, "t")
        before = crowd.measure()
        crowd.enqueue(trickle, every_s=0.5)
        latencies = crowd.latencies(trickle)
        print(f"2 plans/s: enqueue to start {in_words(latencies)}; {before.until(crowd.measure())}", flush=True)

        time.sleep(asked.pace * asked.phases + 2)
        burst = crowd.make_plans(asked.plans, "b")
        before = crowd.measure()
        crowd.enqueue(burst, every_s=0)
        queued = time.time()
        free = asked.workers * asked.slots
        latencies = crowd.latencies(burst)
        busy = crowd.query("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        after = crowd.measure()
        took = after.at - queued
        ideal = max(0, len(burst) - free) / free * asked.phases * asked.pace
        print(f"{asked.plans} plans at once: queued in {queued - before.at:.1f} s; the first {free} began within")
        print(
            f"  {percentile(latencies, free / len(burst)):.1f} s, the last after {took:.1f} s ({ideal:.1f} s of sleep)"
        )
        print(f"  {before.until(after)}, {busy} connections", flush=True)


if __name__ == "__main__":
    main()
