"""The board: every plan of every repository as a card, with the action that a person would take next."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath

from msgspec import Struct
from msgspec.structs import replace

from runplan.app.operations.model import Caller
from runplan.app.views.plans import PlanReader, read_plans
from runplan.app.views.repositories import find_known, open_known
from runplan.app.views.status import Level, PlanState, PlanView, describe_put_off
from runplan.domain.errors import NotFound, RunplanError
from runplan.domain.names import QUEUE, digest_of
from runplan.domain.standing.actions import NextAction
from runplan.domain.standing.queue import QueueEntry
from runplan.domain.standing.usage import AgentUsage, sum_usage, usage_of
from runplan.domain.text import counted, localized
from runplan.engine.loop.context import RepositoryContext, plan_or_watch, read_queue
from runplan.engine.report.summary import Outlook, forecast_phases, list_landed
from runplan.hosts.daemon.state import Known

MOST_RUNS = 1_000  #: whose cost is added up for a budget
#: The parts of the board, the most urgent first: the word for a page, and the heading. What failed is among what waits.
GROUPS = {
    PlanState.WAITING: ("needs-you", "Needs you"),
    PlanState.RUNNING: ("running", "Running"),
    PlanState.SCHEDULED: ("scheduled", "Scheduled"),
    PlanState.OPEN: ("ready", "Ready to start"),
    PlanState.DONE: ("finished", "Finished and set aside"),
}


class Card(Struct, frozen=True, kw_only=True):
    repo: str  #: the key of its repository
    repository: str = ""  #: a short name of its repository
    view: PlanView
    usage: AgentUsage = AgentUsage()  #: of the newest run; where the plan has a budget, of all its runs
    most_tokens: int = 0  #: its budget; 0 for none
    most_usd: float = 0.0

    @property
    def group(self) -> PlanState:
        if self.view.state is PlanState.FAILED:
            return PlanState.WAITING
        is_set_aside = self.view.state is PlanState.OPEN and self.view.next is None and not self.view.error
        return PlanState.DONE if is_set_aside else self.view.state

    @property
    def look(self) -> tuple[str, str]:
        """Its class in a page, and its badge."""
        if self.view.state is PlanState.OPEN and self.view.next is None:  # set aside, or it cannot be read
            return "failed" if self.view.error else "ready", self.view.status.capitalize()
        look = "failed" if self.view.state is PlanState.FAILED else GROUPS[self.view.state][0]
        return look, look.replace("-", " ").capitalize()

    @property
    def action(self) -> NextAction | None:
        """What most people do next."""
        return next(iter(self.view.actions), None)

    @property
    def current(self) -> str:
        """`Phase 2 Parser: verify by codex`; of several lanes, the number of those besides the first."""
        run = self.view.run
        if run is None or not run.is_active:
            return ""
        title = next((phase.title for phase in self.view.phases if phase.id == run.phase), "")
        by = ", ".join((f" by {run.agent}", *run.fill)) if run.agent else ""
        others = sum(not lane.failed for lane in run.lanes) - 1
        more = f" and {counted(others, 'other phase')}" if others > 0 else ""
        where = f"Phase {run.phase} {title}".rstrip() if run.phase else ""
        return ": ".join(filter(None, [where, f"{run.step}{by}" if run.step else ""])) + more

    @property
    def since(self) -> str:
        """When that step, the wait, or the end of the run began."""
        return self.view.run.since if self.view.run else ""

    @property
    def level(self) -> str:
        """How much its run needs a person; "" without an unfinished run."""
        return self.view.run.stuck.level if self.view.run and self.view.run.stuck else ""

    @property
    def is_told(self) -> bool:
        """Whether the current step says it all: the run works, and waits for nothing."""
        run = self.view.run
        if run is None or run.asked or self.level != Level.FINE:
            return False
        return not any(work.waiting_for for work in (run, *run.lanes))

    @property
    def id(self) -> str:
        """Its name in a page."""
        return f"{self.repo}-{digest_of(self.view.plan.encode('utf-8', 'surrogateescape'))[:12]}"


class QueueView(Struct, frozen=True, kw_only=True):
    """The queue of a repository, the plan that is worked next first."""

    plans: tuple[QueueEntry, ...] = ()
    words: str = ""  #: how it stands while nobody works on it
    forecast: str = ""  #: of the plans that are ready
    works: tuple[PlanView, ...] = ()  #: that begin plans of it, now or by a schedule
    host: str = ""  #: why nobody can work on it
    repo: str = ""  #: the key of its repository
    repository: str = ""  #: a short name of it


class Board(Struct, frozen=True, kw_only=True):
    cards: tuple[Card, ...]
    queues: tuple[QueueView, ...] = ()  #: of more than one plan
    missing: tuple[tuple[Known, str], ...] = ()  #: repositories that cannot be read, each with the reason
    notes: tuple[str, ...] = ()  #: broken settings, and why the daemon does not work

    def list_group(self, group: PlanState) -> list[Card]:
        """The cards of a group: what waits before what failed, and of finished plans the newest first."""
        cards = [card for card in self.cards if card.group is group]
        if group is PlanState.DONE:
            return sorted(cards, key=lambda card: card.since, reverse=True)
        return sorted(cards, key=lambda card: card.look[0] == "failed")

    @property
    def schedules(self) -> list[Card]:
        """The cards with a schedule; the next one first, paused ones last."""
        cards = [(card.view.schedule, card) for card in self.cards if card.view.schedule]
        cards.sort(key=lambda pair: (bool(pair[0].paused), pair[0].next or "~"))
        return [card for _, card in cards]


def read_queue_view(context: RepositoryContext, views: Sequence[PlanView], now: datetime) -> QueueView:
    """The queue with a forecast of the plans that are ready, and the works among the views."""
    known = {view.plan: view for view in views}
    plans = list(read_queue(context, context.store()))
    for place, plan in enumerate(plans):
        needed = known[plan.plan].needed_actions if plan.plan in known else ()
        plans[place] = replace(plan, why=localized(plan.why, now=now), actions=needed)
    ready = [plan for plan in plans if not plan.why]
    count = sum(plan.phases for plan in ready)
    outlook = [Outlook(context.settings.agents.implementer)] * count
    forecast = forecast_phases(outlook, list_landed(context.store())) if count else ""
    works = tuple(view for view in views if view.plan.startswith(QUEUE))
    words = f"{counted(len(ready), 'plan is', 'plans are')} ready." if ready else "No plan is ready; each says why."
    words = "" if works else words if plans else f"No plan is open{describe_put_off(views)}"
    return QueueView(plans=tuple(plans), words=words, forecast=forecast, works=works)


def read_queue_here(caller: Caller, work: str, now: datetime) -> QueueView:
    """The queue of the caller's repository, with one work on it, or with all."""
    with caller.open(lenient=True) as context:
        views, host = read_plans(context, "", now, warn=caller.warn)
        name = plan_or_watch(context, work) if work else ""
        queue = read_queue_view(context, views, now)
    works = tuple(view for view in queue.works if name in ("", view.plan))
    return replace(queue, works=works, host=host.error if host else "")


