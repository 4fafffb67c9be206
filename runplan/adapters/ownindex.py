"""Keeps a copy of each worktree's index from our own hands, and uses it only while it is provably that one.

An agent can tell git to overlook changes (`update-index --skip-worktree`), in the index it works with and in whatever
lies beside it. With an index that only we have written, the tree that is gated is the tree that was committed; where
there is none, every file is written anew. A copy at all, because writing ten thousand files takes most of a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import open_plain
from runplan.core.quickclass import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.registry import Entry

OWN_INDEX = "runplan-index"


class _Known(NamedTuple):
    """What an index was when we had written it; remembered in this process, where no agent can write."""

    digest: bytes
    written_ns: int


class OwnIndexes:
    """The indexes that this process has written, by worktree."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}

    def keep(self, entry: Entry) -> None:
        """Remember the index that our git has just written."""
        self.forget(entry)
        index = open_plain(entry.directory / "index")
        if index is None:
            return
        with index:
            content, written_ns = index.read(), os.fstat(index.fileno()).st_mtime_ns
        if _written(entry.directory / OWN_INDEX, content, written_ns):
            self._known[entry.directory] = _Known(hashlib.sha256(content).digest(), written_ns)

    def put_back(self, entry: Entry) -> None:
        """Make the index the one we wrote last; where none provably is, none, so that git writes every file."""
        content = self._own(entry)
        goal = entry.directory / "index"
        if content is None or not _written(goal, content, self._known[entry.directory].written_ns):
            goal.unlink(missing_ok=True)

    def forget(self, entry: Entry) -> None:
        """Believe in none until the next one is written."""
        self._known.pop(entry.directory, None)

    def _own(self, entry: Entry) -> bytes | None:
        known = self._known.get(entry.directory)
        file = open_plain(entry.directory / OWN_INDEX) if known else None
        if known is None or file is None:
            return None
        with file:
            content = file.read()
        return content if hashlib.sha256(content).digest() == known.digest else None


def _written(path: Path, content: bytes, written_ns: int) -> bool:
    """Write an index as a new file, with its time: git looks twice at entries as young as their index."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)  # no link is followed; and to write over a file, some file systems wait
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "wb"
        ) as new:
            new.write(content)
        os.utime(path, ns=(written_ns, written_ns))
        return True
    return False
