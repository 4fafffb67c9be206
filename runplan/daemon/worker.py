"""The worker of one repository in the daemon, its timers, and the limit of runs at work at once."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from msgspec import Struct
from msgspec.structs import replace

from runplan import processes
from runplan.daemon.protocol import Closed
from runplan.engine import schedules
from runplan.engine.commands import BEGINNING, CommandsLocked, Environments, Executor
from runplan.engine.worker import RepositoryWorker
from runplan.errors import RunplanError, Unreachable, refused_by_system
from runplan.report.notices import of_stopped_owner
from runplan.run.decide import pause_reason
from runplan.run.events import RunResumed
from runplan.run.requests import refused
from runplan.run.rows import WaitRow
from runplan.run.state import awaiting
from runplan.settings.schedule import what_is_due
from runplan.store.sqlite import Store
from runplan.times import delay_s, is_announced, iso, look_s, parse_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from runplan.clock import SystemClock
    from runplan.daemon.observer import Observer
    from runplan.engine.repository import OpenRepository
    from runplan.run.decide import Decision
    from runplan.run.events import Event
    from runplan.run.requests import Answer
    from runplan.run.rows import Command, ScheduleRow
    from runplan.run.state import RunState

BUSY_S = 3.0  #: a worker that is not in a long step has reacted by then
FIRST_RETRY_S = 2.0  #: after a slot could not be answered, or the queue was locked
NEVER = timedelta(days=3650)


class Timers:
    """Calls back at given times, in a thread of its own; a call has to return at once."""

    def __init__(self) -> None:
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": DebugExecutor()}, daemon=True)
        self._scheduler.start()

    def at(self, key: str, moment: datetime, call: Callable[[], None]) -> None:
        """Call back then, or at once when that has passed; a key has one moment."""
        self._scheduler.add_job(
            call, DateTrigger(run_date=moment), id=key, replace_existing=True, misfire_grace_time=None, coalesce=True
        )

    def cancel(self, key: str) -> None:
        with contextlib.suppress(JobLookupError):
            self._scheduler.remove_job(key)

    def fire_all(self) -> None:
        """Make all calls now: the clock was set, so their moments may be wrong. Each computes its next one."""
        for job in self._scheduler.get_jobs():
            with contextlib.suppress(JobLookupError):
                job.modify(next_run_time=datetime.now(UTC))

    def close(self) -> None:
        self._scheduler.shutdown(wait=False)


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

    def request(self, key: Key) -> bool:
        """Whether the run may work now; if not, it is queued."""
        with self._lock:
            if key in self.working:
                return True
            if key not in self.waiting:
                self.waiting = (*self.waiting, key)
            if key not in self._fitting():
                return False
            self._admit(key)
            return True

    def count(self, key: Key) -> None:
        """Count a run whose process is running already, also above the limits."""
        with self._lock:
            self._admit(key)

    def release(self, key: Key) -> None:
        """The run has ended, or waits for something else."""
        self._release(lambda one: one == key)

    def release_repository(self, root: str) -> None:
        """No step can be taken there; its runs request a permit again when it opens."""
        self._release(lambda one: one[0] == root)

    def resize(self, *, host: int, repository: int) -> None:
        """Change the limits. Running work is not interrupted."""
        with self._lock:
            self._host, self._repository = host, repository
        self._wake_fitting()

    def _release(self, is_meant: Callable[[Key], bool]) -> None:
        with self._lock:
            self.working = tuple(one for one in self.working if not is_meant(one))
            self.waiting = tuple(one for one in self.waiting if not is_meant(one))
        self._wake_fitting()

    def _admit(self, key: Key) -> None:
        self.waiting = _without(self.waiting, key)
        self.working = (*_without(self.working, key), key)

    def _fitting(self) -> list[Key]:
        """The queued runs that may begin now; a full repository does not hold up the others."""
        working = list(self.working)
        for key in self.waiting:
            in_repository = sum(1 for root, _ in working if root == key[0])
            if len(working) < self._host and in_repository < self._repository:
                working.append(key)
        return working[len(self.working) :]

    def _wake_fitting(self) -> None:
        with self._lock:
            roots = {root for root, _ in self._fitting()}
        for root in roots:
            self._wake(root)


def _without(keys: tuple[Key, ...], key: Key) -> tuple[Key, ...]:
    return tuple(one for one in keys if one != key)


QUEUE: Key = ("queue", "")  #: the wait for the lock of the queue; "claim" and "schedule" are waits of a plan


class Services(Struct, frozen=True, kw_only=True):
    """The objects that all workers of a daemon share."""

    open_repository: Callable[[str, int, Environments], AbstractContextManager[OpenRepository]]
    environment: Mapping[str, str]  #: of the daemon
    timers: Timers
    clock: SystemClock
    limit: ConcurrencyLimit
    observer: Observer
    may_begin: Callable[[], bool]
    idle: Callable[[], None]  #: called when a worker has nothing to do any more


class DaemonWorker(RepositoryWorker):
    """May be called from any thread; the work is done in a thread of its own while there is something to do."""

    def __init__(self, root: str, state: Path, services: Services) -> None:
        self.root = root
        self.state = state  #: the directory of the journal
        self._services = services
        self._observer = services.observer
        self.environments = Environments(services.environment)
        self.trouble: Closed | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked = False  #: a wake-up was requested
        self._closing = False
        self._ending = False  #: every agent is to be ended
        self._answered = threading.Condition()
        self._refusal: Answer | None = None  #: since the repository could not be used
        self._failures = 0  #: how often in a row the repository was closed before a step could be taken
        self._due: datetime | None = None  #: when the next schedule fires; None to compute it
        self._waits: dict[Key, WaitRow] = {}  #: by kind and plan, as stored: waits for the next attempt
        self._reported: dict[tuple[str, str], tuple[str, ...]] = {}  #: by plan and phase: the last reported wait
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    # --- from any thread --------------------------------------------------------------------------------

    def wake(self, *, commands: bool = False) -> None:
        """Check the queue and the due steps; while the daemon drains, an idle worker wakes for commands only."""
        with self._lock:
            needed = commands or self._services.may_begin()
            if self._closing or (self._thread is None and not needed):
                return
            self._asked = True
            self._due = None
            self._poke()
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name=f"worker {self.root}", daemon=True)
            refusal = ""
            try:
                self._thread.start()
            except RuntimeError as error:  # no thread is left
                self._thread, refusal = None, refused_by_system(error)
        if refusal:
            self._closed(None, Unreachable(refusal))

    def execute(self, numbers: Sequence[int]) -> list[Answer | None]:
        """Execute stored commands; their answers, None for one that takes long."""
        before, deadline = self._refusal, time.monotonic() + BUSY_S
        self.wake(commands=True)
        with self._answered:
            while None in (found := self._stored_answers(numbers)) and (left := deadline - time.monotonic()) > 0:
                if self._refusal is not before:
                    return [answer or self._refusal for answer in found]
                self._answered.wait(left)
        return found

    def _stored_answers(self, numbers: Sequence[int]) -> list[Answer | None]:
        if not numbers:  # the caller only wakes the worker, whose repository may be away
            return []
        with contextlib.closing(Store(self.state, writable=False)) as store:
            return [store.commands.answer(number) for number in numbers]

    @property
    def is_idle(self) -> bool:
        return self._thread is None

    def end_agents(self) -> None:
        """End every process; the next daemon starts the same ones again."""
        if self.is_idle:
            return
        self._ending = True
        self._poke()

    def close(self) -> None:
        """Take no further step; agents live on under their shims."""
        with self._lock:
            self._closing = True
            self._poke()

    def _poke(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            os.write(self._wake_w, b".")

    def _clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    # --- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._asked, trouble, wake = False, None, None
            try:
                wake = self._open_and_work()
            except RunplanError as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 - the edge of a worker: else the repository would stay closed
                trouble = Unreachable(refused_by_system(error) or f"unexpected {type(error).__name__}: {error}")
            self._closed(wake, trouble)
            with self._lock:
                if not self._asked or self._closing:
                    self._thread = None
                    break
        self._services.idle()

    def _open_and_work(self) -> datetime | None:
        self._clear()
        with self._services.open_repository(self.root, self._wake_r, self.environments) as repository:
            self.open(repository)
            self._executor = Executor(repository, self.runs, self.environments)
            self._due = None
            self._waits = {
                (row.kind, row.plan): row for row in repository.store.waits.all() if row.kind != "dependency"
            }
            claimed = [plan for kind, plan in self._waits if kind == "claim"]
            for plan in dict.fromkeys([*(row.plan for row in repository.store.unfinished()), *claimed]):
                self._adopt(plan)
            return self.work()

    def _adopt(self, plan: str) -> None:
        """Own the unfinished run of a plan; one of another owner is checked again, with growing delays."""
        row = self.repository.store.interrupted(plan)
        started = self.repository.started(row) if row is not None else None
        declined = self.runs.adopt(plan) if started is not None and started.daemon else None
        if declined is None:
            self._end_wait(("claim", plan))
            if started is not None and started.daemon:
                self._executor.halt_without_keys(started)
            return
        about = f"process {declined.owner.partition(':')[0]} works on this run; the daemon takes over when it ends"
        wait = self._wait_again(("claim", plan), about, look_s)
        if is_announced(wait.times):
            self._observer.happened(self.root, "declined", plan=plan, owner=declined.owner, again=wait.wake)
        if row is not None and processes.is_suspended(declined.owner):
            notice = of_stopped_owner(declined.owner, repository=self.root, plan=plan, run=row.id)
            self._observer.notify_once(self.repository.store, notice, declined.owner)

    def _wait_again(self, key: Key, about: str, delay: Callable[[int], float] = lambda _: FIRST_RETRY_S) -> WaitRow:
        """Store that it is tried again later; `delay` depends on the number of failures in a row."""
        before, now = self._waits.get(key), self._services.clock.now()
        times = before.times + 1 if before else 1
        wake, since = now + timedelta(seconds=delay(times)), before.since if before else iso(now)
        row = WaitRow(kind=key[0], plan=key[1], about=about, since=since, wake=iso(wake), times=times)
        self.repository.store.waits.put(row)
        self._waits[key] = row
        return row

    def _end_wait(self, key: Key) -> None:
        if self._waits.pop(key, None) is not None:
            self.repository.store.waits.drop(*key)

    def _is_due(self, key: Key, now: datetime) -> bool:
        wait = self._waits.get(key)
        return wait is None or not wait.wake or parse_iso(wait.wake) <= now

    def execute_commands(self) -> None:
        now = self._services.clock.now()
        if self._ending:
            self._ending = False
            self.runs.end_agents()
        for kind, plan in [key for key in self._waits if self._is_due(key, now)]:
            if kind == "claim":
                self._adopt(plan)
        if self._is_due(QUEUE, now):
            self._execute_queued()
        self._fire_schedules()

    def _execute_queued(self) -> None:
        try:
            for command, answer in self._executor.execute_queued(begins=self.may_begin()):
                self._due = None
                self._report_answer(command, answer)
        except CommandsLocked as error:  # steps are taken nevertheless
            if is_announced(self._wait_again(QUEUE, str(error)).times):
                self._observer.happened(self.root, "trouble", error=str(error))
        else:
            self._end_wait(QUEUE)

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        self._failures, self.trouble = 0, None  # a step was taken
        with self._lock:
            if self._closing or not (dispatches or self._asked):
                return False
            asked, self._asked = self._asked, False
        if not asked:
            until = self._earliest(wake)
            left_s = max(0.0, (until - self._services.clock.now()).total_seconds()) if until else None
            self.repository.dispatches.wait(dispatches, timeout_s=left_s)
        self._clear()
        return True

    def _earliest(self, wake: datetime | None) -> datetime | None:
        moments = [wake, self._due, *(parse_iso(wait.wake) for wait in self._waits.values() if wait.wake)]
        return min((moment for moment in moments if moment is not None), default=None)

    def _closed(self, wake: datetime | None, trouble: RunplanError | None) -> None:
        """Set the next wake-up; after trouble with growing delays."""
        wake = self._earliest(wake)
        if trouble is not None:
            now = self._services.clock.now()
            self._failures += 1
            wake = now + timedelta(seconds=delay_s(self._failures))
            since = self.trouble.since if self.trouble else iso(now)
            self.trouble = Closed(root=self.root, error=str(trouble), since=since, again=iso(wake))
            self._observer.happened(self.root, "closed", error=str(trouble), again=iso(wake))
            self._services.limit.release_repository(self.root)  # else an unplugged one would hold up the others
            self._refuse_starts(trouble)
            answer = refused(trouble)
            with self._answered:
                self._refusal = replace(answer, error=f"{answer.error}; the request stays queued")
                self._answered.notify_all()
        if wake is not None:
            self._services.timers.at(f"wake {self.root}", wake, self.wake)

    def _refuse_starts(self, trouble: RunplanError) -> None:
        """Refuse the commands that begin something; stop and pause stay queued."""
        if not Store.exists(self.state):  # the repository is gone; do not create it
            return
        with contextlib.suppress(RunplanError, OSError), contextlib.closing(Store(self.state)) as store:
            commands = store.commands
            for command in commands.queued():
                if command.verb in BEGINNING:
                    commands.finish(command.seq, refused(trouble))
                    self.environments.forget(command)
                    self._report_answer(command, refused(trouble))

    def _report_answer(self, command: Command, answer: Answer) -> None:
        result = answer.error or answer.why or " ".join(answer.lines) or answer.run or "scheduled"
        self._observer.happened(self.root, "command", plan=command.plan, verb=command.verb, answer=result)
        with self._answered:
            self._answered.notify_all()

    # --- schedules --------------------------------------------------------------------------------------

    def _fire_schedules(self) -> None:
        """Fire due slots and compute the next one; while the daemon drains, slots stay due."""
        now = self._services.clock.now()
        earliest = self._earliest(None) if self._due is not None else None
        if not self.may_begin() or (earliest is not None and now < earliest):
            return
        rows = self.repository.store.schedules.all()
        self._due = min((self._fire(row, now) for row in rows), default=now + NEVER)
        for kind, plan in list(self._waits):
            if kind == "schedule" and plan not in (row.plan for row in rows):  # it was cancelled
                self._end_wait((kind, plan))

    def _fire(self, row: ScheduleRow, now: datetime) -> datetime:
        key, table = ("schedule", row.plan), self.repository.store.schedules
        if not self._is_due(key, now):
            return parse_iso(self._waits[key].wake or "")
        try:
            for one in schedules.fire(row, self.runs, table, now):
                self._observer.happened(self.root, "slot", plan=row.plan, answer=one.answer, slot=one.slot, why=one.why)
                if one.answer == "fired":
                    self._executor.halt_without_keys(schedules.request_of(row).started)
        except RunplanError as error:
            wait = self._wait_again(key, str(error), lambda times: delay_s(times, first_s=FIRST_RETRY_S))
            self._observer.happened(self.root, "trouble", plan=row.plan, error=str(error), again=wait.wake)
            return parse_iso(wait.wake or "")
        self._end_wait(key)
        row = table.get(row.plan) or row
        following = what_is_due(row, now).next.at
        if row.next != iso(following):
            table.arm(row.plan, iso(following))
        return following

    # --- called by the runs ---------------------------------------------------------------------------

    def may_begin(self) -> bool:
        return self._services.may_begin() and not self._closing

    def request_permit(self, plan: str) -> bool:
        return self._services.limit.request((self.root, plan))

    def count_permit(self, plan: str) -> None:
        self._services.limit.count((self.root, plan))

    def release_permit(self, plan: str) -> None:
        self._services.limit.release((self.root, plan))

    def recorded(self, plan: str, run: str, fact: Event) -> None:
        if isinstance(fact, RunResumed):  # its next wait is reported even if it is the same
            self._forget_waits(plan)
        self._observer.recorded(self.root, plan, run, fact)

    def _forget_waits(self, plan: str) -> None:
        self._reported = {key: wait for key, wait in self._reported.items() if key[0] != plan}

    def warned(self, text: str) -> None:
        self._observer.happened(self.root, "warning", words=text)

    def failed(self, plan: str, error: RunplanError) -> None:
        self._observer.happened(self.root, "trouble", plan=plan, error=str(error))

    def ended(self, plan: str, run: str, state: RunState) -> None:
        """A schedule ends with its plan, and pauses when a phase fails."""
        self._forget_waits(plan)
        table = self.repository.store.schedules
        row = table.get(plan)
        if row is not None and (why := pause_reason(state)):  # recorded with the end of the run
            row = None
            self._observer.happened(self.root, "schedule-paused", plan=plan, why=why)
        elif row is not None and self.repository.is_complete(plan) and table.drop(plan):
            row = None
            self._observer.happened(self.root, "schedule-ended", plan=plan)
        self._observer.ended(self.root, plan, run, state, row)

    def waits(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Report each wait once, though every pass of the loop sees it."""
        phase = awaiting(state)
        name, tree = (phase.read.phase, phase.asked) if phase else ("", "")
        wait = (run, decision.waiting, decision.about, decision.wake, tree)
        if self._reported.get((plan, name)) != wait:
            self._reported[plan, name] = wait
            self._observer.waits(self.root, plan, run, state, decision, self.repository.store)
