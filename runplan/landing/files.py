"""Small steps with files that never replace and never write through: look, move to a free place, remove if empty."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Signature = list[int] | None  #: inode, size, time of change and mode of a file, fit for JSON; None for nothing


def signature(path: Path) -> Signature:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode]


def is_file(found: Signature) -> bool:
    return found is not None and not stat.S_ISDIR(found[3])


def inode(path: Path) -> int:
    found = signature(path)
    return found[0] if found else 0


def put(source: Path, path: Path) -> bool:
    """Move a file to a place where there is none; False when there is one."""
    if source.is_dir() and not source.is_symlink():
        if signature(path) is None:
            source.rename(path)
        return not source.exists()
    try:
        os.link(source, path, follow_symlinks=False)
    except FileExistsError:
        if inode(source) != inode(path):
            return False  # else a process that was killed in here has put it there
    source.unlink()
    return True


def remove_empty_tree(path: Path) -> None:
    """Remove a directory that holds nothing but directories; any other thing is left."""
    if path.is_dir() and not path.is_symlink():
        for parent, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                Path(parent).rmdir()


def remove_empty_parents(root: Path, names: Iterable[str]) -> None:
    """Remove the directories above these paths, below `root`, that have become empty."""
    for name in names:
        for parent in Path(name).parents[:-1]:
            try:
                (root / parent).rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                break
