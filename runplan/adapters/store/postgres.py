"""The journal of a fleet: one PostgreSQL schema per repository, and the schema `runplan` for all of them."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product

import psycopg
from msgspec import Struct
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from runplan.adapters import processes
from runplan.adapters.store.location import FleetLocation, normalize_url, strip_secrets
from runplan.adapters.store.outputs import StoredOutputs
from runplan.adapters.store.sql import AGENDA, FACTS, LONGEST_S, Cursor, Rows, Store
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.domain.fleet import name_queue
from runplan.domain.run.recorded import E, Recorded
from runplan.domain.run.rows import ClaimResult, HeldByOther, OwnerState
from runplan.domain.text import command

SCHEMA_VERSION = 2
FLEET = "runplan"  #: the schema of all repositories
ROLE = "runplan_worker"  #: the group of roles with the rights of workers and clients
INIT = command("runplan", "fleet", "init")
MIGRATIONS = files("runplan.adapters.store") / "migrations"
KEYS = ("RUNPLAN_FLEET_DSN", "PGPASSWORD")  #: variables that hold a key to the database
#: Parameters of a DSN that name the file of a key, and the variables that do the same.
KEY_FILES = {"passfile": "PGPASSFILE", "servicefile": "PGSERVICEFILE", "sslkey": "PGSSLKEY"}
COUNTED = b"BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
CHANNEL = "runplan_plans"  #: notified with the schema for each command; everybody may listen, so not with the plan
CHANGES = "runplan_changes"  #: notified with the schema, for each answer, row of a run and output
NO_REMOTE = "this repository lacks the remote that run.remote names, and a fleet works on what a remote has"
_NUMBER = "SELECT pg_current_xact_id_if_assigned()::text"
#: A machine that is gone answers nothing: this side gives up a call after 10 s, and the server a transaction.
NETWORK = {"connect_timeout": 5, "tcp_user_timeout": 10_000}
NETWORK |= {"keepalives_idle": 4, "keepalives_interval": 3, "keepalives_count": 2}
SESSION = "-c statement_timeout=30s -c idle_in_transaction_session_timeout=10s"
#: Of people in one repository: they read all of it, and write commands and what a client keeps.
_RIGHTS = """
GRANT USAGE ON SCHEMA runplan, {schema} TO {role};
GRANT SELECT ON runplan.version, runplan.repositories, runplan.workers TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
GRANT INSERT, DELETE ON {schema}.commands TO {role};
GRANT INSERT, UPDATE ON {schema}.waits, {schema}.outlines TO {role};
GRANT INSERT, UPDATE, DELETE ON {schema}.places TO {role};
GRANT DELETE ON {schema}.outputs TO {role};
"""


class NewerDatabase(RefusedEarly):
    """A later runplan has set up the database."""


class FleetRepository(Struct, frozen=True):
    url: str  #: normalised
    schema: str
    remote: str  #: the URL to clone it from


class StatementResult(Struct, frozen=True):
    rowcount: int
    rows: Rows

    def fetchall(self) -> Rows:
        return self.rows


class FleetConnection(psycopg.Connection):
    def execute_together(self, batch: Sequence[tuple[str, Sequence[object]]]) -> list[StatementResult]:
        """Execute statements in one round trip.

        They are one message. A pipeline ends with a Flush behind its Sync, after which PostgreSQL does not begin
        `idle_in_transaction_session_timeout`.
        """
        cursor = psycopg.ClientCursor(self)
        values = [value for _, values in batch for value in values]
        cursor.execute(";".join(sql for sql, _ in batch).replace("?", "%s"), values)
        return [
            StatementResult(cursor.rowcount, cursor.fetchall() if cursor.description else []) for _ in cursor.results()
        ]


class PostgresStore(Store):
    """One connection, which is opened again after the server was away.

    The host that owns a plan reads the events of it once, and its agenda once a turn: a round trip may take long.
    """

    def __init__(self, location: FleetLocation) -> None:
        super().__init__()
        self.location = location
        self._listens: FleetConnection | None = None  #: to changes
        self._queued: list[tuple[str, Sequence[object]]] = []  #: statements that are sent with the next one
        self._transaction: str | None = None  #: the number of the current one, once it has written
        self.keeps_agenda = False  #: waits, schedules and commands are read together, and again after a write to them
        self._agenda: dict[str, Rows] = {}  #: by query
        self._owned: set[str] = set()  #: plans whose events are recorded by this store alone
        self._facts: dict[tuple[object, ...], Rows] = {}  #: of these plans, by query and values
        with translated_errors():
            self._db = self._connect()

    def _connect(self) -> FleetConnection:
        if not self.location.url:
            raise RefusedEarly(f"{NO_REMOTE}; add it, or work on this machine alone: RUNPLAN_FLEET_DSN= runplan VERB")
        db = connect(self.location.dsn, self.location.schema)
        known = "SELECT FROM repositories WHERE schema=%s"
        if db.execute(known, (self.location.schema,)).fetchone() is None:
            db.close()
            raise RefusedEarly(f"the fleet does not know {self.location.url}; add it from its clone: {INIT}")
        return db

    def execute(self, sql: str, *values: object) -> None:
        self._forget_rows(sql, values)
        self._queued.append((sql, values))

    def run_statement(self, sql: str, values: Sequence[object]) -> Cursor:
        """Send the statement with those that wait for it: one round trip.

        A connection that the server or the network has cut between two transactions is opened again.
        """
        self._forget_rows(sql, values)
        batch = [*self._queued, (sql, values)]
        self._queued = []
        if not self._db.closed:
            is_between = self._db.info.transaction_status == TransactionStatus.IDLE
            try:
                return self._send(batch)
            except psycopg.OperationalError:
                if not is_between or not self._db.broken:
                    raise
        self._db = self._connect()
        return self._send(batch)

    def _send(self, batch: Sequence[tuple[str, Sequence[object]]]) -> Cursor:
        if len(batch) == 1 and self._db.info.transaction_status == TransactionStatus.IDLE:
            ((sql, values),) = batch
            return self._db.execute(sql.replace("?", "%s"), values)
        *_, answer, number = self._db.execute_together([*batch, (_NUMBER, ())])
        ((self._transaction,),) = number.rows
        return answer

    def _forget_rows(self, sql: str, values: Sequence[object]) -> None:
        """Rows that the statement may change are read again."""
        if sql.startswith("INSERT INTO events"):
            self._facts = {key: rows for key, rows in self._facts.items() if values[3] not in key}
        elif not sql.startswith("SELECT") and any(table in sql for table in ("waits", "schedules", "commands")):
            self._agenda = {}

    def fetch_rows(self, sql: str, values: Sequence[object]) -> Rows:
        if self.keeps_agenda and sql in AGENDA:
            if not self._agenda:
                parts = ", ".join(f"(SELECT json_agg(part) FROM ({query}) AS part)" for query in AGENDA)
                (read,) = super().fetch_rows(f"SELECT {parts}", ())
                lists = ([tuple(row.values()) for row in rows or ()] for rows in read)
                self._agenda = dict(zip(AGENDA, lists, strict=True))
            return self._agenda[sql]
        if not sql.startswith(FACTS) or values[-1] not in self._owned:
            return super().fetch_rows(sql, values)
        if (sql, *values) not in self._facts:
            self._facts[sql, *values] = super().fetch_rows(sql, values)
        return self._facts[sql, *values]

    def forget_agenda(self) -> None:
        self._agenda = {}

    def claim_plan(self, plan: str, *, run: str, owner: str) -> ClaimResult:
        self._facts = {}
        result = super().claim_plan(plan, run=run, owner=owner)
        (self._owned.discard if isinstance(result, HeldByOther) else self._owned.add)(plan)
        return result

    def release_plan(self, plan: str, *, run: str, owner: str) -> None:
        self._owned.discard(plan)
        super().release_plan(plan, run=run, owner=owner)

    def translated_errors(self) -> contextlib.AbstractContextManager[None]:
        return translated_errors()

    def commit(self) -> None:
        """Commit; where the answer was lost, ask the server what has become of the transaction."""
        if self._queued:
            self.run_statement(*self._queued.pop())
        number = self._transaction
        try:
            self._db.execute("COMMIT")
        except psycopg.OperationalError:
            if number is None:
                raise
            self._db.close()
            query = "SELECT pg_xact_status(?::xid8)"
            while (status := self.fetch_rows(query, (number,))) == [("in progress",)]:  # 10 s at most: SESSION
                time.sleep(0.1)
            if status != [("committed",)]:
                raise

    def roll_back(self) -> None:
        self._queued = []
        if self._db.closed or self._db.broken:
            self._db.close()
        elif self._db.info.transaction_status != TransactionStatus.IDLE:
            self._db.execute("ROLLBACK")

    def lock_claim(self, kind: str, key: str) -> None:
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ? || ' ' || ?, 0))", kind, key)

    def list_shared_facts(self, kind: type[E], *, since: str) -> list[Recorded[E]]:
        self._flush_kind(kind.__name__)
        return self._read_facts("all_events WHERE type=? AND at>=? ORDER BY at", kind.__name__, since)

    def get_owner_state(self, owner: str) -> OwnerState:
        """A process of this host is asked itself; one of another host has been seen within the lease."""
        host, _, process = owner.rpartition("/")
        if host and host == self.location.host and processes.is_of_this_boot(process):
            is_alive = processes.alive(process)
        else:
            is_alive = self._read_now("SELECT seen > now() - lease() FROM workers WHERE owner=?", owner) == [(True,)]
        return OwnerState.RUNNING if is_alive else OwnerState.GONE

    def list_host_labels(self, *, without: str = "") -> list[tuple[str, ...]]:
        living = "SELECT labels FROM workers WHERE seen > now() - lease() AND NOT draining AND sick='' AND owner<>?"
        return [tuple(labels) for (labels,) in self._read_now(living, without)]

    def await_change(self, *, every_s: float, within_s: float = LONGEST_S) -> None:  # noqa: ARG002
        with contextlib.suppress(psycopg.OperationalError):  # the next statement connects again, or says so
            if self._listens is not self._db:  # the caller looks again: something was recorded meanwhile
                self._listens = self._db
                self.run_statement(f"LISTEN {CHANGES}", ())
                return
            deadline = time.monotonic() + within_s
            while (left_s := deadline - time.monotonic()) > 0:
                notices = self._db.notifies(timeout=left_s, stop_after=1)
                if any(notice.payload == self.location.schema for notice in notices):
                    return

    def announce_command(self, plan: str) -> None:
        self.queue_plan(plan)
        self.execute("SELECT pg_notify(?, ?)", CHANNEL, self.location.schema)

    def queue_plan(self, plan: str, labels: Sequence[str] = ()) -> None:
        """Have a worker with these labels work on the plan, unless it is queued already."""
        self.query("SELECT queue_plan(?, ?, ?)", self.location.schema, plan, name_queue(labels))

    def wake_plan_at(self, plan: str, moment: datetime) -> None:
        self.query("SELECT wake_plan_at(?, ?, ?)", self.location.schema, plan, moment)

    def leave_plan(
        self, plan: str, *, run: str, owner: str, wake: datetime | None = None, labels: Sequence[str] | None = None
    ) -> None:
        """Give up the claim; another worker continues now, on a host with these labels, and at that moment."""
        self._owned.discard(plan)
        with self.transaction():
            self.execute("DELETE FROM claims WHERE kind='plan' AND key=? AND run=? AND owner=?", plan, run, owner)
            if labels is not None:
                self.queue_plan(plan, labels)
            if wake is not None:
                self.wake_plan_at(plan, wake)

    def request_permit(self, plan: str, owner: str, *, is_running: bool) -> bool:
        query = "SELECT request_permit(?, ?, ?, ?)"
        return self._read_now(query, self.location.schema, plan, owner, is_running) == [(True,)]

    def release_permit(self, plan: str, owner: str) -> None:
        drop = "DELETE FROM permits WHERE schema=? AND plan=? AND owner=? AND works"
        self.execute_alone(drop, self.location.schema, plan, owner)

    @property
    def outputs(self) -> StoredOutputs:
        return StoredOutputs(self, host=self.location.host, cap=self.location.output)

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was never open
            self.close()


def connect(dsn: str, schema: str = FLEET) -> FleetConnection:
    """Connect to the tables of a repository, or of the fleet alone; refuse those of another version."""
    with contextlib.ExitStack() as on_refusal, translated_errors():
        db = on_refusal.enter_context(contextlib.closing(_open(dsn, schema)))
        require_version(_read_version(db) or 0)
        on_refusal.pop_all()
    return db


def hide_keys(dsn: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment without the keys to the database. It names their files, which the sandbox hides from agents."""
    parameters = _parse_dsn(dsn)
    files = {variable: str(parameters[name]) for name, variable in KEY_FILES.items() if parameters.get(name)}
    return {name: value for name, value in env.items() if name not in KEYS} | files


