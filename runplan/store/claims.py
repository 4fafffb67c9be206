"""Exclusive claims of plans by processes, and advisory claims of issues by runs.

The claim of a plan is a row with an owner and a fence that grows at each take-over, and a kernel lock that dies with
its process. The lock says whether the owner is alive; the row names it. The claim of an issue ends with its run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from filelock import Timeout

from runplan import processes
from runplan.errors import Unreachable
from runplan.run.rows import UNFINISHED, Acquired, HeldByOther, Reentered
from runplan.store.files import file_lock, make_below

if TYPE_CHECKING:
    from pathlib import Path

    from filelock import FileLock

    from runplan.run.rows import ClaimResult, RunRow
    from runplan.store.sqlite import Store


class Claims:
    """The claims of this process."""

    def __init__(self, store: Store, locks: Path) -> None:
        self._store = store
        self._locks = locks
        self._held: dict[str, FileLock] = {}
        self.me = processes.identity(os.getpid()) or f"{os.getpid()}:0:unknown"

    def take_plan(self, plan: str, *, run: str) -> ClaimResult:
        """Claim the plan for this process; re-entry keeps the fence."""
        mine = self._store.get_claim("plan", plan)
        if plan in self._held and mine is not None and mine[1] == self.me:
            return Reentered(fence=mine[2])
        lock = _lock(self._locks, f"plan-{hashlib.sha256(plan.encode()).hexdigest()[:16]}")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = self._store.get_claim("plan", plan)
            return HeldByOther(owner=holder[1] if holder else "a process that is just starting")
        with contextlib.ExitStack() as stack:
            stack.callback(lock.release)  # unless the row is ours
            result = self._take_row(plan, run=run)
            if not isinstance(result, HeldByOther):
                self._held[plan] = lock
                stack.pop_all()
        return result

    def _take_row(self, plan: str, *, run: str) -> ClaimResult:
        with self._store.transaction():
            found = self._store.get_claim("plan", plan)
            if found is not None:
                _, owner, fence = found
                if owner == self.me:
                    return Reentered(fence=fence)
                if processes.alive(owner):  # it keeps its claim while its repository is closed
                    return HeldByOther(owner=owner)
            fence = self._store.set_claim("plan", plan, run=run, owner=self.me)
        return Acquired(fence=fence, took_over=found[1] if found else "")

    def take_issue(self, number: int, *, run: str) -> RunRow | None:
        """Claim an issue for the run; another unfinished run that has it."""
        with self._store.transaction():
            found = self._store.get_claim("issue", str(number))
            if found is not None and found[0] == run:
                return None
            other = self._store.get_run(found[0]) if found is not None else None
            if other is not None and other.state in UNFINISHED:
                return other
            self._store.set_claim("issue", str(number), run=run, owner=self.me)
        return None

    def release(self, plan: str, *, run: str) -> None:
        """Release the plan, if this process owns it for the run."""
        self._store.drop_claim(plan, run=run, owner=self.me)
        if (lock := self._held.pop(plan, None)) is not None:
            lock.release()

    def close(self) -> None:
        """Release the locks; the rows stay and name the owner while this process lives."""
        while self._held:
            self._held.popitem()[1].release()

    def landing_lock(self) -> FileLock:
        return landing_lock(self._locks)

    def command_lock(self) -> FileLock:
        """One process at a time executes commands."""
        return _lock(self._locks, "commands")


def landing_lock(locks: Path) -> FileLock:
    """One landing at a time per repository; needs no journal."""
    return _lock(locks, "landing")


def _lock(locks: Path, name: str) -> FileLock:
    try:
        make_below(locks.parent.parent, locks)
    except OSError as error:
        raise Unreachable(f"{locks} cannot be created: {error.strerror}") from error
    return file_lock(locks / f"{name}.lock")
