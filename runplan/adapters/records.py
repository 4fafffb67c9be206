"""Reads what git itself has written down of who did something: reflogs, and the names in commits and tags."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import read_file
from runplan.core.gitfacts import Identity
from runplan.core.guard import read_log, since

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid
    from runplan.core.guard import Logged


class Records:
    """Those of one repository; nothing of it costs a process but the one that reads objects."""

    def __init__(self, git: Git, common_dir: Path) -> None:
        self._git = git
        self._common_dir = common_dir

    def log(self, ref: str, offset: int = 0) -> tuple[Logged, ...]:
        """The log of a ref from a byte on; all of one that is shorter than that, since it was begun anew."""
        text = text_of(self._path(ref))
        return read_log(text[offset:] if len(text) >= offset else text)

    def size(self, ref: str) -> int:
        try:
            return self._path(ref).lstat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def entries(self, ref: str, old: Oid) -> tuple[Logged, ...]:
        """What the log of a ref tells since it stood at `old`."""
        logged = self.log(ref)
        return since(logged, old or "0" * len(logged[-1].old)) if logged else ()

    def tagger(self, oid: Oid) -> Identity | None:
        return self._signed(oid, "tag", "tagger ")

    def committer(self, oid: Oid) -> Identity | None:
        return self._signed(oid, "commit", "committer ")

    def _signed(self, oid: Oid, kind: str, field: str) -> Identity | None:
        found = self._git.known(oid)
        if found is None or found.kind != kind:
            return None
        lines = found.content.partition(b"\n\n")[0].decode("utf-8", "surrogateescape").split("\n")
        line = next((line for line in lines if line.startswith(field)), "")
        name, _, rest = line.removeprefix(field).partition(" <")
        return Identity(name=name, email=rest.partition(">")[0])

    def _path(self, ref: str) -> Path:
        """Where the log of a ref is; that of another worktree's HEAD lies beside it."""
        if ref.startswith("worktrees/"):
            return (self._common_dir / ref).parent / "logs" / "HEAD"
        return self._common_dir / "logs" / ref


def text_of(path: str | Path) -> str:
    """The text of a file of the git directory; none when there is no plain file."""
    return os.fsdecode(read_file(path, follow=True) or b"")
