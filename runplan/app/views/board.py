"""The board: every plan of every repository as a card, with the action that a person would take next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from msgspec import Struct, to_builtins

from runplan.app.views.plans import PlanReader, view_daemon
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import NotFound, RunplanError
from runplan.domain.names import WATCH, digest_of
from runplan.domain.run.kinds import UNFINISHED, RunStatus
from runplan.domain.run.rows import wait_of
from runplan.domain.settings.schema import LimitSettings
from runplan.domain.text import counted
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.report.views import Need, by_need
from runplan.hosts.daemon.state import Known

MOST_RUNS = 1_000  #: whose cost is added up for a budget


class Group(StrEnum):
    """A part of the board; the most urgent first."""

    NEEDS_YOU = "needs-you"
    RUNNING = "running"
    SCHEDULED = "scheduled"
    READY = "ready"
    FINISHED = "finished"


HEADINGS = {
    Group.NEEDS_YOU: "Needs you",
    Group.RUNNING: "Running",
    Group.READY: "Ready to start",
    Group.SCHEDULED: "Scheduled",
    Group.FINISHED: "Finished and set aside",
}


#: The group, the look and the badge of a plan, by its need.
_GROUPS = {
    Need.WAITING: (Group.NEEDS_YOU, "needs-you", "Needs you"),
    Need.FAILED: (Group.NEEDS_YOU, "failed", "Failed"),
    Need.RUNNING: (Group.RUNNING, "running", "Running"),
    Need.SCHEDULED: (Group.SCHEDULED, "scheduled", "Scheduled"),
    Need.OPEN: (Group.READY, "ready", "Ready"),
    Need.DONE: (Group.FINISHED, "finished", "Finished"),
}


class Action(Struct, frozen=True):
    """What a person would do next: the verb of a command that changes something, or of one that shows something."""

    verb: str
    label: str
    phase: str = ""

    @property
    def is_link(self) -> bool:
        return self.verb in ("diff", "answer", "status", "start", "report")


#: The labels of the verbs that help with a wait.
_LABELS = {"diff": "Review", "answer": "Answer", "resume": "Resume", "retry": "Continue"}


class Usage(Struct, frozen=True, kw_only=True):
    """What the newest run has used; where the plan has a budget, what all its runs have used of it."""

    tokens: int = 0
    usd: float = 0.0
    unpriced: bool = False
    estimated: bool = False
    most_tokens: int = 0  #: 0 for no budget
    most_usd: float = 0.0


class Card(Struct, frozen=True, kw_only=True):
    """One plan on the board."""

    repo: str  #: the key of its repository
    repository: str  #: a short name of its repository
    plan: str
    title: str
    group: Group
    state: str  #: its look: that of a group, or `failed`
    badge: str
    phases: tuple[str, ...]  #: the state of each
    sentence: str  #: how it stands
    current: str = ""  #: the phase and the step that are worked on now
    since: str = ""  #: when that step, the wait, or the end of the run began
    level: str = ""  #: of `stuck`; "" without an unfinished run
    usage: Usage = Usage()
    schedule: Mapping[str, Any] | None = None
    queued: str = ""  #: the verb of a command that the daemon has not executed yet
    action: Action | None = None
    has_run: bool = False

    @property
    def done(self) -> int:
        return self.phases.count("done")

    @property
    def id(self) -> str:
        """Its name in a page."""
        return f"{self.repo}-{digest_of(self.plan.encode('utf-8', 'surrogateescape'))[:12]}"

    @property
    def is_watch(self) -> bool:
        return self.plan.startswith(WATCH)


class Missing(Struct, frozen=True, kw_only=True):
    """A repository that cannot be read."""

    repo: str
    root: str
    error: str


class Board(Struct, frozen=True, kw_only=True):
    cards: tuple[Card, ...]
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()  #: broken settings, and why the daemon does not work

    def list_group(self, group: Group) -> list[Card]:
        """The cards of a group: what waits before what failed, and of finished plans the newest first."""
        cards = [card for card in self.cards if card.group is group]
        if group is Group.FINISHED:
            return sorted(cards, key=lambda card: card.since, reverse=True)
        return sorted(cards, key=lambda card: card.state == "failed")

    @property
    def schedules(self) -> list[Card]:
        """The cards with a schedule; the next one first, paused ones last."""
        cards = [(card, card.schedule) for card in self.cards if card.schedule]
        cards.sort(key=lambda pair: (bool(pair[1]["paused"]), pair[1]["next"] or "~"))
        return [card for card, _ in cards]


# --- reading ----------------------------------------------------------------------------------------------


def read_board(known: Sequence[Known], now: datetime) -> Board:
    """The board of these repositories."""
    names = shorten_roots([repository.root for repository in known])
    cards: list[Card] = []
    missing: list[Missing] = []
    notes: list[str] = []
    for repository in known:
        name = names[repository.root]
        try:
            new_cards, new_notes = read_repository(repository, name, now)
        except (RunplanError, OSError) as error:
            missing.append(Missing(repo=repository.key, root=repository.root, error=str(error)))
            continue
        cards += new_cards
        notes += new_notes
    return Board(cards=tuple(cards), missing=tuple(missing), notes=tuple(dict.fromkeys(notes)))


def find_card(env: Mapping[str, str], key: str, plan: str, now: datetime) -> tuple[Known, Card]:
    """The card of one plan, and its repository."""
    repository = find_known(env, key)
    cards, _ = read_repository(repository, PurePath(repository.root).name, now)
    card = next((card for card in cards if card.plan == plan), None)
    if card is None:
        raise NotFound(f"{plan}: no such plan in {repository.root}")
    return repository, card


def read_repository(repository: Known, name: str, now: datetime) -> tuple[list[Card], list[str]]:
    """The cards of a repository, and what a person should know about it."""
    notes: list[str] = []

    def warn(text: str) -> None:
        notes.append(f"{name}: {text}")

    with open_known(repository, warn=warn) as context:
        views = PlanReader(context, "", now, warn=warn).views()
        daemon = view_daemon(context, views)
        limits = context.settings.limits
        cards = [
            make_card(view, repository.key, name, read_usage(context, view, limits))
            for view in by_need(views)
            if view["need"] is not Need.PAGE
        ]
    if daemon is not None:
        notes.append(daemon["error"] if daemon["state"] == "absent" else f"{name}: {daemon['error']}")
    return cards, notes


def read_usage(context: RepositoryContext, view: dict[str, Any], limits: LimitSettings) -> Usage:
    """The usage of the newest run, or of a plan with a budget; the view has its need."""
    run = view["run"]
    if run is None:
        return Usage()
    used = [run]
    has_budget = bool(limits.plan_usd or limits.plan_tokens) and view["need"] is not Need.DONE
    if has_budget:
        rows = context.store().list_runs(view["plan"], limit=MOST_RUNS)
        used = [to_builtins(row) for row in rows]
    return Usage(
        tokens=sum(work["tokens"] for work in used),
        usd=sum(work["usd"] for work in used),
        unpriced=any(work["unpriced"] for work in used),
        estimated=any(work["estimated"] for work in used),
        most_tokens=limits.plan_tokens if has_budget else 0,
        most_usd=limits.plan_usd if has_budget else 0.0,
    )


def shorten_roots(roots: Sequence[str]) -> dict[str, str]:
    """The last name of each path; the whole path where two have the same one."""
    names = [PurePath(root).name for root in roots]
    return {root: name if names.count(name) == 1 else root for root, name in zip(roots, names, strict=True)}


# --- cards ------------------------------------------------------------------------------------------------


def make_card(view: dict[str, Any], repo: str, name: str, usage: Usage) -> Card:
    """The card of a plan, from its view with its need."""
    run = view["run"]
    group, state, badge = _GROUPS[view["need"]]
    if view["need"] is Need.OPEN and view["next"] is None:  # deferred, abandoned, proposed, or it cannot be read
        badge = view["status"].capitalize()
        group, state = (group, "failed") if "error" in view else (Group.FINISHED, "ready")
    is_active = run is not None and run["state"] in UNFINISHED
    return Card(
        repo=repo,
        repository=name,
        plan=view["plan"],
        title=view["title"],
        group=group,
        state=state,
        badge=badge,
        phases=tuple(describe_phase(phase, view)[0] for phase in view["phases"]),
        sentence=describe_standing(view),
        current=_describe_step(view) if is_active else "",
        since=run["since"] if run else "",
        level=run["stuck"]["level"] if is_active else "",
        usage=usage,
        schedule=view["schedule"],
        queued=view["queued"] or "",
        action=choose_action(view),
        has_run=run is not None,
    )


def describe_phase(phase: dict[str, Any], view: dict[str, Any]) -> tuple[str, str]:
    """The state of a phase (done, running, waiting for a person, failed, blocked, next, todo), and its words."""
    run = view["run"]
    works = [work for work in (run, *run["lanes"]) if work["phase"] == phase["id"]] if run is not None else []
    if phase["status"] == "done":
        return "done", "done"
    if phase["failed"]:
        return "failed", "failed"
    if phase["status"] == "in-progress" and not phase["hindrance"]:
        work = works[-1] if works else run
        waits = work["waiting_for"]
        if waits and wait_of(waits).is_for_person:
            return "waiting", "needs you"
        return "running", f"waits: {waits}" if waits else str(work["step"] or "running")
    if phase["blocked_by"]:
        return "todo", f"after {', '.join(phase['blocked_by'])}"
    if phase["hindrance"]:
        return "blocked", "in progress" if phase["status"] == "in-progress" else "blocked"
    return ("next", "next") if phase["id"] == view["next"] else ("todo", "todo")


def _describe_step(view: dict[str, Any]) -> str:
    """`Phase 2 Parser: verify by codex`; of several lanes, the number of those besides the first."""
    run = view["run"]
    titles = {phase["id"]: phase["title"] for phase in view["phases"]}
    where = f"Phase {run['phase']} {titles.get(run['phase'], '')}".rstrip() if run["phase"] else ""
    by = f" by {run['agent']}" if run["agent"] else ""
    step = f"{run['step']}{by}" if run["step"] else ""
    others = sum(not lane["failed"] for lane in run["lanes"]) - 1
    more = f" and {counted(others, 'other phase')}" if others > 0 else ""
    return ": ".join(filter(None, [where, step])) + more


def describe_standing(view: dict[str, Any]) -> str:
    """How a plan stands, in one sentence; "" where its phases say it all."""
    run = view["run"]
    if "error" in view:
        return str(view["error"])
    if run is not None and run["stuck"]:
        waits = run["waiting_for"]
        if not waits or run["wake"] or not wait_of(waits).is_for_person:
            return str(run["stuck"]["sentence"])
        return f"Waits for you ({waits})" + (f": {run['about']}" if run["about"] else "")
    failed = next((phase for phase in view["phases"] if phase["failed"]), None)
    if failed is not None:
        return f"Phase {failed['id']} failed ({failed['failed']['reason']}): {failed['failed']['why']}".rstrip(": ")
    if view["refused"]:
        return f"The last {view['refused_verb']} was refused: {view['refused']}"
    if answered := view.get("answered"):
        return f"Last look: {answered['answer']}, {answered['why']}".rstrip(", ")
    if run is not None and run["state"] != RunStatus.DONE:
        return f"The last run {run['state']}" + (
            f" ({run['reason']})" if run["reason"] not in ("", run["state"]) else ""
        )
    return ""


def choose_action(view: dict[str, Any]) -> Action | None:
    """The next action of a person; None while the daemon has one to execute, or nothing is left to do."""
    run = view["run"]
    if view["queued"]:
        return None
    if view["need"] is Need.FAILED:
        phase = next((phase["id"] for phase in view["phases"] if phase["failed"]), "")
        return Action("retry", f"Retry phase {phase}", phase) if phase else Action("retry", "Retry")
    if run is not None and run["state"] in UNFINISHED:
        return _choose_action_of_run(view)
    if schedule := view["schedule"]:
        return Action("resume", "Resume") if schedule["paused"] else Action("now", "Run now")
    if view["need"] is Need.DONE:
        return Action("report", "Report") if run is not None else None
    return Action("start", "Start …") if view["next"] is not None else None


def _choose_action_of_run(view: dict[str, Any]) -> Action | None:
    run = view["run"]
    for work in (run, *run["lanes"]):
        wait = wait_of(work["waiting_for"])
        verb = next((verb for _, verb in wait.helps if verb in _LABELS), None)
        if work["waiting_for"] and wait.is_for_person and verb is not None:
            return Action(verb, _LABELS[verb], (work["phase"] or "") if verb == "diff" else "")
    if not (view["claim"] and view["claim"]["alive"]):
        return Action("retry", "Continue")
    if run["asked"] == "stop":
        return None
    return Action("status", "Look at it") if view["need"] is Need.WAITING else Action("stop", "Stop")
