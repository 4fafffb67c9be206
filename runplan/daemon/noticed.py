"""Remembers of which waits a person was told, so that no restart tells them again: a small file in the user's state."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "noticed.json"
MOST = 1000  #: runs that a daemon did not see the end of would stay for ever


class Noticed:
    """May be called from any thread of the one daemon. What cannot be kept is told once more after a restart."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE
        self._lock = threading.Lock()
        self._told = _read(self._file)

    def has(self, run: str, what: str) -> bool:
        with self._lock:
            return [run, what] in self._told

    def add(self, run: str, what: str) -> None:
        """They were told."""
        with self._lock:
            self._told = [*self._told, [run, what]][-MOST:]
            self._write()

    def forget(self, run: str) -> None:
        """The run has ended."""
        with self._lock:
            left = [one for one in self._told if one[0] != run]
            if len(left) < len(self._told):
                self._told = left
                self._write()

    def _write(self) -> None:
        draft = self._file.with_name(f"{FILE}.new")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps(self._told), encoding="ascii")
            os.replace(draft, self._file)


def _read(file: Path) -> list[list[str]]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    whole = found if isinstance(found, list) else []
    return [one for one in whole if isinstance(one, list) and len(one) == 2 and all(isinstance(x, str) for x in one)]
