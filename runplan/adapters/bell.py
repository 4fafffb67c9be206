"""A bell beside the files of a dispatch: its shim rings, and whoever waits for the dispatch is awake.

A named pipe, since those who wait come and go, and the shim need not know them.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = "bell"


def hang(directory: Path) -> None:
    """Put the bell there; what is in its place stays."""
    with contextlib.suppress(OSError):
        os.mkfifo(directory / NAME, 0o600)


def listen(directory: Path) -> int | None:
    """A descriptor that becomes readable when the bell rings; None when there is none."""
    try:
        # For writing, too: else it would look like the end of a file for as long as nobody rings.
        return os.open(directory / NAME, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def ring(directory: Path) -> None:
    """Wake who listens; nobody needs to."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory / NAME, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)


def take_down(directory: Path) -> None:
    """Leave no pipe behind: whoever copies or reads the directory would hang on it."""
    with contextlib.suppress(OSError):
        (directory / NAME).unlink()
