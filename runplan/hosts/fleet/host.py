"""One plan on a host of a fleet.

It owns the plan's run while there is something to do. Then it gives the run up, together with what continues it: a job
in the queue, now or at a time. So a wait occupies no host.
"""

import contextlib
import select
from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from pathlib import Path

from msgspec.structs import asdict, replace

from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import PostgresStore
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.checks.secrets import redact_text, secret_values
from runplan.domain.decoding import parse_json, to_json
from runplan.domain.errors import PlanUnreadable, RefusedEarly, RunplanError, Unreachable
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import PlanningChosen
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import WaitKind
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import HeldByOther
from runplan.domain.run.state import RunState, awaited_labels, list_running, open_states
from runplan.domain.settings.schema import Settings, uses_remote
from runplan.domain.times import parse_iso
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.leftovers import remove_dropped_logs
from runplan.engine.loop.runs import ActiveRun
from runplan.engine.steps.context import OpenRepository, RunContext
from runplan.engine.steps.read_plan import choose_execution
from runplan.hosts.background import BackgroundHost, Services
from runplan.hosts.daemon.state import Known
from runplan.hosts.fleet.clones import REMOTE
from runplan.hosts.owner import RunRules

SHORT_S = 60.0  #: a shorter wait keeps its host
SOON_S = 5.0  #: between two tries of a worker that has a run in hand
SUBPLAN_S = 600.0  #: between two looks at a sub-plan that another host works on


