"""Reaches a socket whatever the length of its path: the kernel takes 107 bytes, on macOS 103."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST = 107 if sys.platform == "linux" else 103


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name of the socket that is short enough, while this lasts; its directory has to be there."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
            yield f"/proc/self/fd/{directory}/{path.name}"
        else:
            with contextlib.chdir(directory):
                yield path.name
    finally:
        os.close(directory)
