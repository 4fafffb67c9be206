"""The plans of a repository with their phases, runs and schedules, as `status` shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from runplan import __version__
from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.adapters.git.objects import read_plan
from runplan.adapters.store.protocol import open_store, store_exists
from runplan.domain.decoding import convert, decode_json
from runplan.domain.errors import NotAPlan, PlanUnreadable, RefusedEarly, RunplanError, Unreachable
from runplan.domain.names import WATCH
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.run.kinds import UNFINISHED, Mode, RunStatus
from runplan.domain.run.planning_events import ProposalMade
from runplan.domain.run.rows import OwnerState, PlanFacts, RunRow, Work
from runplan.domain.times import iso
from runplan.engine.loop.context import RepositoryContext, describe_link, known_plans, plans_on_target, read_checkout
from runplan.engine.report.views import PlanOutline, status_view
from runplan.hosts.daemon.state import read_holder

if TYPE_CHECKING:  # `status` does without it
    from runplan.domain.plan.model import Phase, Plan


W = TypeVar("W", bound=Work)

ANSWER_S = 1.0  #: to ask the daemon
ABSENT = (
    "No daemon is running, so nobody works on the queue. Start it: runplan daemon restart; "
    "now and at each login: runplan service install"
)
NO_WORKER = "No worker of the fleet is running. Start one on any host: runplan worker"
STANDS_STILL = "Stands still: the daemon cannot work in this repository for now."


class PlanReader:
    """Reads the plans of a repository. The journal and the tree of each target are read once for all of them."""

    def __init__(
        self, context: RepositoryContext, plan: str, now: datetime, *, warn: Callable[[str], None] | None = None
    ) -> None:
        self._context = context
        self._now = now
        self._warn = warn  #: tells that the target is gone; None for a caller that shows no warnings
        self._plan = plan  #: the only one to read; "" for all
        self._store = context.store()
        self._facts = self._store.read_plan_facts(plan)
        self._blobs: dict[str, dict[str, str]] = {}  #: by target and plan
        self._new: list[tuple[str, str, str]] = []  #: outlines of plans that were parsed here
        if context.fleet is not None:
            try:
                context.fetch_landed(self._store.get_newest_landing())
            except Unreachable as error:
                (warn or str)(f"{error}; plans are shown as of the last fetch")

    def views(self) -> list[dict[str, Any]]:
        known = [self._plan] if self._plan else known_plans(self._context, self._store.list_active_plans())
        ran = [path for path, facts in self._facts.items() if facts.run is not None]
        scheduled = [path for path, facts in self._facts.items() if facts.schedule is not None]
        watches = [path for path in ([self._plan] if self._plan else scheduled) if path.startswith(WATCH)]
        views = [self._view_plan(path) for path in sorted({*known, *ran}.difference(watches))]
        views += [self._view_watch(path) for path in sorted(watches)]
        if self._new and store_exists(self._context.journal):
            with suppress(RunplanError, OSError), closing(open_store(self._context.journal)) as store:
                store.put_outlines(self._new)
        return views

    def _view_watch(self, name: str) -> dict[str, Any]:
        """A watch of issues in the form of a plan, with the answer to its last slot."""
        watch = PlanOutline(title=f"Issues with the label {name.removeprefix(WATCH)}", status="watching")
        facts = PlanFacts(schedule=self._facts[name].schedule)
        last = self._store.list_firings(name, limit=1)
        answered = {"at": last[0].at, "answer": last[0].answer, "why": last[0].why} if last else None
        return {**status_view(name, watch, facts, landing="pr", now=self._now), "answered": answered}

    def _view_plan(self, path: str) -> dict[str, Any]:
        facts = self._facts.get(path, PlanFacts())
        landing = self._context.settings.run.landing
        outline = self._read_outline(path, facts)
        if facts.run is not None:
            run = self._with_output(facts.run)
            facts = replace(
                facts, run=replace(run, lanes=tuple(map(self._with_output, run.lanes))) if run.lanes else run
            )
        if facts.owner:
            owner = self._store.get_owner_state(facts.owner)
            is_alive = owner is not OwnerState.GONE
            is_stopped = owner is OwnerState.SUSPENDED
            facts = replace(facts, alive=is_alive, stopped=is_stopped)
        facts = replace(facts, in_fleet=self._context.fleet is not None)
        if facts.run is not None and not outline.complete:
            facts = replace(facts, failures=self._store.list_failures(path))
        return status_view(path, outline, facts, landing=landing, now=self._now)

    def _with_output(self, work: W) -> W:
        """The work with the last output of its process, or without a process that has ended."""
        if work.dispatch is None:
            return work
        is_running, written = self._context.outputs(self._store).get_standing(work.dispatch)
        if not is_running:
            return replace(work, dispatch=None, agent=None, version=None, dispatched=None, gates=())
        return replace(work, output=iso(datetime.fromtimestamp(written, UTC)) if written else None)

    def _read_outline(self, path: str, facts: PlanFacts) -> PlanOutline:
        """The plan where its newest run lands, else in the checkout."""
        context = self._context if facts.run is None else self._context.with_landing_of(facts.run)
        if facts.run is None and (link := describe_link(context.root / path, path, "status")):
            return PlanOutline(error=link, is_page=True)
        if blob := self._find_blob(context, path):
            stored = self._stored_outline(blob, path, facts)
            return replace(stored, status="active", complete=False) if context.is_on_branch else stored
        if facts.run is not None and facts.run.mode is Mode.PLAN:
            return self._read_proposal(path, facts.run)
        try:
            return _parse_outline(read_checkout(context.root / path, path), path)
        except FileNotFoundError:
            return PlanOutline(
                error=f"{path}: the plan is gone, from {self._context.target_name} and from the checkout"
            )

    def _read_proposal(self, path: str, run: RunRow) -> PlanOutline:
        """The plan of a planning run, which is not in the repository yet."""
        proposals = [fact.event for fact in self._store.list_facts(ProposalMade, plan=path) if fact.run == run.id]
        if not proposals:
            return PlanOutline(title=run.title, status=PlanStatus.DRAFT)
        outline = _parse_outline(proposals[-1].text.encode("utf-8", "surrogateescape"), path)
        return outline if run.is_active else replace(outline, status=PlanStatus.ABANDONED)

    def _find_blob(self, context: RepositoryContext, path: str) -> str:
        """The id of the plan's blob on the target; "" for none."""
        if context.target not in self._blobs:
            try:
                context.tip()
            except RefusedEarly as error:  # the branch is gone
                if self._warn is not None:
                    self._warn(f"{error}; plans are shown as in the checkout")
            self._blobs[context.target] = plans_on_target(context)
        if blob := self._blobs[context.target].get(path):
            return blob
        stored = context.git.object(f"{context.target}:{path}")  # outside the directory of plans
        return stored.oid if stored is not None and stored.kind in ("blob", "tree") else ""

    def _stored_outline(self, blob: str, path: str, facts: PlanFacts) -> PlanOutline:
        """The outline that was stored for this blob, or a new one."""
        stamp = f"{__version__} {blob}"
        known, outline = facts.outline
        if known == stamp:
            with suppress(msgspec.DecodeError):  # text that is not valid Unicode
                return decode_json(outline, PlanOutline)
        text = read_plan(self._context.git, blob, path)
        if text is None:
            raise Unreachable(f"{path} cannot be read; see: git fsck")
        plan = _parse_outline(text, path)
        # Not msgspec.json: a text need not be valid Unicode, and json escapes it.
        self._new.append((path, stamp, json.dumps(msgspec.to_builtins(plan))))
        return plan


