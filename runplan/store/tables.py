"""The tables of commands, schedules and waits. Cheap to import."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import convert, to_builtins
from msgspec.structs import astuple, replace

from runplan.run.rows import Command, FiringRow, ScheduleRow, WaitRow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runplan.run.requests import Answer
    from runplan.store.sqlite import Store

KEPT = 200  #: answered commands that are kept for callers that ask late


class _Table:
    def __init__(self, store: Store) -> None:
        self._store = store

    def _change(self, query: str, *values: object) -> bool:
        """Execute one statement; whether it changed a row."""
        with self._store.transaction():
            return self._store.run(query, *values) > 0


class Commands(_Table):
    """The commands of one repository."""

    def add(self, plan: str, verb: str, arguments: Mapping[str, Any], *, by: str, at: str) -> int:
        """Queue a command; its number."""
        values = (plan, verb, json.dumps(arguments), by, at)
        with self._store.transaction():
            self._store.run("INSERT INTO commands (plan, verb, arguments, by, at) VALUES (?,?,?,?,?)", *values)
            ((number,),) = self._store.query("SELECT last_insert_rowid()")
            self._store.run("DELETE FROM commands WHERE answer IS NOT NULL AND seq <= ?", number - KEPT)
        return int(number)

    def queued(self) -> list[Command]:
        """The commands without an answer, oldest first."""
        query = "SELECT seq, plan, verb, arguments, by, at FROM commands WHERE answer IS NULL ORDER BY seq"
        return [
            Command(seq=seq, plan=plan, verb=verb, arguments=json.loads(arguments), by=by, at=at)
            for seq, plan, verb, arguments, by, at in self._store.query(query)
        ]

    def finish(self, seq: int, answer: Answer) -> None:
        """Record the answer once."""
        text = json.dumps(to_builtins(answer))
        self._change("UPDATE commands SET answer=? WHERE seq=? AND answer IS NULL", text, seq)

    def answer(self, seq: int) -> Answer | None:
        """None while the command is queued."""
        from runplan.run.requests import Answer  # slow to import

        found = self._store.query("SELECT answer FROM commands WHERE seq=? AND answer IS NOT NULL", seq)
        return convert(json.loads(found[0][0]), Answer) if found else None


class Schedules(_Table):
    """The schedules of one repository."""

    def all(self) -> list[ScheduleRow]:
        return self._store.rows(ScheduleRow, "schedules ORDER BY plan")

    def get(self, plan: str) -> ScheduleRow | None:
        return next(iter(self._store.rows(ScheduleRow, "schedules WHERE plan=?", plan)), None)

    def put(self, row: ScheduleRow) -> None:
        """Make or replace the schedule of a plan; its next slot is recorded by `arm`."""
        self._store.put("schedules", replace(row, next=None))

    def arm(self, plan: str, following: str) -> None:
        """Record the next slot of a schedule, for `status` and `next`."""
        self._change("UPDATE schedules SET next=? WHERE plan=?", following, plan)

    def drop(self, plan: str) -> bool:
        return self._change("DELETE FROM schedules WHERE plan=?", plan)

    def pause(self, plan: str, why: str | None) -> bool:
        """Pause the schedule with a reason, or resume it (None); False when there is none."""
        return self._change("UPDATE schedules SET paused=? WHERE plan=?", why, plan)

    def answer(self, firing: FiringRow) -> bool:
        """Record the answer to a slot once; False if it has one. An answer from the future is replaced."""
        with self._store.transaction():
            fresh = self._store.run(
                f"INSERT INTO firings ({', '.join(FiringRow.__struct_fields__)}) VALUES (?,?,?,?,?)"
                " ON CONFLICT (plan, slot)"
                " DO UPDATE SET at=excluded.at, answer=excluded.answer, why=excluded.why WHERE excluded.at < at",
                *astuple(firing),
            )
            self._store.run("UPDATE schedules SET last=?, next=NULL WHERE plan=?", firing.slot, firing.plan)
        return fresh > 0

    def is_answered(self, plan: str, slot: str, *, before: str) -> bool:
        """Whether the slot has an answer; one from the future, by a wrong clock, does not count."""
        query = "SELECT 1 FROM firings WHERE plan=? AND slot=? AND at<=?"
        return bool(self._store.query(query, plan, slot, before))

    def firings(self, plan: str, *, limit: int = 20) -> list[FiringRow]:
        """The newest first."""
        return self._store.rows(FiringRow, "firings WHERE plan=? ORDER BY rowid DESC LIMIT ?", plan, limit)


class Waits(_Table):
    """The waits of the worker of one repository."""

    def all(self) -> list[WaitRow]:
        return self._store.rows(WaitRow, "waits ORDER BY plan")

    def put(self, row: WaitRow) -> None:
        self._store.put("waits", row)

    def drop(self, plan: str) -> None:
        self._change("DELETE FROM waits WHERE plan=?", plan)
