"""Kernel locks on files: taken with filelock, and looked at without it, because reading verbs ask."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from runplan.adapters.polling import until

if TYPE_CHECKING:
    from pathlib import Path

    from filelock import FileLock


def file_lock(path: Path) -> FileLock:
    """An exclusive lock on the file, free as soon as its holder dies. The file stays."""
    from filelock import FileLock  # 50 ms

    return FileLock(path, thread_local=False, fallback_to_soft=False)


def lock_descriptor(descriptor: int, *, within_s: float) -> bool:
    """Lock an open file that other processes are to inherit locked; False when another holds it for that long."""

    def locked() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    return until(locked, within_s=within_s)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock on the file; nobody does when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two who ask at the same time do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