class FleetHost(BackgroundHost):
    """Works on one plan and its sub-plans, with the environment of the host, in the thread that calls `run`."""

    def __init__(self, plan: str, root: Path, services: Services, fleet: FleetLocation, left: str = "") -> None:
        """`left` is the run of the plan that an earlier worker of this host owned."""
        super().__init__(Known(common=str(root / ".git"), root=str(root), fleet=fleet), services, TargetRules())
        self.only = plan
        self.name = fleet.host
        self._me = name_owner(fleet.host)
        self.limit = self  # of runs that work at once, over all hosts
        self._fleet = fleet
        self._dispatches = Dispatches(self.state / "dispatch")  #: as the repository was opened last
        self._kept = {plan: left} if left else {}  #: runs, by plan, that it owned before it was opened
        self._permitted: set[str] = set()  #: plans that may work, as the database has said
        self.lost: frozenset[str] = frozenset()  #: plans that another host has taken over
        self._is_declined = False  #: another host owns the plan
        self._is_sick = False  #: this machine was, at the last trouble
        self._is_notified = True  #: the agenda may have changed

    def is_mine(self, plan: str) -> bool:
        return not self._is_declined and (plan == self.only or plan in self.owner.runs or plan in self._kept)

    @property
    def _store(self) -> PostgresStore:
        assert isinstance(self.owner.repository.store, PostgresStore)
        return self.owner.repository.store

    def request_permit(self, key: tuple[str, str], *, is_running: bool = False) -> bool:
        _, plan = key
        if plan not in self._permitted and self._store.request_permit(plan, self._me, is_running=is_running):
            self._permitted.add(plan)
        return plan in self._permitted

    def release_permit(self, _root: str, plan: str = "") -> None:
        """The run has ended or waits for something else. One that has trouble keeps its claim and its permit."""
        self._permitted.discard(plan)
        if plan:
            self._store.release_permit(plan, self._me)

    def prepare(self, repository: OpenRepository) -> None:
        self._kept |= {plan: active.id for plan, active in self.owner.runs.items()}
        self._is_declined = False
        self._permitted.clear()
        self._dispatches = repository.dispatches
        assert isinstance(repository.store, PostgresStore)
        repository.store.keeps_agenda = True

    def adopt(self, plan: str) -> None:
        """Own the unfinished run of the plan; when its owner dies, the plan is queued again."""
        if other := self.owner.adopt(plan):
            self.log.info("declined", plan=plan, owner=other)
            self._is_declined = plan == self.only
        elif plan in self.owner.runs and list_running(self.owner.runs[plan].state):
            self.limit.request_permit((self.root, plan), is_running=True)

    def ask(self, *, commands: bool) -> None:
        self._is_notified = True
        super().ask(commands=commands)

    def execute_commands(self) -> None:
        if self._is_notified:
            self._is_notified = False
            self._store.forget_agenda()
        for plan in self.lost & self.owner.runs.keys():
            if not self.owner.repository.claims.owns_plan(plan):
                self.owner.lose(plan)
        self.lost = frozenset()
        if self._kept:  # those that it still owns are adopted by now
            running = {id_ for active in self.owner.runs.values() for id_ in list_running(active.state)}
            _end_strays(self.owner.repository.dispatches, set(self._kept.values()), spared=running)
            self._kept = {}
        super().execute_commands()

    def lose(self, active: ActiveRun) -> None:
        """End the agents of a run that another host has taken over."""
        plan = active.context.plan
        self._permitted.discard(plan)
        self.log.warning("lost", plan=plan, run=active.id)
        self.owner.repository.dispatches.end(list_running(active.state), grace_s=0.0)
        self._is_declined = self._is_declined or plan == self.only
        self.owner.repository.claims.release_plan(plan, run=active.id)

    def leave(self, active: ActiveRun) -> None:
        """Give up the run, together with what continues it: a job now, or at a time."""
        self._permitted.discard(active.context.plan)
        if active.state.ended is not None:
            return
        if running := list_running(active.state):  # it could not be waited for; another host may start the same one
            self.owner.repository.dispatches.end(running, grace_s=0.0)
        decision = decide(active.state)
        wake = parse_iso(decision.wake) if decision.wake else None
        if decision.waiting is WaitKind.SUBPLAN and wake is None:
            wake = self.services.clock.now() + timedelta(seconds=SUBPLAN_S)
        labels: tuple[str, ...] | None = None if decision.waiting else ()
        if decision.waiting in (WaitKind.HOST, WaitKind.SLOT):
            labels = awaited_labels(active.state) or None
        self._store.leave_plan(active.context.plan, run=active.id, owner=self._me, wake=wake, labels=labels)

    def stays_until(self, moment: datetime | None) -> bool:
        left = moment - self.services.clock.now() if moment is not None and self.may_begin() else None
        return left is not None and left.total_seconds() <= SHORT_S

    def finish(self, wake: datetime | None) -> None:  # noqa: ARG002
        """Leave the plans; the store knows what comes next."""
        if self.is_closing:  # the next worker on this host continues the runs and their agents
            return
        for plan in list(self.owner.runs):
            self.owner.disown(plan)
        if self._is_declined:
            return
        self._store.forget_agenda()
        claim = self._store.get_claim("plan", self.only)
        if claim is not None and claim.owner == self._me:  # its run never began: the answer to the claim was lost
            claims = self.owner.repository.claims
            if not isinstance(claims.take_plan(self.only, run=claim.run), HeldByOther):
                claims.release_plan(self.only, run=claim.run)
        plans = [row.plan for row in self._store.list_schedules()]
        plans += [command.plan for command in self._store.list_queued_commands()]
        if not self.may_begin() and any(map(self.is_mine, plans)):
            self._store.queue_plan(self.only)
        elif (due := self.find_earliest(None)) is not None:
            self._store.wake_plan_at(self.only, due)

    def tell_end(self, plan: str, run: str, state: RunState) -> None:
        super().tell_end(plan, run, state)
        if state.options.parents and state.options.parents[-1] not in self.owner.runs:
            self._store.queue_plan(state.options.parents[-1])
        with contextlib.suppress(RunplanError, OSError):  # the next end of a run removes them
            remove_dropped_logs(self.owner.context, self._store)

    def refuse_starts(self, trouble: RunplanError) -> None:
        """Leave the commands to a healthy host, if this one is sick and there is another."""
        self._is_sick = self.services.is_sick()
        if self._is_sick:
            with contextlib.suppress(Unreachable), contextlib.closing(PostgresStore(self._fleet)) as store:
                if store.list_host_labels(without=self._me):
                    return
        super().refuse_starts(trouble)

    def wake_at(self, moment: datetime) -> None:
        """After trouble: try again here with a plan in hand, or without the database; else on any host.

        A sick host hands back its plans, too, as far as no agent of theirs runs.
        """
        with contextlib.suppress(Unreachable), contextlib.closing(PostgresStore(self._fleet)) as store:
            owned = {plan for plan, owner in store.list_owners().items() if owner == self._me}
            in_hand = self._kept | {plan: active.id for plan, active in self.owner.runs.items()}
            _end_strays(self._dispatches, {run for plan, run in in_hand.items() if plan not in owned})
            if self._is_sick:
                live = self._dispatches.list_live().values()
                for plan in [plan for plan, run in in_hand.items() if plan in owned and run not in live]:
                    store.leave_plan(plan, run=in_hand[plan], owner=self._me, labels=())
                    self._kept.pop(plan, None)
                    self.owner.runs.pop(plan, None)
                    owned.remove(plan)
            if not owned & {self.only, *in_hand}:
                store.wake_plan_at(self.only, moment)
                return
        select.select([self.wakeup], [], [], SOON_S)
        self.ask(commands=False)


