"""Ctrl-C, SIGTERM and SIGHUP for a run in this process: the first lets the agents end, the second ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """What a person wants of the run in this process; listens as long as it is entered."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._until = 0.0
        self.asked = False  #: nothing new is to be begun
        self._at_once = False
        self.wakeup, self._wake_w = os.pipe()  #: readable when somebody has asked
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake_w, False)

    def __enter__(self) -> Interruption:
        self._before = {number: signal.getsignal(number) for number in NUMBERS}
        if self._before[signal.SIGHUP] is signal.SIG_IGN:  # nohup: the run is to outlive its terminal
            del self._before[signal.SIGHUP]
        for number in self._before:
            signal.signal(number, self._heard)
        # Also when the kernel gave it to another thread, or in the very moment before the wait.
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wakeup)
        os.close(self._wake_w)

    @property
    def left_s(self) -> float:
        """What is left of the time in which agents may end by themselves."""
        return max(0.0, self._until - time.monotonic())

    def clear(self) -> None:
        """Let the next wait be a wait again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wakeup, 64):
                pass

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """While nothing runs, the first time is enough."""
        self._at_once = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or self._at_once or not self._grace_s:
            self.asked = True
            raise KeyboardInterrupt
        self.asked = True
        self._until = time.monotonic() + self._grace_s
        with contextlib.suppress(OSError):
            os.write(self._wake_w, b".")
            # Not through a stream: this may have come in the middle of another word.
            os.write(2, f"runplan: what runs gets {in_words(self._grace_s)} to end; once more ends it now\n".encode())
