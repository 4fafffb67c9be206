"""The journal on disk: one SQLite file under the repository's common git directory.

Events are only ever appended. The row of the run (what `status` reads) and the claim's fence change in the same
transaction as the events that changed them, so that none can disagree with the others after a crash.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import Fenced, JournalDamaged, RefusedEarly, Unreachable
from runplan.run.rows import UNFINISHED, EventRow, RunRow
from runplan.store.files import Anchor, make_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCHEMA_VERSION = 6
SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, plan TEXT NOT NULL, started TEXT NOT NULL,
    state TEXT NOT NULL, phase TEXT, step TEXT, since TEXT NOT NULL, attempt INTEGER NOT NULL,
    outcome TEXT, reason TEXT, waiting_for TEXT, landing TEXT NOT NULL, about TEXT, wake TEXT
);
CREATE UNIQUE INDEX runs_by_number ON runs (number);
CREATE INDEX runs_by_plan ON runs (plan, number);
CREATE INDEX runs_by_state ON runs (state);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, plan TEXT NOT NULL, at TEXT NOT NULL,
    type TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX events_by_run ON events (run, seq);
CREATE INDEX events_by_plan ON events (plan, type, seq);
CREATE INDEX events_by_time ON events (type, at);
CREATE INDEX leases_by_branch ON events (plan, json_extract(body, '$.branch')) WHERE type='Leased';
CREATE TABLE claims (
    kind TEXT NOT NULL, key TEXT NOT NULL, run TEXT NOT NULL, owner TEXT NOT NULL,
    fence INTEGER NOT NULL, taken TEXT NOT NULL, PRIMARY KEY (kind, key)
);
CREATE TABLE fences (kind TEXT NOT NULL, key TEXT NOT NULL, fence INTEGER NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE baselines (key TEXT PRIMARY KEY, results TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE commands (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, plan TEXT NOT NULL, verb TEXT NOT NULL, arguments TEXT NOT NULL,
    by TEXT NOT NULL, at TEXT NOT NULL, answer TEXT
);
CREATE INDEX commands_queued ON commands (seq) WHERE answer IS NULL;
CREATE TABLE schedules (
    plan TEXT PRIMARY KEY, spec TEXT NOT NULL, zone TEXT NOT NULL, misfire TEXT NOT NULL, request TEXT NOT NULL,
    anchor TEXT NOT NULL, made TEXT NOT NULL, last TEXT, paused TEXT, given TEXT NOT NULL DEFAULT '',
    next TEXT
);
CREATE TABLE firings (
    plan TEXT NOT NULL, slot TEXT NOT NULL, at TEXT NOT NULL, answer TEXT NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (plan, slot)
);
"""


class _Record(Struct, frozen=True):
    """Facts of a run, as (at, type, body), with what they make of its row."""

    events: Sequence[tuple[str, str, str]]
    row: RunRow
    fence: int
    rests: str


