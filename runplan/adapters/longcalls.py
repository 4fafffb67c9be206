"""Programs that may take long: each leads a session of its own, and does not end without all it started.

Such a program is started with `start_new_session`: then it has no terminal to ask a person at, and no child of it, such
as the ssh of a git, stays behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


class LongCalls:
    """Those that run now; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    @contextlib.contextmanager
    def bounded(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """One that has not ended with the block is ended with all it started."""
        with self._lock:
            self._running.add(process)
            if self._closed:
                end_session(process)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)
            end_session(process)

    def end(self) -> None:
        """End all of them now; whoever waits for one sees that it was killed."""
        with self._lock:
            for process in self._running:
                end_session(process)

    def close(self) -> None:
        """End all of them, and whatever a thread that is left behind may begin later."""
        self._closed = True
        self.end()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads a session, with all it started."""
    if process.returncode is None:  # nobody has seen its end, so the number is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
