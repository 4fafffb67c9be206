"""The worker of one repository in the daemon, with a thread of its own while there is something to do."""

from __future__ import annotations

import contextlib
import os
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.engine import schedules
from runplan.engine.acquire import interrupted
from runplan.engine.commands import BEGINNING, Executor
from runplan.engine.environments import Environments
from runplan.engine.runs import ActiveRuns, end_recorded_agents
from runplan.engine.worker import RepositoryWorker, Turn
from runplan.errors import RunplanError, Unreachable
from runplan.resources import refused_by_system
from runplan.run.decide import pause_reason
from runplan.run.events import RunResumed
from runplan.run.requests import refused
from runplan.run.state import awaiting
from runplan.settings.slots import what_is_due
from runplan.store.commands import Commands
from runplan.store.sqlite import Store
from runplan.times import delay_s, is_announced, iso, look_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from runplan.clock import Clock
    from runplan.daemon.observer import Observer
    from runplan.daemon.slots import HostSlots, Timers
    from runplan.engine.acquire import Declined
    from runplan.engine.repository import OpenRepository
    from runplan.run.decide import Decision
    from runplan.run.events import Fact
    from runplan.run.requests import Answer
    from runplan.run.rows import Command, ScheduleRow
    from runplan.run.state import RunState

BUSY_S = 3.0  #: a worker that is not in a long step has reacted by then
FIRST_SLOT_RETRY_S = 2.0  #: for a slot that could not be answered


class Closed(Struct, frozen=True, kw_only=True):
    """A repository that cannot be opened for now."""

    root: str
    error: str
    since: str  #: UTC, ISO 8601
    again: str  #: when it is tried again, likewise


class Services(Struct, frozen=True, kw_only=True):
    """What the workers of one daemon share."""

    open_up: Callable[[str, int, Environments], AbstractContextManager[OpenRepository]]
    environment: Mapping[str, str]  #: of the daemon
    timers: Timers
    clock: Clock
    slots: HostSlots
    observer: Observer
    may_begin: Callable[[], bool]
    rested: Callable[[], None]  #: called when a worker has nothing to do any more


