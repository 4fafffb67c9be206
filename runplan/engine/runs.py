"""The runs that a worker owns: begins, resumes and advances them."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.engine.acquire import (
    Declined,
    acquire,
    adopt,
    does_other_work,
    interrupted,
    is_current,
    nothing_waits,
    resumed,
)
from runplan.errors import Crashed, Fenced, RunplanError, Unreachable
from runplan.resources import refused_by_system
from runplan.run import events as e
from runplan.run.decide import decide, pending_answer
from runplan.run.dispatch import GRACE_S
from runplan.run.reasons import Reason, step_of
from runplan.run.state import RunState, fold, open_lanes, open_states, running
from runplan.store.journal import recorded
from runplan.store.sqlite import Store
from runplan.supervise.dispatches import Dispatches
from runplan.times import delay_s, iso, look_s, parse_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from runplan.engine.acquire import ActiveRun
    from runplan.engine.repository import OpenRepository
    from runplan.engine.worker import RepositoryWorker
    from runplan.run.decide import Decision
    from runplan.run.requests import RunRequest


class Accepted(Struct, frozen=True, kw_only=True):
    """This worker owns the run of the plan."""

    run: str
    fresh: bool  #: False when it was running already, and nothing was changed
    warnings: tuple[str, ...] = ()


class Deferred(Struct, frozen=True, kw_only=True):
    """Another run of the plan has to end first; ask again then."""


class ActiveRuns:
    """The runs of one repository in this process; belongs to one thread."""

    def __init__(self, repository: OpenRepository, worker: RepositoryWorker) -> None:
        self._repository = repository
        self._worker = worker
        self._runs: dict[str, ActiveRun] = {}

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def state(self, plan: str) -> RunState | None:
        """The state of the plan's run here; None when this worker owns none."""
        active = self._runs.get(plan)
        return active.journal.state if active is not None else None

    def newest(self, plan: str) -> RunState:
        """The state of the plan's newest run, also of another owner; an empty one for none."""
        store = self._repository.store
        row = store.newest(plan)
        return fold(one.fact for one in recorded(store, row.id)) if row is not None else RunState()

    # --- requests --------------------------------------------------------------------------------------

    def begin(self, request: RunRequest) -> Accepted | Declined | Deferred:
        """Begin the run, or resume one that waits; a running one is left alone."""
        plan = request.started.plan
        active = self._runs.get(plan)
        if request.fired and not self._is_at_work(active) and (why := pending_answer(self.newest(plan), plan)):
            return Declined(owner="", why=why)
        if active is None:
            taken = acquire(request, self._repository, self._worker)
            if isinstance(taken, Declined):
                return taken
            self._own(plan, taken)
            return Deferred() if taken.ends else Accepted(run=taken.world.run, fresh=True, warnings=taken.warnings)
        state = active.journal.state
        if request.answer is not None:
            if not is_current(state, request.answer):
                return Declined(owner="", why=nothing_waits(plan))
            active.journal.append(request.answer)
            return Accepted(run=active.world.run, fresh=True)
        if state.stop:
            return Deferred()
        if self._is_at_work(active):
            return Accepted(run=active.world.run, fresh=False)
        if does_other_work(state, request.started):
            active.journal.append(e.StopRequested(by="a new start"))
            return Deferred()
        assert state.started is not None
        active.journal.append(resumed(request.started, state.started))
        return Accepted(run=active.world.run, fresh=True)

    def resumes(self, request: RunRequest) -> bool:
        """Whether `begin` would resume a run that waits, instead of beginning a new one."""
        plan = request.started.plan
        active = self._runs.get(plan)
        if active is not None and (request.answer is not None or self._is_at_work(active)):
            return False
        state = active.journal.state if active is not None else self.newest(plan)
        unfinished = state.started is not None and state.ended is None and not state.stop
        return unfinished and not does_other_work(state, request.started)

    def _is_at_work(self, active: ActiveRun | None) -> bool:
        return active is not None and not decide(active.journal.state).waiting

    def adopt(self, plan: str) -> Declined | None:
        """Own the plan's unfinished run, if there is one and its process is gone."""
        if plan in self._runs or (row := interrupted(self._repository.store, plan)) is None:
            return None
        started = self._repository.started(row)
        if started is None:
            return None
        taken = adopt(row, started, self._repository, self._worker)
        if isinstance(taken, Declined):
            return taken
        self._own(plan, taken)
        return None

    def _own(self, plan: str, active: ActiveRun) -> None:
        self._runs[plan] = active
        if running(active.journal.state):  # its agent survived the last process and keeps its slot
            self._worker.enter_slot(plan)

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
        found = list(self._runs.values())
        if ids := [dispatch for active in found for dispatch in running(active.journal.state)]:
            self._repository.dispatches.end(ids, grace_s=GRACE_S)
        from runplan.engine.advance import record_ends

        for plan, active in self._runs.items():
            try:
                record_ends(active.journal, active.world)
            except RunplanError as error:  # the next worker sees that they have ended
                self._worker.failed(plan, error)

    def disown(self, plan: str) -> None:
        """Leave the run to the next process that asks for it."""
        active = self._runs[plan]
        self._forget(plan)
        self._repository.claims.release(plan, run=active.world.run)

    # --- the work -----------------------------------------------------------------------------------------

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
        ids = [one for active in self._runs.values() for one in _watched(active.journal.state)]
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
            return self._step(plan) if error.lane and decide(_strand(active, error.lane)).waiting else decision
        if active.journal.state.ended is not None:
            self._over(plan, active)
            return None
        return decision

    def _advance(self, plan: str, active: ActiveRun) -> Decision:
        from runplan.engine.advance import advance  # slow to import; by now the spawner is starting

        journal = active.journal
        if not self._has_slot(plan, active, decide(journal.state)):
            return decide(journal.state)
        active = self._renewed(plan, active)
        try:
            decision = advance(journal, active.world, self._worker.may_begin)
        except RunplanError:
            raise
        except Exception as error:
            raise crash(error, active) from error
        if journal.state.ended is None and self._worker.unattended:
            self._look_again_at_checkouts(active)
            decision = self._waits(plan, active)
        return decision

    def _renewed(self, plan: str, active: ActiveRun) -> ActiveRun:
        """Use the environment of now for the next steps."""
        assert active.journal.state.started is not None
        world = self._repository.renewed(active.world, active.journal.state.started)
        self._runs[plan] = active if world is active.world else replace(active, world=world)
        return self._runs[plan]

    def _has_slot(self, plan: str, active: ActiveRun, decision: Decision) -> bool:
        """Whether the run has a slot; one that waits for something else needs none."""
        journal = active.journal
        waits = decision.waiting and decision.waiting != "slot" and not decision.wake
        if waits or journal.state.stop or running(journal.state) or not self._worker.may_begin():
            return True
        if decision.waiting and decision.wake and parse_iso(decision.wake) > active.world.clock.now():
            return True
        if not self._worker.ask_slot(plan):
            if not journal.state.queued:
                journal.append(e.Queued())
            return False
        if journal.state.queued:
            journal.append(e.Admitted())
        return True

    def _look_again_at_checkouts(self, active: ActiveRun) -> None:
        """Check again later whether a checkout in use is free."""
        for lane, state in open_states(active.journal.state):
            decision = decide(state)
            if decision.waiting == "checkout" and not decision.wake:
                until = active.world.clock.now() + timedelta(seconds=look_s(state.waits + 1))
                words = state.phase.held if state.phase else ""
                active.journal.append(e.Paused(kind="checkout", until=iso(until), words=words), lane=lane)

    def _waits(self, plan: str, active: ActiveRun) -> Decision:
        """Report every wait, lane by lane; a run in which every lane waits gives up its slot."""
        state, run = active.journal.state, active.world.run
        decision = decide(state)
        for lane in open_lanes(state):
            if (alone := decide(lane.state)).waiting:
                self._worker.waits(plan, run, lane.state, alone)
        if decision.waiting and not running(state):
            if decision.waiting != "slot":
                self._worker.leave_slot(plan)
            if not open_lanes(state):
                self._worker.waits(plan, run, state, decision)
        return decision

    def _put_off(self, plan: str, active: ActiveRun, error: RunplanError) -> Decision:
        """Try again later, with growing delays: git, disk or network failed."""
        wait_s = delay_s(_strand(active, error.lane).waits + 1)
        until = active.world.clock.now() + timedelta(seconds=wait_s)
        active.journal.append(e.Paused(kind="unreachable", until=iso(until), words=str(error)), lane=error.lane)
        self._worker.failed(plan, error)
        return self._waits(plan, active)

    def _over(self, plan: str, active: ActiveRun) -> None:
        """Release a run that has ended."""
        self.disown(plan)
        self._worker.ended(plan, active.world.run, active.journal.state)

    def _forget(self, plan: str) -> None:
        self._runs.pop(plan, None)
        self._worker.leave_slot(plan)


