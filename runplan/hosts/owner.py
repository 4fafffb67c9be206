"""The runs of a repository that a process owns: the outer loop, and how a run is claimed, begun, adopted and ended."""

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.prompts import TOLD_NOW
from runplan.adapters.store.journal import Journal
from runplan.domain.errors import CallEnded, Crashed, Exit, Fenced, GitFailed, RefusedEarly, RunplanError, TokenRefused
from runplan.domain.names import base_ref
from runplan.domain.run import events as e
from runplan.domain.run.actions import ASK, END, Decision
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.decide import decide, is_ending, pending_answer
from runplan.domain.run.dispatch import GRACE_S
from runplan.domain.run.kinds import FOR_ANSWER, Reason, RunStatus, WaitKind
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Acquired, Answer, ClaimResult, HeldByOther, Reentered, RunRow, wait_of
from runplan.domain.run.state import RunState, apply, list_running, missing_labels, open_lanes, open_states
from runplan.domain.text import command
from runplan.domain.times import delay_s, iso, look_s, parse_iso
from runplan.engine.loop import runs
from runplan.engine.loop.advance import advance, take_step
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import Environments, make_run_context
from runplan.engine.steps.context import OpenRepository, RunContext


class Limit(Protocol):
    """Of runs that work at once; a run is named by its repository and its plan."""

    def request_permit(self, key: tuple[str, str], *, is_running: bool = False) -> bool: ...
    def release_permit(self, root: str, plan: str = "") -> None: ...


class Host(Protocol):
    """What differs between a terminal, the daemon and a worker of a fleet.

    Without a limit, a person watches the run and gets its errors. Else they are told to the host and tried again.
    """

    root: str  #: of the repository, as the limit knows it
    only: str  #: the plan of a host that works on one plan and its sub-plans
    name: str  #: in a fleet

    @property
    def limit(self) -> Limit | None: ...
    def is_mine(self, plan: str) -> bool:
        """Whether this host executes the commands of the plan, fires its schedule and owns its run."""

    def may_begin(self) -> bool:
        """False as soon as no new step may begin."""

    def execute_commands(self) -> None:
        """Called before and between steps."""

    def wait(self, dispatches: list[str], wake: datetime | None) -> bool:
        """Wait until one of the dispatches ends, or until `wake`; False to take no further step."""

    def tell(self, plan: str, run: str, event: e.Event, phase: str) -> None: ...
    def tell_wait(self, plan: str, run: str, state: RunState, decision: Decision) -> None: ...
    def tell_trouble(self, plan: str, error: RunplanError) -> None: ...
    def tell_end(self, plan: str, run: str, state: RunState) -> None: ...
    def leave(self, active: runs.ActiveRun) -> None:
        """The claim of the run is about to be released."""

    def lose(self, active: runs.ActiveRun) -> None:
        """Another process owns the run."""


class RunRules:
    """Which requests and journals are followed, and where the settings of a run come from: here, from its caller."""

    def accept(self, request: RunRequest, context: RepositoryContext) -> RunRequest:  # noqa: ARG002
        """The part of the request that is followed; raises for one that is refused."""
        return request

    def context_for(self, started: e.RunStarted, context: RepositoryContext) -> RepositoryContext:
        """The context of a run, with the settings on its target."""
        context = replace(context, env={**context.env, **dict(started.given)})
        context = context.with_landing(started.landing, target=started.target, remote=started.remote)
        context = context.with_committed_settings()
        return context.with_landing(started.landing, target=started.target, remote=started.remote)

    def settle(self, asked: e.RunStarted, context: RepositoryContext) -> e.RunStarted:
        """A new run with its settings; each run of a schedule reads them again."""
        return asked if asked.settings else self.context_for(asked, context).record_settings(asked)

    def settings_of(self, started: e.RunStarted, context: RepositoryContext) -> e.RunStarted:  # noqa: ARG002
        """The recorded run with the settings that it works with."""
        return started

    def lacks_files(self, state: RunState, context: RunContext) -> bool:  # noqa: ARG002
        """Whether this machine does not have the files of the run."""
        return False

    def find_forgery(self, active: runs.ActiveRun, context: RepositoryContext) -> str:  # noqa: ARG002
        """What the journal of the run says wrongly; "" for nothing."""
        return ""