class DaemonWorker(RepositoryWorker):
    """May be called from any thread; the work is done in a thread of its own."""

    def __init__(self, root: str, state: Path, services: Services) -> None:
        self.root = root
        self.state = state  #: where the journal lies
        self._services = services
        self._observer = services.observer
        self.environments = Environments(services.environment)
        self.trouble: Closed | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked = False  #: a wake-up was requested
        self._closing = False
        self._ending = False  #: every agent is to be ended
        self._unstored: list[Command] = []
        self._failures = 0  #: how often in a row the repository was closed before a step could be taken
        self._since = ""
        self._retimes = False  #: the settings have changed
        self._due: datetime | None = None  #: when the next slot comes; None to compute it anew
        self._slot_retries: dict[str, tuple[int, datetime]] = {}  #: by plan: failures in a row, and when to try again
        self._foreign: dict[
            str, tuple[int, datetime]
        ] = {}  #: by plan: checks that found another owner, and the next check
        self._reported: dict[tuple[str, str], tuple[str, ...]] = {}  #: by plan and phase: the last reported wait
        self._repository: OpenRepository | None = None
        self._executor: Executor | None = None
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    # --- from any thread --------------------------------------------------------------------------------

    def wake(self, *, commands: bool = False) -> None:
        """Check the queue and the due steps; while the daemon drains, an idle worker wakes for commands only."""
        with self._lock:
            needed = commands or self._unstored or self._services.may_begin()
            if self._closing or (self._thread is None and not needed):
                return
            self._asked = True
            self._due = None
            error = self._start_thread() if self._thread is None else None
            self._poke()
        if error is not None:
            self._closed(None, Unreachable(refused_by_system(error)))

    def _start_thread(self) -> RuntimeError | None:
        """The error when the system has no thread left."""
        self._thread = threading.Thread(target=self._run, name=f"worker {self.root}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            return error
        return None

    def submit(self, command: Command) -> None:
        """Execute a command that could not be stored; it is kept in memory until then."""
        if command not in self._unstored:
            self._unstored.append(command)
        self.wake()

    def answers(self, numbers: Sequence[int]) -> dict[int, Answer]:
        """Those of the stored commands that are answered already."""
        with contextlib.closing(Store(self.state, writable=False)) as store:
            found = {number: Commands(store).answer(number) for number in numbers}
        return {number: answer for number, answer in found.items() if answer is not None}

    @property
    def at_rest(self) -> bool:
        return self._thread is None

    @property
    def retries(self) -> bool:
        """Whether an unstored command waits."""
        return bool(self._unstored)

    def end_agents(self) -> None:
        """End every process; the next daemon starts the same ones again."""
        if self.at_rest:
            return
        self._ending = True
        self._poke()
        timer = threading.Timer(BUSY_S, self._end_agents_of_busy)
        timer.daemon = True
        timer.start()

    def _end_agents_of_busy(self) -> None:
        """End the agents of a worker that is in a long step, by the journal."""
        if not self._ending:
            return
        try:
            end_recorded_agents(self.state)
        except (RunplanError, OSError) as error:
            self._observer.happened(self.root, "trouble", error=f"agents could not be ended: {error}")

    def close(self, within_s: float) -> bool:
        """Take no further step; agents live on under their shims. False when the current step takes longer."""
        with self._lock:
            self._closing = True
            self._poke()
            thread = self._thread
        if thread is not None:
            thread.join(within_s)
        return thread is None or not thread.is_alive()

    def _poke(self) -> None:
        try:
            os.write(self._wake_w, b".")
        except BlockingIOError:
            return  # it is awake already

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
            self._repository = self._executor = None
            self._closed(wake, trouble)
            with self._lock:
                if not self._asked or self._closing:
                    self._thread = None
                    break
        self._services.rested()

    def _open_and_work(self) -> datetime | None:
        self._clear()
        with self._services.open_up(self.root, self._wake_r, self.environments) as repository:
            runs = ActiveRuns(repository, self)
            self._repository, self._executor = repository, Executor(repository, runs, self.environments)
            self._due, self._retimes = None, True
            for row in repository.store.unfinished():
                self._adopt(row.plan, repository, runs)
            self._services.slots.counted(self.root)
            return self.work(repository, runs)

    def _adopt(self, plan: str, repository: OpenRepository, runs: ActiveRuns) -> None:
        """Own the unfinished run of a plan; one of another owner is checked again, with growing delays."""
        looks, _ = self._foreign.pop(plan, (0, None))
        row = interrupted(repository.store, plan)
        started = repository.started(row) if row is not None else None
        if started is None or not started.daemon:
            return
        declined = runs.adopt(plan)
        if declined is None:
            self._executor_here.halt_without_keys(started)
        else:
            self._look_later(plan, looks + 1, declined)

    def _look_later(self, plan: str, looks: int, declined: Declined) -> None:
        again = self._services.clock.now() + timedelta(seconds=look_s(looks))
        self._foreign[plan] = (looks, again)
        if is_announced(looks):
            self._observer.happened(self.root, "declined", plan=plan, owner=declined.owner, again=again.isoformat())

    def execute_commands(self, repository: OpenRepository, runs: ActiveRuns) -> None:
        if self._ending:
            self._ending = False
            runs.end_agents()
        for plan in [plan for plan, (_, again) in self._foreign.items() if again <= self._services.clock.now()]:
            self._adopt(plan, repository, runs)
        if self._retimes:
            self._retimes = False
            self._time_schedules(repository)
        begins = self.may_begin()
        for command, answer in self._executor_here.execute_queued(self._unstored, begins=begins):
            self._due = None
            self._observer.answered(self.root, command, answer)
        self._fire_schedules(repository, runs)

    def wait(self, turn: Turn) -> bool:
        self._failures, self._since, self.trouble = 0, "", None  # a step was taken
        with self._lock:
            if self._closing or not (turn.dispatches or self._asked):
                return False
            asked, self._asked = self._asked, False
        if asked:
            self._clear()
            return True
        until = self._earliest(turn.wake)
        left = (until - self._services.clock.now()).total_seconds() if until else None
        turn.repository.dispatches.wait(turn.dispatches, timeout_s=None if left is None else max(0.0, left))
        self._clear()
        return True

    def _earliest(self, wake: datetime | None) -> datetime | None:
        others = [again for _, again in (*self._foreign.values(), *self._slot_retries.values())]
        return min([moment for moment in (wake, self._due) if moment is not None] + others, default=None)

    def _closed(self, wake: datetime | None, trouble: RunplanError | None) -> None:
        """Set the next wake-up; after trouble with growing delays."""
        now, wake = self._services.clock.now(), self._earliest(wake)
        if trouble is not None:
            self._failures += 1
            wake = now + timedelta(seconds=delay_s(self._failures))
            self._since = self._since or iso(now)
            self.trouble = Closed(root=self.root, error=str(trouble), since=self._since, again=iso(wake))
            self._services.slots.counted(self.root)
            self._observer.happened(self.root, "closed", error=str(trouble), again=wake.isoformat())
            self._refuse_starts(trouble)
            self._observer.unanswered(self.root, trouble)
        if wake is not None:
            self._services.timers.at(f"wake {self.root}", wake, self.wake)

    def _refuse_starts(self, trouble: RunplanError) -> None:
        """Refuse the commands that begin something; stop and pause stay queued."""
        if not Store.exists(self.state):  # the repository is gone; do not create it
            return
        with contextlib.suppress(RunplanError, OSError), contextlib.closing(Store(self.state)) as store:
            commands = Commands(store)
            for command in commands.queued():
                if command.verb in BEGINNING:
                    commands.finish(command.seq, refused(trouble))
                    self.environments.forget(command)
                    self._observer.answered(self.root, command, refused(trouble))

    def _clear(self) -> None:
        try:
            while os.read(self._wake_r, 4096):
                pass
        except BlockingIOError:
            return

    @property
    def _executor_here(self) -> Executor:
        assert self._executor is not None
        return self._executor

    # --- schedules --------------------------------------------------------------------------------------

    def _time_schedules(self, repository: OpenRepository) -> None:
        """Update the zone and the misfire rule of schedules from the settings."""
        run = repository.settings().run
        for row in repository.schedules.all():
            timed = schedules.timed(row, zone=run.timezone, misfire=run.misfire)
            if timed != row:
                repository.schedules.put(timed)
                fields = {"plan": row.plan, "zone": timed.zone, "misfire": timed.misfire}
                self._observer.happened(self.root, "schedule-retimed", **fields)

    def retime(self) -> None:
        """The settings of the repository have changed."""
        self._retimes = True
        self.wake()

    def _fire_schedules(self, repository: OpenRepository, runs: ActiveRuns) -> None:
        """Fire due slots and compute the next one; while the daemon drains, slots stay due."""
        now = self._services.clock.now()
        earliest = self._earliest(None) if self._due is not None else None
        if not self.may_begin() or (earliest is not None and now < earliest):
            return
        nexts = [self._fire(row, now, repository, runs) for row in repository.schedules.all()]
        self._due = min(nexts, default=now + timedelta(days=3650))

    def _fire(self, row: ScheduleRow, now: datetime, repository: OpenRepository, runs: ActiveRuns) -> datetime:
        failures, again = self._slot_retries.get(row.plan, (0, now))
        if again > now:
            return again
        try:
            for one in schedules.fire(row, runs, repository.schedules, now):
                self._observer.happened(self.root, "slot", plan=row.plan, answer=one.answer, slot=one.slot, why=one.why)
                if one.answer == "fired":
                    self._executor_here.halt_without_keys(schedules.request_of(row).started)
        except RunplanError as error:
            again = now + timedelta(seconds=delay_s(failures + 1, first_s=FIRST_SLOT_RETRY_S))
            self._slot_retries[row.plan] = (failures + 1, again)
            self._observer.happened(self.root, "trouble", plan=row.plan, error=str(error), again=again.isoformat())
            return again
        self._slot_retries.pop(row.plan, None)
        row = repository.schedules.get(row.plan) or row
        following = what_is_due(row, now).next.at
        if row.next != iso(following):
            repository.schedules.arm(row.plan, iso(following))
        return following

    # --- called by the runs ---------------------------------------------------------------------------

    def may_begin(self) -> bool:
        return self._services.may_begin() and not self._closing

    def ask_slot(self, plan: str) -> bool:
        return self._services.slots.ask((self.root, plan))

    def enter_slot(self, plan: str) -> None:
        self._services.slots.enter((self.root, plan))

    def leave_slot(self, plan: str) -> None:
        self._services.slots.leave((self.root, plan))

    def recorded(self, plan: str, run: str, fact: Fact) -> None:
        if isinstance(fact, RunResumed):  # its next wait is told even if it is the same
            self._reported = {key: wait for key, wait in self._reported.items() if key[0] != plan}
        self._observer.recorded(self.root, plan, run, fact)

    def warned(self, text: str) -> None:
        self._observer.happened(self.root, "warning", words=text)

    def failed(self, plan: str, error: RunplanError) -> None:
        self._observer.happened(self.root, "trouble", plan=plan, error=str(error))

    def ended(self, plan: str, run: str, state: RunState) -> None:
        """A schedule ends with its plan, and pauses when a phase fails."""
        self._reported = {key: wait for key, wait in self._reported.items() if key[0] != plan}
        repository = self._repository
        if repository is not None and repository.schedules.get(plan) is not None:
            if why := pause_reason(state):  # recorded with the end of the run
                self._observer.happened(self.root, "schedule-paused", plan=plan, why=why)
            elif repository.is_complete(plan) and repository.schedules.drop(plan):
                self._observer.happened(self.root, "schedule-ended", plan=plan)
        self._observer.ended(self.root, plan, run, state)

    def waits(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Report each wait once, though every pass of the loop sees it."""
        phase = awaiting(state)
        name, tree = (phase.read.phase, phase.asked) if phase else ("", "")
        wait = (run, decision.waiting, decision.about, decision.wake, tree)
        if self._reported.get((plan, name)) != wait:
            self._reported[plan, name] = wait
            self._observer.waits(self.root, plan, run, state, decision)
