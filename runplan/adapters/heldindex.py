"""Holds the index of a checkout while a landing is under way, and lets the next process see whose hold it is.

We take `index.lock` ourselves, with a note in it, and let git work on a copy. So nobody can stage or commit
between our look at the checkout and the last step; the index itself stays as it was until everything else is
done, which makes it the record of how to go back; and a lock that outlived its process is provably ours.
The note is locked (`flock`) by us and by every git we start: whoever gets that lock knows all of them dead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout

TAKE_S = 0.2  #: git's own commands hold the lock for milliseconds
ADOPT_S = 20.0  #: an orphaned read-tree in a large repository ends in seconds
_STEP_S = 0.01
_WRITING = b"writing\n"


class HeldIndex:
    """The index of one checkout, held for one landing."""

    def __init__(self, checkout: TargetCheckout, fd: int, *, writing: bool = False) -> None:
        self.checkout = checkout
        self.writing = writing  #: whether files of the checkout may be half written
        self.fd = fd  #: for the git processes to inherit
        self._index = checkout.git_dir / "index"
        self._copy = checkout.git_dir / "runplan.index"
        self.aside = checkout.git_dir / "runplan.aside"  #: a directory that lives as long as the hold

    @classmethod
    def take(cls, checkout: TargetCheckout, landing: str) -> HeldIndex | None:
        """Take the lock and copy the index; None when somebody has it."""
        draft = _draft(checkout, landing)
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, _note(landing))
            taken = _linked(draft, checkout.lock)
        finally:
            draft.unlink(missing_ok=True)
        if not taken:
            os.close(fd)
            return None
        held = cls(checkout, fd)
        held.copy()
        return held

    @classmethod
    def adopt(cls, checkout: TargetCheckout, landing: str) -> HeldIndex | None:
        """The hold an earlier process left behind for this landing; None when there is none, or it lives."""
        _draft(checkout, landing).unlink(missing_ok=True)
        try:
            fd = os.open(checkout.lock, os.O_RDWR)
        except FileNotFoundError:
            return None
        if os.read(fd, len(_note(landing))) != _note(landing) or not _locked(fd, checkout.lock):
            os.close(fd)
            return None
        return cls(checkout, fd, writing=os.read(fd, len(_WRITING)) == _WRITING)

    @property
    def env(self) -> dict[str, str]:
        """Lets a git command work on the copy."""
        return {"GIT_INDEX_FILE": str(self._copy)}

    def copy(self) -> None:
        """Begin again with a fresh copy."""
        if self._index.exists():
            # With its times: git takes a file as young as the index for possibly changed.
            shutil.copy2(self._index, self._copy)

    def will_write(self) -> None:
        """Note that from here on files of the checkout change."""
        os.write(self.fd, _WRITING)
        self.writing = True

    def install(self) -> None:
        """Let the copy become the index; harmless when that has been done."""
        if self._copy.exists():
            self._copy.replace(self._index)

    def release(self) -> None:
        """Give the index back; the lock goes last."""
        shutil.rmtree(self.aside, ignore_errors=True)
        for leftover in (self._copy, self._copy.with_name(f"{self._copy.name}.lock"), self.checkout.lock):
            leftover.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go without giving back: the note stays for whoever mends this."""
        os.close(self.fd)


def _note(landing: str) -> bytes:
    return f"runplan landing {landing}\n".encode()


def _draft(checkout: TargetCheckout, landing: str) -> Path:
    return checkout.git_dir / f"runplan.hold.{sha256(landing.encode()).hexdigest()[:16]}"


def _linked(draft: Path, lock: Path) -> bool:
    """Publish the note whole, or not at all: an empty lock could be anybody's."""
    deadline = time.monotonic() + TAKE_S
    while True:
        try:
            lock.hardlink_to(draft)
        except FileExistsError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        else:
            return True


def _locked(fd: int, path: Path) -> bool:
    """Wait until no process of the earlier landing lives; False when it goes on, or took its note away."""
    deadline = time.monotonic() + ADOPT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        else:
            return path.exists() and os.path.samestat(os.fstat(fd), path.stat())
