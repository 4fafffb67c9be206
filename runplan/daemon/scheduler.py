"""Calls back at moments, on APScheduler. The jobs are in memory; schedules and waits are in the store.

Every job is one moment. `core/slots.py` computes it from the rows of the store, which know the slots that are answered.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger

if TYPE_CHECKING:
    from collections.abc import Callable


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

    def look_again(self) -> None:
        """Make all calls now. The clock was set, so their moments may be wrong; each computes its next one."""
        for job in self._scheduler.get_jobs():
            with contextlib.suppress(JobLookupError):
                job.modify(next_run_time=datetime.now(UTC))

    def close(self) -> None:
        self._scheduler.shutdown(wait=False)
