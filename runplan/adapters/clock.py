"""The system clock, and waiting for a condition."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")
RECHECK_S = 60.0  #: a machine that slept has missed its timers, so the clock is read again this often


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep_until(self, moment: datetime) -> None:
        while (left := (moment - self.now()).total_seconds()) > 0:
            time.sleep(min(left, RECHECK_S))


def until(condition: Callable[[], T], *, within_s: float, every_s: float = 0.01) -> T:
    """Poll the condition, at least once, until it is true or time is up: where no descriptor or signal announces it."""
    deadline = time.monotonic() + within_s
    while not (result := condition()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return result
