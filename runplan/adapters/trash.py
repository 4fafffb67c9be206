"""Deletes directories, also those that their maker locked."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def delete_tree(path: Path) -> None:
    """Delete a directory, also one with directories that nobody may write to."""
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir():
        make_writable(path)
        shutil.rmtree(path, ignore_errors=True)


def make_writable(top: Path) -> None:
    """Let the owner into every directory below `top`."""
    top.chmod(top.stat().st_mode | stat.S_IRWXU)
    for directory, names, _ in os.walk(top):
        for below in (Path(directory, name) for name in names):
            if not below.is_symlink():
                below.chmod(below.stat().st_mode | stat.S_IRWXU)