def _parse_dsn(dsn: str) -> dict[str, str | int | None]:
    """The parameters of the DSN, which no message shows: those of libpq quote a password."""
    try:
        parameters = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        parameters = {"host": "@"}
    if "@" in f"{parameters.get('host')}{parameters.get('dbname')}":
        raise RefusedEarly(
            "the DSN of the fleet cannot be read; it is postgresql://USER:PASSWORD@HOST/DATABASE, and special"
            " characters of the password are written as %XX, e.g. %40 for @"
        )
    return parameters


def _open(dsn: str, schema: str) -> FleetConnection:
    with translated_errors():
        return FleetConnection.connect(complete_dsn(dsn, schema), autocommit=True)


def complete_dsn(dsn: str, schema: str = FLEET) -> str:
    """The DSN with the parameters of our connections."""
    parameters = {**NETWORK, **_parse_dsn(dsn)}
    parameters["options"] = f"{parameters.get('options', '')} -c search_path={schema},{FLEET} {SESSION}"
    return make_conninfo("", **parameters)


@contextlib.contextmanager
def translated_errors(helps: str = f"its owner gives you those of workers: GRANT {ROLE} TO ROLE") -> Iterator[None]:
    """Errors of the database become those of `runplan.domain.errors`; `helps` where the role lacks rights."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        said = error.diag.message_primary
        raise RefusedEarly(f"the role of your DSN lacks rights in the fleet's database ({said}); {helps}") from None
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        said = " ".join(str(error).split())
        address = "its address is RUNPLAN_FLEET_DSN, or dsn under [fleet] of your settings"
        raise Unreachable(f"the fleet's database does not answer: {said}; nothing was recorded; {address}") from error
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise Unreachable(f"the fleet's database refused a statement: {said}; nothing was recorded") from error


def _read_version(db: psycopg.Connection) -> int | None:
    """The version of the tables; None before the first `fleet init`."""
    if db.execute("SELECT to_regnamespace(%s)", (FLEET,)).fetchone() == (None,):
        return None
    row = db.execute(f"SELECT version FROM {FLEET}.version").fetchone()
    return row[0] if row else None


def require_version(version: int, needed: int = SCHEMA_VERSION) -> None:
    if not version:
        raise RefusedEarly(f"the database of the fleet is not set up; run: {INIT}")
    if version != needed:
        helps = "update runplan on this host" if version > needed else f"update the database: {INIT}"
        refusal = NewerDatabase if version > needed else RefusedEarly
        raise refusal(f"the fleet's database has version {version}, this runplan needs {needed}; {helps}")


def list_fleet(dsn: str) -> list[FleetRepository]:
    with connect(dsn) as db, translated_errors():
        rows = db.execute("SELECT url, schema, remote FROM repositories ORDER BY url").fetchall()
    return [FleetRepository(*row) for row in rows]


def initialize(dsn: str, remotes: Sequence[str], *, migrations: Traversable = MIGRATIONS) -> None:
    """Bring the database to the newest schema, and add repositories by their remotes: all or nothing, repeatable."""
    newest = max(int(re.sub(r"\D", "", file.name)) for file in migrations.iterdir())
    helps = f"use that of the database's owner: RUNPLAN_FLEET_DSN=... {INIT}"
    with _open(dsn, FLEET) as db, translated_errors(helps), db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(hashtext('runplan fleet init'))")
        version = _read_version(db) or 0
        if version > newest:
            require_version(version, newest)
        _create_role(db, ROLE)
        _migrate(db, FLEET, migrations, range(version + 1, newest + 1))
        if not version:
            db.execute("INSERT INTO runplan.queue VALUES (%s)", (queue_version(),))
        migrate_queue(db)
        require_queue(db)
        db.execute("UPDATE runplan.version SET version=%s", (newest,))
        for (schema,) in db.execute("SELECT schema FROM runplan.repositories").fetchall():
            _migrate(db, schema, migrations, range(version + 1, newest + 1))
        for remote in remotes:
            url = normalize_url(remote)
            schema = FleetLocation(dsn, url).schema
            add = "INSERT INTO runplan.repositories (url, schema, remote) VALUES (%s,%s,%s) ON CONFLICT DO NOTHING"
            if db.execute(add, (url, schema, strip_secrets(remote))).rowcount:
                _migrate(db, schema, migrations, range(1, newest + 1))
        for (url,) in db.execute("SELECT url FROM runplan.repositories").fetchall():
            location = FleetLocation(dsn, url)
            _create_role(db, location.role)
            names = {"role": sql.Identifier(location.role), "schema": sql.Identifier(location.schema)}
            db.execute(sql.SQL(_RIGHTS).format(**names))


def _create_role(db: psycopg.Connection, name: str) -> None:
    if db.execute("SELECT FROM pg_roles WHERE rolname=%s", (name,)).fetchone() is None:
        db.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))


def _migrate(db: psycopg.Connection, schema: str, migrations: Traversable, versions: range) -> None:
    """Apply the files of these versions to a schema; the group role gets the rights on rows of each new table."""
    prepare = """
        CREATE SCHEMA IF NOT EXISTS {schema};
        SET LOCAL search_path TO {schema}, {fleet};
        GRANT USAGE ON SCHEMA {schema} TO {role};
        ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
        ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {role};
    """
    names = {"schema": schema, "fleet": FLEET, "role": ROLE}
    db.execute(sql.SQL(prepare).format(**{key: sql.Identifier(name) for key, name in names.items()}))
    if schema == FLEET and 1 in versions:
        db.execute((files("procrastinate.sql") / "schema.sql").read_bytes())
    for version, name in product(versions, ["fleet"] if schema == FLEET else ["repository", "postgres"]):
        file = migrations / f"{name}-{version}.sql"
        if file.is_file():
            db.execute(file.read_bytes().replace(b"INTEGER PRIMARY KEY", COUNTED))


def migrate_queue(db: psycopg.Connection) -> None:
    """Apply the migrations of the installed Procrastinate that its tables lack, those before and after a release."""
    ((there,),) = db.execute("SELECT version FROM runplan.queue").fetchall()
    db.execute(f"SET LOCAL search_path TO {FLEET}")
    for file in list_queue_migrations():
        if file.name.partition("_")[0] > there:
            db.execute(file.read_bytes())
    db.execute("UPDATE runplan.queue SET version=greatest(version, %s)", (queue_version(),))


def list_queue_migrations() -> list[Traversable]:
    migrations = (files("procrastinate.sql") / "migrations").iterdir()
    return sorted((file for file in migrations if file.name[0].isdigit()), key=lambda file: file.name)


def queue_version() -> str:
    """The version of the tables that the installed Procrastinate needs."""
    return list_queue_migrations()[-1].name.partition("_")[0]


def require_queue(db: psycopg.Connection) -> None:
    """Refuse a database whose queue was made for another version of Procrastinate."""
    ((there,),) = db.execute("SELECT version FROM runplan.queue").fetchall()
    if there != (needed := queue_version()):
        update = f"update the database: {INIT}"
        helps = update if there < needed else "install the Procrastinate of the other hosts here"
        other = f"the fleet's database has the tables of Procrastinate {there}"
        raise RefusedEarly(f"{other}, the installed one needs those of {needed}; {helps}")
