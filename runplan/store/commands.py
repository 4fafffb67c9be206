"""The queue of commands with their answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runplan.run.requests import answer_json, read_answer
from runplan.run.rows import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.run.requests import Answer
    from runplan.store.sqlite import Store

KEPT = 200  #: answered commands that are kept for callers that ask late


class Commands:
    """The commands of one repository."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        """Record the answer; the plan's later commands need not wait any more."""
        with self._store.transaction():
            self._store.run("UPDATE commands SET answer=? WHERE seq=? AND answer IS NULL", answer_json(answer), seq)
            own = "kind='dependency' AND plan=(SELECT plan FROM commands WHERE seq=?)"
            self._store.run(f"DELETE FROM waits WHERE {own}", seq)

    def answer(self, seq: int) -> Answer | None:
        """None while the command is queued."""
        found = self._store.query("SELECT answer FROM commands WHERE seq=?", seq)
        return read_answer(found[0][0]) if found and found[0][0] is not None else None
