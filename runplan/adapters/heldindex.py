"""Holds the index of a checkout while a landing is under way, and lets the next process see whose hold it is.

We take `index.lock` ourselves, as a link to a note of ours, and let git work on a copy of the index. So nobody can
stage or commit between our look at the checkout and the last step, the index stays as it was until everything
else is done, and a lock that outlived its process is provably ours.
The note is locked (`flock`) by us and by every git we start: whoever gets that lock knows all of them dead. It holds
the landing itself, so that whoever meets it can bring it to its end, of whatever plan it is and with no journal at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from hashlib import sha256
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import read_file
from runplan.core.gitfacts import Landing
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout

TAKE_S = 0.2  #: git's own commands hold the lock for milliseconds
ADOPT_S = 20.0  #: an orphaned read-tree in a large repository ends in seconds
_STEP_S = 0.01
_NAME = "runplan.hold"
_FIRST = "runplan landing "
_WRITING = "writing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a note says."""

    id: str  #: of the landing; empty when the note was not written to its end
    landing: Landing | None  #: as this checkout sees it; None in a note of an earlier version
    writing: bool  #: whether files of the checkout may be half written


class HeldIndex:
    """The index of one checkout, held for one landing."""

    def __init__(self, checkout: TargetCheckout, fd: int, path: Path, *, adopted: bool = False) -> None:
        self.checkout = checkout
        self.fd = fd  #: for the git processes to inherit
        self.adopted = adopted  #: from a process that died
        self.note = Note(id="", landing=None, writing=False)
        self.writing = False  #: whether files of the checkout may be half written
        self._note = path
        self._index = checkout.git_dir / "index"
        self._named(path.suffix)

    def _named(self, whose: str) -> None:
        """Each hold keeps its things apart: those of a dead one are needed to mend it."""
        self._copy = self.checkout.git_dir / f"runplan.index{whose}"
        self.aside = self.checkout.git_dir / f"runplan.aside{whose}"  #: a directory that lives as long as the hold

    @classmethod
    def take(cls, checkout: TargetCheckout, landing: Landing) -> HeldIndex | None:
        """Take the lock and copy the index; None when somebody has it, or had it and is not mended yet."""
        note = note_of(checkout, landing.id)
        fd = _noted(note, landing)
        if fd is None:
            return None
        held = cls(checkout, fd, note)
        try:
            locked = held._lock(TAKE_S)
        except OSError:  # no room on the disk: nothing is held yet
            held.release_note()
            raise
        if not locked:
            held.release_note()
            return None
        shutil.rmtree(held.aside, ignore_errors=True)
        try:
            held.copy()
        except OSError:
            held.release()
            raise
        return held

    @classmethod
    def adopt(cls, checkout: TargetCheckout, note: Path) -> HeldIndex | None:
        """The hold that an earlier process left behind with this note; None when it lives, or somebody has the lock.

        The note stands beside the lock, since people who meet a lock remove it; then it is taken again.
        """
        try:
            fd = os.open(note, os.O_RDWR)
        except FileNotFoundError:
            return None
        held = cls(checkout, fd, note, adopted=True)
        if _free(fd, note):
            held.note = read_note(note)
            held.writing = held.note.writing
            if held.note.id and held.note.landing is None:
                held._named("")
            if held._lock(0):
                return held
            if not held.writing:
                note.unlink()  # it died before it had the lock
        held.close()
        return None

    def _lock(self, patience_s: float) -> bool:
        """Publish the note as the lock, whole or not at all: an empty lock could be anybody's."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self.checkout.lock.hardlink_to(self._note)
            except FileExistsError:
                if _is_at(self.fd, self.checkout.lock):
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(_STEP_S)
            else:
                return True

    @property
    def env(self) -> dict[str, str]:
        """Lets a git command work on the copy."""
        return {"GIT_INDEX_FILE": str(self._copy)}

    def copy(self) -> None:
        """Begin (again) with a fresh copy."""
        if self._index.exists():
            # With its times: git takes a file as young as the index for possibly changed.
            shutil.copy2(self._index, self._copy)

    def will_write(self) -> None:
        """Note, on the disk, that from here on files of the checkout change."""
        os.write(self.fd, f"{_WRITING}\n".encode())
        os.fsync(self.fd)
        directory = os.open(self._note.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.writing = True

    def install(self) -> None:
        """Let the copy become the index."""
        self._copy.replace(self._index)

    def release(self) -> None:
        """Give the index back; the note goes last."""
        shutil.rmtree(self.aside, ignore_errors=True)
        lock_of_copy = self._copy.with_name(f"{self._copy.name}.lock")
        for leftover in (self._copy, lock_of_copy, self.checkout.lock, self._note):
            leftover.unlink(missing_ok=True)
        self.close()

    def release_note(self) -> None:
        """Take back what did not become a hold."""
        self._note.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go without giving back: the note stays for whoever mends this."""
        os.close(self.fd)


# --- notes ----------------------------------------------------------------------------------------------


def _noted(note: Path, landing: Landing) -> int | None:
    """A note that is locked and written before anybody can see it: else it would look like a dead one's for a moment.

    None when there is one already.
    """
    draft = note.with_name(f"runplan.draft{note.suffix}")
    draft.unlink(missing_ok=True)  # of the same landing, killed here before
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _write(fd, landing)
        note.hardlink_to(draft)
    except FileExistsError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    finally:
        draft.unlink()
    return fd


def notes(checkout: TargetCheckout) -> list[Path]:
    """Every note in there, of whatever landing."""
    return sorted(checkout.git_dir.glob(f"{_NAME}.*"))


def note_of(checkout: TargetCheckout, landing: str) -> Path:
    """Where the note of this landing is, or would be."""
    return checkout.git_dir / f"{_NAME}.{sha256(landing.encode()).hexdigest()[:16]}"


def read_note(note: Path) -> Note:
    """What it says; nothing when it is gone or was not written to its end."""
    lines = os.fsdecode(read_file(note) or b"").splitlines()
    if not lines or not lines[0].startswith(_FIRST):
        return Note(id="", landing=None, writing=False)
    name = lines[0].removeprefix(_FIRST)
    told = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
    landing = None
    if told.keys() >= {"ref", "old", "new"}:
        landing = Landing(id=name, ref=told["ref"], old=told["old"], new=told["new"], locks=())
    return Note(id=name, landing=landing, writing=lines[-1] == _WRITING)


def holder(checkout: TargetCheckout) -> Note | None:
    """Whose the lock of the index is, when it is one of ours."""
    for note in notes(checkout):
        try:
            if note.samefile(checkout.lock):
                return read_note(note)
        except FileNotFoundError:
            continue
    return None


def lives(note: Path) -> bool:
    """Whether a process of the landing is still there."""
    try:
        fd = os.open(note, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _write(fd: int, landing: Landing) -> None:
    text = f"{_FIRST}{landing.id}\nref {landing.ref}\nold {landing.old}\nnew {landing.new}\n"
    content = os.fsencode(text)
    if os.write(fd, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _free(fd: int, note: Path) -> bool:
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
            return _is_at(fd, note)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
