"""The daemon's host of one repository, and the limit of runs at work at once."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from runplan.domain.errors import Unreachable, refused_by_system
from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.rows import OwnerState, WaitRow
from runplan.domain.run.state import list_running
from runplan.domain.times import LOOKS, iso, look_s
from runplan.engine.loop.runs import state_of
from runplan.hosts.background import BackgroundHost, Services
from runplan.hosts.daemon.state import Known

Key: TypeAlias = tuple[str, str]  #: repository, plan


class ConcurrencyLimit:
    """Limits how many runs work at once, first come, first served. May be called from any thread."""

    def __init__(self, *, host: int, repository: int, wake: Callable[[str], None]) -> None:
        """`wake` is called with the root of a repository whose run may begin now."""
        self._host = host
        self._repository = repository
        self._wake = wake
        self._lock = threading.Lock()
        self.working: tuple[Key, ...] = ()
        self.waiting: tuple[Key, ...] = ()

    def request_permit(self, key: Key, *, is_running: bool = False) -> bool:
        """Whether the run may work now; if not, it is queued. A running one counts also above the limits."""
        with self._lock:
            if key in self.working:
                return True
            if key not in self.waiting:
                self.waiting = (*self.waiting, key)
            if not is_running and key not in self._list_fitting():
                return False
            self.waiting = tuple(other for other in self.waiting if other != key)
            self.working = (*self.working, key)
            return True

    def release_permit(self, root: str, plan: str = "") -> None:
        """The run has ended or waits for something else; without a plan, no step can be taken in the repository."""
        with self._lock:
            self.working = tuple(other for other in self.working if other != (root, plan or other[1]))
            self.waiting = tuple(other for other in self.waiting if other != (root, plan or other[1]))
        self._wake_fitting()

    def resize(self, *, host: int, repository: int) -> None:
        with self._lock:
            self._host, self._repository = host, repository
        self._wake_fitting()

    def _list_fitting(self) -> list[Key]:
        """The queued runs that may begin now; a full repository does not hold up the others."""
        working = list(self.working)
        for key in self.waiting:
            in_repository = sum(1 for root, _ in working if root == key[0])
            if len(working) < self._host and in_repository < self._repository:
                working.append(key)
        return working[len(self.working) :]

    def _wake_fitting(self) -> None:
        with self._lock:
            roots = {root for root, _ in self._list_fitting()}
        for root in roots:
            self._wake(root)


class DaemonHost(BackgroundHost):
    """All plans of one repository, in a thread while there is something to do."""

    def __init__(
        self,
        known: Known,
        services: Services,
        limit: ConcurrencyLimit,
        *,
        call_at: Callable[[str, datetime, Callable[[], None]], None],
        on_idle: Callable[[], None],
    ) -> None:
        super().__init__(known, services)
        self.limit = limit
        self._call_at = call_at
        self._on_idle = on_idle  #: have the main thread check whether it is time to end

    def wake(self, *, commands: bool = False) -> None:
        """Check the queue and the due steps; while the daemon drains, an idle host wakes for commands only."""
        with self.lock:
            if self.is_closing or (self.is_idle and not commands and not self.may_begin()):
                return
            self.ask(commands=commands and not self.is_idle)
            if not self.is_idle:
                return
            self.is_idle = False
            refusal = ""
            try:
                threading.Thread(target=self.run, name=f"worker {self.root}", daemon=True).start()
            except RuntimeError as error:  # no thread is left; else it would never be idle again
                self.is_idle = True
                refusal = refused_by_system(error)
        if refusal:
            self.record_closing(None, Unreachable(refusal))

    def run(self) -> None:
        super().run()
        self._on_idle()

    def adopt(self, plan: str) -> None:
        """Own the unfinished run of a plan; one of another owner is checked again, with growing delays."""
        owner = self.owner
        store = owner.repository.store
        row = store.get_interrupted_run(plan)
        started = state_of(store, row).options if row is not None else None
        other = owner.adopt(plan) if started is not None and started.daemon else ""
        if row is None or not other:
            store.drop_wait(plan)
            if started is not None and started.daemon:
                self.executor.halt_without_keys(started)
            if plan in owner.runs and list_running(owner.runs[plan].state):  # before others take their turn
                self.limit.request_permit((self.root, plan), is_running=True)
            return
        now = self.services.clock.now()
        before = next((row for row in store.list_waits() if row.plan == plan), None)
        times, since = (before.times + 1, before.since) if before else (1, iso(now))
        again = iso(now + timedelta(seconds=look_s(times)))
        about = f"process {other.partition(':')[0]} works on this run; the daemon takes over when it ends"
        store.put_wait(WaitRow(kind=WaitKind.CLAIM, plan=plan, about=about, since=since, wake=again, times=times))
        if times in LOOKS:
            self.log.warning("declined", plan=plan, owner=other, again=again)
        if store.get_owner_state(other) is OwnerState.SUSPENDED:
            self.tell_stopped_owner(other, row)

    def wake_at(self, moment: datetime) -> None:
        self._call_at(f"wake {self.root}", moment, self.wake)