def crash(error: Exception, active: ActiveRun) -> RunplanError:
    """The error to raise: a system that is out of resources leaves the run as it is, any other fault ends it."""
    if refused := refused_by_system(error):
        return Unreachable(refused)
    active.world.store.require_there()
    detail = f"{type(error).__name__}: {error}"
    _record_crash(active, detail)
    return Crashed(f"unexpected {detail}; the work is kept. --debug shows the traceback")


def _record_crash(active: ActiveRun, detail: str) -> None:
    """End the run as failed: its agents end, the report names the error, and the claim is free."""
    journal, world = active.journal, active.world
    world.dispatches.end(running(journal.state), grace_s=GRACE_S)
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


def end_recorded_agents(state: Path, plan: str = "") -> list[str]:
    """End the agents of all runs, or of one plan, by what the journal says; the plans that had any.

    For a worker that does not answer. The next owner of the run records their ends.
    """
    with closing(Store(state, writable=False)) as store:
        meant = [row for row in store.unfinished() if plan in ("", row.plan)]
        states = {row.plan: fold(one.fact for one in recorded(store, row.id)) for row in meant}
    found = {name: ids for name, run in states.items() if (ids := running(run))}
    if found:
        Dispatches(state / "dispatch").end([id_ for ids in found.values() for id_ in ids], grace_s=GRACE_S)
    return list(found)


def _strand(active: ActiveRun, lane: str) -> RunState:
    """The state of one lane, or of the run itself."""
    return active.journal.lane(lane).state if lane else active.journal.state


def _watched(state: RunState) -> list[str]:
    """The dispatches whose end the worker waits for; lanes that wait for a time are left out."""
    return [id_ for _, one in open_states(state) if not decide(one).waiting for id_ in running(one)]
