"""The time of day, and waiting for a moment."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

#: A machine that was asleep has missed its timers: the clock on the wall is looked at again this often.
LOOK_S = 60.0


class Clock(Protocol):
    def now(self) -> datetime: ...

    def sleep_until(self, moment: datetime) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep_until(self, moment: datetime) -> None:
        while (left := (moment - self.now()).total_seconds()) > 0:
            time.sleep(min(left, LOOK_S))
