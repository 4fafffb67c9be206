"""Marks each git command that talks to a remote, so that a lock it left when it was killed is provably ours.

A mark is an empty file, locked (`flock`) by us and by the git we start, and gone when that git has ended well.
A mark that nobody locks belongs to a dead command; the locks younger than it are that command's.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.locks import lock_descriptor
from runplan.core.errors import Unreachable
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATIENCE_S = 20.0  #: a push that outlived its lander ends in seconds
DYING_S = 1.0  #: a git that was killed may have left a lock and be just about to go
_SURE_S = 0.05  #: a living git holds the lock of a ref for less
_NAME = "runplan.remote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One command that is under way."""

    path: Path
    fd: int  #: for the command to inherit

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


@contextmanager
def marking(common_dir: Path, owner: str) -> Iterator[Mark]:
    """A mark for one command; whoever sees the command end well removes it."""
    path = common_dir / f"{_NAME}.{_short(owner)}.{os.urandom(4).hex()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Mark(path=path, fd=fd)
    finally:
        os.close(fd)


def sweep(common_dir: Path, locks: Sequence[Path], owner: str) -> None:
    """Take away the marks of dead commands and the locks they left.

    One of the same owner that lives is waited for, since what it does decides what is to be done.
    """
    for mark in sorted(common_dir.glob(f"{_NAME}.*")):
        with suppress(FileNotFoundError):  # its command ended well meanwhile
            fd = os.open(mark, os.O_RDWR)
            try:
                ours = mark.name.startswith(f"{_NAME}.{_short(owner)}.")
                others = DYING_S if any(map(_stamp, locks)) else 0
                if lock_descriptor(fd, within_s=PATIENCE_S if ours else others):
                    _remove_since(mark.stat().st_mtime_ns, locks)
                    mark.unlink()
                elif ours:
                    raise Unreachable(_not_ended(mark))
            finally:
                os.close(fd)


def _not_ended(mark: Path) -> str:
    told = f"a git command that an earlier process started for this landing has not ended in {PATIENCE_S:.0f} s"
    if pids := " ".join(_having_open(mark)):
        return f"{told}; wait for it, or end it: kill {pids}"
    return f"{told}; wait for it, or end whoever has {mark} open"


def _having_open(mark: Path) -> Iterator[str]:
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError):  # ended meanwhile, or not ours
            if int(process.name) != os.getpid() and any(one.readlink() == mark for one in (process / "fd").iterdir()):
                yield process.name


def _short(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:16]


def _remove_since(began_ns: int, locks: Sequence[Path]) -> None:
    """Remove the locks made since then, unless they are on the move: then a person's git has them."""
    for lock in locks:
        found = _stamp(lock)
        if found and found[1] >= began_ns:
            time.sleep(_SURE_S)
            if _stamp(lock) == found:
                lock.unlink(missing_ok=True)


def _stamp(lock: Path) -> tuple[int, int] | None:
    try:
        stat = lock.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_mtime_ns
