"""How many runs of a fleet work at once: the permits in its database."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.store.postgres import connect, translated_errors

if TYPE_CHECKING:
    import psycopg


class FleetLimit:
    """Limits how many runs work at once, first come, first served, over all hosts. May be called from any thread.

    A permit ends with the claim of its plan. The runs whose turn it is then are queued in the same transaction. A
    repository is known by the directory of its clone, which has the name of its schema.
    """

    def __init__(self, dsn: str, owner: str) -> None:
        self._dsn = dsn
        self._owner = owner
        self._db: psycopg.Connection | None = None
        self._lock = threading.Lock()

    def request_permit(self, key: tuple[str, str]) -> bool:
        """Whether the run may work now; if not, it keeps its place in the queue after it has given up its claim."""
        return self._request(key, is_running=False)

    def count_run(self, key: tuple[str, str]) -> None:
        """Count a run whose process is running already, also above the limits."""
        self._request(key, is_running=True)

    def release_permit(self, root: str, plan: str = "") -> None:
        """The run has ended or waits for something else. One that has trouble keeps its claim and its permit."""
        if plan:
            self._execute("SELECT release_permit(%s, %s, %s)", Path(root).name, plan, self._owner)

    def resize(self, *, fleet: int, repository: int) -> None:
        """Change the limits of the fleet. Running work is not interrupted."""
        self._execute("SELECT set_capacity(%s, %s)", fleet, repository)

    def _request(self, key: tuple[str, str], *, is_running: bool) -> bool:
        root, plan = key
        values = (Path(root).name, plan, self._owner, is_running)
        return self._execute("SELECT request_permit(%s, %s, %s, %s)", *values) == [(True,)]

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def _execute(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock, translated_errors():
            if self._db is None or self._db.closed:
                self._db = connect(self._dsn)
            return self._db.execute(query, values).fetchall()