def read_board(known: Sequence[Known], now: datetime) -> Board:
    names = shorten_roots([repository.root for repository in known])
    cards: list[Card] = []
    queues: list[QueueView] = []
    missing: list[tuple[Known, str]] = []
    notes: list[str] = []
    for repository in known:
        name = names[repository.root]
        warnings: list[str] = []
        try:
            with open_known(repository, warn=warnings.append) as context:
                views, host = PlanReader(context, "", now, warn=warnings.append).read()
                plans = [view for view in views if view.state is not PlanState.PAGE]
                new_cards = [make_card(context, view, repository.key, name) for view in plans]
                queue = read_queue_view(context, views, now)
        except (RunplanError, OSError) as error:
            missing.append((repository, str(error)))
            continue
        cards += new_cards
        queues += [replace(queue, repo=repository.key, repository=name)] if len(queue.plans) > 1 else []
        notes += [f"{name}: {text}" for text in warnings]
        if host is not None:
            notes.append(host.error if host.state == "absent" else f"{name}: {host.error}")
    return Board(cards=tuple(cards), queues=tuple(queues), missing=tuple(missing), notes=tuple(dict.fromkeys(notes)))


def find_card(env: Mapping[str, str], key: str, plan: str, now: datetime) -> tuple[Known, Card]:
    repository = find_known(env, key)
    with open_known(repository, warn=lambda _: None) as context:
        for view in PlanReader(context, "", now).read()[0]:
            if view.plan == plan and view.state is not PlanState.PAGE:
                return repository, make_card(context, view, repository.key, PurePath(repository.root).name)
    raise NotFound(f"{plan}: no such plan in {repository.root}")


def make_card(context: RepositoryContext, view: PlanView, repo: str, name: str = "") -> Card:
    """The card of a plan with its usage; the runs of one with a budget are added up."""
    limits = context.settings.limits
    card = Card(repo=repo, repository=name, view=view, usage=usage_of(view.run) if view.run else AgentUsage())
    if not (limits.plan_usd or limits.plan_tokens) or view.state is PlanState.DONE or view.run is None:
        return card
    usage = sum_usage(AgentUsage, context.store().list_runs(view.plan, limit=MOST_RUNS))
    return replace(card, usage=usage, most_tokens=limits.plan_tokens, most_usd=limits.plan_usd)


def shorten_roots(roots: Sequence[str]) -> dict[str, str]:
    """The last name of each path; the whole path where two have the same one."""
    names = [PurePath(root).name for root in roots]
    return {root: name if names.count(name) == 1 else root for root, name in zip(roots, names, strict=True)}
