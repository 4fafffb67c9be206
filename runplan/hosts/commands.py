"""What is due in a repository besides steps: commands, each verb implemented once, schedules and waits for others."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.agents.environment import describe_missing
from runplan.adapters.store.protocol import Store
from runplan.domain.decoding import convert, parse_json, to_json
from runplan.domain.errors import Fenced, NotFound, RefusedEarly, RunplanError, Unreachable
from runplan.domain.names import QUEUE, WATCH, WATCHES
from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import MessagesHandled
from runplan.domain.run.decide import pending_answer, rejected_phase
from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.requests import QueueWork, RunRequest, Timing, refused, unexpected
from runplan.domain.run.rows import Answer, Command, FiringRow, ScheduleRow, WaitRow
from runplan.domain.settings.schedule import parse_schedule, what_is_due
from runplan.domain.standing.queue import holds_up
from runplan.domain.text import command
from runplan.domain.times import delay_s, iso, parse_iso
from runplan.engine.landing import modes
from runplan.engine.landing.conversation import find_due
from runplan.engine.landing.lander import DueMessages
from runplan.engine.loop import issues, runs
from runplan.engine.loop.context import read_queue, slug_of
from runplan.engine.steps.conclude import answer_command, list_answers
from runplan.hosts.owner import RunOwner

RETRY_S = 7 * 24 * 3600.0  #: after which a failed run is not retried by a comment
FIRST_RETRY_S = 2.0  #: after a slot could not be answered, or a plan of the queue not be begun
LOCK_S = 5.0  #: for another process that executes commands
#: Verbs that begin something; a later stop of the plan refuses them while they wait.
BEGINNING = ("start", "now", "resume")
MOST_REASONS = 3  #: why no plan of the queue is ready
IN_FLIGHT = "the plan is in flight"
MOST_REFUSALS = 5  #: of issues that the answer to a watch names
KEEP_SCHEDULE = "keep_schedule"  #: the argument of a stop that ends the run only

Execution: TypeAlias = Callable[["Executor", Command], Answer | None]  #: None: the command has to wait for a run's end
VERBS: dict[str, Execution] = {}


def _verb(execute: Execution) -> Execution:
    VERBS[execute.__name__.strip("_")] = execute
    return execute


class Executor:
    """Executes the commands of one repository; belongs to one thread."""

    def __init__(self, owner: RunOwner) -> None:
        self._owner = owner
        self._environments = owner.environments
        self._begins = True  #: False for a process that begins no run

    @property
    def _store(self) -> Store:
        return self._owner.repository.store

    def execute_queued(self, *, begins: bool) -> Iterator[tuple[Command, Answer]]:
        """Execute the queued commands in order; each with its answer.

        Unless `begins`, commands that begin something stay queued for the next process, as does a command that has to
        wait for the end of a run. So do later commands of the same plan except a stop.
        """
        if not self._list_commands():
            return
        try:
            lock = self._owner.repository.claims.command_lock(self._owner.host.only).acquire(timeout=LOCK_S)
        except TimeoutError:
            raise Unreachable(
                "another process executes the commands of this repository; the request stays queued. "
                "Is a runplan command stopped (Ctrl-Z)? Continue it: fg"
            ) from None
        self._begins = begins
        deferred: dict[str, list[Command]] = {}  # by plan
        with lock:
            for command in self._list_commands():
                plan = command.plan
                is_stop = command.verb == "stop"
                starts = [queued for queued in deferred.get(plan, ()) if queued.verb in BEGINNING] if is_stop else []
                for start in starts:
                    deferred[plan].remove(start)
                    yield self._record_answer(start, refused(RefusedEarly(f"{plan} was stopped before it began")))
                is_late = plan in deferred and not is_stop
                waits = is_late or (command.verb in BEGINNING and not begins)
                answer = None if waits else self._execute_command(command)
                if answer is None:
                    deferred.setdefault(plan, []).append(command)
                    continue
                if starts:
                    answer = replace(answer, lines=(*answer.lines, f"Cancelled the queued start of {plan}"))
                yield self._record_answer(command, answer)

    def _list_commands(self) -> list[Command]:
        return [command for command in self._store.list_queued_commands() if self._owner.host.is_mine(command.plan)]

    def _record_answer(self, command: Command, answer: Answer) -> tuple[Command, Answer]:
        self._store.answer_command(command.seq, answer)
        self._environments.forget(command)
        return command, answer

    def _execute_command(self, command: Command) -> Answer | None:
        if command.verb not in VERBS:
            return refused(RefusedEarly("the command cannot be read; give it again with the runplan of this host"))
        try:
            return VERBS[command.verb](self, command)
        except RunplanError as error:
            if command.verb == "stop" and isinstance(error, Unreachable) and not isinstance(error, Fenced):
                raise  # not recorded: the repository is closed, and the command is tried again
            return refused(error, self._owner.host.name)
        except Exception as error:  # noqa: BLE001 - the edge of a command: it is answered, not retried for ever
            return unexpected(error)

    @_verb
    def _start(self, command: Command) -> Answer | None:
        request = convert(command.arguments, RunRequest)
        timing = request.timing
        if timing is None and command.plan.startswith(QUEUE):
            self._environments.use(command.plan, command, anew=True)
            return begin_work(request.started, self._owner)
        if timing is None:
            return self._begin_run(request, command)
        if command.plan.startswith(WATCHES):
            made = self._make_schedule(request, timing, command)
            if not timing.now:
                return made
            try:
                begun = self._now(command)
            except RunplanError as error:  # the watch tries again at its first slot
                begun = Answer(declined=True, why=str(error))
            return replace(begun, scheduled=made.scheduled, instead=made.instead) if begun is not None else None
        begun = self._begin_run(replace(request, fired=True), command) if timing.now else Answer()
        if begun is None:
            return None
        made = self._make_schedule(request, timing, command)
        return replace(begun, scheduled=made.scheduled, instead=made.instead)

    def _begin_run(self, request: RunRequest, command: Command) -> Answer | None:
        """Begin or resume the run with the environment of the caller; a running one keeps its own."""
        plan = request.started.plan
        if run := self._store.get_run_of_command(command.seq):
            return Answer(run=run, fresh=True)  # executed before a crash, which came before its answer
        if (declined := self._owner.decline(request)) is not None:
            return declined
        request = replace(request, started=replace(request.started, command=command.seq))
        resumes = self._owner.resumes(request)
        if not self._owner.is_at_work(plan):
            self._environments.use(plan, command, anew=not resumes and request.reply is None)
        if resumes:
            self._require_keys(plan)
        begun = self._owner.begin(request)
        if begun is None or begun.declined:
            return begun
        if begun.fresh:
            self.halt_without_keys(request.started)
        elif plan in self._owner.runs and (state := self._owner.runs[plan].state).halted:
            # It continues instead of pausing when its agent has ended, unless it still lacks keys.
            self._environments.use(plan, command, anew=False)
            if not self._environments.missing(state.options):
                self._owner.record(plan, e.Continued())
        if request.reply is None:
            self._store.pause_schedule(plan, None)
        return begun

    @_verb
    def _stop(self, command: Command) -> Answer | None:
        """Cancel the schedule, unless it is to be kept, and end the run."""
        plan = command.plan
        lines = []
        row = self._store.get_schedule(plan)
        keeps = bool(command.arguments.get(KEEP_SCHEDULE))
        if row is not None and not keeps:
            give_up(row, self._store, self._owner.repository.clock.now(), "the schedule was cancelled")
            self._store.drop_schedule(plan)
            lines.append(f"Cancelled the schedule of {plan} (every {row.spec})")
        if self._find_work(plan) is not None:
            self._store.drop_wait(plan)
            lines.append(f"Stopped {plan}: it begins no further plan; those that it has begun are not stopped")
        if self._owner.adopt(plan) and not self._begins:
            return None  # a daemon has come up meanwhile: it executes the command
        if self._owner.record(plan, e.StopRequested(by=command.by)):
            kept = f"its work and its schedule (every {row.spec}) are kept" if row and keeps else "its work is kept"
            lines.append(f"Stopping {plan}; {kept}")
        return Answer(lines=tuple(lines))

    @_verb
    def _pause(self, command: Command) -> Answer | None:
        plan = command.plan
        rests = self._store.pause_schedule(plan, f"paused by {command.by}")
        if (work := self._find_work(plan)) is not None:
            self._store.put_wait(change_work(work, paused=command.by, trouble=""))
            return Answer(lines=(f"Paused {plan}: it begins no further plan; those that it has begun are not paused",))
        if self._owner.adopt(plan) and not self._begins:
            return None
        halts = self._owner.record(plan, e.Halted(by=command.by))
        return Answer(lines=(f"Paused {plan}",) if rests or halts else ())

    @_verb
    def _tell(self, command: Command) -> Answer | None:
        if self._owner.adopt(command.plan) and not self._begins:
            return None
        told = e.Told(**command.arguments, command=command.seq)
        if not self._owner.record(command.plan, told):
            return Answer(lines=())
        is_read = self._owner.tell_agents(command.plan, told.text)
        reads = "its agent reads it now" if is_read else "the next agent of its run reads it first"
        return Answer(lines=(f"Told {command.plan}: {reads}",))

    @_verb
    def _resume(self, command: Command) -> Answer:
        """Resume the plan and its schedule; a run that lost its keys needs them from this caller."""
        plan = command.plan
        self._environments.use(plan, command, anew=False)
        self._require_keys(plan)
        scheduled = self._store.pause_schedule(plan, None)
        if (work := self._find_work(plan)) is not None:
            self._store.put_wait(change_work(work, paused=""))
            scheduled = True
        if plan in self._owner.runs and (watch := self._owner.runs[plan].state.options.watch).startswith(QUEUE):
            self._environments.share(watch, plan)  # the next plans need the same keys
        for issue_plan, active in self._owner.runs.items():
            state = active.state
            if state.missing and state.started is not None and plan in (state.started.watch, *state.started.parents):
                self._environments.use(issue_plan, command, anew=False)
                active.journal.append(e.Continued())
        return Answer(lines=(f"Resumed {plan}",) if self._owner.record(plan, e.Continued()) or scheduled else ())

    def _find_work(self, plan: str) -> WaitRow | None:
        """The work on the queue that has this name."""
        return next((row for row in self._store.list_waits() if (row.plan, row.kind) == (plan, WaitKind.QUEUE)), None)

    def _make_schedule(self, request: RunRequest, timing: Timing, command: Command) -> Answer:
        plan = request.started.plan
        now = self._owner.repository.clock.now()
        if plan not in self._owner.runs:
            self._environments.use(plan, command, anew=True)
        before = self._store.get_schedule(plan)
        if before is not None:
            give_up(before, self._store, now, "the schedule was changed")
        row = ScheduleRow(
            plan=plan,
            spec=timing.every,
            zone=timing.zone,
            misfire=timing.misfire,
            request=to_json(replace(request.started, settings=None)),
            anchor=iso(now),
            made=iso(now),
        )
        first = iso(what_is_due(row, now).next.at)
        self._store.put_schedule(row)
        self._store.arm_schedule(plan, first)
        instead = before.spec if before is not None and before.spec != row.spec else ""
        return Answer(scheduled=first, instead=instead)

    @_verb
    def _now(self, command: Command) -> Answer | None:
        row = self._store.get_schedule(command.plan)
        if row is None:
            raise NotFound(f"{command.plan} has no schedule; see: runplan next")
        self._environments.use(command.plan, command, anew=False)
        fired = fire_early(row, self._owner, self._owner.repository.clock.now())
        if fired is not None and not fired.declined:
            self.halt_without_keys(request_of(row).started)
        return fired

    def halt_without_keys(self, started: e.RunStarted) -> None:
        """Pause a run whose keys are lost, until a caller has sent all of them."""
        active = self._owner.runs.get(started.plan)
        if names := self._environments.missing(active.state.options if active else started):
            self._owner.record(started.plan, e.Halted(by="a restart", missing=names))
        elif active is not None and active.state.missing:
            self._owner.record(started.plan, e.Continued())

    def _require_keys(self, plan: str) -> None:
        """Refuse to resume a run or a watch whose keys are lost."""
        row = self._store.get_schedule(plan) if plan.startswith(WATCHES) else None
        started = request_of(row).started if row is not None else self._owner.newest(plan).started
        if (work := self._find_work(plan)) is not None:
            started = parse_json(work.about, QueueWork).started
        if started is not None and (names := self._environments.missing(started)):
            raise RefusedEarly(describe_missing(names, plan=plan))


# --- schedules: each slot is answered once, by a run or by a recorded reason ---------------------------------


def fire_schedule(row: ScheduleRow, owner: RunOwner, now: datetime) -> list[FiringRow]:
    """Answer every due slot: the newest by a run, unless the plan is running; the others were missed."""

    def newest() -> tuple[str, str]:
        if row.paused:
            return "skipped", row.paused
        if row.plan in owner.runs:
            return "skipped", pending_answer(owner.newest(row.plan), row.plan) or IN_FLIGHT
        try:
            return _firing_answer(_begin_run(row, owner, now))
        except RunplanError as error:
            if not row.plan.startswith(WATCHES):
                raise
            return "skipped", str(error)  # the forge, the remote or the settings; tried again at the next slot

    return _answer_slots(row, owner.repository.store, now, newest)


def fire_early(row: ScheduleRow, owner: RunOwner, now: datetime) -> Answer | None:
    """Fire on request, and count intervals from now; this also answers a due slot."""
    if row.paused and (phase := rejected_phase(owner.newest(row.plan))):
        retry, resume = (command("runplan", verb, row.plan) for verb in ("retry", "resume"))
        why = f"phase {phase} was rejected; retry it: {retry}; or resume the schedule: {resume}"
        answer: Answer | None = Answer(declined=True, why=why)
    else:
        answer = _begin_run(row, owner, now)
    if answer is None:
        return None
    _answer_slots(row, owner.repository.store, now, lambda: _firing_answer(answer))
    if not answer.declined:
        row = owner.repository.store.get_schedule(row.plan) or row
        owner.repository.store.put_schedule(replace(row, anchor=iso(now)) if parse_schedule(row.spec).seconds else row)
    return answer


def give_up(row: ScheduleRow, store: Store, now: datetime, why: str) -> None:
    """Record the slots that are due, before the schedule is changed or cancelled."""
    _answer_slots(row, store, now, lambda: ("skipped", why))


def _answer_slots(
    row: ScheduleRow, store: Store, now: datetime, newest: Callable[[], tuple[str, str]]
) -> list[FiringRow]:
    """Record the answers to all due slots; `newest` gives the answer to the newest."""
    due = what_is_due(row, now)
    recorded: list[FiringRow] = []
    for slot in filter(None, (due.missed, due.fire)):
        key = json.dumps([iso(slot.at), slot.key])
        if slot is due.missed:
            answer, why = "missed", "it was not fired in time, nor those before it"
        elif store.is_slot_answered(row.plan, key, before=iso(now)):
            continue
        else:
            answer, why = newest()
        firing = FiringRow(plan=row.plan, slot=key, at=iso(now), answer=answer, why=why)
        if store.answer_slot(firing):
            recorded.append(firing)
    return recorded


def _begin_run(row: ScheduleRow, owner: RunOwner, now: datetime) -> Answer | None:
    """Begin the run of a plan, or of the next issue of a watch; declined when there is none, or one is under way."""
    request = request_of(row)
    watch = row.plan
    if not watch.startswith(WATCHES):
        return owner.begin(request)
    asked = request.started
    repository = owner.repository
    for run in repository.store.list_unfinished_runs():
        if runs.state_of(repository.store, run).options.watch == watch:
            see = command("runplan", "status", run.plan)
            return Answer(declined=True, why=f"the run of {run.plan} has not ended; see: {see}")
    if missing := owner.environments.missing(asked):
        why = describe_missing(missing, plan=watch)
        repository.store.pause_schedule(watch, why)
        return Answer(declined=True, why=why)
    if watch.startswith(QUEUE):
        return begin_work(asked, owner)
    context = owner.context_for(asked)
    modes.require_ready(context, context.settings, context.env)
    forge = modes.open_forge(context.git, context.settings.run, context.env)
    label = watch.removeprefix(WATCH)
    refusals = list[str]()
    for number in issues.list_free_issues(context, forge, label, repository.store, now, refusals):
        try:
            taken = issues.take_issue(context, forge, number, now=now, label=label)
        except issues.NotWorkable as error:  # a person who starts it is told
            refusals.append(str(error))
            continue
        if not isinstance(taken, issues.TakenElsewhere):
            break
    else:
        none = f"there is no open issue with the label {label} that is not worked on yet"
        more = [f"{len(refusals) - MOST_REFUSALS} more are not worked on"] if len(refusals) > MOST_REFUSALS else []
        return Answer(declined=True, why="; ".join([none, *refusals[:MOST_REFUSALS], *more]))
    context = taken.context
    path = taken.plan
    plan = parse_plan(context.git.blob(context.tip(), path) or b"", path=path)
    owner.environments.share(path, watch)
    started = replace(asked, plan=path, title=plan.title, slug=context.pull, issues=plan.issues, watch=watch)
    begun = owner.begin(RunRequest(started=started, fired=True))
    return replace(begun, plan=path) if begun is not None else None


def _firing_answer(answer: Answer | None) -> tuple[str, str]:
    if answer is None or not answer.declined:
        return ("fired", answer.run) if answer and answer.fresh else ("skipped", IN_FLIGHT)
    if not answer.owner:
        return "skipped", answer.why
    return "skipped", f"another process owns the plan ({answer.owner})"


def request_of(row: ScheduleRow) -> RunRequest:
    return RunRequest(started=parse_json(row.request, e.RunStarted), fired=True)


# --- the queue: a work is a row that becomes a start of the next ready plan whenever none of its plans works -------


def begin_work(asked: e.RunStarted, owner: RunOwner) -> Answer:
    """Record the work on ready plans; declined when none is ready, or the same work is under way."""
    store = owner.repository.store
    now = iso(owner.repository.clock.now())
    if row := next((row for row in store.list_waits() if row.plan == asked.plan), None):
        paused = f"is paused; continue it: runplan resume {row.plan}"
        stands = paused if parse_json(row.about, QueueWork).paused else "is under way; see: runplan queue"
        return Answer(declined=True, why=f"{row.plan} {stands}")
    entries = read_queue(owner.context_for(asked), store)
    first = next((entry for entry in entries if not entry.why), None)
    if first is None:
        reasons = "; ".join(f"{entry.plan} {entry.why}" for entry in entries[:MOST_REASONS])
        detail = f": {reasons}" if reasons else "; see: runplan queue"
        return Answer(declined=True, why=f"no plan of the queue is ready{detail}")
    store.put_wait(WaitRow(kind=WaitKind.QUEUE, plan=asked.plan, about=to_json(QueueWork(started=asked)), since=now))
    return Answer(plan=first.plan, fresh=True, run=asked.plan)


def continue_work(row: WaitRow, owner: RunOwner, now: datetime) -> bool:
    """Queue the start of the next ready plan, unless a plan of the work is at work; whether it did.

    The start and the plan's place in the row are recorded together. The row goes when nothing is left to begin. After
    an error it is tried at each look, and at least with growing delays.
    """
    store = owner.repository.store
    work = parse_json(row.about, QueueWork)
    rows = [store.get_interrupted_run(plan) for plan in work.begun]
    is_at_work = any(run is not None and holds_up(runs.find_awaited(store, run)) for run in rows)
    if work.paused or is_at_work or any(command.plan in work.begun for command in store.list_queued_commands()):
        if row.wake:
            store.put_wait(change_work(row, trouble=""))
        return False
    try:
        context = owner.context_for(work.started)
        entries = read_queue(context, store) if work.left > 0 else ()
    except RunplanError as error:  # the settings or the target
        if row.wake is None or now >= parse_iso(row.wake):
            again = iso(now + timedelta(seconds=delay_s(row.times, first_s=FIRST_RETRY_S)))
            store.put_wait(replace(change_work(row, trouble=str(error)), wake=again, times=row.times + 1))
            owner.host.tell_trouble(row.plan, error)
        return False
    chosen = next((entry for entry in entries if not entry.why and entry.plan not in work.begun), None)
    if chosen is None:
        store.drop_wait(row.plan)
        return False
    path = chosen.plan
    owner.environments.share(path, row.plan)
    slug = slug_of(context, path)
    started = replace(work.started, plan=path, title=chosen.title, slug=slug, issues=chosen.issues, watch=row.plan)
    arguments = to_builtins(RunRequest(started=started, fired=True))
    start = Command(plan=path, verb="start", arguments=arguments, by=row.plan, at=iso(now))
    changed = change_work(row, begun=(*work.begun, path), trouble="")
    store.add_command(start, work=replace(changed, since=iso(now)))
    return True


def change_work(row: WaitRow, **changes: Any) -> WaitRow:
    """The row of a work with these changes, and without the time of a next try."""
    work = replace(parse_json(row.about, QueueWork), **changes)
    return replace(row, about=to_json(work), wake=None, times=1)


# --- retries: a comment `/runplan retry` on the open pull request of a failed run --------------------------------


def look_for_retry(row: WaitRow, owner: RunOwner, now: datetime) -> Answer | bool:
    """The answer to a command that asks for a retry; else whether there may be one later."""
    state = owner.newest(row.plan)
    since = parse_iso(row.since).timestamp()
    if not runs.awaits_retry(state) or now.timestamp() - since > RETRY_S:
        return False
    started = state.options
    context = owner.context_for(started).for_run(started)
    forge = modes.open_forge(context.git, context.settings.run, context.env)
    answers = list_answers(owner.repository.store, row.plan)
    is_stack = context.settings.pull_request.stack
    plan = parse_plan(context.git.blob(context.tip(), row.plan) or b"", path=row.plan) if is_stack else None
    pull = None
    due = DueMessages()
    for _, pull in modes.list_open(forge, context.settings, started.slug, plan):
        messages = forge.read_activity(pull.number, pull.head).messages
        due = find_due(messages, handled=answers, login=forge.own_login, may_write=forge.may_write, since=since)
        if due.commands:
            break
    if pull is None:
        return False
    if not due.commands or due.commands[-1].is_stop:
        return not due.commands
    again = replace(started, command=0, settings=None, review=(), remarks=())  # the settings of now
    answer = owner.begin(RunRequest(started=again, again=True))
    if answer and answer.fresh:  # by the clock of the forge, the commands may be later than the next failure
        handled = tuple(command.id for command in due.commands)
        told = ((handled[-1], answer_command(row.plan, is_stop=False)),)
        owner.runs[row.plan].journal.append(MessagesHandled(review=handled, words=due.commands[-1].by, answers=told))
        with suppress(Unreachable):
            forge.react_to(pull.number, handled[-1])
    return answer or True
