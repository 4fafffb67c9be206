"""Reads the current work of a run from the journal, without the long texts of its events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.run.progress import TYPES, Step, work_of
from runplan.store.files import is_held

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.run.progress import Work
    from runplan.store.sqlite import Store

_FIELDS = ", ".join(f"json_extract(body, '$.{name}')" for name in Step.__struct_fields__[2:])
_QUERY = f"""
SELECT at, type, {_FIELDS} FROM events
WHERE run = ? AND type IN ({", ".join(repr(kind) for kind in TYPES)}) ORDER BY seq
"""


def read_work(store: Store, run: str) -> Work:
    """The current work of the run, and its usage."""
    rows: Any = store.query(_QUERY, run)
    return work_of(Step(*row) for row in rows)


class Seen(Struct, frozen=True):
    """A dispatch as seen from outside."""

    runs: bool
    output: float | None  #: when it last wrote something, in seconds since the epoch; None when it has not yet


def look_at(state: Path, dispatch: str) -> Seen:
    """The dispatch of that id in the repository whose journal lies in `state`."""
    directory = state / "dispatch" / dispatch  # our own ids are file names
    written = [_written(directory / name) for name in ("out.log", "err.log")]
    return Seen(is_held(directory / "lock"), max((one for one in written if one is not None), default=None))


def _written(log: Path) -> float | None:
    try:
        found = os.stat(log)  # noqa: PTH116 - every reading verb pays for pathlib's
    except OSError:
        return None
    return found.st_mtime if found.st_size else None
