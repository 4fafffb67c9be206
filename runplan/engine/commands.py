"""Executes commands: the one implementation of each verb that changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.environment import describe_missing
from runplan.engine import schedules
from runplan.engine.runs import Deferred
from runplan.errors import Fenced, NotFound, RefusedEarly, RunplanError, Unreachable
from runplan.names import WATCH
from runplan.run import events as e
from runplan.run.events import to_json
from runplan.run.requests import Answer, read_request, read_timing, refused, unexpected
from runplan.run.rows import ScheduleRow
from runplan.settings.schedule import what_is_due
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.engine.repository import OpenRepository
    from runplan.engine.runs import ActiveRuns
    from runplan.run.requests import RunRequest, Timing
    from runplan.run.rows import Command

LOCK_S = 5.0  #: for another process that executes commands
#: Verbs that begin something; a later stop of the plan refuses them while they wait.
BEGINNING = ("start", "now", "resume")
ENVIRONMENT = "environment"  #: the argument of a command that names the environment of its caller


class Environments:
    """The environments of callers. They contain the keys of agents, so they are kept in memory only."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own  #: of this process, for runs whose caller sent none
        self._plans: dict[str, Mapping[str, str]] = {}
        self._sent: dict[str, Mapping[str, str]] = {}  #: by the name in the command

    def receive(self, name: str, sent: Mapping[str, str]) -> None:
        """Keep an environment until its command, which is stored afterwards, is executed."""
        self._sent[name] = sent

    def forget(self, command: Command) -> None:
        self._sent.pop(str(command.arguments.get(ENVIRONMENT)), None)

    def of(self, plan: str) -> Mapping[str, str]:
        return self._plans.get(plan, self._own)

    def use(self, plan: str, command: Command, *, anew: bool) -> None:
        """Use the environment sent with the command, on top of the plan's own unless `anew`."""
        if sent := self._sent.get(str(command.arguments.get(ENVIRONMENT))):
            self._plans[plan] = {**({} if anew else self._plans.get(plan, {})), **sent}

    def share(self, plan: str, watch: str) -> None:
        """Use the environment of a watch for the run that it begins."""
        self._plans[plan] = self.of(watch)


