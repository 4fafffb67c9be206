"""Knows which processes are the shims of dispatches: as they answered, or by the lock the kernel says they have open.

What lies in the directory of a dispatch its agent can write. It hints at most, and nobody is signalled for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from runplan.adapters import processes
from runplan.adapters.processtable import Process, this_table

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.dispatch_files import DispatchFiles

#: A shim is a fork of its spawner, and is called like it.
SPAWNER = "runplan.adapters.spawner"

#: How the kernel tells that somebody took the file away that a process still has open.
_DELETED = " (deleted)"


class Shims:
    """The shims of one runner: those it started, and those it took up."""

    def __init__(self, directory: Path) -> None:
        self._place = os.path.realpath(directory)  # as the kernel calls it
        self._known: dict[str, Process] = {}

    def answered(self, dispatch: str, pid: int) -> None:
        """Remember the shim that has just told us its pid; from here on that process tells whether it runs."""
        gone = Process(pid=pid, parent=0, session=0, started="", cpu_s=0.0)
        self._known[dispatch] = this_table().process(pid) or gone

    def runs(self, dispatch: str) -> bool | None:
        """Whether its shim lives; None when nobody here has seen it."""
        known = self._known.get(dispatch)
        return None if known is None else processes.lives(known)

    def of(self, dispatch: str, files: DispatchFiles) -> Process | None:
        """Its living shim: the one we know, else the one that is hinted at, if it has the lock."""
        if known := self._known.get(dispatch):
            return known if processes.lives(known) else None
        hinted = processes.living(files.shim_identity() or "")
        if hinted and self._has_open(hinted, files):
            self._known[dispatch] = hinted
            return hinted
        return None

    def search(self, dispatch: str, files: DispatchFiles) -> list[Process]:
        """The same, looked for everywhere where neither we nor the hint know it."""
        if found := self.of(dispatch, files):
            return [found]
        if dispatch in self._known:
            return []
        found_elsewhere = [process for process in this_table().processes() if self._has_open(process, files)]
        if len(found_elsewhere) == 1:
            self._known[dispatch] = found_elsewhere[0]
        return found_elsewhere

    def orphans(self, spawner: int, descriptor: int) -> list[Process]:
        """Whoever was left to the spawner by shims that died, with all below them.

        Its other children are shims, which we know, and the next one, which waits at the runner's socket.
        """
        line = _link(spawner, descriptor)
        ours = {(shim.pid, shim.started) for shim in self._known.values()}

        def spared(child: Process) -> bool:
            return (child.pid, child.started) in ours or _link(child.pid, descriptor) == line

        return processes.below(spawner, spared=spared) if line else []

    def _has_open(self, process: Process, files: DispatchFiles) -> bool:
        """Whether it is a shim, and has the lock of this dispatch open."""
        table = this_table()
        if SPAWNER not in table.command(process.pid):
            return False
        below = f"/{files.directory.name}/{files.lock.name}"
        lock = f"{self._place}{below}"
        opened = table.files(process.pid)
        if not {lock, lock + _DELETED}.isdisjoint(opened):
            return True
        # Of a file system that was unmounted under it, it has the same file open by the rest of its path.
        return any(path.endswith(below) for path in opened) and _has_same(process.pid, files.lock, below)


def _has_same(pid: int, file: Path, below: str) -> bool:
    """Whether it has this very file open, under a name that ends so: an agent can give its lock another's number."""
    with contextlib.suppress(OSError):
        ours = file.lstat()
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with contextlib.suppress(OSError):  # closed since
                named = _link(pid, int(number)).endswith(below)
                if named and os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), ours):  # noqa: PTH116
                    return True
    return False


def _link(pid: int, descriptor: int) -> str:
    """What the descriptor of that process leads to; "" when it has none, or we may not know."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - pathlib would make a path of it
    except OSError:
        return ""
