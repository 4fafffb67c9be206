"""Errors of a system that is out of something: disk space, permission, processes, descriptors, memory.

The work waits until there is some again; it does not fail.
"""

from __future__ import annotations

import errno

SHORTAGES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within your quota",
    errno.EAGAIN: "end some processes or raise their limit (ulimit -u)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "end processes that hold many files open",
    errno.ENOMEM: "free some memory",
}

REMEDIES = {
    **SHORTAGES,
    errno.EROFS: "make it writable",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EIO: "look after the disk",
}

_NO_THREAD = "can't start new thread"  #: the words of Python's RuntimeError


def is_shortage(error: BaseException) -> bool:
    """Whether the system is out of disk space, processes, threads, descriptors or memory."""
    return _no_thread(error) or (isinstance(error, OSError) and error.errno in SHORTAGES)


def refused_by_system(error: BaseException) -> str:
    """What was refused and what helps; empty when the error is of another kind."""
    if _no_thread(error):
        return f"{error}; {SHORTAGES[errno.EAGAIN]}, then try again"
    if not isinstance(error, OSError) or error.errno not in REMEDIES:
        return ""
    where = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return f"{where}{error.strerror}; {REMEDIES[error.errno]}, then try again"


def _no_thread(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and str(error) == _NO_THREAD
