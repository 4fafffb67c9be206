"""Reads the current work of a run from the journal, without the long texts of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.run.progress import TOLD, Step, work_of

if TYPE_CHECKING:
    from runplan.run.progress import Work
    from runplan.store.sqlite import Store

_FIELDS = ", ".join(f"json_extract(body, '$.{name}')" for name in Step._fields[2:])
_QUERY = f"""
SELECT at, type, {_FIELDS} FROM events
WHERE run = ? AND type IN ({", ".join(repr(kind) for kind in TOLD)}) ORDER BY seq
"""


def read_work(store: Store, run: str) -> Work:
    """The current work of the run, and its usage."""
    rows: Any = store.query(_QUERY, run)
    return work_of(Step(*row) for row in rows)
