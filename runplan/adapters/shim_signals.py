"""The signals that a shim hears while it waits for its agent, as one thing to wait on."""

from __future__ import annotations

import contextlib
import os
import signal


class Signals:
    """Turns SIGTERM and SIGCHLD into a readable descriptor."""

    def __init__(self) -> None:
        self.asked = 0  #: how often we were asked to end
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Signals:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whatever was asked of us until now counts
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def _on_term(self, *_: object) -> None:
        self.asked += 1
