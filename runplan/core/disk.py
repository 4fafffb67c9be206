"""What a person is told when the disk refuses: no room, no permission, no answer. The work waits, it does not fail."""

from __future__ import annotations

import errno

REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within your quota",
    errno.EROFS: "make it writable",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.EIO: "look after the disk",
}


def refused_by_disk(error: OSError) -> str:
    """What happened, where, and what helps; empty when it was not the disk's fault."""
    remedy = REMEDIES.get(error.errno or 0)
    if remedy is None:
        return ""
    where = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return f"{where}{error.strerror}; {remedy}, then try again"
