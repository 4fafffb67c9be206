"""How a worker shows that it lives, hears of commands and lost plans, and takes its turn among all hosts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import psycopg
from msgspec import Struct
from msgspec.structs import astuple
from psycopg import sql

from runplan.store.postgres import CHANNEL, connect, require_queue, translated_errors

JOBS = "procrastinate_any_queue_v1"  #: notified for each new job
WORKERS = "runplan_workers"  #: notified when a host is to drain, or to take plans again
#: A host that was told to drain still drains after a restart.
_BEAT = """
INSERT INTO workers (owner, host, labels, slots, version, draining) SELECT %s, %s, %s, %s, %s, coalesce(
    (SELECT draining FROM workers WHERE host=%s ORDER BY seen DESC LIMIT 1), false)
ON CONFLICT (owner) DO UPDATE SET seen=now() RETURNING draining"""
#: Of Procrastinate. Another worker deletes it while this one is frozen.
_BEAT_QUEUE = """
INSERT INTO procrastinate_workers (id, last_heartbeat) OVERRIDING SYSTEM VALUE VALUES (%s, now())
ON CONFLICT (id) DO UPDATE SET last_heartbeat=now()"""
#: For the queue, whose connection has these names for values.
QUEUE_PLAN = "SELECT queue_plan(%(schema)s, %(plan)s, 'any')"
REQUEUE_JOBS = "SELECT requeue_jobs(%(ids)s)"
RECOVER_PLANS = "SELECT recover_plans()"


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A row of the table of workers."""

    owner: str
    host: str
    labels: list[str]
    slots: int
    version: str


class Heartbeat:
    """A connection of its own; belongs to one thread, and is opened again after an error."""

    def __init__(self, dsn: str, row: WorkerRow) -> None:
        self._row = row
        self._db: psycopg.Connection = connect(dsn)
        require_queue(self._db)
        for channel in (CHANNEL, JOBS, WORKERS):
            self._db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))

    @property
    def lease_s(self) -> float:
        row = self._db.execute("SELECT extract(epoch FROM lease())").fetchone()
        assert row is not None
        return float(row[0])

    def beat(self, queue: int | None) -> bool:
        """Show that the worker lives, also to the queue that knows it by a number; whether it is to drain."""
        if queue is not None:
            self._db.execute(_BEAT_QUEUE, (queue,))
        row = self._db.execute(_BEAT, (*astuple(self._row), self._row.host)).fetchone()
        return bool(row and row[0])

    def list_lost(self, schema: str, plans: Collection[str]) -> set[str]:
        """Those of the plans that another worker owns."""
        query = "SELECT plan FROM claimed WHERE schema=%s AND plan=ANY(%s) AND owner<>%s"
        return {plan for (plan,) in self._db.execute(query, (schema, list(plans), self._row.owner))}

    def list_owned(self) -> list[tuple[str, str, str, str]]:
        """(schema, plan, run, owner) of the plans that workers of this host own."""
        query = "SELECT schema, plan, run, owner FROM claimed WHERE starts_with(owner, %s)"
        return self._db.execute(query, (f"{self._row.host}/",)).fetchall()

    def wait(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """(channel, text) of what is notified meanwhile; ends after the first ones."""
        for notice in self._db.notifies(timeout=timeout_s, stop_after=1):
            yield notice.channel, notice.payload

    def leave(self) -> None:
        """The worker has ended and owns nothing. The row of one that drains has the mark for the next one."""
        self._db.execute("DELETE FROM workers WHERE owner=%s AND NOT draining", (self._row.owner,))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._db.close()


class FleetLimit:
    """Limits how many runs work at once over all hosts. A permit ends with the claim of its plan, at the latest.

    May be called from any thread. A repository is known by its clone, whose directory has the name of its schema.
    """

    def __init__(self, dsn: str, owner: str) -> None:
        self._dsn = dsn
        self._owner = owner
        self._db = connect(dsn)
        self._lock = threading.Lock()

    def request_permit(self, key: tuple[str, str], *, is_running: bool = False) -> bool:
        """Whether the run may work now; if not, it has a place in the queue, also without a claim."""
        values = (Path(key[0]).name, key[1], self._owner, is_running)
        return self._execute("SELECT request_permit(%s, %s, %s, %s)", *values).fetchall() == [(True,)]

    def count_run(self, key: tuple[str, str]) -> None:
        """Count a run whose process is running already, also above the limits."""
        self.request_permit(key, is_running=True)

    def release_permit(self, root: str, plan: str = "") -> None:
        """The run has ended or waits for something else. One that has trouble keeps its claim and its permit."""
        drop = "DELETE FROM permits WHERE schema=%s AND plan=%s AND owner=%s AND works"
        if plan:
            self._execute(drop, Path(root).name, plan, self._owner)

    def resize(self, *, fleet: int, repository: int) -> None:
        """Change the limits. Running work is not interrupted."""
        self._execute("UPDATE capacity SET fleet=%s, repository=%s", fleet, repository)

    def _execute(self, query: str, *values: object) -> psycopg.Cursor:
        with self._lock, translated_errors():
            with contextlib.suppress(psycopg.OperationalError):  # the server was away meanwhile
                return self._db.execute(query, values)
            self._db.close()
            self._db = connect(self._dsn)
            return self._db.execute(query, values)

    def close(self) -> None:
        self._db.close()
