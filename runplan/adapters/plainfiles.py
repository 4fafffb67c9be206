"""Opens files where agents can put other things: no pipe is waited for, and what is no plain file is none."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

#: How opening what is no file fails: it is gone, is a folder, a link, or a socket.
_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL})
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_CHUNK = 64 * 1024


def open_plain(path: str | Path) -> BinaryIO | None:
    """A plain file to read, of whatever size."""
    try:
        descriptor = _opened(path, follow=False)
    except OSError:
        return None
    return None if descriptor is None else open(descriptor, "rb")


def read_file(path: str | Path, *, follow: bool = False) -> bytes | None:
    """The content of a plain file; `follow` where a person may have put a link, which no agent's sandbox reaches."""
    descriptor = _opened(path, follow=follow)
    if descriptor is None:
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, _CHUNK):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def first_line(path: str | Path) -> str | None:
    """The first line of a small plain file, without its end."""
    content = read_file(path)
    return None if content is None else os.fsdecode(content.partition(b"\n")[0])


def _opened(path: str | Path, *, follow: bool) -> int | None:
    try:
        descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
