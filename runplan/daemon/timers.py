"""Calls back at moments, on APScheduler. The jobs are in memory; schedules and waits are in the store.

Every job is one moment. `core/slots.py` computes it from the rows of the store, which know the slots that are answered.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


class Timers:
    """One thread that sleeps until the next moment; calls are made there and have to return at once."""

    def __init__(self) -> None:
        # Called in the scheduler's own thread: all a call does is to wake somebody.
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": DebugExecutor()}, daemon=True)
        self._scheduler.start()

    def at(self, key: str, moment: datetime, call: Callable[[], None]) -> None:
        """Call back then, or at once when that has passed; a key has one moment."""
        self._scheduler.add_job(
            call, DateTrigger(run_date=moment), id=key, replace_existing=True, misfire_grace_time=None, coalesce=True
        )

    def cancel(self, key: str) -> None:
        try:
            self._scheduler.remove_job(key)
        except JobLookupError:
            return  # it has fired, or was never there

    def look_again(self) -> None:
        """The machine was asleep, or its clock was set: see by the clock on the wall what is due."""
        self._scheduler.wakeup()

    def close(self) -> None:
        self._scheduler.shutdown(wait=False)
