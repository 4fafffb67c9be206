"""The worker of one plan on a host of a fleet.

It owns the plan's run while there is something to do. Then it gives the run up, together with what continues it: a job
in the queue, now or at a time. So a wait occupies no host.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import asdict, replace

from runplan.adapters.git.command import CALLS
from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.heartbeat import FleetLimit
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import PostgresStore
from runplan.domain.errors import PlanUnreadable, RefusedEarly, RunplanError, Unreachable
from runplan.domain.run import events as e
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import Reason, WaitKind
from runplan.domain.run.planning_events import PlanningChosen
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Acquired, Answer, Reentered
from runplan.domain.run.rules.hosts import awaited_labels
from runplan.domain.run.state import RunState, list_running, open_states
from runplan.domain.settings.schema import uses_remote
from runplan.domain.text import command
from runplan.domain.times import parse_iso
from runplan.engine.loop import runs
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.leftovers import remove_dropped_logs
from runplan.engine.loop.repository import Environments
from runplan.engine.loop.runs import ActiveRun
from runplan.engine.steps.context import OpenRepository, RunContext
from runplan.engine.steps.read_plan import choose_execution
from runplan.hosts.daemon.worker import DaemonServices, DaemonWorker
from runplan.hosts.fleet.clones import REMOTE
from runplan.hosts.owner import ResolvedRun

SHORT_S = 60.0  #: a shorter wait keeps its host
SOON_S = 5.0  #: between two tries of a worker that has a run in hand
SUBPLAN_S = 600.0  #: between two looks at a sub-plan that another host works on


class PlanWorker(DaemonWorker):
    """Works on one plan, and on the sub-plans that it begins, in the thread that calls `run`.

    Every run has the environment of the host: clients send none.
    """

    def __init__(self, plan: str, root: Path, daemon: DaemonServices, fleet: FleetLocation) -> None:
        super().__init__(str(root), root / ".git/runplan", replace(daemon, call_at=self._try_later), fleet)
        self.only = plan
        self.fleet = fleet
        self.host = fleet.host
        self.runs = {}
        self._kept: set[str] = set()  #: plans that it owned when it was last open
        self._lost: frozenset[str] = frozenset()  #: plans that another host has taken over
        self._is_declined = False  #: another host owns the plan

    # --- from any thread --------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until the run has ended, waits for long, or is left to another host."""
        self._thread = threading.current_thread()
        self._run_thread()

    def wake(self, *, commands: bool = False) -> None:
        """Check the queue and the due steps. A command that comes too late for this worker has a job of its own."""
        self._asked = True
        self._poke_thread()
        if commands and self._is_stop_queued():
            CALLS.refuse(self.state)

    def lose_plans(self, plans: Collection[str]) -> None:
        """Another host owns these plans: end their agents, and record nothing."""
        self._lost |= frozenset(plans)
        self._poke_thread()

    # --- what is its own --------------------------------------------------------------------------------

    @property
    def _store(self) -> PostgresStore:
        store = self.repository.store
        assert isinstance(store, PostgresStore)
        return store

    def open(self, context: RepositoryContext, repository: OpenRepository, environments: Environments) -> None:
        self._kept |= self.runs.keys()
        self._is_declined = False
        super().open(context, repository, environments)
        self._daemon = replace(self._daemon, limit=FleetLimit(repository.claims.me, self._store))

    def is_mine(self, plan: str) -> bool:
        return not self._is_declined and (plan == self.only or plan in self.runs or plan in self._kept)

    def _adopt_run(self, plan: str) -> None:
        """Own the unfinished run of the plan; when its owner dies, the plan is queued again."""
        declined = self.adopt(plan)
        if declined is not None:
            self._log.info("declined", plan=plan, owner=declined.owner)
            self._is_declined = plan == self.only
        elif plan in self.runs and list_running(self.runs[plan].state):
            self._daemon.limit.count_run((self.root, plan))

    def execute_commands(self) -> None:
        for plan in self._lost & self.runs.keys():
            if not self.repository.claims.owns_plan(plan):
                self.lose(plan)
        self._lost = frozenset()
        super().execute_commands()

    def lose(self, plan: str) -> None:
        """End the agents of a run that another host has taken over."""
        run = self.runs[plan]
        self._log.warning("lost", plan=plan, run=run.id)
        self.repository.dispatches.end(list_running(run.state), grace_s=0.0)
        self._is_declined = self._is_declined or plan == self.only
        super().disown(plan)

    def disown(self, plan: str) -> None:
        """Leave a run in the middle of a step; a host continues it."""
        active = self.runs[plan]
        if active.state.ended is None:
            self._store.leave_plan(plan, run=active.id, owner=self.repository.claims.me, labels=())
        super().disown(plan)

    def forget(self, plan: str) -> None:
        self._kept.discard(plan)
        super().forget(plan)

    # --- only what is on the target is run ----------------------------------------------------------------

    def begin(self, request: RunRequest) -> Answer | None:
        return super().begin(self._without_settings(request))

    def decline(self, request: RunRequest) -> Answer | None:
        return super().decline(self._without_settings(request))

    def resumes(self, request: RunRequest) -> bool:
        return super().resumes(self._without_settings(request))

    def _without_settings(self, request: RunRequest) -> RunRequest:
        """The request without what a client or the database could have a host execute."""
        started = request.started
        if not uses_remote(started.landing):
            raise RefusedEarly(f"a host of a fleet cannot land by {started.landing}; land by direct or pr")
        if started.target != (own := self.context.settings.run.target):
            raise RefusedEarly(f"run.target on the default branch is {own}, not {started.target}; change and push it")
        started = replace(started, settings="", given=(), needs=(), remote=REMOTE, daemon=True)
        return replace(request, started=started)

    def _open_journal(self, run: ResolvedRun, claim: Acquired | Reentered) -> ActiveRun:
        """Own the run. One whose rows contradict git ends, and nothing of it is started."""
        active = super()._open_journal(run, claim)
        if why := self._find_forgery(active):
            again = command("runplan", "start", run.started.plan)
            remedy = f"The target was rewritten, or the database changed by hand. Start again: {again}"
            runs.fail_run(active, why, remedy, Reason.TAMPERED)
            self._end_run(run.started.plan)
            raise RefusedEarly(f"{run.started.plan}: {why}")
        return active

    def lacks_files(self, run: ResolvedRun) -> bool:
        attempts = [state.attempt for _, state in open_states(self.newest(run.started.plan))]
        leases = [attempt.lease for attempt in attempts if isinstance(attempt, WorkAttempt) and not attempt.cleaned]
        return any(lease is not None and run.context.objects.tip(lease.branch) is None for lease in leases)

    def _find_forgery(self, active: ActiveRun) -> str:
        """What is recorded and was never on the target; "" for nothing. A repair has its text from the forge."""
        started = active.state.options
        if started.target != (own := self.context.settings.run.target):
            return f"the run is recorded for {started.target}, and run.target on the default branch is {own}"
        tips = (self.context_for(started).tip(), active.context.lander.tip())
        attempts = [state.attempt for _, state in open_states(active.state) if state.attempt is not None]
        for chosen in [
            attempt.chosen for attempt in attempts if attempt.failure is None and attempt.delivery.landed is None
        ]:
            is_of_plan = chosen.phase and not isinstance(chosen, (e.RepairChosen, PlanningChosen))
            if is_of_plan and not _is_true(chosen, active.context, tips):
                return f"phase {chosen.phase} is recorded with a text that {started.plan} never had on {own}"
        return ""

    def context_for(self, asked: e.RunStarted) -> RepositoryContext:
        """The context with the settings on the target, at the commit where the run began."""
        context = replace(self.context, env=self.environments.of(asked.plan))
        context = context.with_landing(asked.landing, target=asked.target, remote=REMOTE)
        is_landed = bool(asked.settled) and context.git.is_ancestor(asked.settled, context.tip())
        context = context.with_committed_settings(asked.settled if is_landed else context.tip())
        return context.with_landing(asked.landing, target=asked.target, remote=REMOTE)

    def _new_run(self, asked: e.RunStarted) -> ResolvedRun:
        run = super()._new_run(replace(asked, settled=self.context_for(asked).tip()))
        settings = run.context.agents.redacted(run.started.settings)  # to show; those of this host may contain keys
        return replace(run, started=replace(run.started, settings=settings))

    def run_context(self, run: str, started: e.RunStarted) -> RunContext:
        return super().run_context(run, self.context_for(started).record_settings(started))

    # --- waits, and the end -------------------------------------------------------------------------------

    def stays_until(self, moment: datetime | None) -> bool:
        return moment is not None and self.may_begin() and (moment - self._now()).total_seconds() <= SHORT_S

    def work(self) -> datetime | None:
        super().work()
        if not self._closing:  # else the next worker on this host continues the runs and their agents
            self._leave_plans()
        return None

    def _leave_plans(self) -> None:
        for plan, active in list(self.runs.items()):
            decision = decide(active.state)
            wake = parse_iso(decision.wake) if decision.wake else None
            if decision.waiting is WaitKind.SUBPLAN and wake is None:
                wake = self._now() + timedelta(seconds=SUBPLAN_S)
            labels: tuple[str, ...] | None = None if decision.waiting else ()
            if decision.waiting in (WaitKind.HOST, WaitKind.SLOT):
                labels = awaited_labels(active.state) or None
            self._store.leave_plan(plan, run=active.id, owner=self.repository.claims.me, wake=wake, labels=labels)
            super().disown(plan)
        if self._is_declined:
            return
        plans = [row.plan for row in self._store.list_schedules()]
        plans += [command.plan for command in self._store.list_queued_commands()]
        if not self.may_begin() and any(map(self.is_mine, plans)):
            self._store.queue_plan(self.only)
        elif (due := self._find_earliest(None)) is not None:
            self._store.wake_plan_at(self.only, due)

    def ended(self, plan: str, run: str, state: RunState) -> None:
        super().ended(plan, run, state)
        if state.options.parents and state.options.parents[-1] not in self.runs:
            self._store.queue_plan(state.options.parents[-1])
        with contextlib.suppress(RunplanError, OSError):  # the next end of a run removes them
            remove_dropped_logs(self.context, self._store)

    def _record_closing(self, wake: datetime | None, trouble: RunplanError | None) -> None:  # noqa: ARG002
        if trouble is not None:  # else the store knows what comes next
            super()._record_closing(None, trouble)

    def _try_later(self, _key: str, moment: datetime, _call: Callable[[], None]) -> None:
        """After trouble: try again here with a run in hand, or without the database; else on any host."""
        with contextlib.suppress(Unreachable), contextlib.closing(PostgresStore(self.fleet)) as store:
            if store.list_owners().get(self.only) != name_owner(self.fleet.host) and not self.runs:
                store.wake_plan_at(self.only, moment)
                return
        select.select([self._wake_r], [], [], SOON_S)
        self._asked = True


def _is_true(chosen: e.Chosen, context: RunContext, tips: Sequence[str | None]) -> bool:
    """Whether the plan has this text and command of the phase at this commit, which is in the history of a tip."""
    older = ("merge-base", "--is-ancestor", chosen.tip)
    phase = None
    if any(context.objects.run(*older, tip, ok=(0, 1, 128, 129)).code == 0 for tip in tips if tip):
        with contextlib.suppress(PlanUnreadable):
            phase = context.plan_at(chosen.tip)[0].phase(chosen.phase)
    if phase is None:
        return False
    expected = choose_execution(phase, tip=chosen.tip)
    if isinstance(chosen, e.UndoChosen):
        expected = e.UndoChosen(tip=chosen.tip, phase=phase.id, title=phase.title, text=phase.text)
    of_moment = dict.fromkeys(("lane", "remarks", "base", "drift"))
    return type(expected) is type(chosen) and asdict(expected) | of_moment == asdict(chosen) | of_moment
