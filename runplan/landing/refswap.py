"""Moves one ref from one value to another in a git transaction that can be stopped before its last step."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from runplan.core.errors import GitFailed

if TYPE_CHECKING:
    from collections.abc import Collection

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid

#: How long git itself waits for the lock of a ref, e.g. while the user commits (milliseconds).
_PATIENCE = "core.filesRefLockTimeout=500"
#: The ref is on the disk before the landing is recorded.
_FSYNC = "core.fsync=committed,loose-object,reference"


class RefSwap(AbstractContextManager["RefSwap"]):
    """One `update-ref --stdin`; left without `commit`, or dead, it changes nothing.

    Git aborts by itself when its input ends, so that our death takes the locks of the ref away.
    """

    def __init__(self, git: Git, name: str, *, new: Oid, old: Oid, id: str, fds: Collection[int] = ()) -> None:
        self._name, self._new, self._old = name, new, old
        self._git = git.start(
            *("-c", _PATIENCE, "-c", _FSYNC, "update-ref", "-m", f"runplan: land {id}", "--stdin"), fds=fds
        )
        self.said = ""  #: git's own words when it refused

    def prepare(self) -> bool:
        """Check the old value and lock the ref; False when it moved or stays locked."""
        order = f"update {self._name} {self._new} {self._old}"
        return self._say("start", "start: ok") and self._say(f"{order}\nprepare", "prepare: ok")

    def commit(self) -> None:
        """The one instant at which the landing happens."""
        if not self._say("commit", "commit: ok"):
            raise GitFailed(f"git could not move {self._name}: {self.said}")
        self.close()

    def close(self) -> None:
        """End git; without a commit before, nothing was changed."""
        if self._git.stdin is not None and not self._git.stdin.closed:
            _, err = self._git.communicate()
            self.said = " / ".join(os.fsdecode(err).split("\n")).strip(" /")

    def _say(self, words: str, expected: str) -> bool:
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        try:
            self._git.stdin.write(os.fsencode(words) + b"\n")
            self._git.stdin.flush()
        except BrokenPipeError:
            self.close()
            return False
        if self._git.stdout.readline().decode().strip() == expected:
            return True
        self.close()
        return False

    def __exit__(self, *_: object) -> None:
        self.close()
