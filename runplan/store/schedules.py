"""Schedules and the answers to their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.run.rows import FiringRow, ScheduleRow

if TYPE_CHECKING:
    from runplan.store.sqlite import Store

COLUMNS = "plan, spec, zone, misfire, request, anchor, made, last, paused, given"
_NAMES = tuple(name.strip() for name in COLUMNS.split(","))


class Schedules:
    """The schedules of one repository."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[ScheduleRow]:
        rows = self._store.query(f"SELECT {COLUMNS}, next FROM schedules ORDER BY plan")
        return [ScheduleRow(**dict(zip((*_NAMES, "next"), row, strict=True))) for row in rows]  # type: ignore[arg-type]

    def get(self, plan: str) -> ScheduleRow | None:
        return next((row for row in self.all() if row.plan == plan), None)

    def put(self, row: ScheduleRow) -> None:
        """Make or replace the schedule of a plan; this does not arm it."""
        values = [getattr(row, name) for name in _NAMES]
        with self._store.transaction():
            self._store.run(f"INSERT OR REPLACE INTO schedules ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)", *values)

    def arm(self, plan: str, following: str) -> None:
        """Record the next slot of a schedule, for `status` and `next`."""
        with self._store.transaction():
            self._store.run("UPDATE schedules SET next=? WHERE plan=?", following, plan)

    def drop(self, plan: str) -> bool:
        with self._store.transaction():
            return self._store.run("DELETE FROM schedules WHERE plan=?", plan) > 0

    def pause(self, plan: str, why: str | None) -> bool:
        """Pause the schedule with a reason, or resume it (None); False when there is none."""
        with self._store.transaction():
            return self._store.run("UPDATE schedules SET paused=? WHERE plan=?", why, plan) > 0

    def answer(self, firing: FiringRow) -> bool:
        """Record the answer to a slot once; False if it has one. An answer from the future is replaced."""
        with self._store.transaction():
            fresh = self._store.run(
                "INSERT INTO firings (plan, slot, at, answer, why) VALUES (?,?,?,?,?) ON CONFLICT (plan, slot)"
                " DO UPDATE SET at=excluded.at, answer=excluded.answer, why=excluded.why WHERE excluded.at < at",
                *(firing.plan, firing.slot, firing.at, firing.answer, firing.why),
            )
            self._store.run("UPDATE schedules SET last=?, next=NULL WHERE plan=?", firing.slot, firing.plan)
        return fresh > 0

    def is_answered(self, plan: str, slot: str, *, before: str) -> bool:
        """Whether the slot has an answer; one from the future, by a wrong clock, does not count."""
        query = "SELECT 1 FROM firings WHERE plan=? AND slot=? AND at<=?"
        return bool(self._store.query(query, plan, slot, before))

    def note(self, firing: FiringRow) -> None:
        """Record the answer to a firing without a slot (`now`)."""
        with self._store.transaction():
            self._store.run(
                "INSERT OR IGNORE INTO firings (plan, slot, at, answer, why) VALUES (?,?,?,?,?)",
                *(firing.plan, firing.slot, firing.at, firing.answer, firing.why),
            )

    def firings(self, plan: str, *, limit: int = 20) -> list[FiringRow]:
        """The newest first."""
        query = "SELECT plan, slot, at, answer, why FROM firings WHERE plan=? ORDER BY rowid DESC LIMIT ?"
        found = self._store.query(query, plan, limit)
        return [FiringRow(**dict(zip(("plan", "slot", "at", "answer", "why"), row, strict=True))) for row in found]  # type: ignore[arg-type]
