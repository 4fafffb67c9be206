"""Git's own list of linked worktrees, read and mended as the files it is.

A crash or a person can leave a directory without its entry, an entry without its directory, or one that was never
finished. Git's commands refuse most of these; the files say enough to put them right without losing work.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What an operation leaves in a worktree's entry when it is broken off.
UNDER_WAY = (
    "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "AUTO_MERGE",
    "rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG", "BISECT_START",
)  # fmt: skip


#: Names the commit a worktree was last put on for gates or a verifier.
SHOWN = "runplan-shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One linked worktree as git has it on record."""

    directory: Path  #: <common>/worktrees/<id>
    worktree: Path  #: where it should be; may be gone

    @property
    def head(self) -> str:
        """What HEAD says: a full ref name, or an object id when detached; empty when unreadable."""
        return (_first_line(self.directory / "HEAD") or "").removeprefix("ref: ")

    @property
    def attached(self) -> str | None:
        return self.head if self.head.startswith("refs/") else None

    @property
    def shown(self) -> bool:
        """Whether it stands where we put it to be looked at: what lies about there is nobody's work."""
        return bool(self.head) and _first_line(self.directory / SHOWN) == self.head

    @property
    def half_made(self) -> bool:
        """Whether `worktree add` died before it was done; no agent ever ran there."""
        return _first_line(self.directory / "locked") == "initializing" or not self.head


@contextmanager
def worktrees_locked(lock_dir: Path) -> Iterator[None]:
    """Creation and removal of worktrees, one at a time on this machine; dies with the process."""
    lock_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(lock_dir / "worktrees.lock", thread_local=False, fallback_to_soft=False, preserve_lock_file=True):
        yield


def entries(common_dir: Path) -> Iterator[Entry]:
    """Every linked worktree on record."""
    # Asked two dozen times a phase, so without pathlib.
    home = os.path.join(common_dir, "worktrees")
    try:
        names = sorted(os.listdir(home))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        directory = os.path.join(home, name)
        link = _first_line(os.path.join(directory, "gitdir"))
        if link:
            # From git 2.48 on links may be relative to the entry.
            worktree = os.path.dirname(os.path.normpath(os.path.join(directory, link)))  # noqa: PTH120
            yield Entry(directory=Path(directory), worktree=Path(worktree))


def entry_of(common_dir: Path, path: Path) -> Entry | None:
    """The entry that names `path`."""
    return next((entry for entry in entries(common_dir) if entry.worktree == path), None)


def linked_to(path: Path) -> Path | None:
    """The entry that the directory itself names in its .git file."""
    link = _first_line(path / ".git")
    if link is None or not link.startswith("gitdir: "):
        return None
    return Path(os.path.normpath(path / link.removeprefix("gitdir: ")))


def write_entry(directory: Path, path: Path, *, head: str) -> Entry:
    """Put an entry and the link to it on record again; the directory's files are not touched."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "commondir").write_text("../..\n", encoding="utf-8")
    (directory / "HEAD").write_text(f"ref: {head}\n" if head.startswith("refs/") else f"{head}\n", encoding="utf-8")
    (directory / "gitdir").write_bytes(os.fsencode(path / ".git") + b"\n")
    link(path, directory)
    return Entry(directory=directory, worktree=path)


def link(path: Path, directory: Path) -> None:
    """Make the directory name its entry."""
    (path / ".git").write_bytes(b"gitdir: " + os.fsencode(directory) + b"\n")


def note_shown(entry: Entry, commit: str) -> None:
    """Note that the worktree was put on this commit to be looked at."""
    note = entry.directory / SHOWN
    # A new file: to write a synced one over again, some file systems wait for the disk.
    note.unlink(missing_ok=True)
    note.write_text(f"{commit}\n", encoding="utf-8")


def calm(entry: Entry) -> None:
    """Take away the locks and half-done operations of processes that have ended; ours alone, by its entry."""
    for lock in entry.directory.glob("*.lock"):
        lock.unlink(missing_ok=True)
    for name in UNDER_WAY:
        left = entry.directory / name
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)


def _first_line(path: str | Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.readline().rstrip(b"\n"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