class Store:
    """One open connection; use it in one thread."""

    def __init__(self, directory: Path, *, writable: bool = True) -> None:
        self.path = directory / "journal.db"
        self._anchor = Anchor(self.path)
        self._waiting: list[_Record] = []
        if writable:
            make_below(directory.parent, directory)
        uri = f"file:{_quoted(self.path)}" + ("" if writable else f"?mode=ro{self._frozen()}")
        with self._told():
            self._db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA busy_timeout=30000")
            if writable:
                self._log_ahead(directory)
                self._db.execute("PRAGMA synchronous=FULL")
                self._make_tables()
            elif not self._recorded():
                # Whoever was making it has died, or is at it: nothing has been recorded.
                self._db.close()
                self._db = sqlite3.connect(":memory:", isolation_level=None)
                self._make_tables()
            if self._version() != SCHEMA_VERSION:
                raise RefusedEarly(
                    f"{self.path} was written by another version of runplan; use that version, or {self._aside()}"
                )

    @classmethod
    def exists(cls, directory: Path) -> bool:
        return (directory / "journal.db").exists()

    def _frozen(self) -> str:
        """Where nobody may write and nobody is writing, SQLite must be told so: it wants files beside the journal."""
        written = self.path.with_name(f"{self.path.name}-wal").exists()
        return "" if written or os.access(self.path.parent, os.W_OK) else "&immutable=1"

    def _log_ahead(self, directory: Path) -> None:
        """Turn on write-ahead logging, once: SQLite needs the file alone for that, and does not wait for it."""
        if self._db.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            from runplan.store.files import file_lock  # only the first who writes needs it

            with file_lock(directory / "journal.lock"):
                self._db.execute("PRAGMA journal_mode=WAL")

    def _make_tables(self) -> None:
        if self._version():
            return
        with self.transaction():
            if self._version():  # another process may have made them meanwhile
                return
            for statement in SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _recorded(self) -> bool:
        try:
            return bool(self._version())
        except sqlite3.OperationalError as error:
            # Killed while the file was first made, a process leaves a draft that readers may not put right.
            if "readonly" not in str(error):
                raise
            return False

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing; nothing in a journal that was moved away. What waits goes first."""
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            waiting, self._waiting = self._waiting, []
            try:
                for record in waiting:
                    self._record(record)
                yield
                self.require_there()
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:  # SQLite may have given it up itself, as on a full disk
                    self._db.execute("ROLLBACK")
                if not isinstance(error, Fenced):  # else it is another process that tells of the run
                    self._waiting = waiting
                raise

    def flush(self) -> None:
        """Bring to disk what waits."""
        if self._waiting:
            with self.transaction():
                pass

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")  # without a name: text that is no text
            if name.startswith(_DAMAGE):
                raise self._damaged(str(error)) from error
            helps = next((f"; {told}" for names, told in _HELPS if name.startswith(names)), "")
            raise Unreachable(f"{self.path}: {error}; nothing was recorded{helps}") from error

    def _damaged(self, what: str) -> JournalDamaged:
        told = f"{self.path}: {what}; nothing was recorded; what is done stands in the plans and in git"
        return JournalDamaged(f"{told}; {self._aside()}")

    def _aside(self) -> str:
        import shlex  # only an error needs it

        here = shlex.quote(str(self.path))
        return f"move it away and start again: mv {here} {here}.damaged"

    def _event(self, found: tuple[int, str, str, str, str, int]) -> EventRow:
        seq, run, at, kind, body, whole = found
        if not whole:
            raise self._damaged(f"row {seq} is damaged")
        return EventRow(seq=seq, run=run, at=at, type=kind, body=body)

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Rows, for the rooms that keep tables of their own here."""
        self.flush()
        with self._told():
            return self._db.execute(sql, values).fetchall()

    def run(self, sql: str, *values: object) -> int:
        """One change, inside a transaction; says how many rows it met."""
        return self._db.execute(sql, values).rowcount

    def require_there(self) -> None:
        """Refuse to conclude anything while the journal is not where it was opened."""
        self._anchor.require()

    def close(self) -> None:
        self._db.close()

    # --- runs and events -------------------------------------------------------------------------------

    def append(
        self, events: Sequence[tuple[str, str, str]], row: RunRow, *, fence: int, rests: str = "", waits: bool = False
    ) -> None:
        """Record (at, type, body) facts of a run and its row, unless the plan was taken over; now, or with the next.

        A run that has ended owns nothing any more: its claims go in the same transaction, in which a schedule is
        also laid to rest for the reason `rests`.
        """
        record = _Record(events, row, fence, rests)
        if waits:
            self._waiting.append(record)
            return
        with self.transaction():
            self._record(record)

    def _record(self, record: _Record) -> None:
        events, row, fence, rests = record.events, record.row, record.fence, record.rests
        held = self._db.execute("SELECT fence FROM claims WHERE kind='plan' AND key=?", (row.plan,)).fetchone()
        if held is None or held[0] != fence:
            raise Fenced(f"another process has taken {row.plan} over; this one stops")
        self._db.executemany(
            "INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)",
            [(row.id, row.plan, at, kind, body) for at, kind, body in events],
        )
        self._db.execute(
            "INSERT INTO runs (id, number, plan, started, state, phase, step, since, attempt, outcome, reason,"
            " waiting_for, landing, about, wake) VALUES (?, (SELECT coalesce(max(number),0)+1 FROM runs),"
            " ?,?,?,?,?,?,?,?,?,?,?,?,?)"
            " ON CONFLICT (id) DO UPDATE SET state=excluded.state, phase=excluded.phase, step=excluded.step,"
            " since=excluded.since, attempt=excluded.attempt, outcome=excluded.outcome,"
            " reason=excluded.reason, waiting_for=excluded.waiting_for, about=excluded.about, wake=excluded.wake",
            _values(row),
        )
        if row.outcome is not None:
            self._db.execute("DELETE FROM claims WHERE run=?", (row.id,))
        if rests:
            self._db.execute("UPDATE schedules SET paused=? WHERE plan=?", (rests, row.plan))

    def _flush_kind(self, kind: str) -> None:
        """Whoever asks for facts of a kind sees those that wait, too."""
        if any(kind == told for record in self._waiting for _, told, _ in record.events):
            self.flush()

    def events(self, run: str, *, after: int = 0) -> list[EventRow]:
        self.flush()
        query = f"SELECT {EVENT} FROM events WHERE run=? AND seq>? ORDER BY seq"
        with self._told():
            return [self._event(found) for found in self._db.execute(query, (run, after))]

    def runs(self, plan: str | None = None, *, limit: int = 50) -> list[RunRow]:
        """The newest runs first."""
        self.flush()
        where, values = ("WHERE plan=?", [plan]) if plan is not None else ("", [])
        query = f"SELECT {COLUMNS} FROM runs {where} ORDER BY number DESC LIMIT ?"
        with self._told():
            return [_row(found) for found in self._db.execute(query, (*values, limit))]

    def newest(self, plan: str) -> RunRow | None:
        return next(iter(self.runs(plan, limit=1)), None)

    def unfinished(self) -> list[RunRow]:
        self.flush()
        marks = ",".join("?" for _ in UNFINISHED)
        query = f"SELECT {COLUMNS} FROM runs WHERE state IN ({marks}) ORDER BY number"
        with self._told():
            return [_row(found) for found in self._db.execute(query, UNFINISHED)]

    def facts(self, plan: str, kind: str) -> list[EventRow]:
        """The events of one kind over all runs of a plan, oldest first."""
        self._flush_kind(kind)
        query = f"SELECT {EVENT} FROM events WHERE plan=? AND type=? ORDER BY seq"
        with self._told():
            return [self._event(found) for found in self._db.execute(query, (plan, kind))]

    def last(self, plan: str, kind: str) -> EventRow | None:
        """The newest event of one kind over all runs of a plan."""
        self._flush_kind(kind)
        query = f"SELECT {EVENT} FROM events WHERE plan=? AND type=? ORDER BY seq DESC LIMIT 1"
        with self._told():
            found = self._db.execute(query, (plan, kind)).fetchone()
        return self._event(found) if found else None

    def leases(self, plan: str, branch: str) -> int:
        """How many attempts at the plan have worked on the branch."""
        self._flush_kind("Leased")
        query = "SELECT count(*) FROM events WHERE plan=? AND type='Leased' AND json_extract(body, '$.branch')=?"
        with self._told():
            return int(self._db.execute(query, (plan, branch)).fetchone()[0])

    def destination(self, run: str) -> tuple[str, str, str] | None:
        """Landing, target and remote that a run began with; "" for what was not named."""
        # As bytes, because names of branches need not be text.
        named = "CAST(coalesce(json_extract(body, '$.{}'), '') AS BLOB)"
        fields = ", ".join(named.format(name) for name in ("landing", "target", "remote"))
        query = f"SELECT {fields} FROM events WHERE run=? AND type='RunStarted' ORDER BY seq LIMIT 1"
        with self._told():
            found = self._db.execute(query, (run,)).fetchone()
        if found is None:
            return None
        landing, target, remote = (part.decode("utf-8", "surrogatepass") for part in found)
        return landing, target, remote

    def run_of(self, command: int) -> str:
        """The run that a command began; "" for none."""
        query = "SELECT run FROM events WHERE type='RunStarted' AND json_extract(body, '$.command')=? LIMIT 1"
        found = self.query(query, command)
        return str(found[0][0]) if found else ""

    def is_daemons(self, plan: str) -> bool:
        """Whether the daemon works the newest run of the plan."""
        row = self.newest(plan)
        query = (
            "SELECT max(coalesce(json_extract(body, '$.daemon'), 0)) FROM events"
            " WHERE run=? AND type IN ('RunStarted', 'RunResumed')"
        )
        return row is not None and bool(self.query(query, row.id)[0][0])

    def since(self, kind: str, at: str) -> list[EventRow]:
        """The events of one kind from a moment on, over all plans, oldest first."""
        self._flush_kind(kind)
        query = f"SELECT {EVENT} FROM events WHERE type=? AND at>=? ORDER BY seq"
        with self._told():
            return [self._event(found) for found in self._db.execute(query, (kind, at))]

    # --- claims ----------------------------------------------------------------------------------------

    def claim(self, kind: str, key: str) -> tuple[str, str, int] | None:
        """(run, owner, fence) of the claim as it stands; the fence of one that cannot be read is 0."""
        query = "SELECT run, owner, fence FROM claims WHERE kind=? AND key=?"
        with self._told():
            found = self._db.execute(query, (kind, key)).fetchone()
        return _claim(found) if found else None

    def set_claim(self, kind: str, key: str, *, run: str, owner: str, at: str) -> int:
        """Write the claim with a fence higher than any before; inside a transaction."""
        self.run("INSERT INTO fences VALUES (?,?,1) ON CONFLICT (kind, key) DO UPDATE SET fence=fence+1", kind, key)
        found = self._db.execute("SELECT fence FROM fences WHERE kind=? AND key=?", (kind, key)).fetchone()
        self._db.execute("INSERT OR REPLACE INTO claims VALUES (?,?,?,?,?,?)", (kind, key, run, owner, found[0], at))
        return int(found[0])

    def drop_claims(self, *, run: str, owner: str) -> None:
        """Release the plan that this owner holds for this run; its issues stay claimed until it has ended."""
        with self.transaction():
            self._db.execute("DELETE FROM claims WHERE kind='plan' AND run=? AND owner=?", (run, owner))

    def drop_claim(self, kind: str, key: str, *, owner: str) -> bool:
        """Release one claim, whatever its run, if it is still this owner's."""
        with self.transaction():
            return self.run("DELETE FROM claims WHERE kind=? AND key=? AND owner=?", kind, key, owner) > 0

    def claims(self, kind: str) -> dict[str, tuple[str, str, int]]:
        """All claims of a kind by key, each as (run, owner, fence)."""
        query = "SELECT key, run, owner, fence FROM claims WHERE kind=? ORDER BY key"
        with self._told():
            return {str(key): _claim(found) for key, *found in self._db.execute(query, (kind,))}

    # --- baselines -------------------------------------------------------------------------------------

    def baseline(self, key: str) -> str | None:
        with self._told():
            found = self._db.execute("SELECT results FROM baselines WHERE key=?", (key,)).fetchone()
        return str(found[0]) if found else None

    def keep_baseline(self, key: str, results: str, *, at: str) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO baselines VALUES (?,?,?)", (key, results, at))


EVENT = "seq, run, at, type, body, json_valid(body)"
COLUMNS = "id, plan, started, state, phase, step, since, attempt, outcome, reason, waiting_for, landing, about, wake"


def _claim(found: Sequence[object]) -> tuple[str, str, int]:
    run, owner, fence = found
    return str(run), str(owner), fence if isinstance(fence, int) else 0


def _row(found: Sequence[str]) -> RunRow:
    names = [name.strip() for name in COLUMNS.split(",")]
    return RunRow(**dict(zip(names, found, strict=True)))  # type: ignore[arg-type]


def _values(row: RunRow) -> tuple[object, ...]:
    return tuple(getattr(row, name.strip()) for name in COLUMNS.split(","))


#: What SQLite finds when the file is no journal any more, whatever it is instead.
_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_SCHEMA", "SQLITE_MISMATCH", "SQLITE_CONSTRAINT")
#: What a person can do about the rest.
_HELPS = (
    (("SQLITE_FULL", "SQLITE_IOERR"), "make room on the disk, then try again"),
    (("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"), "make its directory writable, then try again"),
)


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
