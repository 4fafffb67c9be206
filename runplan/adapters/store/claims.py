"""Exclusive claims of plans by processes, and advisory claims of issues by runs.

The claim of a plan is a row with an owner and a fence that grows at each take-over, and a kernel lock that dies with
its process. The lock says whether the owner is alive; the row names it. The claim of an issue ends with its run.
"""

import contextlib
import os
from pathlib import Path

from filelock import FileLock, Timeout

from runplan.adapters import processes
from runplan.adapters.store.files import file_lock, make_below
from runplan.adapters.store.protocol import Store
from runplan.domain.errors import Unreachable
from runplan.domain.names import digest_of
from runplan.domain.run.rows import ClaimResult, HeldByOther


class Claims:
    def __init__(self, store: Store, locks: Path, *, host: str = "") -> None:
        """`host` is the name of this machine in a fleet."""
        self._store = store
        self.locks = locks
        self._held: dict[str, FileLock] = {}
        self.me = name_owner(host)

    def take_plan(self, plan: str, *, run: str) -> ClaimResult:
        """Claim the plan for this process; re-entry keeps the fence."""
        claim = self._store.get_claim("plan", plan)
        if plan in self._held and claim is not None and claim.owner == self.me:
            return self._store.claim_plan(plan, run=run, owner=self.me)
        lock = _open_lock(self.locks, f"plan-{digest_of(plan.encode())[:16]}")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            claim = self._store.get_claim("plan", plan)
            return HeldByOther(owner=claim.owner if claim else "a process that is just starting")
        with contextlib.ExitStack() as stack:
            stack.callback(lock.release)  # unless the row is ours
            result = self._store.claim_plan(plan, run=run, owner=self.me)
            if not isinstance(result, HeldByOther):
                self._held[plan] = lock
                stack.pop_all()
        return result

    def owns_plan(self, plan: str) -> bool:
        claim = self._store.get_claim("plan", plan)
        return claim is not None and claim.owner == self.me

    def release_plan(self, plan: str, *, run: str) -> None:
        self._store.release_plan(plan, run=run, owner=self.me)
        if (lock := self._held.pop(plan, None)) is not None:
            lock.release()

    def close(self) -> None:
        """Release the locks; the rows stay and name the owner while this process lives."""
        while self._held:
            self._held.popitem()[1].release()

    def command_lock(self, plan: str = "") -> FileLock:
        """One process at a time executes commands; in a fleet those of one plan."""
        return _open_lock(self.locks, f"commands-{digest_of(plan.encode())[:16]}" if plan else "commands")


def name_owner(host: str) -> str:
    """The name of this process in claims; `host` is that of a fleet's worker."""
    name = processes.identity(os.getpid()) or f"{os.getpid()}:0:unknown"
    return f"{host}/{name}" if host else name


def landing_lock(locks: Path) -> FileLock:
    """One landing at a time per repository; needs no journal."""
    return _open_lock(locks, "landing")


def _open_lock(locks: Path, name: str) -> FileLock:
    try:
        make_below(locks.parent.parent, locks)
    except OSError as error:
        raise Unreachable(f"{locks} cannot be created: {error.strerror}") from error
    return file_lock(locks / f"{name}.lock")
