"""Reads files that may not be there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 8 * 1024 * 1024  #: the most that a file an agent can write may hold to be read whole
UNSYNCED = "unsynced"


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


def read_text(path: Path, *, largest: int = LARGEST) -> str | None:
    """The text of a file of a dispatch; None when there is none, or one that is too large."""
    found = read_bounded(path, largest=largest)
    return None if found is None else found.decode("utf-8", "replace")


def publish(path: Path, content: bytes, *, sync: bool, at: int | None = None) -> None:
    """Write the file whole or not at all.

    `at` is an open directory, where the path is one below it.
    """
    draft = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o644, dir_fd=at), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if not sync:
        _note(path)
    os.replace(draft, path, src_dir_fd=at, dst_dir_fd=at)


def _note(path: Path) -> None:
    """Let a test that cuts the power put back what the disk need not have seen; it asks by making the file."""
    noted = next((one / UNSYNCED for one in path.parents[1:3] if (one / UNSYNCED).exists()), None)
    if noted is not None:
        former = path.read_text(encoding="utf-8") if path.exists() else None
        with noted.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": str(path), "former": former}) + "\n")
