"""The runs that a worker owns: begins, resumes and advances them."""

from __future__ import annotations

import functools
import os
from contextlib import closing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import Crashed, Fenced, RunplanError, Unreachable, refused_by_system
from runplan.names import base_ref
from runplan.run import events as e
from runplan.run.decide import decide, pending_answer
from runplan.run.dispatch import GRACE_S
from runplan.run.reasons import Reason, step_of
from runplan.run.requests import Answer
from runplan.run.rows import Acquired, HeldByOther
from runplan.run.state import RunState, fold, open_lanes, open_states, running
from runplan.steps.conclude import release_issues
from runplan.store.journal import Journal, recorded
from runplan.store.sqlite import Store
from runplan.supervise.dispatches import Dispatches
from runplan.text import command
from runplan.times import delay_s, iso, look_s, parse_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from runplan.engine.repository import OpenRepository
    from runplan.engine.worker import RepositoryWorker
    from runplan.run.decide import Decision
    from runplan.run.requests import RunRequest
    from runplan.run.rows import RunRow
    from runplan.steps.context import RunContext


class ActiveRun(Struct, frozen=True, kw_only=True):
    """A run that this process owns."""

    context: RunContext
    journal: Journal


class Deferred(Struct, frozen=True, kw_only=True):
    """Another run of the plan has to end first; ask again then."""