def outline_of(plan: Plan, describe_hindrance: Callable[[Plan, Phase], str]) -> PlanOutline:
    outline = convert(plan, PlanOutline, from_attributes=True)
    hindrances = ["" if phase.status == "done" else describe_hindrance(plan, phase) for phase in plan.phases]
    phases = (replace(phase, hindrance=why) for phase, why in zip(outline.phases, hindrances, strict=True))
    return replace(outline, phases=tuple(phases))


def _parse_outline(text: bytes, path: str) -> PlanOutline:
    from runplan.domain.plan import model, tracker  # slow to import, and most plans are known

    try:
        return outline_of(model.parse_plan(text, path=path), tracker.describe_hindrance)
    except PlanUnreadable as error:
        return PlanOutline(error=str(error), is_page=isinstance(error, NotAPlan))


# --- the daemon -----------------------------------------------------------------------------------------


def view_daemon(context: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What keeps the plans from being worked: a daemon that cannot work here, or is missing."""
    return _view_closed_repository(context, views) or view_missing_daemon(context, views)


def view_missing_daemon(context: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """That no daemon runs, where a run, a command or a schedule needs one; in a fleet, that no worker runs."""
    if not any(map(_has_work, views)):
        return None
    if context.fleet is not None:
        is_missing = not context.store().list_host_labels()
        return {"state": "absent", "error": NO_WORKER} if is_missing else None
    return {"state": "absent", "error": ABSENT} if read_holder(state_directory(context.env)) is None else None


def _has_work(view: dict[str, Any]) -> bool:
    """Whether a daemon or worker has to do something for the plan, now or at a time."""
    run = view.get("run")
    if run and run["daemon"] and run["state"] in UNFINISHED and (run["state"] != RunStatus.WAITING or run["wake"]):
        return True
    return bool(view.get("queued") or (view["schedule"] and not view["schedule"]["paused"]))


def _view_closed_repository(context: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Why the daemon cannot work in this repository; asked only for a run that continues but has no process."""
    running = [view["run"] for view in views if view["run"] is not None and view["run"]["state"] == RunStatus.RUNNING]
    idle = [run for run in running if not any(work["dispatched"] for work in (run, *run["lanes"]))]
    if not idle:
        return None
    from runplan.hosts.daemon.client import Client  # 20 ms, and most runs have a process

    try:
        with Client(socket_path(context.env), answer_s=ANSWER_S) as client:
            hello = client.hello
    except RunplanError:  # no daemon, or a busy one
        return None
    closed = next((repository for repository in hello.closed if repository.root == str(context.root)), None)
    if closed is None:
        return None
    for run in idle:
        run["stuck"] = {"level": "look", "sentence": STANDS_STILL}
    about = {"pid": hello.pid, "version": hello.version, "state": "closed"}
    return {**about, "until": closed.again, "since": closed.since, "error": closed.error}
