"""The journal: one SQLite file under the repository's common git directory."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from runplan.adapters import processes
from runplan.adapters.store import tables
from runplan.adapters.store.files import Anchor, file_lock, make_below
from runplan.adapters.store.sql import Cursor, Store
from runplan.domain.errors import JournalDamaged, RefusedEarly, Unreachable
from runplan.domain.run.rows import OwnerState
from runplan.domain.text import command

#: SQLite errors that mean the file is not a valid journal.
_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_SCHEMA", "SQLITE_MISMATCH", "SQLITE_CONSTRAINT")
_REMEDIES = (
    (("SQLITE_FULL", "SQLITE_IOERR"), "; free space on the disk, then try again"),
    (("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"), "; make its directory writable, then try again"),
)
JOURNAL = "journal.db"
TABLES = Path(__file__).with_name("migrations") / "repository-1.sql"


class SqliteStore(Store):
    BEGIN = "BEGIN IMMEDIATE"

    def __init__(
        self, directory: Path, *, writable: bool = True, missing_ok: bool = False, may_create: bool = True
    ) -> None:
        """Open the journal. With `missing_ok` an absent one reads as empty: no plan was ever run."""
        super().__init__()
        self.path = directory / JOURNAL
        with self.translated_errors():
            if missing_ok and not self.path.exists():
                self._db = sqlite3.connect(":memory:", isolation_level=None)
                self._db.executescript(TABLES.read_text())
                return
            if writable and may_create and not self.path.exists():
                make_below(directory.parent, directory)
                self._create_journal()
            self._anchor = Anchor(self.path)
            name = str(self.path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            uri = f"file:{name}?mode={'rw' if writable else 'ro'}"
            self._db = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
            self._db.execute("PRAGMA synchronous=FULL")
            if self._db.execute("PRAGMA user_version").fetchone() != (tables.SCHEMA_VERSION,):
                why = f"{self.path} was written by another version of runplan"
                raise RefusedEarly(f"{why}; use that version, or {self._move_away()}")

    def _create_journal(self) -> None:
        """Create the journal whole or not at all; of several processes the first one does."""
        draft = self.path.with_name("journal.new")
        with file_lock(self.path.with_name("journal.lock")):
            if self.path.exists():
                return
            draft.unlink(missing_ok=True)
            draft.touch(0o600)
            with contextlib.closing(sqlite3.connect(draft)) as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(f"BEGIN;{TABLES.read_text()}PRAGMA user_version={tables.SCHEMA_VERSION};COMMIT")
            draft.replace(self.path)

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")  # invalid text has no name
            if name.startswith(_DAMAGE):
                kept = "nothing was recorded; landed work is safe in the plans and in git"
                raise JournalDamaged(f"{self.path}: {error}; {kept}; {self._move_away()}") from error
            remedy = next((remedy for names, remedy in _REMEDIES if name.startswith(names)), "")
            raise Unreachable(f"{self.path}: {error}; nothing was recorded{remedy}") from error

    def _move_away(self) -> str:
        return f"move it away and start again: {command('mv', str(self.path), f'{self.path}.damaged')}"

    def run_statement(self, sql: str, values: Sequence[object]) -> Cursor:
        return self._db.execute(sql, values)

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def roll_back(self) -> None:
        if self._db.in_transaction:  # on a full disk SQLite has rolled back already
            self._db.execute("ROLLBACK")

    def require_there(self) -> None:
        self._anchor.require()

    def get_owner_state(self, owner: str) -> OwnerState:
        process = processes.living(owner)
        if process is None:
            return OwnerState.GONE
        return OwnerState.SUSPENDED if processes.stopped(process.pid) else OwnerState.RUNNING

    def close(self) -> None:
        self._db.close()

    def __del__(self) -> None:
        """A connection and its cache of statements refer to each other, so only `close` frees its descriptors."""
        with contextlib.suppress(AttributeError, sqlite3.Error):  # it was never open, or belongs to another thread
            self.close()
