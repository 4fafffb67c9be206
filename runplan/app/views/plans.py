"""The plans of a repository with their phases, runs and schedules, as `status` shows them."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import asdict, replace

from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.adapters.store.protocol import open_store
from runplan.app.operations.model import Caller
from runplan.app.views import status
from runplan.domain.decoding import decode_json, to_json
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.names import QUEUE, WATCHES, describe_watch, hint_at
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.run.dispatch import PROGRESS
from runplan.domain.run.kinds import Mode, RunStatus, WaitKind
from runplan.domain.run.rows import OwnerState, PlanFacts, Work, WorkProgress
from runplan.domain.standing.phases import PlanOutline
from runplan.domain.standing.queue import holds_up
from runplan.domain.times import iso_at
from runplan.engine.loop import context as contexts
from runplan.engine.loop.context import RepositoryContext
from runplan.hosts.daemon.state import read_holder

if TYPE_CHECKING:
    from runplan.hosts.daemon.protocol import Hello

W = TypeVar("W", bound=Work)

LONGEST_PROGRESS = 64  #: bytes of the newest line on the progress of an agent
GONE = "gone"  #: the stamp of an outline that says so
ANSWER_S = 1.0  #: to ask the daemon
ABSENT = (
    "No daemon is running, so nobody works on the queue. Start it: runplan daemon restart; "
    "now and at each login: runplan service install"
)
NO_WORKER = "No worker of the fleet is running. Start one on any host: runplan worker"


class PlanReader:
    """Reads the plans of a repository. The journal and the tree of each target are read once for all of them."""

    def __init__(
        self, context: RepositoryContext, plan: str, now: datetime, *, warn: Callable[[str], object] = str
    ) -> None:
        self._context = context
        self._now = now
        self._warn = warn  #: tells that the target is gone
        self._plan = plan  #: the only one to read; "" for all
        self._store = context.store()
        self._facts = self._store.read_plan_facts("" if plan.startswith(QUEUE) else plan)
        self._blobs: dict[str, dict[str, str]] = {}  #: by target and plan
        self._new: list[tuple[str, str, str]] = []  #: outlines of plans that were parsed here
        context.fetch_landed(warn)

    def read(self) -> tuple[list[status.PlanView], status.HostView | None]:
        """The plans, the most urgent first, and what keeps them from being worked."""
        known = [self._plan] if self._plan else contexts.known_plans(self._context, self._store.list_active_plans())
        ran = [path for path, facts in self._facts.items() if facts.run is not None and self._plan in ("", path)]
        scheduled = [path for path, facts in self._facts.items() if facts.schedule is not None]
        scheduled += [path for path, facts in self._facts.items() if facts.wait and facts.wait.kind == WaitKind.QUEUE]
        watches = {path for path in ([self._plan] if self._plan else scheduled) if path.startswith(WATCHES)}
        plans = [(path, *self._read_plan(path)) for path in sorted({*known, *ran}.difference(watches))]
        running = [(path, facts.run) for path, _, facts in plans if facts.run and facts.run.state == RunStatus.RUNNING]
        idle = {path for path, run in running if not any(work.dispatched for work in (run, *run.lanes))}
        closed = None
        if idle and not isinstance(hello := ask_daemon(self._context.env, answer_s=ANSWER_S), str):
            for trouble in hello.closed:
                if trouble.root == str(self._context.root):
                    times = {"since": trouble.since, "until": trouble.again}
                    about = {"error": trouble.error, "version": hello.version, **times}
                    closed = status.HostView(state="closed", pid=hello.pid, **about)
        landing = self._context.settings.run.landing
        views = []
        for path, outline, facts in plans:
            is_still = closed is not None and path in idle
            view = status.view_plan(path, outline, facts, landing=landing, now=self._now, stands_still=is_still)
            views.append(view)
        for path in sorted(watches):  # in the form of a plan, with the answer to the last slot
            outline = PlanOutline(title=describe_watch(path), status="watching")
            facts = PlanFacts(schedule=self._facts[path].schedule, wait=self._facts[path].wait)
            last = self._store.list_firings(path, limit=1)
            answered = status.Look(last[0].at, last[0].answer, last[0].why) if last else None
            lands = landing if path.startswith(QUEUE) else "pr"
            view = status.view_plan(path, outline, facts, landing=lands, now=self._now, answered=answered)
            if facts.wait is not None:  # a work on the queue, as the plans stand that it has begun
                from runplan.engine.loop.runs import find_awaited  # slow to import, and only this view needs it

                work = decode_json(facts.wait.about, WorkProgress)
                begun = {path: self._read_plan(path) for path in work.begun}
                runs = {path: state.run for path, (_, state) in begun.items() if state.run is not None}
                held = next((path for path, run in runs.items() if holds_up(find_awaited(self._store, run))), "")
                plan = status.view_plan(held, *begun[held], landing="", now=self._now) if held else None
                view = status.view_work(view, work, facts.wait.wake, plan, now=self._now)
            views.append(view)
        if self._new:
            journal = self._context.journal
            with suppress(RunplanError, OSError), closing(open_store(journal, may_create=False)) as store:
                store.put_outlines(self._new)
        order = list(status.PlanState)
        views.sort(key=lambda view: (order.index(view.state), view.plan))
        return views, closed or find_missing_host(self._context, views)

    def _read_plan(self, path: str) -> tuple[PlanOutline, PlanFacts]:
        facts = self._facts.get(path, PlanFacts())
        outline = self._read_outline(path, facts)
        facts = replace(facts, in_fleet=self._context.fleet is not None)
        if facts.run is not None:
            run = self._with_output(facts.run)
            failures = () if outline.complete else self._store.list_failures(path)
            facts = replace(facts, run=replace(run, lanes=tuple(map(self._with_output, run.lanes))), failures=failures)
        if facts.owner:
            owner = self._store.get_owner_state(facts.owner)
            facts = replace(facts, alive=owner is not OwnerState.GONE, stopped=owner is OwnerState.SUSPENDED)
        return outline, facts

    def _with_output(self, work: W) -> W:
        """The work with the last output of its process, or without a process that has ended."""
        if work.dispatch is None:
            return work
        outputs = self._context.outputs(self._store)
        is_running, written = outputs.get_standing(work.dispatch)
        if not is_running:
            return replace(work, dispatch=None, agent=None, version=None, dispatched=None, gates=())
        _, _, line = outputs.read(work.dispatch, PROGRESS, -LONGEST_PROGRESS)[0].rstrip().rpartition(b"\n")
        if match := re.fullmatch(rb"(\d+) (\d+)", line):
            work = replace(work, context=int(match[1]) or None, tools=int(match[2]))
        return replace(work, output=iso_at(written) if written else None)

    def _read_outline(self, path: str, facts: PlanFacts) -> PlanOutline:
        """The plan where its newest run lands, else in the checkout."""
        context = self._context if facts.run is None else self._context.with_landing_of(facts.run)
        if facts.run is None and (link := contexts.describe_link(context.root / path, path, "status")):
            return PlanOutline(error=link, is_page=True)
        if context.target not in self._blobs:
            try:
                context.tip()
            except RefusedEarly as error:  # the branch is gone
                self._warn(f"{error}; plans are shown as in the checkout")
            self._blobs[context.target] = contexts.plans_on_target(context)
        blob = self._blobs[context.target].get(path)
        if not blob and (stored := context.git.object(f"{context.target}:{path}")) is not None:
            blob = stored.oid if stored.kind in ("blob", "tree") else ""  # outside the directory of plans
        if blob:
            branch = context.is_on_branch
            return contexts.read_outline(context.git, blob, path, facts.outline, self._new, is_on_branch=branch)
        if facts.run is not None and facts.run.mode is Mode.PLAN:  # its plan is not in the repository yet
            from runplan.domain.run.attempt_parts import ProposalMade  # slow to import, and rarely needed

            proposals = [fact for fact in self._store.list_facts(ProposalMade, plan=path) if fact.run == facts.run.id]
            if not proposals:
                return PlanOutline(title=facts.run.title, status=PlanStatus.DRAFT)
            outline = contexts.parse_outline(proposals[-1].event.text.encode("utf-8", "surrogateescape"), path)
            return outline if facts.run.is_active else replace(outline, status=PlanStatus.ABANDONED)
        try:
            return contexts.parse_outline(contexts.read_checkout(context.root / path, path), path)
        except FileNotFoundError:
            target = self._context.target_name
            hint = hint_at(path, contexts.known_plans(self._context, ()))  # it may have moved
            gone = f"{path}: the plan is gone, from {target} and from the checkout{hint}"
            outline = PlanOutline(error=gone, is_gone=True)
            if facts.run is not None and facts.outline[0] != GONE:
                self._new.append((path, GONE, to_json(outline)))
            return outline


def list_paths(caller: Caller) -> list[str]:
    """The plans in the checkout and on the target, also those of other tools."""
    with caller.open(lenient=True) as context:
        return [*contexts.known_plans(context, ()), *contexts.spec_plans(context.root)]


def read_plans(
    context: RepositoryContext, word: str, now: datetime, *, warn: Callable[[str], None]
) -> tuple[list[status.PlanView], status.HostView | None]:
    """The plans of a repository, or that of a word or a run; and what keeps them from being worked."""
    run = context.store().get_run(word) if word else None
    plan = run.plan if run is not None else contexts.plan_or_watch(context, word) if word else ""
    return PlanReader(context, plan, now, warn=warn).read()


class NextView(status.ScheduleView, frozen=True, kw_only=True):
    """A schedule as `next --json` prints it."""

    plan: str
    passed_over: tuple[str, ...]  #: phases that it cannot work on, when none is left that it can


def read_schedules(
    context: RepositoryContext, now: datetime, *, warn: Callable[[str], None]
) -> tuple[list[NextView], status.HostView | None]:
    """The schedules of a repository, and what keeps them from firing."""
    views = []
    for row in context.store().list_schedules():
        (plan,), _ = PlanReader(context, row.plan, now, warn=warn).read()
        left = [] if plan.next else [phase for phase in plan.phases if not phase.blocked_by and phase.hindrance]
        passed_over = tuple(f"phase {phase.id} {phase.hindrance}" for phase in left)
        views.append(NextView(plan=row.plan, passed_over=passed_over, **asdict(status.view_schedule(row, now))))
    return views, find_missing_host(context, views)


def find_missing_host(
    context: RepositoryContext, views: Iterable[status.PlanView | status.ScheduleView]
) -> status.HostView | None:
    """That no daemon runs, where a run, a command or a schedule needs one; in a fleet, that no worker runs."""

    def has_work(view: status.PlanView | status.ScheduleView) -> bool:
        if isinstance(view, status.ScheduleView):
            return not view.paused
        run = view.run
        is_due = run is not None and run.daemon and run.is_active and (run.state is not RunStatus.WAITING or run.wake)
        is_work = view.plan.startswith(QUEUE) and view.state is not status.PlanState.SCHEDULED
        return bool(is_due or is_work or view.queued or (view.schedule and not view.schedule.paused))

    if not any(map(has_work, views)):
        return None
    if context.fleet is not None:
        return None if context.store().list_host_labels() else status.HostView(state="absent", error=NO_WORKER)
    return status.HostView(state="absent", error=ABSENT) if read_holder(state_directory(context.env)) is None else None


def ask_daemon(env: Mapping[str, str], *, answer_s: float) -> "Hello | str":
    """The greeting of the daemon, or why there is none."""
    from runplan.hosts.daemon.client import Client  # 20 ms, and most runs have a process

    try:
        with Client(socket_path(env), answer_s=answer_s) as client:
            return client.hello
    except RunplanError as error:
        return str(error)
