"""Looks at a dispatch from outside, cheaply: whether it runs, and when it last said something."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.locks import is_held
from runplan.core.quickclass import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Seen(NamedTuple):
    """What a glance shows."""

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