class ActiveRuns:
    """The runs of one repository in this process; belongs to one thread."""

    def __init__(self, repository: OpenRepository, worker: RepositoryWorker) -> None:
        self.repository = repository
        self._store = repository.store
        self._worker = worker
        self._runs: dict[str, ActiveRun] = {}

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def state(self, plan: str) -> RunState | None:
        """The state of the plan's run here; None when this worker owns none."""
        active = self._runs.get(plan)
        return active.journal.state if active is not None else None

    def is_at_work(self, plan: str) -> bool:
        """Whether this worker owns a run of the plan that does not wait."""
        active = self._runs.get(plan)
        return active is not None and not decide(active.journal.state).waiting

    def newest(self, plan: str) -> RunState:
        """The state of the plan's newest run, also of another owner; an empty one for none."""
        row = self._store.newest(plan)
        return fold(one.event for one in recorded(self._store, row.id)) if row is not None else RunState()

    # --- requests --------------------------------------------------------------------------------------

    def begin(self, request: RunRequest) -> Answer | Deferred:
        """Begin a run, or resume one that waits; a running one is left alone, one with other work is stopped first."""
        plan = request.started.plan
        active, at_work = self._runs.get(plan), self.is_at_work(plan)
        if request.fired and not at_work and (why := pending_answer(self.newest(plan), plan)):
            return Answer(declined=True, why=why)
        if active is None:
            return self._acquire(request)
        state, journal = active.journal.state, active.journal
        if request.answer is not None:
            if not is_current(state, request.answer):
                return Answer(declined=True, why=nothing_waits(plan))
            journal.append(request.answer)
            return Answer(run=active.context.run, fresh=True)
        if state.stop:
            return Deferred()
        if at_work and not request.started.review:
            return Answer(run=active.context.run)
        return self._resume(active, request) or Answer(run=active.context.run, fresh=True)

    def _resume(self, active: ActiveRun, request: RunRequest) -> Deferred | None:
        state = active.journal.state
        if does_other_work(state, request.started):
            active.journal.append(e.StopRequested(by="a new start"))
            return Deferred()
        active.journal.append(resumed(request.started))
        return None

    def _acquire(self, request: RunRequest) -> Answer | Deferred:
        """Claim the plan, then resume its unfinished run or begin one."""
        while (active := self._claim(row := self._store.interrupted(request.started.plan), request)) is None:
            pass  # another process was faster; look again
        if isinstance(active, Answer):
            return active
        if row is not None and (deferred := self._resume(active, request)):
            return deferred
        if request.answer is not None:
            active.journal.append(request.answer)
        return Answer(run=active.context.run, fresh=True, warnings=active.journal.state.warnings)

    def adopt(self, plan: str) -> Answer | None:
        """Own the plan's unfinished run and continue it unchanged; an answer when another process owns it."""
        if plan in self._runs or (row := self._store.interrupted(plan)) is None:
            return None
        claimed = self._claim(row, None)
        return claimed if isinstance(claimed, Answer) else None

    def _claim(self, row: RunRow | None, request: RunRequest | None) -> ActiveRun | Answer | None:
        """Claim the plan for its unfinished run, or for a new one; None when another process was faster."""
        repository, claims = self.repository, self.repository.claims
        if row is not None:
            run, started = row.id, repository.started(row)
        else:
            assert request is not None
            run, started = f"r{os.urandom(4).hex()}", repository.with_settings(request.started)
        plan = started.plan
        context = repository.run_context(run=run, started=started)  # a run keeps the target it began with
        claim = claims.take_plan(plan, run=run)
        if isinstance(claim, HeldByOther):
            return Answer(declined=True, owner=claim.owner)
        now = self._store.interrupted(plan)
        if (now and now.id) != (row and row.id):
            # Before we had the claim, another process ended its run, or began one and died.
            claims.release(plan, run=run)
            return None
        if row is None and request is not None and (why := self._too_late(request)):
            claims.release(plan, run=run)
            return Answer(declined=True, why=why)
        on_event = functools.partial(self._worker.recorded, plan, run)
        journal = Journal(self._store, repository.clock, run=run, plan=plan, fence=claim.fence, on_event=on_event)
        if row is None or isinstance(claim, Acquired):
            # A process that left its run waiting for a person did not die.
            waited = row is not None and row.state == "waiting"
            dead = claim.took_over if isinstance(claim, Acquired) and not waited else ""
            taken = e.ClaimTaken(owner=claims.me, took_over=dead)
            journal.append(*([started] if row is None else []), taken)
        self._runs[plan] = active = ActiveRun(context=context, journal=journal)
        if row is not None:
            _unlock_refs(active)
        self._claim_issues(active, started.issues)
        if running(journal.state):  # its agent survived the last process and keeps its permit
            self._worker.count_permit(plan)
        return active

    def _too_late(self, request: RunRequest) -> str:
        """Why a retry or an answer begins no run: the run it is about has ended."""
        plan = request.started.plan
        if request.answer is not None:
            return nothing_waits(plan)
        row = self._store.newest(plan) if request.again else None
        return succeeded(plan) if row is not None and row.state == "done" else ""

    def _claim_issues(self, active: ActiveRun, issues: Sequence[int]) -> None:
        """Claim the issues for the run; warn once about those of another unfinished run."""
        for number in issues:
            other = self.repository.claims.take_issue(number, run=active.context.run)
            if other is None:
                continue
            shared = e.IssueShared(number=number, run=other.id, plan=other.plan)
            if shared.words not in active.journal.state.warnings:
                active.journal.append(shared)
                self._worker.warned(shared.words)

    def resumes(self, request: RunRequest) -> bool:
        """Whether `begin` would resume a run that waits, instead of beginning a new one."""
        plan = request.started.plan
        if self.is_at_work(plan) or (plan in self._runs and request.answer is not None):
            return False
        state = self.newest(plan)
        unfinished = state.started is not None and state.ended is None and not state.stop
        return unfinished and not does_other_work(state, request.started)

    def record(self, plan: str, event: e.StopRequested | e.Halted | e.Continued | e.Approved | e.Rejected) -> bool:
        """Record a person's request for the plan's run; False when this worker owns none."""
        active = self._runs.get(plan)
        if active is None:
            return False
        if not isinstance(event, e.Halted) or active.journal.state.halted != event.by:
            active.journal.append(event)
        return True

    def end_agents(self) -> None:
        """End the agents of all runs at the same time; the next worker starts them again."""
        from runplan.engine.advance import record_ends

        if ids := [id_ for active in self._runs.values() for id_ in running(active.journal.state)]:
            self.repository.dispatches.end(ids, grace_s=GRACE_S)
        for plan, active in self._runs.items():
            try:
                record_ends(active.journal, active.context)
            except RunplanError as error:  # the next worker sees that they have ended
                self._worker.failed(plan, error)

    def disown(self, plan: str) -> None:
        """Leave the run to the next process that asks for it."""
        active = self._runs[plan]
        self._forget(plan)
        self.repository.claims.release(plan, run=active.context.run)

    # --- steps ------------------------------------------------------------------------------------------

    def step_all(self, between: Callable[[], None]) -> tuple[list[str], datetime | None]:
        """Take every step that is due; the running dispatches, and when the next step is due.

        `between` is called after each plan. A run that it changes is stepped again.
        """
        stepped: dict[str, RunState] = {}
        wakes: dict[str, str] = {}
        while (plan := self._unstepped(stepped)) is not None:
            decision = self._step(plan)
            if (active := self._runs.get(plan)) is not None:
                stepped[plan] = active.journal.state
            wakes[plan] = decision.wake if decision else ""
            between()
        # The worker does not wait for dispatches of lanes that wait for a time.
        states = [one for active in self._runs.values() for _, one in open_states(active.journal.state)]
        ids = [id_ for one in states if not decide(one).waiting for id_ in running(one)]
        return ids, min((parse_iso(wakes[plan]) for plan in self._runs if wakes[plan]), default=None)

    def _unstepped(self, stepped: Mapping[str, RunState]) -> str | None:
        """A plan whose state has changed since its last step."""
        return next((plan for plan, run in self._runs.items() if stepped.get(plan) is not run.journal.state), None)

    def _step(self, plan: str) -> Decision | None:
        active = self._runs[plan]
        try:
            decision = self._advance(plan, active)
        except Fenced:
            self._forget(plan)
            if not self._worker.unattended:
                raise
            return None
        except Crashed as error:
            self._over(plan, active)
            self._worker.failed(plan, error)
            return None
        except RunplanError as error:
            if not self._worker.unattended:
                raise
            decision = self._put_off(plan, active, error)
            # The other lanes continue at once.
            return self._step(plan) if error.lane and decide(_state_of(active, error.lane)).waiting else decision
        if active.journal.state.ended is not None:
            self._over(plan, active)
            return None
        return decision

    def _advance(self, plan: str, active: ActiveRun) -> Decision:
        from runplan.engine.advance import advance  # slow to import; by now the spawner is starting

        journal = active.journal
        if not self._has_permit(plan, active, decide(journal.state)):
            return decide(journal.state)
        assert journal.state.started is not None
        context = self.repository.refreshed(active.context, journal.state.started)
        self._runs[plan] = active = active if context is active.context else replace(active, context=context)
        try:
            decision = advance(journal, context, self._worker.may_begin)
        except RunplanError:
            raise
        except Exception as error:
            raise crash(error, active) from error
        if journal.state.ended is None and self._worker.unattended:
            self._schedule_checkout_checks(active)
            decision = self._report_waits(plan, active)
        return decision

    def _has_permit(self, plan: str, active: ActiveRun, decision: Decision) -> bool:
        """Whether the run has a permit; one that waits for something else needs none."""
        journal = active.journal
        if journal.state.stop or running(journal.state) or not self._worker.may_begin():
            return True
        if decision.waiting and decision.wake and parse_iso(decision.wake) > active.context.clock.now():
            return True
        if decision.waiting not in ("", "slot") and not decision.wake:
            return True
        if not self._worker.request_permit(plan):
            if not journal.state.queued:
                journal.append(e.Queued())
            return False
        if journal.state.queued:
            journal.append(e.Admitted())
        return True

    def _schedule_checkout_checks(self, active: ActiveRun) -> None:
        """Check again later whether a checkout in use is free."""
        for lane, state in open_states(active.journal.state):
            decision = decide(state)
            if decision.waiting == "checkout" and not decision.wake:
                until = active.context.clock.now() + timedelta(seconds=look_s(state.waits + 1))
                words = state.phase.held if state.phase else ""
                active.journal.append(e.Paused(kind="checkout", until=iso(until), words=words), lane=lane)

    def _report_waits(self, plan: str, active: ActiveRun) -> Decision:
        """Report every wait, lane by lane; a run in which every lane waits gives up its permit."""
        state, run = active.journal.state, active.context.run
        decision = decide(state)
        for lane in open_lanes(state):
            if (alone := decide(lane.state)).waiting:
                self._worker.waits(plan, run, lane.state, alone)
        if decision.waiting and not running(state):
            if decision.waiting != "slot":
                self._worker.release_permit(plan)
            if not open_lanes(state):
                self._worker.waits(plan, run, state, decision)
        return decision

    def _put_off(self, plan: str, active: ActiveRun, error: RunplanError) -> Decision:
        """Try again later, with growing delays: git, disk or network failed."""
        wait_s = delay_s(_state_of(active, error.lane).waits + 1)
        until = active.context.clock.now() + timedelta(seconds=wait_s)
        active.journal.append(e.Paused(kind="unreachable", until=iso(until), words=str(error)), lane=error.lane)
        self._worker.failed(plan, error)
        return self._report_waits(plan, active)

    def _over(self, plan: str, active: ActiveRun) -> None:
        """Release a run that has ended."""
        self.disown(plan)
        self._worker.ended(plan, active.context.run, active.journal.state)

    def _forget(self, plan: str) -> None:
        self._runs.pop(plan, None)
        self._worker.release_permit(plan)