class ResolvedRun(Struct, frozen=True, kw_only=True):
    """The run that a plan is to be claimed for."""

    context: RunContext
    started: e.RunStarted
    state: str = ""  #: as recorded; "" for a new run

    @property
    def is_new(self) -> bool:
        return not self.state


class RunOwner:
    """Claims, begins, adopts, advances and ends the runs of one repository; belongs to one thread."""

    context: RepositoryContext
    repository: OpenRepository

    def __init__(
        self,
        host: Host,
        environments: Environments,
        rules: RunRules | None = None,
        *,
        open_run: Callable[..., RunContext] = make_run_context,
        advance: Callable[[Journal, RunContext, Callable[[], bool]], Decision] = advance,
    ) -> None:
        self.host = host
        self._open_run = open_run
        self._advance_run = advance
        self.environments = environments
        self.rules = rules or RunRules()
        self.runs: dict[str, runs.ActiveRun] = {}  #: by plan

    def open(self, context: RepositoryContext, repository: OpenRepository) -> None:
        self.context = context
        self.repository = repository
        self.runs = {}

    def context_for(self, started: e.RunStarted) -> RepositoryContext:
        return self.rules.context_for(started, self._context_of(started.plan))

    def _context_of(self, plan: str) -> RepositoryContext:
        return replace(self.context, env=self.environments.of(plan))

    def _run_context(self, run: str, started: e.RunStarted) -> RunContext:
        context = self._context_of(started.plan)
        started = self.rules.settings_of(started, context)
        seen = self.environments.sighting(started.plan, run)
        return self._open_run(context, self.repository, run=run, started=started, seen=seen)

    def work(self) -> datetime | None:
        """Work until nothing is left to do; when the next step is due."""
        while True:
            self.host.execute_commands()
            stepped: dict[str, RunState] = {}
            wakes: dict[str, str] = {}
            # A run that a command has changed meanwhile is stepped again.
            while plan := next((name for name, run in self.runs.items() if stepped.get(name) is not run.state), ""):
                decision = self.step(plan)
                if plan in self.runs:
                    stepped[plan] = self.runs[plan].state
                wakes[plan] = decision.wake if decision else ""
                self.host.execute_commands()
            # Nothing waits for dispatches of lanes that wait for a time.
            states = [lane for active in self.runs.values() for lane in open_states(active.state)]
            ids = [id_ for lane in states if not decide(lane).waiting for id_ in list_running(lane)]
            wake = min((parse_iso(wakes[plan]) for plan in self.runs if wakes[plan]), default=None)
            if not self.host.wait(ids, wake):
                return wake

    def step(self, plan: str) -> Decision | None:
        """Take the due steps, again after an error under a limit; None when the run has ended, or is left to others."""
        if self.host.limit is None:
            return self._advance(plan)
        active = self.runs[plan]
        try:
            self._update_subplans(active)  # before a permit is asked for, so that one is asked for what follows
            if not self._has_permit(plan, active.journal, self.host.limit):
                return decide(active.state)
            if self._advance(plan) is None:
                return None
            for state in open_states(active.state):
                decision = decide(state)
                if decision.waiting is WaitKind.CHECKOUT and not decision.wake:
                    words = state.attempt.delivery.held if state.attempt else ""
                    until = self._in_s(look_s(state.waits + 1))
                    active.journal.append(e.Paused(kind=WaitKind.CHECKOUT, until=until, words=words), lane=state.lane)
            return self._tell_waits(plan, active)
        except CallEnded:
            if self.host.may_begin() or active.state.stop:  # a stop ended the call; it is executed before the next step
                return decide(active.state)
            self.disown(plan)  # the next process repeats the step
            return None
        except RunplanError as error:  # its lane pauses; the others continue at once
            self.host.tell_trouble(plan, error)
            if plan not in self.runs:  # it has ended, or another process owns it
                return None
            if not isinstance(error, Crashed):
                waits = 0 if isinstance(error, TokenRefused) else active.state.of_lane(error.lane).waits
                until = self._in_s(delay_s(waits + 1))  # a new token is seen soon
                paused = e.Paused(kind=WaitKind.UNREACHABLE, until=until, words=str(error))
                active.journal.append(paused, lane=error.lane)
            decision = self._tell_waits(plan, active)
            return self.step(plan) if error.lane and decide(active.state.of_lane(error.lane)).waiting else decision

    def _advance(self, plan: str) -> Decision | None:
        active = self.runs[plan]
        if active.context.env != self.environments.of(plan):  # a caller has sent another
            self.runs[plan] = active = replace(active, context=self._run_context(active.id, active.state.options))
        try:
            decision = self._advance_run(active.journal, active.context, self.host.may_begin)
            while self._update_subplans(active):
                decision = self._advance_run(active.journal, active.context, self.host.may_begin)
        except Fenced:
            self.lose(plan)
            raise
        except GitFailed as error:
            if (lost := runs.end_lost(active)) is None:
                raise
            self._end_run(plan)
            raise lost from error
        except RunplanError:
            raise
        except Exception as error:
            lane = getattr(error, "lane", "")
            failure = runs.record_crash(error, active, lane)
            if failure is None:
                return self.step(plan)
            failure.lane = lane
            if active.state.ended is not None:
                self._end_run(plan)
            raise failure from error
        if active.state.ended is None:
            return decision
        self._end_run(plan)
        return None

    def _has_permit(self, plan: str, journal: Journal, limit: Limit) -> bool:
        """Whether the run may work now; one that waits for something else needs no permit."""
        state = journal.state
        decision = decide(state)
        if list_running(state):  # also one that survived the last process
            limit.request_permit((self.host.root, plan), is_running=True)
            return True
        if state.stop or not self.host.may_begin() or all(map(missing_labels, open_states(state))):
            return True
        if decision.waiting and not decision.wake and decision.waiting is not WaitKind.SLOT:
            return True
        if decision.waiting and decision.wake and parse_iso(decision.wake) > self.repository.clock.now():
            return True
        if not limit.request_permit((self.host.root, plan)):
            if not state.queued:
                journal.append(e.Queued())
            return False
        if state.queued:
            journal.append(e.Admitted())
        return True

    def _in_s(self, seconds: float) -> str:
        return iso(self.repository.clock.now() + timedelta(seconds=seconds))

    def _tell_waits(self, plan: str, active: runs.ActiveRun) -> Decision:
        """Tell of every wait, lane by lane; a run in which every lane waits gives up its permit."""
        state = active.state
        lanes = open_lanes(state)
        decision = decide(state)
        for open_state in open_states(state) if lanes else ():
            if (alone := decide(open_state)).waiting:
                self.host.tell_wait(plan, active.id, open_state, alone)
        if decision.waiting and (decision.waiting is WaitKind.CRASHED or not list_running(state)):
            if self.host.limit is not None and decision.waiting is not WaitKind.SLOT:
                self.host.limit.release_permit(self.host.root, plan)
            if not lanes:
                self.host.tell_wait(plan, active.id, state, decision)
        return decision

    def _end_run(self, plan: str) -> None:
        active = self.runs[plan]
        self.disown(plan)
        self.host.tell_end(plan, active.id, active.state)
        for parent in self.runs.values():  # that waits for the plan
            for state in open_states(parent.state):
                if runs.awaited_plan(state) == plan:
                    parent.journal.append(e.Woke(kind=WaitKind.SUBPLAN), lane=state.lane)

    def _update_subplans(self, active: runs.ActiveRun) -> bool:
        """Begin or stop the sub-plans that the run waits for, and record ends; whether anything was recorded."""
        is_recorded = False
        for state in open_states(active.state):
            event = runs.examine_subplan(active, state, here=self.context, owned=self.runs)
            plan = runs.awaited_plan(state)
            holder = ""  # another process that owns the sub-plan
            if isinstance(event, e.StopRequested):
                holder = self.adopt(plan)
                if plan in self.runs and not self.runs[plan].state.stop:
                    self.record(plan, event)
            elif isinstance(event, e.RunStarted) and self.host.may_begin():
                self.environments.share(plan, state.options.plan)
                answer = self.begin(RunRequest(started=event))
                holder = self.repository.store.get_living_owner(plan) if answer and answer.declined else ""
            if isinstance(event, (e.StopRequested, e.RunStarted)):
                until = self._in_s(look_s(state.waits + 1))
                words = f"process {holder.partition(':')[0]} works on {plan}"
                event = e.Paused(kind=WaitKind.SUBPLAN, until=until, words=words) if holder else None
            if event is not None:
                active.journal.append(event, lane=state.lane)
                is_recorded = True
        return is_recorded

    def _resume_subplans(self, active: runs.ActiveRun) -> None:
        """Resume the runs of sub-plans that wait for a time or the checkout as well."""
        for state in open_states(active.state):
            child = self.runs.get(runs.awaited_plan(state))
            waiting = decide(child.state).waiting if child is not None and not child.state.stop else None
            if child is not None and waiting is not None and waiting not in FOR_ANSWER:
                child.journal.append(runs.as_resumed(child.state.options))
                self._resume_subplans(child)

    def disown(self, plan: str) -> None:
        """Leave the run to the next process that asks for it."""
        active = self.runs[plan]
        self.host.leave(active)
        self._forget(plan)
        self.repository.claims.release_plan(plan, run=active.id)

    def lose(self, plan: str) -> None:
        """Another process owns the run and its agents."""
        self.host.lose(self.runs[plan])
        self._forget(plan)

    def _forget(self, plan: str) -> None:
        del self.runs[plan]
        if self.host.limit is not None:
            self.host.limit.release_permit(self.host.root, plan)

    def end_agents(self) -> None:
        """End the agents of all runs at the same time; the next worker starts them again."""
        if ids := [id_ for active in self.runs.values() for id_ in list_running(active.state)]:
            self.repository.dispatches.end(ids, grace_s=GRACE_S)
        for active in self.runs.values():
            with suppress(RunplanError):  # the next worker sees that they have ended
                for state in open_states(active.state):
                    if state.running is not None:
                        take_step(replace(END, lane=state.lane), active.journal, active.context)

    def is_at_work(self, plan: str) -> bool:
        """Whether this worker owns a run of the plan that does not wait."""
        return plan in self.runs and not decide(self.runs[plan].state).waiting

    def newest(self, plan: str) -> RunState:
        """The state of the plan's newest run, also of another owner; an empty one for none."""
        row = self.repository.store.get_newest_run(plan)
        return runs.state_of(self.repository.store, row) if row is not None else RunState()

    def resumes(self, request: RunRequest) -> bool:
        """Whether `begin` would resume a run that waits, instead of beginning a new one."""
        request = self.rules.accept(request, self.context)
        plan = request.started.plan
        if self.is_at_work(plan) or (plan in self.runs and request.reply is not None):
            return False
        state = self.newest(plan)
        unfinished = state.started is not None and state.ended is None and not state.stop
        is_revision = runs.requested_revision(state, request.started) is not None
        return unfinished and (is_revision or not runs.does_other_work(state, request.started))

    def decline(self, request: RunRequest) -> Answer | None:
        """Decline a request while the plan's run waits for an answer that the request does not give."""
        request = self.rules.accept(request, self.context)
        plan = request.started.plan
        if request.reply is not None or self.is_at_work(plan):
            return None
        state = self.newest(plan)
        if runs.requested_revision(state, request.started):
            return None
        why = pending_answer(state, plan)
        asked = request.started
        if not why or request.fired:
            return _decline(why) if why else None
        if asked.anew or asked.review or decide(state).waiting not in FOR_ANSWER:
            return None
        if runs.does_other_work(state, asked):
            return _decline(f"{why}; end the run: {command('runplan', 'stop', plan)}")
        actions = decide(apply(state, runs.as_resumed(asked))).actions
        is_still_due = all(replace(action, lane="") == ASK for action in actions)  # `auto` approves
        return _decline(why) if is_still_due else None

    def record(self, plan: str, event: e.StopRequested | e.Halted | e.Continued | e.Told) -> bool:
        """Record a person's request for the plan's run; False when this worker owns none."""
        active = self.runs.get(plan)
        if active is None:
            return False
        halted = e.Halted(by=active.state.halted, missing=active.state.missing)
        if event not in (halted, *(fact.event for fact in self.repository.store.list_facts(e.Told, plan=plan))):
            active.journal.append(event)
        if not isinstance(event, e.StopRequested):  # a stop reaches them with the next step
            for child in [path for path, run in self.runs.items() if run.state.options.parent == active.id]:
                self.record(child, event)
        return True

    def tell_agents(self, plan: str, text: str) -> bool:
        """Tell the running agents of the plan's run, but no verifier; whether one takes messages while it runs."""
        active = self.runs[plan]
        message = f"{TOLD_NOW}\n\n{text}"
        running = filter(None, (state.running for state in open_states(active.state)))
        ids = [dispatch.id for dispatch in running if dispatch.role.is_writer or dispatch.role.is_planner]
        told = [self.repository.dispatches.tell(id_, message) for id_ in ids]
        children = [path for path, run in self.runs.items() if run.state.options.parent == active.id]
        return any([*told, *(self.tell_agents(child, text) for child in children)])

    def begin(self, request: RunRequest) -> Answer | None:
        """Begin a run, or resume one that waits; None while another run of the plan has to end first.

        A run that works, or waits for a time or an answer, is left alone. One that is paused or waits for the checkout
        is stopped for other work.
        """
        request = self.rules.accept(request, self.context)
        plan = request.started.plan
        active = self.runs.get(plan)
        at_work = self.is_at_work(plan)
        if (declined := self.decline(request)) is not None:
            return declined
        if active is None:
            return self._acquire_run(request)
        if revision := runs.requested_revision(active.state, request.started):
            active.journal.append(revision)
            return Answer(run=active.id, fresh=True, resumed=True)
        waiting = decide(active.state).waiting
        if not waiting:
            is_busy = not runs.does_what_is_asked(active.state, request.started) and not request.started.review
        else:
            is_busy = not wait_of(waiting).is_for_person and runs.does_other_work(active.state, request.started)
        if request.reply is not None:
            if not runs.is_current(active.state, request.reply):
                return Answer(declined=True, why=runs.describe_late(plan, request.reply))
            active.journal.append(request.reply)
        elif active.state.stop or is_ending(active.state):
            if active.state.pause is not None:  # else the request would wait until the stopped run tries again
                active.journal.append(e.Woke(kind=active.state.pause.kind))
            return None
        elif not request.fired and is_busy:
            return _decline(runs.describe_busy(plan, active.id, active.state))
        elif at_work and not request.started.review:
            return Answer(run=active.id)
        elif not _resume_run(active, request.started):
            return None
        else:
            self._resume_subplans(active)
        return Answer(run=active.id, fresh=True, resumed=request.reply is None)

    def _acquire_run(self, request: RunRequest) -> Answer | None:
        """Claim the plan, then resume its unfinished run or begin one."""
        plan = request.started.plan
        row = self.repository.store.get_interrupted_run(plan)
        if row is not None:
            run = self._resolve_run(row)
        else:
            self.repository.workspace.restore()
            started = self.rules.settle(request.started, self._context_of(plan))
            run = ResolvedRun(context=self._run_context(f"r{os.urandom(4).hex()}", started), started=started)
        try:
            return self._claim_and_begin(run, request)
        except Exception:
            if run.is_new and plan not in self.runs:  # else this process would keep all others from the plan
                with suppress(RunplanError, OSError):
                    self.repository.claims.release_plan(plan, run=run.context.run)
            raise

    def _claim_and_begin(self, run: ResolvedRun, request: RunRequest) -> Answer | None:
        plan = run.started.plan
        claim = self._claim_plan(run)
        if claim is None:
            return self._acquire_run(request)
        if isinstance(claim, HeldByOther):
            row = self.repository.store.get_interrupted_run(plan)
            if row is not None and not request.fired:
                state = runs.state_of(self.repository.store, row)
                if request.reply is not None and not runs.is_current(state, request.reply):
                    return Answer(declined=True, why=runs.describe_late(row.plan, request.reply))
                if request.reply is not None or not runs.does_what_is_asked(state, request.started):
                    return _decline(runs.describe_busy(plan, row.id, state))
            return Answer(declined=True, owner=claim.owner)
        if run.is_new and (request.reply is not None or request.again):
            last = self.repository.store.get_newest_run(plan)
            why = runs.describe_success(plan) if last is not None and last.state == RunStatus.DONE else ""
            if request.reply is not None:
                why = runs.describe_late(plan, request.reply)
            if why:  # the run of the answer or retry has ended
                self.repository.claims.release_plan(plan, run=run.context.run)
                return Answer(declined=True, why=why)
        active = self._open_journal(run, claim)
        if request.reply is not None and not runs.is_current(active.state, request.reply):
            self.disown(plan)
            return Answer(declined=True, why=runs.describe_late(plan, request.reply))
        if not run.is_new and (revision := runs.requested_revision(active.state, request.started)):
            active.journal.append(revision)
        elif not run.is_new and not _resume_run(active, request.started):
            return None
        if request.reply is not None:
            active.journal.append(request.reply)
        resumed = not run.is_new and request.reply is None
        return Answer(run=active.id, fresh=True, resumed=resumed, warnings=active.state.warnings)

    def adopt(self, plan: str) -> str:
        """Own the plan's unfinished run and continue it unchanged; the process that owns it instead, or ""."""
        if plan in self.runs or (row := self.repository.store.get_interrupted_run(plan)) is None:
            return ""
        run = self._resolve_run(row)
        claim = self._claim_plan(run)
        if isinstance(claim, HeldByOther):
            return claim.owner
        if claim is not None:
            self._open_journal(run, claim)
        return ""

    def _resolve_run(self, row: RunRow) -> ResolvedRun:
        """Resolve an unfinished run, which keeps the settings and the target it began with."""
        self.repository.workspace.restore()
        started = runs.state_of(self.repository.store, row).options
        return ResolvedRun(context=self._run_context(row.id, started), started=started, state=row.state)

    def _claim_plan(self, run: ResolvedRun) -> ClaimResult | None:
        """Claim the plan for the run; None when another process ended its run, or began one and died, before."""
        claim = self.repository.claims.take_plan(run.started.plan, run=run.context.run)
        if isinstance(claim, HeldByOther):
            return claim
        row = self.repository.store.get_interrupted_run(run.started.plan)
        if (row is None) if run.is_new else (row is not None and row.id == run.context.run):
            return claim
        self.repository.claims.release_plan(run.started.plan, run=run.context.run)
        return None

    def _open_journal(self, run: ResolvedRun, claim: Acquired | Reentered) -> runs.ActiveRun:
        """Own the run: record its start and the claim, and claim its issues. One with a forged journal ends."""
        repository = self.repository
        plan = run.started.plan
        me = repository.claims.me
        id_ = run.context.run
        settings = self.rules.settings_of(run.started, self._context_of(plan)).settings
        tell = functools.partial(self.host.tell, plan, id_)
        journal = Journal(
            repository.store, repository.clock, run=id_, plan=plan, fence=claim.fence, on_event=tell, settings=settings
        )
        if run.is_new or isinstance(claim, Acquired):
            # A process that left its run waiting for a person did not die.
            dead = claim.took_over if isinstance(claim, Acquired) and run.state != RunStatus.WAITING else ""
            lacks = not run.is_new and self.rules.lacks_files(journal.state, run.context)
            taken = e.ClaimTaken(owner=me, took_over=dead, labels=repository.labels, is_new_host=lacks)
            journal.append(*([run.started] if run.is_new else []), taken)
        self.runs[plan] = active = runs.ActiveRun(context=run.context, journal=journal)
        for state in open_states(active.state) if not run.is_new else ():  # a killed git may have left locks
            leased = state.attempt.lease if isinstance(state.attempt, WorkAttempt) else None
            context = active.context.for_state(state)
            context.removal.remove_stale_locks((base_ref(context.mark), *([leased.branch] if leased else [])))
        for number in run.started.issues:
            other = repository.store.claim_issue(number, run=id_, owner=me)
            shared = e.IssueShared(number=number, run=other.id, plan=other.plan) if other is not None else None
            if shared is not None and shared.words not in active.state.warnings:  # recorded once
                journal.append(shared)
        if why := self.rules.find_forgery(active, self._context_of(plan)):
            again = command("runplan", "start", plan)
            remedy = f"The target was rewritten, or the database changed by hand. Start again: {again}"
            runs.fail_run(active, why, remedy, Reason.TAMPERED)
            self._end_run(plan)
            raise RefusedEarly(f"{plan}: {why}")
        return active


def _decline(why: str) -> Answer:
    return Answer(declined=True, why=why, exit=int(Exit.WAITING))


def _resume_run(active: runs.ActiveRun, asked: e.RunStarted) -> bool:
    """Resume the run with the options of now and its own settings; False when it is stopped for other work."""
    if runs.does_other_work(active.state, asked):
        active.journal.append(e.StopRequested(by="a new start"))
        return False
    active.journal.append(runs.as_resumed(asked))
    return True
