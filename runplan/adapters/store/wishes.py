"""What people wanted of plans while nobody could do it, kept beside the journal until somebody has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core.rows import Wish

if TYPE_CHECKING:
    from runplan.adapters.store.sqlite import Store

#: Hardly any journal ever needs it, and a version that does not know it loses nothing: it is made with the first one.
TABLE = "CREATE TABLE IF NOT EXISTS wishes (plan TEXT PRIMARY KEY, by TEXT NOT NULL)"
#: In a table that was made when people could only want something stopped this is added.
WHAT = "ALTER TABLE wishes ADD COLUMN what TEXT NOT NULL DEFAULT 'stop'"
_MADE = "SELECT 1 FROM sqlite_master WHERE type='table' AND name='wishes'"


class Wishes:
    """Those of one repository. A plan has one, the last; but that it be stopped is not taken back by another."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Wish]:
        if not self._store.query(_MADE):
            return []
        return [_wish(*map(str, found)) for found in self._store.query("SELECT * FROM wishes")]

    def note(self, wish: Wish) -> Wish:
        """The one that holds for it now: this, or that it be stopped."""
        with self._store.transaction():
            self._make()
            if wish.what == "stop":
                self._store.run("DELETE FROM wishes WHERE plan=? OR ?=''", wish.plan, wish.plan)
            elif self._store.query("SELECT 1 FROM wishes WHERE what='stop' AND plan IN (?, '')", wish.plan):
                return replace(wish, what="stop")
            values = (wish.plan, wish.by, wish.what)
            self._store.run("INSERT OR REPLACE INTO wishes (plan, by, what) VALUES (?,?,?)", *values)
        return wish

    def drop(self, wish: Wish) -> None:
        """It has been done; another that has come since stays."""
        if wish in self.all():
            with self._store.transaction():
                self._make()
                self._store.run("DELETE FROM wishes WHERE plan=? AND what=?", wish.plan, wish.what)

    def _make(self) -> None:
        self._store.run(TABLE)
        if not self._store.query("SELECT 1 FROM pragma_table_info('wishes') WHERE name='what'"):
            self._store.run(WHAT)


def _wish(plan: str, by: str, what: str = "stop") -> Wish:
    return Wish(plan=plan, by=by, what=what)