class Executor:
    """Executes the commands of one repository; belongs to the thread of its worker."""

    def __init__(self, repository: OpenRepository, runs: ActiveRuns, environments: Environments) -> None:
        self._repository = repository
        self._schedules = repository.store.schedules
        self._runs = runs
        self._environments = environments
        self._begins = True  #: False for a process that begins no run

    def execute_queued(self, *, begins: bool) -> Iterator[tuple[Command, Answer]]:
        """Execute the queued commands in order; each with its answer.

        Unless `begins`, commands that begin something stay queued for the next worker, as does a command that has to
        wait for the end of a run. So do later commands of the same plan except a stop.
        """
        if not self._repository.store.commands.queued():
            return
        try:
            lock = self._repository.claims.command_lock().acquire(timeout=LOCK_S)
        except TimeoutError:
            raise Unreachable(
                "another process executes the commands of this repository; the request stays queued. "
                "Is a runplan command stopped (Ctrl-Z)? Continue it: fg"
            ) from None
        with lock:
            self._begins = begins
            yield from self._execute_queued()

    def _execute_queued(self) -> Iterator[tuple[Command, Answer]]:
        deferred: set[str] = set()
        for command in self._repository.store.commands.queued():
            is_late = command.plan in deferred and command.verb != "stop"
            if is_late or (command.verb in BEGINNING and not self._begins):
                deferred.add(command.plan)
                continue
            refused_starts = self._refuse_starts_before(command) if command.verb == "stop" else []
            yield from refused_starts
            answer = self._answer(command)
            if isinstance(answer, Deferred):
                deferred.add(command.plan)
                continue
            if refused_starts:
                answer = replace(answer, lines=(*answer.lines, f"Cancelled the queued start of {command.plan}"))
            self._finish(command, answer)
            yield command, answer

    def _refuse_starts_before(self, stop: Command) -> list[tuple[Command, Answer]]:
        """Refuse the starts of the plan that were queued before the stop and still wait."""
        answer = refused(RefusedEarly(f"{stop.plan} was stopped before it began"))
        queued = self._repository.store.commands.queued()
        found = [one for one in queued if one.verb in BEGINNING and one.plan == stop.plan and one.seq < stop.seq]
        for one in found:
            self._finish(one, answer)
        return [(one, answer) for one in found]

    def _finish(self, command: Command, answer: Answer) -> None:
        self._repository.store.commands.finish(command.seq, answer)
        self._environments.forget(command)

    def _answer(self, command: Command) -> Answer | Deferred:
        verbs = {
            "start": self._start,
            "now": self._now,
            "stop": self._stop,
            "pause": self._pause,
            "resume": self._resume,
        }
        try:
            return verbs[command.verb](command)
        except RunplanError as error:
            if command.verb == "stop" and isinstance(error, Unreachable) and not isinstance(error, Fenced):
                raise  # not recorded: the worker closes, and the command is tried again
            return refused(error)
        except Exception as error:  # noqa: BLE001 - the edge of a command: it is answered, not retried for ever
            return unexpected(error)

    # --- runs -------------------------------------------------------------------------------------------

    def _start(self, command: Command) -> Answer | Deferred:
        request, timing = read_request(command.arguments), read_timing(command.arguments)
        if timing is None:
            return self._begin(request, command)
        if command.plan.startswith(WATCH):
            return self._watch(request, timing, command)
        begun = self._begin(replace(request, fired=True), command) if timing.now else Answer()
        if isinstance(begun, Deferred):
            return begun
        made = self._schedule(request, timing, command)
        return replace(begun, scheduled=made.scheduled, instead=made.instead)

    def _begin(self, request: RunRequest, command: Command) -> Answer | Deferred:
        """Begin or resume the run with the environment of the caller; a running one keeps its own."""
        plan = request.started.plan
        if run := self._repository.store.run_of(command.seq):
            return Answer(run=run, fresh=True)  # executed before a crash, which came before its answer
        request = replace(request, started=replace(request.started, command=command.seq))
        resumes = self._runs.resumes(request)
        if not self._runs.is_at_work(plan):
            self._environments.use(plan, command, anew=not resumes and request.answer is None)
        if resumes:
            self._require_keys(plan)
        begun = self._runs.begin(request)
        if isinstance(begun, Deferred) or begun.declined:
            return begun
        if begun.fresh:
            self.halt_without_keys(request.started)
        else:
            self._revoke_pause(plan, command)
        if request.answer is None:
            self._schedules.pause(plan, None)
        return begun

    def _stop(self, command: Command) -> Answer | Deferred:
        """Cancel the schedule and end the run."""
        plan, lines = command.plan, []
        row = self._schedules.get(plan)
        if row is not None:
            schedules.give_up(row, self._schedules, self._repository.clock.now(), "the schedule was cancelled")
            self._schedules.drop(plan)
            lines.append(f"Cancelled the schedule of {plan} (every {row.spec})")
        if self._runs.adopt(plan) is not None and not self._begins:
            return Deferred()  # a daemon has come up meanwhile: it executes the command
        if self._runs.record(plan, e.StopRequested(by=command.by)):
            lines.append(f"Stopping {plan}; its work is kept")
        return Answer(lines=tuple(lines))

    def _pause(self, command: Command) -> Answer | Deferred:
        """Begin nothing new for the plan; the current step finishes."""
        plan = command.plan
        rests = self._schedules.pause(plan, f"paused by {command.by}")
        if self._runs.adopt(plan) is not None and not self._begins:
            return Deferred()
        halts = self._runs.record(plan, e.Halted(by=command.by))
        return Answer(lines=(f"Paused {plan}",) if rests or halts else ())

    def _resume(self, command: Command) -> Answer:
        """Resume the plan and its schedule; a run that lost its keys needs them from this caller."""
        plan = command.plan
        self._environments.use(plan, command, anew=False)
        self._require_keys(plan)
        scheduled = self._schedules.pause(plan, None)
        for one in self._runs.plans if plan.startswith(WATCH) else ():
            state = self._runs.state(one)
            if state is not None and state.missing and state.started is not None and state.started.watch == plan:
                self._environments.use(one, command, anew=False)
                self._runs.record(one, e.Continued())
        return Answer(lines=(f"Resumed {plan}",) if self._runs.record(plan, e.Continued()) or scheduled else ())

    # --- schedules --------------------------------------------------------------------------------------

    def _schedule(self, request: RunRequest, timing: Timing, command: Command) -> Answer:
        """Make the plan's schedule; it replaces an earlier one."""
        plan, now = request.started.plan, self._repository.clock.now()
        if plan not in self._runs.plans:
            self._environments.use(plan, command, anew=True)
        before = self._schedules.get(plan)
        if before is not None:
            schedules.give_up(before, self._schedules, now, "the schedule was changed")
        row = ScheduleRow(
            plan=plan,
            spec=timing.every,
            zone=timing.zone,
            misfire=timing.misfire,
            request=to_json(replace(request.started, settings="")),
            anchor=iso(now),
            made=iso(now),
        )
        first = iso(what_is_due(row, now).next.at)
        self._schedules.put(row)
        self._schedules.arm(plan, first)
        instead = before.spec if before is not None and before.spec != row.spec else ""
        return Answer(scheduled=first, instead=instead)

    def _watch(self, request: RunRequest, timing: Timing, command: Command) -> Answer | Deferred:
        """Make a watch of issues; with `now` it also takes the first one."""
        made = self._schedule(request, timing, command)
        if not timing.now:
            return made
        try:
            begun = self._now(command)
        except RunplanError as error:  # the watch tries again at its first slot
            begun = Answer(declined=True, why=str(error))
        return replace(begun, scheduled=made.scheduled, instead=made.instead) if isinstance(begun, Answer) else begun

    def _now(self, command: Command) -> Answer | Deferred:
        """Run a scheduled plan now; the schedule stays."""
        plan = command.plan
        row = self._schedules.get(plan)
        if row is None:
            raise NotFound(f"{plan} has no schedule; see: runplan next")
        self._environments.use(plan, command, anew=False)
        fired = schedules.fire_early(row, self._runs, self._environments, self._repository.clock.now())
        if not isinstance(fired, Deferred) and not fired.declined:
            self.halt_without_keys(schedules.request_of(row).started)
        return fired

    # --- keys -------------------------------------------------------------------------------------------

    def halt_without_keys(self, started: e.RunStarted) -> None:
        """Pause a run whose keys are lost, until a caller sends them."""
        if names := self._repository.missing(started):
            self._runs.record(started.plan, e.Halted(by="a restart", missing=names))

    def _revoke_pause(self, plan: str, command: Command) -> None:
        """Have a run continue that pauses when its agent has ended, unless it still lacks keys."""
        state = self._runs.state(plan)
        if state is None or state.started is None or not state.halted:
            return
        self._environments.use(plan, command, anew=False)
        if not self._repository.missing(state.started):
            self._runs.record(plan, e.Continued())

    def _require_keys(self, plan: str) -> None:
        """Refuse to resume a run or a watch whose keys are lost."""
        row = self._schedules.get(plan) if plan.startswith(WATCH) else None
        started = schedules.request_of(row).started if row is not None else self._runs.newest(plan).started
        if started is not None and (names := self._repository.missing(started)):
            raise RefusedEarly(describe_missing(names, plan=plan))
