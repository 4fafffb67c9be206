"""The repositories that the daemon knows."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from runplan.errors import Unreachable
from runplan.settings.places import own_directory
from runplan.store.files import file_lock, publish

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


FILE = "repositories.json"
POLL_S = 0.01  #: while another process changes the list


class Known(Struct, frozen=True, kw_only=True):
    common: str  #: its common git directory, by which it is known
    root: str  #: its main checkout


class Repositories:
    """The list of one user; every change is atomic and synced."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE

    def add(self, *, common: Path, root: Path) -> None:
        """Add the repository, or update its checkout."""
        new = Known(common=str(common), root=str(root))
        with file_lock(own_directory(self._file.parent) / f"{FILE}.lock").acquire(poll_interval=POLL_S):
            known = self.all()
            if new not in known:
                self._write([*(one for one in known if one.common != new.common), new])

    def recall(self) -> tuple[list[Known], list[Known]]:
        """The repositories that exist, and those that are gone, which are dropped from the list."""
        with file_lock(own_directory(self._file.parent) / f"{FILE}.lock").acquire(poll_interval=POLL_S):
            known = self.all()
            gone = [one for one in known if not _exists(one)]
            found = [one for one in known if one not in gone]
            if gone:
                self._write(found)
        return found, gone

    def all(self) -> list[Known]:
        try:
            return msgspec.convert(json.loads(self._file.read_bytes()), list[Known])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"{self._file} cannot be read: {error}; remove it. "
                "The daemon adds each repository again when a command is given there"
            ) from error

    def _write(self, known: Sequence[Known]) -> None:
        # Not msgspec.json: a path need not be UTF-8, and json escapes it.
        text = json.dumps(msgspec.to_builtins(known), indent=1)
        try:
            publish(self._file, text.encode("ascii"), sync=True)
        except OSError as error:
            raise Unreachable(f"{self._file} cannot be written: {error.strerror}") from error


def _exists(one: Known) -> bool:
    """Whether the repository exists; True when that cannot be checked."""
    try:
        return stat.S_ISREG(os.stat(os.path.join(one.common, "HEAD")).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
