"""The worker of one repository in the daemon, and the limit of runs at work at once."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan.adapters.clock import SystemClock
from runplan.adapters.git.command import CALLS
from runplan.adapters.git.objects import read_plan
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice, of_ending, of_lost_keys, of_stopped_owner, of_waiting
from runplan.adapters.notify.notifier import Notifier
from runplan.adapters.store.journal import Journal
from runplan.adapters.store.location import FleetLocation, Location
from runplan.adapters.store.protocol import open_store, store_exists
from runplan.domain.errors import CallEnded, Crashed, PlanUnreadable, RunplanError, Unreachable, refused_by_system
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempt_parts import StepCrashed
from runplan.domain.run.attempts import open_questions
from runplan.domain.run.decide import decide, pause_reason
from runplan.domain.run.events import Admitted, DispatchEnded, DispatchStarted, Event, Halted, Paused, Queued
from runplan.domain.run.kinds import ANSWERED, WaitKind
from runplan.domain.run.requests import refused
from runplan.domain.run.rows import Answer, Command, OwnerState, ScheduleRow, WaitRow
from runplan.domain.run.rules.hosts import missing_labels
from runplan.domain.run.state import RunState, find_awaiting, list_running, open_lanes, open_states
from runplan.domain.settings.schedule import what_is_due
from runplan.domain.times import delay_s, is_announced, iso, look_s, parse_iso, zone
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import Environments
from runplan.engine.loop.runs import ActiveRun, state_of
from runplan.engine.steps.context import OpenRepository
from runplan.hosts.commands import BEGINNING, Executor, awaits_retry, fire_schedule, look_for_retry, request_of
from runplan.hosts.daemon.protocol import Closed
from runplan.hosts.daemon.state import Known
from runplan.hosts.owner import RepositoryWorker

if TYPE_CHECKING:  # it needs psycopg, an extra
    from runplan.adapters.store.heartbeat import FleetLimit


PIPE_BYTES = 1 << 20  #: more than a pipe holds
FIRST_RETRY_S = 2.0  #: after a slot could not be answered


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

    def request_permit(self, key: Key) -> bool:
        """Whether the run may work now; if not, it is queued."""
        with self._lock:
            if key in self.working:
                return True
            if key not in self.waiting:
                self.waiting = (*self.waiting, key)
            if key not in self._list_fitting():
                return False
            self._admit_run(key)
            return True

    def count_run(self, key: Key) -> None:
        """Count a run whose process is running already, also above the limits."""
        with self._lock:
            self._admit_run(key)

    def release_permit(self, root: str, plan: str = "") -> None:
        """The run has ended or waits for something else; without a plan, no step can be taken in the repository."""
        with self._lock:
            self.working = tuple(other for other in self.working if other != (root, plan or other[1]))
            self.waiting = tuple(other for other in self.waiting if other != (root, plan or other[1]))
        self._wake_fitting()

    def resize(self, *, host: int, repository: int) -> None:
        """Change the limits. Running work is not interrupted."""
        with self._lock:
            self._host, self._repository = host, repository
        self._wake_fitting()

    def _admit_run(self, key: Key) -> None:
        self.waiting = tuple(other for other in self.waiting if other != key)
        self.working = (*(other for other in self.working if other != key), key)

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


class DaemonServices(Struct, frozen=True, kw_only=True):
    """What the daemon does for its workers; may be called from any thread."""

    log: FilteringBoundLogger
    notifier: Notifier
    links: LinkMaker
    limit: ConcurrencyLimit | FleetLimit
    clock: SystemClock
    environment: Mapping[str, str]  #: of commands that bring none
    may_begin: Callable[[], bool]
    wake: Callable[[], None]  #: have the main thread check whether it is time to end
    call_at: Callable[[str, datetime, Callable[[], None]], None]
    open_repository: Callable[[str, int], AbstractContextManager[tuple[RepositoryContext, OpenRepository]]]


class DaemonWorker(RepositoryWorker):
    """May be called from any thread; the work is done in a thread of its own while there is something to do."""

    def __init__(self, root: str, state: Path, daemon: DaemonServices, fleet: FleetLocation | None = None) -> None:
        self.root = root
        self.state = state  #: the directory of runplan's files in the repository
        self.journal: Location = fleet or state
        self._daemon = daemon
        self._log = daemon.log.bind(repository=root)
        self.environments = Environments(daemon.environment)
        self.trouble: Closed | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asked = False  #: to check the queue and the due steps
        self._closing = False
        self._ending = False  #: end all agents
        self._failures = 0  #: openings in a row in which no step could be taken
        self._retries: dict[str, tuple[int, datetime]] = {}  #: by plan: failures to fire its schedule, and the next try
        self._reported: dict[Key, tuple[str | None, ...]] = {}  #: by run and phase: the last reported wait
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    # --- from any thread --------------------------------------------------------------------------------

    def wake(self, *, commands: bool = False) -> None:
        """Check the queue and the due steps; while the daemon drains, an idle worker wakes for commands only."""
        with self._lock:
            needed = commands or self._daemon.may_begin()
            if self._closing or (self._thread is None and not needed):
                return
            self._asked = True
            self._poke_thread()
            if self._thread is not None:
                if commands and self._is_stop_queued():
                    CALLS.refuse(self.state)
                return
            self._thread = threading.Thread(target=self._run_thread, name=f"worker {self.root}", daemon=True)
            refusal = ""
            try:
                self._thread.start()
            except RuntimeError as error:  # no thread is left; else it would never be idle again
                self._thread = None
                refusal = refused_by_system(error)
        if refusal:
            self._record_closing(None, Unreachable(refusal))

    def _is_stop_queued(self) -> bool:
        """Whether a stop waits; a repository that is gone is not created."""
        with (
            contextlib.suppress(RunplanError, OSError),
            contextlib.closing(open_store(self.journal, writable=False)) as store,
        ):
            return any(
                command.verb == "stop" and self.is_mine(command.plan) for command in store.list_queued_commands()
            )
        return False

    @property
    def is_idle(self) -> bool:
        return self._thread is None

    def request_end(self) -> None:
        """End every process; the next daemon starts the same ones again."""
        self._ending = not self.is_idle
        self._poke_thread()

    def close(self) -> None:
        """Take no further step; agents live on under their shims."""
        with self._lock:
            self._closing = True
            self._poke_thread()

    def _poke_thread(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            os.write(self._wake_w, b".")

    def _clear_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, PIPE_BYTES)

    # --- the thread -------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        while True:
            self._asked = False
            trouble: RunplanError | None = None
            wake: datetime | None = None
            try:
                wake = self._open_and_work()
            except RunplanError as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 - the edge of a worker: else the repository would stay closed
                trouble = Unreachable(refused_by_system(error) or f"unexpected {type(error).__name__}: {error}")
            self._record_closing(wake, trouble)
            with self._lock:
                if not self._asked or self._closing:
                    self._thread = None
                    break
        self._daemon.wake()

    def _open_and_work(self) -> datetime | None:
        self._clear_pipe()
        with self._daemon.open_repository(self.root, self._wake_r) as (context, repository):
            self.open(context, repository, self.environments)
            self._executor = Executor(self)
            plans = [row.plan for row in repository.store.list_unfinished_runs()]
            held = [row.plan for row in repository.store.list_waits() if row.kind == WaitKind.CLAIM]
            for plan in filter(self.is_mine, dict.fromkeys([*plans, *held])):
                self._adopt_run(plan)
            return self._find_earliest(self.work())

    def _adopt_run(self, plan: str) -> None:
        """Own the unfinished run of a plan; one of another owner is checked again, with growing delays."""
        store = self.repository.store
        row = store.get_interrupted_run(plan)
        started = state_of(store, row).options if row is not None else None
        declined = self.adopt(plan) if started is not None and started.daemon else None
        if row is None or declined is None:
            store.drop_wait(plan)
            if started is not None and started.daemon:
                self._executor.halt_without_keys(started)
            if plan in self.runs and list_running(self.runs[plan].state):  # before others take their turn
                self._daemon.limit.count_run((self.root, plan))
            return
        now = self._now()
        before = next((row for row in store.list_waits() if row.plan == plan), None)
        times, since = (before.times + 1, before.since) if before else (1, iso(now))
        again = iso(now + timedelta(seconds=look_s(times)))
        about = f"process {declined.owner.partition(':')[0]} works on this run; the daemon takes over when it ends"
        store.put_wait(WaitRow(kind=WaitKind.CLAIM, plan=plan, about=about, since=since, wake=again, times=times))
        if is_announced(times):
            self._log.warning("declined", plan=plan, owner=declined.owner, again=again)
        if store.get_owner_state(declined.owner) is OwnerState.SUSPENDED:
            notice = of_stopped_owner(declined.owner, **self._locate(plan, row.id))
            self._notify_once(notice, declined.owner)

    def _look_for_retry(self, row: WaitRow) -> None:
        """Look at the pull request of a failed run for a person who wants a retry, with growing delays."""
        store = self.repository.store
        now = self._now()
        try:
            answer = look_for_retry(row, self, now) if self.may_begin() else True
        except RunplanError as error:  # the forge, the remote or the settings; tried again at the next look
            self._log.info("retry-not-looked-for", plan=row.plan, error=str(error))
            answer = True
        if answer is True:
            first_s = self.context.for_run(self.newest(row.plan).options).settings.pull_request.poll_s
            wait_s = delay_s(row.times, first_s=first_s, longest_s=600, factor=1.5)
            store.put_wait(replace(row, wake=iso(now + timedelta(seconds=wait_s)), times=row.times + 1))
            return
        store.drop_wait(row.plan)
        if answer:
            self._log.info("retried-by-comment", plan=row.plan, answer=answer.run or answer.why)
            self._executor.halt_without_keys(self.newest(row.plan).options)

    def _now(self) -> datetime:
        return self._daemon.clock.now()

    def execute_commands(self) -> None:
        CALLS.allow(self.state)  # a stop that is queued by now is executed below
        if self._ending:
            self._ending = False
            self.end_agents()
        for row in self.repository.store.list_waits():
            if self.is_mine(row.plan) and parse_iso(row.wake or row.since) <= self._now():
                self._look_for_retry(row) if row.kind == WaitKind.REVIEW else self._adopt_run(row.plan)
        for command, answer in self._executor.execute_queued(begins=self.may_begin()):
            self._log_answer(command, answer)
        if self.may_begin():  # else slots stay due
            for schedule in self.repository.store.list_schedules():
                if self.is_mine(schedule.plan):
                    self._fire_schedule(schedule)

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        self._failures = 0  # a step was taken
        self.trouble = None
        until = self._find_earliest(wake)
        with self._lock:
            if self._closing or not (dispatches or self._asked or self.stays_until(until)):
                return False
            asked = self._asked
            self._asked = False
        if not asked:
            left_s = max(0.0, (until - self._now()).total_seconds()) if until else None
            self.repository.dispatches.wait(dispatches, timeout_s=left_s)
        self._clear_pipe()
        return True

    def stays_until(self, moment: datetime | None) -> bool:  # noqa: ARG002
        """Whether the repository stays open while nothing runs in it."""
        return False

    def _find_earliest(self, wake: datetime | None) -> datetime | None:
        store = self.repository.store
        moments = [parse_iso(row.wake) for row in store.list_waits() if row.wake and self.is_mine(row.plan)]
        for row in store.list_schedules() if self.may_begin() else ():
            if not self.is_mine(row.plan):
                continue
            if row.plan in self._retries:
                moments.append(self._retries[row.plan][1])
            elif row.next is not None:
                moments.append(parse_iso(row.next))
        return min([*moments, *([wake] if wake else [])], default=None)

    def _record_closing(self, wake: datetime | None, trouble: RunplanError | None) -> None:
        """Set the next wake-up; after trouble with growing delays."""
        if trouble is not None:
            now = self._now()
            self._failures += 1
            wake = now + timedelta(seconds=delay_s(self._failures))
            since = self.trouble.since if self.trouble else iso(now)
            self.trouble = Closed(root=self.root, error=str(trouble), since=since, again=iso(wake))
            self._log.warning("closed", error=str(trouble), again=iso(wake))
            self._daemon.limit.release_permit(self.root)  # else an unplugged one would hold up the others
            self._refuse_starts(trouble)
        if wake is not None:
            self._daemon.call_at(f"wake {self.root}", wake, self.wake)

    def _refuse_starts(self, trouble: RunplanError) -> None:
        """Refuse the commands that begin something; stop and pause stay queued."""
        if not store_exists(self.journal):  # the repository is gone; do not create it
            return
        with contextlib.suppress(RunplanError, OSError), contextlib.closing(open_store(self.journal)) as store:
            for command in store.list_queued_commands():
                if command.verb in BEGINNING and self.is_mine(command.plan):
                    answer = refused(trouble, self.host)
                    store.answer_command(command.seq, answer)
                    self.environments.forget(command)
                    self._log_answer(command, answer)

    def _log_answer(self, command: Command, answer: Answer) -> None:
        result = answer.error or answer.why or " ".join(answer.lines) or answer.run or "scheduled"
        self._log.info("command", plan=command.plan, verb=command.verb, answer=result)

    def _fire_schedule(self, row: ScheduleRow) -> None:
        """Fire the due slot of a schedule and record the next one; an error is tried again, with growing delays."""
        store = self.repository.store
        now = self._now()
        failures, again = self._retries.get(row.plan, (0, now))
        if now < again:
            return
        try:
            for firing in fire_schedule(row, self, now):
                self._log.info("slot", plan=row.plan, answer=firing.answer, slot=firing.slot, why=firing.why)
                if firing.answer == "fired":
                    self._executor.halt_without_keys(request_of(row).started)
        except RunplanError as error:
            again = now + timedelta(seconds=delay_s(failures + 1, first_s=FIRST_RETRY_S))
            self._retries[row.plan] = (failures + 1, again)
            self._log.warning("trouble", plan=row.plan, error=str(error), again=iso(again))
            return
        self._retries.pop(row.plan, None)
        was_paused = row.paused
        row = store.get_schedule(row.plan) or row
        if row.paused and not was_paused:
            self._log.info("schedule-paused", plan=row.plan, why=row.paused)
            missing = self.environments.missing(request_of(row).started)
            self._daemon.notifier.send(of_lost_keys(missing, **self._locate(row.plan, "")))
        following = iso(what_is_due(row, now).next.at)
        if row.next != following:
            store.arm_schedule(row.plan, following)

    # --- runs -----------------------------------------------------------------------------------------

    def may_begin(self) -> bool:
        return self._daemon.may_begin() and not self._closing

    def step(self, plan: str) -> Decision | None:
        """Take the due steps of a run; an error is tried again, with growing delays."""
        active = self.runs[plan]
        try:
            self.update_subplans(active)  # before a permit is asked for, so that one is asked for what follows
            if not self._has_permit(plan, active.journal):
                return decide(active.state)
            if super().step(plan) is None:
                return None
            self._schedule_checkout_checks(active.journal)
            return self._report_waits(plan, active)
        except CallEnded:
            if self.may_begin() or active.state.stop:  # a stop ended the call, and is executed before the next step
                return decide(active.state)
            self.disown(plan)  # the next daemon repeats the step
            return None
        except RunplanError as error:
            self._log.warning("trouble", plan=plan, error=str(error))
            if plan not in self.runs:  # it has ended, or another process owns it
                return None
            lane = active.journal.lane(error.lane) if error.lane else active.journal
            if not isinstance(error, Crashed):
                until = self._now() + timedelta(seconds=delay_s(lane.state.waits + 1))
                active.journal.append(
                    Paused(kind=WaitKind.UNREACHABLE, until=iso(until), words=str(error)), lane=error.lane
                )
            decision = self._report_waits(plan, active)
            # The other lanes continue at once.
            return self.step(plan) if error.lane and decide(lane.state).waiting else decision

    def _has_permit(self, plan: str, journal: Journal) -> bool:
        """Whether the run may work now; one that waits for something else needs no permit."""
        decision = decide(journal.state)
        if list_running(journal.state):  # also one that survived the last process
            self._daemon.limit.count_run((self.root, plan))
            return True
        if (
            journal.state.stop
            or not self.may_begin()
            or all(missing_labels(state) for _, state in open_states(journal.state))
        ):
            return True
        if decision.waiting and not decision.wake and decision.waiting is not WaitKind.SLOT:
            return True
        if decision.waiting and decision.wake and parse_iso(decision.wake) > self._now():
            return True
        if not self._daemon.limit.request_permit((self.root, plan)):
            if not journal.state.queued:
                journal.append(Queued())
            return False
        if journal.state.queued:
            journal.append(Admitted())
        return True

    def forget(self, plan: str) -> None:
        super().forget(plan)
        self._daemon.limit.release_permit(self.root, plan)

    def _schedule_checkout_checks(self, journal: Journal) -> None:
        """Check again later whether a checkout in use is free."""
        for lane, state in open_states(journal.state):
            decision = decide(state)
            if decision.waiting is WaitKind.CHECKOUT and not decision.wake:
                until = self._now() + timedelta(seconds=look_s(state.waits + 1))
                words = state.attempt.delivery.held if state.attempt else ""
                journal.append(Paused(kind=WaitKind.CHECKOUT, until=iso(until), words=words), lane=lane)

    def _report_waits(self, plan: str, active: ActiveRun) -> Decision:
        """Report every wait, lane by lane; a run in which every lane waits gives up its permit."""
        state = active.state
        lanes = open_lanes(state)
        decision = decide(state)
        for _, open_state in open_states(state) if lanes else ():
            if (alone := decide(open_state)).waiting:
                self.report_wait(plan, active.id, open_state, alone)
        if decision.waiting and (decision.waiting is WaitKind.CRASHED or not list_running(state)):
            if decision.waiting is not WaitKind.SLOT:
                self._daemon.limit.release_permit(self.root, plan)
            if not lanes:
                self.report_wait(plan, active.id, state, decision)
        return decision

    def recorded(self, plan: str, run: str, event: Event, phase: str) -> None:
        dispatch = event.id if isinstance(event, DispatchStarted | DispatchEnded) else ""
        trace = {"trace": event.trace} if isinstance(event, StepCrashed) else {}
        self._log.info(type(event).__name__, plan=plan, run=run, phase=phase, dispatch=dispatch, **trace)
        if isinstance(event, Halted) and event.missing:  # recorded once, however often the daemon is started
            self._daemon.notifier.send(of_lost_keys(event.missing, **self._locate(plan, run)))

    def ended(self, plan: str, run: str, state: RunState) -> None:
        """A schedule ends with its plan, and pauses when a phase fails."""
        self._reported = {key: wait for key, wait in self._reported.items() if key[0] != run}
        store = self.repository.store
        row = store.get_schedule(plan)
        if row is not None and (why := pause_reason(state)):  # recorded with the end of the run
            row = None
            self._log.info("schedule-paused", plan=plan, why=why)
        elif row is not None and _is_complete(self.context, plan) and store.drop_schedule(plan):
            row = None
            self._log.info("schedule-ended", plan=plan)
        if awaits_retry(state):
            about = "a comment /runplan retry on its pull request"
            store.put_wait(WaitRow(kind=WaitKind.REVIEW, plan=plan, about=about, since=iso(self._now())))
        fires = row.next if row is not None else None
        outcome = state.ended.outcome if state.ended else ""
        self._log.info("ended", plan=plan, run=run, outcome=outcome, **({"next": fires} if fires else {}))
        notice = of_ending(state, **self._locate(plan, run))
        if notice is not None and row is not None and fires:
            moment = parse_iso(fires).astimezone(zone(row.zone))
            notice = replace(notice, text=f"{notice.text} Next run: {moment:%Y-%m-%d %H:%M %Z}.")
        if notice is not None:
            self._daemon.notifier.send(notice)

    def report_wait(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Log each wait once, though every pass of the loop sees it; a person is notified of one that needs them."""
        attempt = find_awaiting(state)
        name = attempt.chosen.phase if attempt else ""
        questions = " ".join(question.id for question in open_questions(attempt))
        asked = questions or (attempt.delivery.asked if attempt else "")
        wait = (decision.waiting, decision.about, decision.wake, asked)
        if self._reported.get((run, name)) == wait:
            return
        self._reported[run, name] = wait
        self._log.info("waits", plan=plan, run=run, why=decision.why)
        tree = attempt.delivery.asked if attempt and decision.waiting in ANSWERED else ""
        notice = of_waiting(state, decision, **self._locate(plan, run, phase=name, tree=tree))
        if notice is not None:
            self._notify_once(notice, f"{notice.phase} {asked}")

    def _locate(self, plan: str, run: str, *, phase: str = "", tree: str = "") -> dict[str, str]:
        """The fields of a notice that say what it is about; the link answers the change with this tree."""
        links = self._daemon.links
        repository = Known(common=str(self.state.parent), root=self.root)
        link = links.link_to_page(repository.key, plan)
        if tree:
            try:
                link = links.link_to_answer(repository.key, plan, phase, run, tree)
            except Unreachable as error:  # the page of the plan is better than no notice
                self._log.warning("link-not-signed", plan=plan, run=run, error=str(error))
        return {"repository": self.root, "plan": plan, "run": run, "link": link}

    def _notify_once(self, notice: Notice, about: str) -> None:
        """Send the notice, unless an earlier daemon sent one of this run for the same reason and cause."""
        if self.repository.store.record_notice(notice.run, f"{notice.reason} {about}"):
            self._daemon.notifier.send(notice)


def _is_complete(context: RepositoryContext, plan: str) -> bool:
    """Whether the plan on its target has no work left."""
    context = context.for_plan(plan)
    text = read_plan(context.git, f"{context.tip()}:{plan}", plan)
    try:
        return text is not None and parse_plan(text, path=plan).complete
    except PlanUnreadable:
        return False
