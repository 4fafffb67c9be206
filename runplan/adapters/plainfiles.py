"""Reads files that may not be there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_file(path: str | Path) -> bytes | None:
    """The content of a file; None when there is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def first_line(path: str | Path) -> str | None:
    """The first line of a small file, without its end."""
    content = read_file(path)
    return None if content is None else os.fsdecode(content.partition(b"\n")[0])


def read_bounded(path: Path, *, largest: int) -> bytes | None:
    """The content of a file that an agent may have written; None also when it is too large to read."""
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= largest else None
    except OSError as error:
        from runplan.core.resources import is_shortage  # only a failure needs it

        if is_shortage(error):  # the file is there all the same
            raise
        return None