def _end_strays(dispatches: Dispatches, runs: Set[str], spared: Set[str] = frozenset()) -> None:
    """End the agents of these runs; also those whose start could not be recorded."""
    live = dispatches.list_live().items()
    dispatches.end([id_ for id_, run in live if run in runs and id_ not in spared], grace_s=0.0)


class TargetRules(RunRules):
    """Only what is on the target is run: a client or the database could have a host execute the rest."""

    def accept(self, request: RunRequest, context: RepositoryContext) -> RunRequest:
        started = request.started
        if not uses_remote(started.landing):
            raise RefusedEarly(f"a host of a fleet cannot land by {started.landing}; land by direct or pr")
        if started.target != (target := context.settings.run.target):
            why = f"run.target on the default branch is {target}, not {started.target}"
            raise RefusedEarly(f"{why}; change and push it")
        started = replace(started, settings=None, given=(), needs=(), remote=REMOTE, daemon=True)
        return replace(request, started=started)

    def context_for(self, started: e.RunStarted, context: RepositoryContext) -> RepositoryContext:
        """The context with the settings at the commit where the run began."""
        context = context.with_landing(started.landing, target=started.target, remote=REMOTE)
        is_landed = bool(started.settled) and context.git.is_ancestor(started.settled, context.tip())
        context = context.with_committed_settings(started.settled if is_landed else context.tip())
        return context.with_landing(started.landing, target=started.target, remote=REMOTE)

    def settle(self, asked: e.RunStarted, context: RepositoryContext) -> e.RunStarted:
        started = self.settings_of(replace(asked, settled=self.context_for(asked, context).tip()), context)
        # To show; those of this host may contain keys.
        text = redact_text(to_json(started.settings), secret_values(context.env))
        return replace(started, settings=parse_json(text, Settings))

    def settings_of(self, started: e.RunStarted, context: RepositoryContext) -> e.RunStarted:
        return self.context_for(started, context).record_settings(started)

    def lacks_files(self, state: RunState, context: RunContext) -> bool:
        attempts = [lane.attempt for lane in open_states(state)]
        leases = [attempt.lease for attempt in attempts if isinstance(attempt, WorkAttempt) and not attempt.cleaned]
        return any(lease is not None and context.objects.tip(lease.branch) is None for lease in leases)

    def find_forgery(self, active: ActiveRun, context: RepositoryContext) -> str:
        """What is recorded and was never on the target. A repair has its text from the forge."""
        started = active.state.options
        if started.target != (target := context.settings.run.target):
            return f"the run is recorded for {started.target}, and run.target on the default branch is {target}"
        tips = (self.context_for(started, context).tip(), active.context.lander.tip())
        for attempt in (lane.attempt for lane in open_states(active.state)):
            if attempt is None or attempt.failure or attempt.delivery.landed:
                continue
            chosen = attempt.chosen
            is_of_plan = chosen.phase and not isinstance(chosen, (e.RepairChosen, PlanningChosen))
            is_true = _is_true(chosen, active.context, tips) if is_of_plan else chosen.own == PhaseSettings()
            if not is_true:
                return f"phase {chosen.phase} is recorded with a text that {started.plan} never had on {target}"
        return ""


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
    of_moment = dict.fromkeys(("lane", "remarks", "base", "drift", "ends"))
    return type(expected) is type(chosen) and asdict(expected) | of_moment == asdict(chosen) | of_moment
