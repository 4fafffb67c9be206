"""Deletes directories out of sight: a rename now, the deletion in the background."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import uuid
from pathlib import Path


class Trash:
    """The directory `<root>/.trash`; whatever lies in it may be deleted by anybody at any time."""

    def __init__(self, root: Path) -> None:
        self._home = root / ".trash"
        self._deleting: list[threading.Thread] = []

    def take(self, path: Path) -> None:
        """Move `path` away at once; its deletion goes on behind."""
        self._home.mkdir(parents=True, exist_ok=True)
        aside = self._home / f"{path.name}.{uuid.uuid4().hex}"
        path.rename(aside)
        self._delete(aside)

    def leftovers(self) -> list[Path]:
        """What processes that died left behind (or live ones still delete)."""
        return sorted(self._home.iterdir()) if self._home.is_dir() else []

    def sweep(self) -> None:
        """Delete what lies there, in the background."""
        for left in self.leftovers():
            self._delete(left)

    def close(self) -> None:
        """Wait until everything is deleted."""
        while self._deleting:
            self._deleting.pop().join()
        if self._home.is_dir() and not any(self._home.iterdir()):
            self._home.rmdir()

    def _delete(self, path: Path) -> None:
        thread = threading.Thread(target=delete_tree, args=(path,), daemon=True, name=f"delete {path.name}")
        thread.start()
        self._deleting.append(thread)


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
