"""When and how many: wake-ups on APScheduler, and the slots that limit the runs of this host."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


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


Key: TypeAlias = tuple[str, str]  #: repository, plan


class SlotTable(Struct, frozen=True, kw_only=True):
    """The runs that have a slot, and the queue of those that wait for one."""

    host: int  #: runs at once in all
    repository: int  #: runs at once in one repository
    working: tuple[Key, ...] = ()
    waiting: tuple[Key, ...] = ()  #: first come, first served

    def ask(self, key: Key) -> tuple[SlotTable, bool]:
        """Give the run a slot, or queue it; whether it has one."""
        if key in self.working:
            return self, True
        table = self.wait(key)
        if key not in table.due():
            return table, False
        waiting = tuple(one for one in table.waiting if one != key)
        return replace(table, working=(*table.working, key), waiting=waiting), True

    def enter(self, key: Key) -> SlotTable:
        """Count a run whose process is running already, also above the limits."""
        if key in self.working:
            return self
        waiting = tuple(one for one in self.waiting if one != key)
        return replace(self, working=(*self.working, key), waiting=waiting)

    def wait(self, key: Key) -> SlotTable:
        """Queue a run without giving it a slot."""
        return self if key in (*self.working, *self.waiting) else replace(self, waiting=(*self.waiting, key))

    def leave(self, key: Key) -> SlotTable:
        """Free the slot: the run has ended, or waits for something else."""
        return replace(
            self,
            working=tuple(one for one in self.working if one != key),
            waiting=tuple(one for one in self.waiting if one != key),
        )

    def due(self) -> tuple[Key, ...]:
        """The queued runs that fit now; a full repository does not hold up the others."""
        working = list(self.working)
        found: list[Key] = []
        for key in self.waiting:
            here = sum(1 for repository, _ in working if repository == key[0])
            if len(working) < self.host and here < self.repository:
                working.append(key)
                found.append(key)
        return tuple(found)


class HostSlots:
    """Shared by all workers; may be called from any thread."""

    def __init__(self, table: SlotTable, free: Callable[[str], None]) -> None:
        """`free` is called with the root of a repository whose run may begin now."""
        self._table = table
        self._free = free
        self._lock = threading.Lock()
        self._uncounted: set[str] = set()  #: repositories whose adopted runs are not known yet

    def expect(self, roots: Iterable[str]) -> None:
        """Give no slot until the adopted runs of these repositories are counted."""
        with self._lock:
            self._uncounted.update(roots)

    def counted(self, root: str) -> None:
        """The adopted runs of the repository are counted, or it cannot be opened for now."""
        with self._lock:
            if root not in self._uncounted:
                return
            self._uncounted.discard(root)
        self._wake_due()

    def enter(self, key: Key) -> None:
        """Count a run whose process is running already."""
        with self._lock:
            self._table = self._table.enter(key)

    def ask(self, key: Key) -> bool:
        with self._lock:
            if self._uncounted and key not in self._table.working:
                self._table = self._table.wait(key)
                return False
            self._table, granted = self._table.ask(key)
        return granted

    def leave(self, key: Key) -> None:
        with self._lock:
            self._table = self._table.leave(key)
        self._wake_due()

    def _wake_due(self) -> None:
        with self._lock:
            roots = set() if self._uncounted else {root for root, _ in self._table.due()}
        for root in roots:
            self._free(root)

    def resize(self, *, host: int, repository: int) -> None:
        """Change the limits. Running work is not interrupted."""
        with self._lock:
            self._table = replace(self._table, host=host, repository=repository)
        self._wake_due()

    @property
    def now(self) -> SlotTable:
        return self._table
