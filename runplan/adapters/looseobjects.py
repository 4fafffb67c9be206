"""Writes loose objects: a blob, a tree or a commit becomes a file, whole and on disk, whatever was there before.

The format is git's own and as old as git (a header, the content, compressed, named by its hash). Doing it here
makes a candidate without a process; three git commands for the same take twenty times as long. One that is there
already is written again: that is as quick as to ask, and nobody's damaged file is believed in.
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

    from runplan.core.gitfacts import Oid


class LooseObjects:
    """The object store of one repository, for writing."""

    def __init__(self, common_dir: Path) -> None:
        self._place = common_dir / "objects"

    def write(self, kind: str, content: bytes, *, like: Oid) -> Oid:
        """Store an object and return its id; `like` is any id of the repository and tells which hash it uses."""
        header = f"{kind} {len(content)}\0".encode()
        digest = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
        digest.update(header + content)
        oid = digest.hexdigest()
        try:
            self._store(oid, header + content)
        except OSError as error:
            raise Unreachable(f"{self._place} cannot be written: {error.strerror}; nothing was landed") from error
        return oid

    def holds(self, oid: Oid) -> bool:
        """Whether there is a file for this object; one that is packed has none."""
        return os.path.exists(f"{self._place}/{oid[:2]}/{oid[2:]}")  # noqa: PTH110 - of every file that changed

    def _store(self, oid: Oid, whole: bytes) -> None:
        directory = f"{self._place}/{oid[:2]}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)  # noqa: PTH102 - seven objects a phase, and pathlib takes as long as the disk
        # A directory made by the user's umask or by core.sharedRepository; files follow what is there.
        mode = os.stat(directory).st_mode  # noqa: PTH116
        draft = os.path.join(directory, f"tmp_obj_{os.getpid()}_{oid[-12:]}")
        with open(draft, "wb") as file:
            file.write(zlib.compress(whole, 1))
            file.flush()
            os.fchmod(file.fileno(), 0o440 | mode & 0o004 if mode & 0o060 else 0o444)
            os.fsync(file.fileno())
        os.replace(draft, f"{directory}/{oid[2:]}")
