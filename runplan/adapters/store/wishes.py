"""What people wanted stopped while nobody could do it, kept beside the journal until somebody has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.rows import Wish

if TYPE_CHECKING:
    from runplan.adapters.store.sqlite import Store

#: Hardly any journal ever needs it, and a version that does not know it loses nothing: it is made with the first one.
TABLE = "CREATE TABLE IF NOT EXISTS wishes (plan TEXT PRIMARY KEY, by TEXT NOT NULL)"
_MADE = "SELECT 1 FROM sqlite_master WHERE type='table' AND name='wishes'"


class Wishes:
    """Those of one repository; a plan has one."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Wish]:
        if not self._store.query(_MADE):
            return []
        return [Wish(plan=str(plan), by=str(by)) for plan, by in self._store.query("SELECT plan, by FROM wishes")]

    def note(self, wish: Wish) -> None:
        with self._store.transaction():
            self._store.run(TABLE)
            self._store.run("INSERT OR REPLACE INTO wishes (plan, by) VALUES (?,?)", wish.plan, wish.by)

    def drop(self, wish: Wish) -> None:
        """It has been done."""
        if self._store.query(_MADE):
            with self._store.transaction():
                self._store.run("DELETE FROM wishes WHERE plan=?", wish.plan)
