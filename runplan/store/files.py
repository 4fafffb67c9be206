"""Files of a repository: anchored places, plain reads and writes, kernel locks."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from runplan.errors import Unreachable
from runplan.polling import until

if TYPE_CHECKING:
    from pathlib import Path

    from filelock import FileLock


class Anchor:
    """A file or directory as it was when this was made; one that is not there yet is known from the first look on."""

    __slots__ = ("_number", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = _number(path)

    def require(self) -> None:
        """Refuse to go on where it is gone, or another has taken its place."""
        now = _number(self._path)
        self._number = self._number or now
        if now is None or now != self._number:
            raise not_there(self._path)


def make_below(anchor: Path, directory: Path) -> None:
    """Make the directory and those between it and the anchor, which has to be there."""
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError:
        if directory == anchor or anchor not in directory.parents:
            raise not_there(anchor) from None
        make_below(anchor, directory.parent)
        directory.mkdir(exist_ok=True)


def not_there(path: Path) -> Unreachable:
    return Unreachable(
        f"{path} is not where it was, so nothing is known of what runs there; "
        "bring it back, or go on where the repository is now: runplan retry PLAN"
    )


def _number(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every fact, and pathlib is dear
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


LARGEST = 8 * 1024 * 1024  #: the most that a file an agent can write may hold to be read whole


def read_file(path: str | Path) -> bytes | None:
    """The content of a file; None when there is none."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def first_line(path: str | Path) -> str | None:
    """The first line of a small file, without its end."""
    content = read_file(path)
    return None if content is None else os.fsdecode(content.partition(b"\n")[0])


def read_bounded(path: Path, *, largest: int) -> bytes | None:
    """The content of a file that an agent may have written; None also when it is too large to read."""
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= largest else None
    except OSError as error:
        from runplan.resources import is_shortage  # only a failure needs it

        if is_shortage(error):  # the file is there all the same
            raise
        return None


def read_text(path: Path, *, largest: int = LARGEST) -> str | None:
    """The text of a file of a dispatch; None when there is none, or one that is too large."""
    found = read_bounded(path, largest=largest)
    return None if found is None else found.decode("utf-8", "replace")


def publish(path: Path, content: bytes, *, sync: bool, at: int | None = None) -> None:
    """Write the file whole or not at all.

    `at` is an open directory, where the path is one below it.
    """
    draft = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o644, dir_fd=at), "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(draft, path, src_dir_fd=at, dst_dir_fd=at)


def file_lock(path: Path) -> FileLock:
    """An exclusive lock on the file, free as soon as its holder dies. The file stays."""
    from filelock import FileLock  # 50 ms

    return FileLock(path, thread_local=False, fallback_to_soft=False)


def lock_descriptor(descriptor: int, *, within_s: float) -> bool:
    """Lock an open file that other processes are to inherit locked; False when another holds it for that long."""

    def locked() -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    return until(locked, within_s=within_s)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock on the file; nobody does when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two who ask at the same time do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