# --- decisions ------------------------------------------------------------------------------------------


def is_current(state: RunState, answer: e.Approved | e.Rejected) -> bool:
    """Whether the answer is about a candidate that waits now: the trees are the same."""
    for _, one in open_states(state):
        phase = one.phase
        if phase is None or phase.refusal or phase.landed:
            continue
        tree = phase.candidate.tree if phase.candidate else ""
        is_approved = phase.candidate is not None and phase.approved == tree and not phase.held
        if answer.tree == tree and not is_approved:
            return True
    return False


def does_other_work(state: RunState, asked: e.RunStarted) -> bool:
    """Whether the request cannot be met by resuming this run."""
    was = state.started
    if was is None:
        return False
    if "undo" in (asked.mode, was.mode):
        return (asked.mode, asked.wanted) != (was.mode, was.wanted)
    at = state.phase.read.phase if state.phase is not None else None
    elsewhere = (asked.landing, asked.target, asked.remote) != (was.landing, was.target, was.remote)
    other = (at is not None and asked.wanted != at) or bool(open_lanes(state))
    return elsewhere or (asked.mode == "phase" and other)


def resumed(asked: e.RunStarted) -> e.RunResumed:
    """The event that resumes a run with the options of now; it keeps the settings it began with."""
    return e.RunResumed(
        mode=asked.mode,
        wanted=asked.wanted,
        auto=asked.auto,
        daemon=asked.daemon,
        needs=asked.needs,
        review=asked.review,
    )


