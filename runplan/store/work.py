"""Reads from the journal what a run is at, without the long texts that its events hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.core.work import TOLD, Step, work_of

if TYPE_CHECKING:
    from runplan.core.work import Work
    from runplan.store.sqlite import Store

_FIELDS = ", ".join(f"json_extract(body, '$.{name}')" for name in Step._fields[2:])
_QUERY = f"""
SELECT at, type, {_FIELDS} FROM events
WHERE run = ? AND type IN ({", ".join(repr(kind) for kind in TOLD)}) ORDER BY seq
"""


def read_work(store: Store, run: str) -> Work:
    """What the run is at, and what it has used so far."""
    rows: Any = store.query(_QUERY, run)
    return work_of(Step(*row) for row in rows)
