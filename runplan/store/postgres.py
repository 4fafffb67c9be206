"""The journal of a fleet: one PostgreSQL schema per repository, and the schema `runplan` for all of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import psycopg
from msgspec import Struct
from psycopg import sql

from runplan.errors import RefusedEarly, Unreachable
from runplan.run.rows import OwnerState
from runplan.store.sql import SqlStore
from runplan.text import command

if TYPE_CHECKING:
    from runplan.store.sql import Cursor

SCHEMA_VERSION = 1
FLEET = "runplan"  #: the schema of all repositories
LEASE_S = 30.0  #: after which a worker that was not seen counts as dead
INIT = command("runplan", "fleet", "init")


class FleetLocation(Struct, frozen=True):
    """Where the store of a repository is."""

    dsn: str  #: a secret
    url: str  #: of the repository's remote

    @property
    def schema(self) -> str:
        return f"repository_{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"


class PostgresStore(SqlStore):
    """One connection, which is opened again after the server was away."""

    def __init__(self, location: FleetLocation) -> None:
        super().__init__()
        self.location = location
        with self._translated_errors():
            self._db = self._connect()

    def _connect(self) -> psycopg.Connection:
        schema = self.location.schema
        path = f"-c search_path={schema},{FLEET} -c statement_timeout=30s"
        db = psycopg.connect(self.location.dsn, autocommit=True, options=path, connect_timeout=10)
        try:
            row = db.execute("SELECT version FROM repositories WHERE schema=%s", (schema,)).fetchone()
        except psycopg.errors.UndefinedTable:
            db.close()
            raise RefusedEarly(f"the database of the fleet is not set up; run: {INIT}") from None
        if row is None:
            db.close()
            raise RefusedEarly(f"the fleet does not know {self.location.url}; add it: {INIT} --repository URL")
        if row[0] != SCHEMA_VERSION:
            db.close()
            newer = "update runplan here" if row[0] > SCHEMA_VERSION else f"update the database: {INIT}"
            raise RefusedEarly(
                f"the fleet's database has version {row[0]}, this runplan needs {SCHEMA_VERSION}; {newer}"
            )
        return db

    def _run(self, sql: str, values: Sequence[object]) -> Cursor:
        if self._db.closed:
            self._db = self._connect()
        return self._db.execute(sql.replace("?", "%s"), values)

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            raise Unreachable(f"the fleet's database does not answer: {said}; nothing was recorded") from error

    def _begin(self) -> None:
        self._run("BEGIN", ())

    def _commit(self) -> None:
        """Commit; where the answer was lost, ask the server what has become of the transaction."""
        ((xact,),) = self._run("SELECT pg_current_xact_id_if_assigned()::text", ()).fetchall()
        try:
            self._db.execute("COMMIT")
        except psycopg.OperationalError:
            if xact is None or not self._is_committed(xact):
                raise

    def _is_committed(self, xact: str) -> bool:
        self._db.close()
        return self._run("SELECT pg_xact_status(?::xid8)", (xact,)).fetchall() == [("committed",)]

    def _roll_back(self) -> None:
        if self._db.closed or self._db.broken:
            self._db.close()
        elif self._db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._db.execute("ROLLBACK")

    def _lock_claim(self, kind: str, key: str) -> None:
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ? || ' ' || ?, 0))", kind, key)

    def require_there(self) -> None:
        """The server answers, or the transaction fails."""

    def get_owner_state(self, owner: str) -> OwnerState:
        seen = "SELECT seen > now() - make_interval(secs => ?) FROM workers WHERE owner=?"
        return OwnerState.RUNNING if self._read_now(seen, LEASE_S, owner) == [(True,)] else OwnerState.GONE

    def close(self) -> None:
        self._db.close()


def initialize(dsn: str, urls: Sequence[str]) -> None:
    """Bring the database to this version of the schema, and add repositories; may be repeated."""
    with psycopg.connect(dsn) as db:
        if db.execute("SELECT to_regclass('runplan.repositories')").fetchone() == (None,):
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {FLEET}")
            _apply_file(db, FLEET, "fleet-1.sql")
        for url in urls:
            schema = FleetLocation(dsn, url).schema
            db.execute(f"SET LOCAL search_path TO {FLEET}")
            known = db.execute("SELECT version FROM repositories WHERE url=%s FOR UPDATE", (url,)).fetchone()
            if known is None:
                db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
                _apply_file(db, schema, "repository-1.sql")
                db.execute("INSERT INTO runplan.repositories VALUES (%s,%s,%s)", (url, schema, SCHEMA_VERSION))


def _apply_file(db: psycopg.Connection, schema: str, name: str) -> None:
    text = (files("runplan.store") / "migrations" / name).read_text(encoding="utf-8")
    db.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
    db.execute(text)