def nothing_waits(plan: str) -> str:
    """The message for an answer that comes too late."""
    return f"no change of {plan} waits for an answer; see: {command('runplan', 'status', plan)}"


def succeeded(plan: str) -> str:
    """The message for a retry after success."""
    return f"the last run of {plan} succeeded; nothing to retry"


def _state_of(active: ActiveRun, lane: str) -> RunState:
    return active.journal.lane(lane).state if lane else active.journal.state


def _unlock_refs(active: ActiveRun) -> None:
    """Remove locks on the run's own refs that a killed git left; no other process uses these refs."""
    for lane, state in open_states(active.journal.state):
        leased = state.phase.lease if state.phase else None
        context = replace(active.context, lane=lane)
        context.removal.remove_stale_locks((base_ref(context.mark), *([leased.branch] if leased else [])))


# --- crashes --------------------------------------------------------------------------------------------


def crash(error: Exception, active: ActiveRun) -> RunplanError:
    """The error to raise: a system without resources leaves the run as it is, any other error ends it."""
    if refused := refused_by_system(error):
        return Unreachable(refused)
    active.context.store.require_there()
    detail = f"{type(error).__name__}: {error}"
    _record_crash(active, detail)
    return Crashed(f"unexpected {detail}; the work is kept. --debug shows the traceback")


def _record_crash(active: ActiveRun, detail: str) -> None:
    """End the run as failed: its agents end, the report names the error, and the claim is free."""
    journal = active.journal
    active.context.dispatches.end(running(journal.state), grace_s=GRACE_S)
    if journal.state.claimed:
        with suppress(Exception):  # the end of the run is recorded in any case
            detail = "; ".join((detail, *release_issues("failed", journal.state, active.context)))
    over = e.RunEnded(outcome="failed", reason=Reason.CRASHED, detail=detail)
    for lane, state in open_states(journal.state):
        phase = state.phase
        if phase is not None and phase.failure is None and phase.landed is None:
            failed = e.PhaseFailed(
                phase=phase.read.phase,
                reason=Reason.CRASHED,
                step=step_of(phase),
                detail=detail,
                title=phase.read.title,
                attempt=phase.lease.attempt if phase.lease else 1,
            )
            journal.append(failed, *([over] if lane else []), lane=lane)
    journal.append(over)


def end_recorded_agents(state: Path, plan: str) -> list[str]:
    """End the agents of the plan, or of all plans (""), by the journal; the plans that had any.

    For a worker that does not answer. The next owner of the run records their ends.
    """
    with closing(Store(state, writable=False)) as store:
        meant = [row for row in store.unfinished() if plan in ("", row.plan)]
        states = {row.plan: fold(one.event for one in recorded(store, row.id)) for row in meant}
    found = {name: ids for name, run in states.items() if (ids := running(run))}
    if found:
        Dispatches(state / "dispatch").end([id_ for ids in found.values() for id_ in ids], grace_s=GRACE_S)
    return list(found)
