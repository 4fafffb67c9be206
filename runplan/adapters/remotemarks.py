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
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PATIENCE_S = 20.0  #: a push that outlived its lander ends in seconds
_STEP_S = 0.01
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
    """Take away the marks of dead commands and the locks they left; wait for a living one of the same owner."""
    for mark in sorted(common_dir.glob(f"{_NAME}.*")):
        with suppress(FileNotFoundError):  # its command ended well meanwhile
            fd = os.open(mark, os.O_RDWR)
            try:
                ours = mark.name.startswith(f"{_NAME}.{_short(owner)}.")
                if _free(fd, PATIENCE_S if ours else 0):
                    _remove_since(mark.stat().st_mtime_ns, locks)
                    mark.unlink()
            finally:
                os.close(fd)


def _short(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:16]


def _free(fd: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_STEP_S)
        else:
            return True


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
