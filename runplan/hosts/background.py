"""A host without a terminal: it opens a repository while there is something to do, and tries again after trouble."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, suppress
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan.adapters.clock import SystemClock
from runplan.adapters.git.command import CALLS
from runplan.adapters.git.objects import read_plan
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice, of_ending, of_lost_keys, of_near_limit, of_waiting
from runplan.adapters.notify.notifier import Notifier
from runplan.adapters.store.protocol import open_store
from runplan.domain.errors import PlanUnreadable, RunplanError, Unreachable, refused_by_system
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempt_parts import StepCrashed
from runplan.domain.run.decide import pause_reason
from runplan.domain.run.events import DispatchEnded, DispatchStarted, Event, Halted
from runplan.domain.run.kinds import ANSWERED, WaitKind
from runplan.domain.run.requests import refused
from runplan.domain.run.rows import Answer, Command, RunRow, ScheduleRow, WaitRow
from runplan.domain.run.state import RunState, find_awaiting
from runplan.domain.settings.schedule import what_is_due
from runplan.domain.text import dated
from runplan.domain.times import delay_s, iso, parse_iso, zone
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import Environments
from runplan.engine.loop.runs import ActiveRun, awaits_retry
from runplan.engine.steps.context import OpenRepository
from runplan.hosts import commands
from runplan.hosts.daemon.protocol import Closed
from runplan.hosts.daemon.state import Known
from runplan.hosts.owner import Limit, RunOwner, RunRules

PIPE_BYTES = 1 << 20  #: more than a pipe holds


class Services(Struct, frozen=True, kw_only=True):
    """What a process does for its hosts; may be called from any thread."""

    log: FilteringBoundLogger
    notifier: Notifier
    links: LinkMaker
    clock: SystemClock
    environment: Mapping[str, str]  #: of commands that bring none
    may_begin: Callable[[], bool]
    is_sick: Callable[[], bool]  #: whether this machine has trouble by itself, by a check now
    open_repository: Callable[[str, int], AbstractContextManager[tuple[RepositoryContext, OpenRepository]]]


def _is_complete(context: RepositoryContext, plan: str) -> bool:
    context = context.for_plan(plan)
    text = read_plan(context.git, f"{context.tip()}:{plan}", plan)
    try:
        return text is not None and parse_plan(text, path=plan).complete
    except PlanUnreadable:
        return False


class BackgroundHost:
    """May be called from any thread; `run` does the work, in a thread of its own."""

    only = ""
    name = ""
    limit: Limit

    def __init__(self, known: Known, services: Services, rules: RunRules | None = None) -> None:
        self.root = known.root
        self.state = known.state  #: the directory of runplan's files in the repository
        self.owner = RunOwner(self, Environments(services.environment), rules)
        self.log = services.log.bind(repository=known.root)
        self._reported: dict[tuple[str, str], tuple[str | None, ...]] = {}  #: by run and phase: the last reported wait
        self._key = known.key
        self.executor = commands.Executor(self.owner)
        self._retries: dict[str, tuple[int, datetime]] = {}  #: by plan: failures to fire its schedule, and the next try
        self.is_idle = True
        self.is_closing = False
        self.trouble: Closed | None = None
        self.lock = threading.Lock()
        self._journal = known.journal
        self.services = services
        self._asked = False  #: to check the queue and the due steps
        self._ending = False  #: end all agents
        self._failures = 0  #: openings in a row in which no step could be taken
        self.wakeup, self._wake_w = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._wake_w, False)
        # Not when it has ended: another thread may be about to poke it.
        for end in (self.wakeup, self._wake_w):
            weakref.finalize(self, os.close, end)

    def adopt(self, plan: str) -> None:
        """Own the unfinished run of a plan, or see to it that it is looked at again."""
        raise NotImplementedError

    def wake_at(self, moment: datetime) -> None:
        """Open the repository again then."""
        raise NotImplementedError

    def is_mine(self, plan: str) -> bool:  # noqa: ARG002
        return True

    def prepare(self, repository: OpenRepository) -> None:
        """The repository was opened; its runs are adopted next."""

    def stays_until(self, moment: datetime | None) -> bool:  # noqa: ARG002
        """Whether the repository stays open while nothing runs in it."""
        return False

    def finish(self, wake: datetime | None) -> datetime | None:
        """Nothing is left to do until `wake`; when to open the repository again."""
        return self.find_earliest(wake)

    def leave(self, active: ActiveRun) -> None:
        """The next process that asks continues the run."""

    def lose(self, active: ActiveRun) -> None:
        """The other process has the agents too."""

    def ask(self, *, commands: bool) -> None:
        """Check the queue and the due steps; the current git command ends for a stop that is queued."""
        self._asked = True
        self.poke()
        if not commands:
            return
        # A repository that is gone is not created.
        with suppress(RunplanError, OSError), closing(open_store(self._journal, writable=False)) as store:
            if any(command.verb == "stop" and self.is_mine(command.plan) for command in store.list_queued_commands()):
                CALLS.refuse(self.state)

    def request_end(self) -> None:
        """End every process; the next host starts the same ones again."""
        self._ending = not self.is_idle
        self.poke()

    def close(self) -> None:
        """Take no further step; agents live on under their shims."""
        with self.lock:
            self.is_closing = True
            self.poke()

    def poke(self) -> None:
        with suppress(BlockingIOError):  # it is awake already
            os.write(self._wake_w, b".")

    def _clear_pipe(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wakeup, PIPE_BYTES)

    def may_begin(self) -> bool:
        return self.services.may_begin() and not self.is_closing

    def run(self) -> None:
        """Work until nothing is left to do and nothing was asked meanwhile."""
        self.is_idle = False
        while True:
            self._asked = False
            trouble: RunplanError | None = None
            wake: datetime | None = None
            try:
                self._clear_pipe()
                with self.services.open_repository(self.root, self.wakeup) as (context, repository):
                    self.prepare(repository)
                    self.owner.open(context, repository)
                    plans = [row.plan for row in repository.store.list_unfinished_runs()]
                    plans += [row.plan for row in repository.store.list_waits() if row.kind == WaitKind.CLAIM]
                    for plan in filter(self.is_mine, dict.fromkeys(plans)):
                        self.adopt(plan)
                    wake = self.finish(self.owner.work())
            except RunplanError as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 - the edge of a host: else the repository would stay closed
                trouble = Unreachable(refused_by_system(error) or f"unexpected {type(error).__name__}: {error}")
            self.record_closing(wake, trouble)
            with self.lock:
                if not self._asked or self.is_closing:
                    self.is_idle = True
                    return

    def record_closing(self, wake: datetime | None, trouble: RunplanError | None) -> None:
        """Set the next wake-up; after trouble with growing delays."""
        if trouble is not None:
            now = self.services.clock.now()
            self._failures += 1
            wake = now + timedelta(seconds=delay_s(self._failures))
            since = self.trouble.since if self.trouble else iso(now)
            self.trouble = Closed(root=self.root, error=str(trouble), since=since, again=iso(wake))
            self.log.warning("closed", error=str(trouble), again=iso(wake))
            self.limit.release_permit(self.root)  # else an unplugged one would hold up the others
            self.refuse_starts(trouble)
        if wake is not None:
            self.wake_at(wake)

    def execute_commands(self) -> None:
        CALLS.allow(self.state)  # a stop that is queued by now is executed below
        if self._ending:
            self._ending = False
            self.owner.end_agents()
        store = self.owner.repository.store
        for row in store.list_waits():
            is_theirs = row.kind == WaitKind.QUEUE or not self.is_mine(row.plan)
            if not is_theirs and parse_iso(row.wake or row.since) <= self.services.clock.now():
                self._look_for_retry(row) if row.kind == WaitKind.REVIEW else self.adopt(row.plan)
        self._execute_queued()
        if not self.may_begin():  # slots stay due
            return
        for schedule in store.list_schedules():
            if self.is_mine(schedule.plan):
                self._fire_schedule(schedule)
        for row in [row for row in store.list_waits() if row.kind == WaitKind.QUEUE]:
            if commands.continue_work(row, self.owner, self.services.clock.now()):
                self._execute_queued()
                self._asked = True  # a start that is refused makes place for the next

    def _execute_queued(self) -> None:
        for command, answer in self.executor.execute_queued(begins=self.may_begin()):
            self._log_answer(command, answer)

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        self._failures = 0  # a step was taken
        self.trouble = None
        until = self.find_earliest(wake)
        with self.lock:
            if self.is_closing or not (dispatches or self._asked or self.stays_until(until)):
                return False
            asked = self._asked
            self._asked = False
        if not asked:
            left_s = max(0.0, (until - self.services.clock.now()).total_seconds()) if until else None
            self.owner.repository.dispatches.wait(dispatches, timeout_s=left_s)
        self._clear_pipe()
        return True

    def find_earliest(self, wake: datetime | None) -> datetime | None:
        """When something is due, and not later than `wake`."""
        store = self.owner.repository.store
        waits = (row for row in store.list_waits() if row.kind != WaitKind.QUEUE or self.may_begin())
        moments = [parse_iso(row.wake) for row in waits if row.wake and self.is_mine(row.plan)]
        for row in store.list_schedules() if self.may_begin() else ():
            if not self.is_mine(row.plan):
                continue
            if row.plan in self._retries:
                moments.append(self._retries[row.plan][1])
            elif row.next is not None:
                moments.append(parse_iso(row.next))
        return min([*moments, *([wake] if wake else [])], default=None)

    def refuse_starts(self, trouble: RunplanError) -> None:
        """Refuse the commands that begin something; stop and pause stay queued."""
        # A repository that is gone is not created.
        with suppress(RunplanError, OSError), closing(open_store(self._journal, may_create=False)) as store:
            for command in store.list_queued_commands():
                if command.verb in commands.BEGINNING and self.is_mine(command.plan):
                    answer = refused(trouble, self.name)
                    store.answer_command(command.seq, answer)
                    self.owner.environments.forget(command)
                    self._log_answer(command, answer)

    def _log_answer(self, command: Command, answer: Answer) -> None:
        result = answer.error or answer.why or " ".join(answer.lines) or answer.run or "scheduled"
        self.log.info("command", plan=command.plan, verb=command.verb, answer=result)

    def _look_for_retry(self, row: WaitRow) -> None:
        """Look at the pull request of a failed run for a person who wants a retry, with growing delays."""
        owner = self.owner
        store = owner.repository.store
        now = self.services.clock.now()
        try:
            answer = commands.look_for_retry(row, owner, now) if self.may_begin() else True
        except RunplanError as error:  # the forge, the remote or the settings; tried again at the next look
            self.log.info("retry-not-looked-for", plan=row.plan, error=str(error))
            answer = True
        if answer is True:
            first_s = owner.context.for_run(owner.newest(row.plan).options).settings.pull_request.poll_s
            wait_s = delay_s(row.times, first_s=first_s, longest_s=600, factor=1.5)
            store.put_wait(replace(row, wake=iso(now + timedelta(seconds=wait_s)), times=row.times + 1))
            return
        store.drop_wait(row.plan)
        if answer:
            self.log.info("retried-by-comment", plan=row.plan, answer=answer.run or answer.why)
            self.executor.halt_without_keys(owner.newest(row.plan).options)

    def _fire_schedule(self, row: ScheduleRow) -> None:
        """Fire the due slot of a schedule and record the next one; an error is tried again, with growing delays."""
        now = self.services.clock.now()
        failures, again = self._retries.get(row.plan, (0, now))
        if now < again:
            return
        try:
            for firing in commands.fire_schedule(row, self.owner, now):
                self.log.info("slot", plan=row.plan, answer=firing.answer, slot=firing.slot, why=firing.why)
                if firing.answer == "fired":
                    self.executor.halt_without_keys(commands.request_of(row).started)
        except RunplanError as error:
            again = now + timedelta(seconds=delay_s(failures + 1, first_s=commands.FIRST_RETRY_S))
            self._retries[row.plan] = (failures + 1, again)
            self.log.warning("trouble", plan=row.plan, error=str(error), again=iso(again))
            return
        self._retries.pop(row.plan, None)
        was_paused = row.paused
        row = self.owner.repository.store.get_schedule(row.plan) or row
        if row.paused and not was_paused:
            self.log.info("schedule-paused", plan=row.plan, why=row.paused)
            missing = self.owner.environments.missing(commands.request_of(row).started)
            self.services.notifier.send(of_lost_keys(missing, **self._locate(row.plan, "")))
        following = iso(what_is_due(row, now).next.at)
        if row.next != following:
            self.owner.repository.store.arm_schedule(row.plan, following)

    def tell(self, plan: str, run: str, event: Event, phase: str) -> None:
        dispatch = event.id if isinstance(event, DispatchStarted | DispatchEnded) else ""
        trace = {"trace": event.trace} if isinstance(event, StepCrashed) else {}
        self.log.info(type(event).__name__, plan=plan, run=run, phase=phase, dispatch=dispatch, **trace)
        for limit in event.near if isinstance(event, DispatchStarted) else ():
            self._notify_once(of_near_limit(limit, **self._locate(plan, run)), limit.rpartition("(")[2])
        if isinstance(event, Halted) and event.missing:  # recorded once, however often the daemon is started
            self.services.notifier.send(of_lost_keys(event.missing, **self._locate(plan, run)))

    def tell_wait(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Log each wait once, though every pass of the loop sees it; a person is notified of one that needs them."""
        attempt = find_awaiting(state)
        name = attempt.chosen.phase if attempt else ""
        questions = " ".join(question.id for question in (attempt.dispatches.open_questions if attempt else ()))
        asked = questions or (attempt.delivery.asked if attempt else "")
        wait = (decision.waiting, decision.about, decision.wake, asked)
        if self._reported.get((run, name)) == wait:
            return
        self._reported[run, name] = wait
        self.log.info("waits", plan=plan, run=run, why=decision.why)
        tree = attempt.delivery.asked if attempt and decision.waiting in ANSWERED else ""
        notice = of_waiting(state, decision, **self._locate(plan, run, phase=name, tree=tree))
        if notice is not None:
            self._notify_once(notice, f"{notice.phase} {asked}")

    def tell_trouble(self, plan: str, error: RunplanError) -> None:
        self.log.warning("trouble", plan=plan, error=str(error))

    def tell_end(self, plan: str, run: str, state: RunState) -> None:
        """A schedule ends with its plan, and pauses when a phase fails."""
        self._reported = {key: wait for key, wait in self._reported.items() if key[0] != run}
        store = self.owner.repository.store
        row = store.get_schedule(plan)
        if row is not None and (why := pause_reason(state)):  # recorded with the end of the run
            row = None
            self.log.info("schedule-paused", plan=plan, why=why)
        elif row is not None and _is_complete(self.owner.context, plan) and store.drop_schedule(plan):
            row = None
            self.log.info("schedule-ended", plan=plan)
        if awaits_retry(state):
            about = "a comment /runplan retry on its pull request"
            now = iso(self.owner.repository.clock.now())
            store.put_wait(WaitRow(kind=WaitKind.REVIEW, plan=plan, about=about, since=now))
        fires = row.next if row is not None else None
        outcome = state.ended.outcome if state.ended else ""
        self.log.info("ended", plan=plan, run=run, outcome=outcome, **({"next": fires} if fires else {}))
        notice = of_ending(state, **self._locate(plan, run))
        if notice is not None and row is not None and fires:
            moment = parse_iso(fires).astimezone(zone(row.zone))
            notice = replace(notice, text=f"{notice.text} Next run: {dated(moment)}.")
        if notice is not None:
            self.services.notifier.send(notice)

    def tell_stopped_owner(self, owner: str, run: RunRow) -> None:
        """The process that owns the run does not work (Ctrl-Z)."""
        pid = owner.partition(":")[0]
        title = f"{run.plan}: process {pid} is stopped"
        text = f"Process {pid} works on this run and is stopped (Ctrl-Z). Continue it, or stop the run."
        where = self._locate(run.plan, run.id)
        proceed = f"kill -CONT {pid}"
        notice = Notice(kind="waiting", reason=WaitKind.CLAIM, title=title, text=text, command=proceed, **where)
        self._notify_once(notice, owner)

    def _locate(self, plan: str, run: str, *, phase: str = "", tree: str = "") -> dict[str, str]:
        """The fields of a notice that say what it is about; the link answers the change with this tree."""
        link = self.services.links.link_to_page(self._key, plan)
        if tree:
            try:
                link = self.services.links.link_to_answer(self._key, plan, phase, run, tree)
            except Unreachable as error:  # the page of the plan is better than no notice
                self.log.warning("link-not-signed", plan=plan, run=run, error=str(error))
        return {"repository": self.root, "plan": plan, "run": run, "link": link}

    def _notify_once(self, notice: Notice, about: str) -> None:
        """Send the notice, unless an earlier daemon sent one of this run for the same reason and cause."""
        if self.owner.repository.store.record_notice(notice.run, f"{notice.reason} {about}"):
            self.services.notifier.send(notice)
