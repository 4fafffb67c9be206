"""Files of a repository: anchored places, plain reads and writes, kernel locks."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from runplan.adapters.clock import until
from runplan.domain.errors import Unreachable, is_shortage

if TYPE_CHECKING:
    from filelock import FileLock

REMOVED_S = 3600.0  #: within which a directory is removed, or the process that removes it was killed
_GONE = ".gone-"
DRAFT = ".draft-"
LARGEST = 8 * 1024 * 1024  #: bytes of the largest file written by an agent that is read
#: Path, time of change and size of each file that exists.
Signature = tuple[tuple[str, int, int], ...]


class Anchor:
    """Remembers the identity of a file or directory, or of the first one found at its path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = _read_identity(path)

    def require(self) -> None:
        """Fail when the file is gone, or another has taken its place."""
        now = _read_identity(self._path)
        self._number = self._number or now
        if now is None or now != self._number:
            raise not_there(self._path)


def make_below(anchor: Path, directory: Path, *, mode: int = 0o700) -> None:
    """Create the directory and its parents up to the anchor, which must exist."""
    try:
        directory.mkdir(mode, exist_ok=True)
    except FileNotFoundError:
        if anchor not in directory.parent.parents:
            raise not_there(anchor) from None
        make_below(anchor, directory.parent, mode=mode)
        directory.mkdir(mode, exist_ok=True)


def not_there(path: Path) -> Unreachable:
    return Unreachable(
        f"{path} is not where it was, so the state of its runs is unknown; "
        "bring it back, or continue where the repository is now: runplan retry PLAN"
    )


def _read_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - called before every event, and pathlib is slow
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def read_file(path: str | Path) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def open_untrusted(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a file that an agent may have made, without waiting for a pipe that it left in its place."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    return open(os.open(path, flags), "rb")


def first_line(path: str | Path) -> str | None:
    content = read_file(path)
    return None if content is None else os.fsdecode(content.partition(b"\n")[0])


def read_bounded(path: Path, *, largest: int, follow: bool = True) -> bytes | None:
    """The content of a file that an agent may have written; None for another kind of file, or one that is too large."""
    try:
        with open_untrusted(path, follow=follow) as file:
            status = os.fstat(file.fileno())
            return file.read(largest) if stat.S_ISREG(status.st_mode) and status.st_size <= largest else None
    except OSError as error:
        if is_shortage(error):  # the file exists, but cannot be read now
            raise
        return None


def read_text(path: Path, *, largest: int = LARGEST, follow: bool = True) -> str | None:
    content = read_bounded(path, largest=largest, follow=follow)
    return None if content is None else content.decode("utf-8", "replace")


def publish(path: Path, content: bytes, *, sync: bool, directory: int | None = None) -> None:
    """Write the file whole or not at all; an error names it. The path is relative to `directory`, an open directory."""
    draft = path.with_name(f"{DRAFT}{os.urandom(8).hex()}")  # its own: threads may write the same file
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(draft, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        with suppress(OSError):
            os.unlink(draft, dir_fd=directory)
        error.filename = str(path)  # write() names no file, open() the draft
        raise


def file_lock(path: Path) -> FileLock:
    """An exclusive lock on the file; the kernel frees it when its holder dies."""
    from filelock import FileLock  # 25 ms, and `status` takes no lock

    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


def lock_descriptor(descriptor: int, *, within_s: float) -> bool:
    """Lock an open file that child processes inherit; False when another process holds the lock for that long."""
    return until(lambda: _try_lock(descriptor, fcntl.LOCK_EX), within_s=within_s)


def _try_lock(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that two processes that ask at the same time do not see each other as the holder.
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


# Directories that an agent could write are renamed and deleted, never opened by a path below them.


def is_directory(path: Path) -> bool:
    """Whether there is a directory, not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def move_directory(name: str, source: Path, goal: Path) -> None:
    """Move a directory of an agent's repository into another one by one rename that follows nothing."""
    with suppress(OSError):
        descriptor = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                os.rename(name, goal / name, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)


def remove_directory(path: Path) -> None:
    """Rename the directory to a name of ours, then delete it by descriptors that follow nothing."""
    if not os.path.lexists(path):
        return
    if is_directory(path):
        path.chmod(0o700)
    gone = path.with_name(f"{_GONE}{path.name}-{time.monotonic_ns()}")
    gone.mkdir()
    path.rename(gone / "0")
    empty_directory(gone)


def sweep_leftovers(parent: Path) -> None:
    """Delete what killed processes have left in this directory: drafts and removals; running ones are younger."""
    for left in (*parent.glob(f"{_GONE}*"), *parent.glob(f"{DRAFT}*")):
        with suppress(OSError):  # another process sweeps it
            if left.lstat().st_mtime < time.time() - REMOVED_S:
                empty_directory(left) if is_directory(left) else left.unlink()


def empty_directory(top: Path) -> None:
    """Delete `top` and all below it. Directories move up into it, so neither depth nor length of a path counts."""
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        waiting = os.listdir(descriptor)  # noqa: PTH208 - by descriptor
        while waiting:
            name = waiting.pop()
            if _delete_entry(name, descriptor):
                continue
            waiting.append(name)
            os.chmod(name, 0o700, dir_fd=descriptor)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            try:
                for entry in os.listdir(below):  # noqa: PTH208
                    if not _delete_entry(entry, below):
                        goal = f"{len(waiting)}.{time.monotonic_ns()}"
                        os.chmod(entry, 0o700, dir_fd=below)  # a rename writes the `..` of a directory
                        os.rename(entry, goal, src_dir_fd=below, dst_dir_fd=descriptor)
                        waiting.append(goal)
            finally:
                os.close(below)
    finally:
        os.close(descriptor)
    top.rmdir()


def _delete_entry(name: str, parent: int) -> bool:
    """Delete a file, a link or an empty directory; False for a directory with content."""
    try:
        os.unlink(name, dir_fd=parent)
    except (IsADirectoryError, PermissionError):
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return False
    return True


def sign_files(files: Iterable[Path]) -> Signature:
    signatures = []
    for path in files:
        with suppress(OSError):
            status = path.stat()
            if status.st_size:  # a reader of the journal may create an empty file for its next changes, and remove it
                signatures.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(signatures)


def read_script(beside: str, name: str, **values: object) -> str:
    """The shell script of this name in the folder of a module, with these values as its variables."""
    text = Path(beside).with_name(name).read_text(encoding="utf-8")
    return "".join([*(f"{variable}={value}\n" for variable, value in values.items()), text])
