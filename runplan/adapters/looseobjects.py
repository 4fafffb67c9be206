"""Writes loose objects: a blob, a tree or a commit becomes a file, whole and on disk, or is there already.

The format is git's own and as old as git (a header, the content, compressed, named by its hash). Doing it here
makes a candidate without a process; three git commands for the same take twenty times as long.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from typing import TYPE_CHECKING

from runplan.core.errors import Unreachable

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid


class LooseObjects:
    """The object store of one repository, for writing."""

    def __init__(self, git: Git, common_dir: Path) -> None:
        self._git = git
        self._place = common_dir / "objects"

    def write(self, kind: str, content: bytes, *, like: Oid) -> Oid:
        """Store an object and return its id; `like` is any id of the repository and tells which hash it uses."""
        header = f"{kind} {len(content)}\0".encode()
        digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
        digest.update(header + content)
        oid = digest.hexdigest()
        if self._git.object(oid) is None:
            try:
                self._store(oid, zlib.compress(header + content, 1))
            except OSError as error:
                raise Unreachable(f"{self._place} cannot be written: {error.strerror}; nothing was landed") from error
        return oid

    def _store(self, oid: Oid, packed: bytes) -> None:
        directory = f"{self._place}/{oid[:2]}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)  # noqa: PTH102 - seven objects a phase, and pathlib takes as long as the disk
        # A directory made by the user's umask or by core.sharedRepository; files follow what is there.
        mode = os.stat(directory).st_mode  # noqa: PTH116
        draft = os.path.join(directory, f"tmp_obj_{os.getpid()}_{oid[-12:]}")
        with open(draft, "wb") as file:
            file.write(packed)
            file.flush()
            os.fchmod(file.fileno(), 0o440 | mode & 0o004 if mode & 0o060 else 0o444)
            os.fsync(file.fileno())
        os.replace(draft, f"{directory}/{oid[2:]}")
