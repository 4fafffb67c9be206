"""The present moment, and the moment a test has frozen."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class FrozenClock:
    """Always the same moment: what two runs write is then the same to the byte."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment
