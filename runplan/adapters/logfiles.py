"""Lines in a file that is turned over before it grows large, by whoever writes to it: threads and processes.

Each line is written whole, under the kernel's lock on the file itself; who turns it over holds that lock. A lock whose
holder is stopped is not waited for: then the line is written all the same, and the file is turned over by a later one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 0.2
LOOK_AGAIN_S = 0.001


class Files:
    """The newest file and the ones before it; a call never raises, as a full disk must not end a run."""

    def __init__(self, path: Path, *, files: int, file_bytes: int) -> None:
        self._path = str(path)
        self._files = max(2, files)
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._file = -1

    def write(self, line: str) -> None:
        """Add a line, which has no end yet."""
        data = f"{line}\n".encode("ascii", "backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            while not self._written(data):
                pass

    def _written(self, data: bytes) -> bool:
        """False when the file had to be turned over first."""
        with self._held() as alone:
            size = os.fstat(self._file).st_size
            if alone and size and size + len(data) > self._file_bytes:
                self._turn_over()
                return False
            try:
                _put(self._file, data)
            except OSError:
                if alone:
                    os.ftruncate(self._file, size)  # rather none than half of one
                raise
        return True

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @contextlib.contextmanager
    def _held(self) -> Iterator[bool]:
        """The file that has the name now; whether nobody else writes to it meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            alone = _locked(self._file, deadline)
            if self._is_named():
                break
            self._close()  # somebody has turned it over, or taken it away
        file = self._file
        try:
            yield alone
        finally:
            if alone and self._file == file:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _is_named(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def _turn_over(self) -> None:
        for number in range(self._files - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number - 1}" if number > 1 else self._path, f"{self._path}.{number}")
        self._close()  # and with it the lock: whoever waits for that sees that it has another name


def _put(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _locked(file: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_AGAIN_S)
        else:
            return True
