"""Git's own list of linked worktrees, read and mended as the files it is.

A crash or a person can leave a directory without its entry, an entry without its directory, or one that was never
finished. Git's commands refuse most of these; the files say enough to put them right without losing work.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from runplan.adapters.anchored import make_below
from runplan.adapters.plainfiles import first_line, write_anew
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
        return (first_line(self.directory / "HEAD") or "").removeprefix("ref: ")

    @property
    def attached(self) -> str | None:
        return self.head if self.head.startswith("refs/") else None

    @property
    def shown(self) -> bool:
        """Whether it stands where we put it to be looked at: what lies about there is nobody's work."""
        return bool(self.head) and first_line(self.directory / SHOWN) == self.head

    @property
    def at_home(self) -> bool:
        """Whether it names the repository it lies in."""
        common = first_line(self.directory / "commondir")
        return common is not None and os.path.normpath(self.directory / common) == os.fspath(
            self.directory.parent.parent
        )

    @property
    def half_made(self) -> bool:
        """Whether `worktree add` died before it was done; no agent ever ran there."""
        unused = not self.head and not os.path.lexists(self.directory / "index")
        return first_line(self.directory / "locked") == "initializing" or unused


@contextmanager
def worktrees_locked(lock_dir: Path) -> Iterator[None]:
    """Creation and removal of worktrees, one at a time on this machine; dies with the process."""
    make_below(lock_dir.parent.parent, lock_dir)
    with FileLock(lock_dir / "worktrees.lock", thread_local=False, fallback_to_soft=False, preserve_lock_file=True):
        yield


def entries(common_dir: Path) -> Iterator[Entry]:
    """Every linked worktree on record."""
    for directory in _directories(common_dir):
        worktree = named_by(directory)
        if worktree is not None:
            yield Entry(directory=Path(directory), worktree=worktree)


def _directories(common_dir: Path) -> list[str]:
    # Asked two dozen times a phase, so without pathlib.
    home = os.path.join(common_dir, "worktrees")
    try:
        return [os.path.join(home, name) for name in sorted(os.listdir(home))]  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def named_by(directory: str | Path) -> Path | None:
    """The worktree that an entry names."""
    link = first_line(os.path.join(directory, "gitdir"))
    # From git 2.48 on links may be relative to the entry.
    return Path(os.path.dirname(os.path.normpath(os.path.join(directory, link)))) if link else None  # noqa: PTH120


def entry_of(common_dir: Path, path: Path) -> Entry | None:
    """The entry that names `path`."""
    return next((entry for entry in entries(common_dir) if entry.worktree == path), None)


def directories_of(common_dir: Path, path: Path) -> list[Path]:
    """Every directory that is the entry of `path`, also one that names it no longer.

    Git calls an entry after the directory of its worktree; one whose worktree is elsewhere, and says so, is not ours.
    """
    called = re.compile(rf"{re.escape(path.name)}\d*")
    found = []
    for directory in _directories(common_dir):
        worktree = named_by(directory)
        lost = worktree is None or linked_to(worktree) != Path(directory)
        if worktree == path or (lost and called.fullmatch(os.path.basename(directory))):  # noqa: PTH119
            found.append(Path(directory))
    return found


def linked_to(path: Path) -> Path | None:
    """The entry that the directory itself names in its .git file."""
    link = None if path.is_symlink() else first_line(path / ".git")
    if link is None or not link.startswith("gitdir: "):
        return None
    return Path(os.path.normpath(path / link.removeprefix("gitdir: ")))


def write_entry(directory: Path, path: Path, *, head: str) -> Entry:
    """Put an entry and the link to it on record again; the directory's files are not touched."""
    make_below(directory.parent.parent, directory)
    stand(directory, head)
    return join(directory, path)


def stand(directory: Path, head: str) -> None:
    """Let an entry stand on a full ref name or a commit."""
    write_anew(directory / "HEAD", (f"ref: {head}\n" if head.startswith("refs/") else f"{head}\n").encode())


def join(directory: Path, path: Path) -> Entry:
    """Make an entry and the directory name each other, and the entry its repository, as far as they do not."""
    entry = Entry(directory=directory, worktree=path)
    if not entry.at_home:
        write_anew(directory / "commondir", b"../..\n")
    if named_by(directory) != path:
        write_anew(directory / "gitdir", os.fsencode(path / ".git") + b"\n")
    if path.is_dir() and linked_to(path) != directory:
        link(path, directory)
    return entry


def link(path: Path, directory: Path) -> None:
    """Make the directory name its entry."""
    write_anew(path / ".git", b"gitdir: " + os.fsencode(directory) + b"\n")


def note_shown(entry: Entry, commit: str) -> None:
    """Note that the worktree was put on this commit to be looked at."""
    # A new file: to write a synced one over again, some file systems wait for the disk.
    write_anew(entry.directory / SHOWN, f"{commit}\n".encode())


def note_worked(entry: Entry) -> None:
    """Note that somebody works there now: what lies about is theirs, also when its HEAD comes to where it was shown."""
    if first_line(entry.directory / SHOWN):
        note_shown(entry, "")


def calm(entry: Entry) -> None:
    """Take away the locks and half-done operations of processes that have ended; ours alone, by its entry."""
    found = os.listdir(entry.directory)  # noqa: PTH208 - asked six times a phase
    for name in (name for name in found if name.endswith(".lock") or name in UNDER_WAY):
        left = entry.directory / name
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)
