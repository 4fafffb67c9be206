"""How a worker shows that it lives, and hears of commands and lost plans."""

import contextlib
import time

import psycopg
from msgspec import Struct
from msgspec.structs import asdict
from psycopg import sql

from runplan.adapters.store.postgres import CHANNEL, SCHEMA_VERSION, connect, require_queue, translated_errors
from runplan.domain.errors import RefusedEarly

JOBS = "procrastinate_any_queue_v1"  #: notified for each new job
WORKERS = "runplan_workers"  #: notified when a host is to drain, or to take plans again
#: A host that was told to drain still drains after a restart. No row while another machine lives by this name: the one
#: that started first keeps it, unless it was away for longer than the lease.
_BEAT = """
WITH mine AS (SELECT started FROM workers WHERE owner=%(owner)s AND seen > now() - lease())
INSERT INTO workers (owner, host, machine, labels, slots, version, draining)
SELECT %(owner)s, %(host)s, %(machine)s, %(labels)s, %(slots)s, %(version)s, coalesce(
    (SELECT draining FROM workers WHERE host=%(host)s ORDER BY seen DESC LIMIT 1), false)
WHERE NOT EXISTS (
    SELECT FROM workers AS other LEFT JOIN mine ON true
    WHERE host=%(host)s AND machine<>%(machine)s AND seen > now() - lease()
      AND (other.started, owner) < (coalesce(mine.started, 'infinity'), %(owner)s))
ON CONFLICT (owner) DO UPDATE SET seen=now(), sick=%(sick)s, free=%(free)s,
    failures=%(failures)s, latency_s=%(latency_s)s
RETURNING draining, (SELECT version FROM version)"""
#: Of Procrastinate. Another worker deletes it while this one is frozen.
_BEAT_QUEUE = """
INSERT INTO procrastinate_workers (id, last_heartbeat) OVERRIDING SYSTEM VALUE VALUES (%s, now())
ON CONFLICT (id) DO UPDATE SET last_heartbeat=now()"""
#: For the queue, whose connection has these names for values.
QUEUE_PLAN = "SELECT queue_plan(%(schema)s, %(plan)s, 'any')"
REQUEUE_JOBS = "SELECT requeue_jobs(%(ids)s)"
RECOVER_PLANS = "SELECT recover_plans() FROM steady WHERE since < now() - lease()"


class NameTaken(RefusedEarly):
    """Another machine of the fleet has the name of this one."""


class WorkerRow(Struct, frozen=True, kw_only=True):
    owner: str
    host: str
    labels: list[str]
    slots: int
    version: str
    machine: str = ""  #: which of those with this name


class Heartbeat:
    """A connection of its own; belongs to one thread, and is opened again after an error."""

    @translated_errors()
    def __init__(self, dsn: str, row: WorkerRow) -> None:
        self._row = row
        self.version = SCHEMA_VERSION  #: of the tables, at the last heartbeat
        self._latency_s = 0.0  #: of the last heartbeat
        self._db: psycopg.Connection = connect(dsn)
        require_queue(self._db)
        for channel in (CHANNEL, JOBS, WORKERS):
            self._db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    @property
    @translated_errors()
    def lease_s(self) -> float:
        ((lease_s,),) = self._db.execute("SELECT extract(epoch FROM lease())").fetchall()
        return float(lease_s)

    @translated_errors()
    def beat(self, queue: int | None, *, sick: str = "", free: int = 0, failures: int = 0) -> bool:
        """Show that the worker lives, also to the queue that knows it by a number; whether it is to drain."""
        health = {"sick": sick, "free": free, "failures": failures, "latency_s": self._latency_s}
        if queue is not None:
            self._db.execute(_BEAT_QUEUE, (queue,))
        begun = time.monotonic()
        row = self._db.execute(_BEAT, asdict(self._row) | health).fetchone()
        self._latency_s = time.monotonic() - begun
        if row is None:
            why = f"another machine works in this fleet as {self._row.host}"
            raise NameTaken(f"{why}; choose another name: --host NAME")
        self.version = int(row[1])
        return bool(row[0])

    @translated_errors()
    def list_owned(self) -> list[tuple[str, str, str, str]]:
        """(schema, plan, run, owner) of the plans that workers of this host own."""
        query = "SELECT schema, plan, run, owner FROM claimed WHERE starts_with(owner, %s)"
        return self._db.execute(query, (f"{self._row.host}/",)).fetchall()

    @translated_errors()
    def wait(self, timeout_s: float) -> list[tuple[str, str]]:
        """(channel, text) of what is notified meanwhile; ends after the first ones."""
        return [(notice.channel, notice.payload) for notice in self._db.notifies(timeout=timeout_s, stop_after=1)]

    @translated_errors()
    def set_capacity(self, *, fleet: int, repository: int) -> None:
        self._db.execute("UPDATE capacity SET fleet=%s, repository=%s", (fleet, repository))

    @translated_errors()
    def leave(self) -> None:
        """The worker has ended and owns nothing. The row of one that drains has the mark for the next one."""
        self._db.execute("DELETE FROM workers WHERE owner=%s AND NOT draining", (self._row.owner,))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._db.close()
