"""Whom a process without a terminal tells of its runs: the log, and the person who is notified."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan.adapters.clock import SystemClock
from runplan.adapters.git.objects import read_plan
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice, of_ending, of_lost_keys, of_near_limit, of_stopped_owner, of_waiting
from runplan.adapters.notify.notifier import Notifier
from runplan.domain.errors import PlanUnreadable, RunplanError, Unreachable
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempt_parts import StepCrashed
from runplan.domain.run.attempts import open_questions
from runplan.domain.run.decide import pause_reason
from runplan.domain.run.events import DispatchEnded, DispatchStarted, Event, Halted
from runplan.domain.run.kinds import ANSWERED, WaitKind
from runplan.domain.run.rows import RunRow, WaitRow
from runplan.domain.run.state import RunState, find_awaiting
from runplan.domain.times import iso, parse_iso, zone
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.runs import awaits_retry
from runplan.engine.steps.context import OpenRepository
from runplan.hosts.daemon.state import Known
from runplan.hosts.owner import RunOwner


class Services(Struct, frozen=True, kw_only=True):
    """What a process does for its hosts; may be called from any thread."""

    log: FilteringBoundLogger
    notifier: Notifier
    links: LinkMaker
    clock: SystemClock
    environment: Mapping[str, str]  #: of commands that bring none
    may_begin: Callable[[], bool]
    is_sick: Callable[[], bool]  #: whether this machine has trouble by itself, by a check now
    open_repository: Callable[[str, int], AbstractContextManager[tuple[RepositoryContext, OpenRepository]]]


class Reporter:
    """Logs what happens to the runs of a repository, and notifies a person of what needs one."""

    def __init__(self, known: Known, owner: RunOwner, services: Services) -> None:
        self._known = known
        self._owner = owner
        self._services = services
        self.log = services.log.bind(repository=known.root)
        self._reported: dict[tuple[str, str], tuple[str | None, ...]] = {}  #: by run and phase: the last reported wait

    def tell(self, plan: str, run: str, event: Event, phase: str) -> None:
        dispatch = event.id if isinstance(event, DispatchStarted | DispatchEnded) else ""
        trace = {"trace": event.trace} if isinstance(event, StepCrashed) else {}
        self.log.info(type(event).__name__, plan=plan, run=run, phase=phase, dispatch=dispatch, **trace)
        for limit in event.near if isinstance(event, DispatchStarted) else ():
            self._notify_once(of_near_limit(limit, **self._locate(plan, run)), limit.rpartition("(")[2])
        if isinstance(event, Halted) and event.missing:  # recorded once, however often the daemon is started
            self.tell_lost_keys(event.missing, plan, run)

    def tell_wait(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Log each wait once, though every pass of the loop sees it; a person is notified of one that needs them."""
        attempt = find_awaiting(state)
        name = attempt.chosen.phase if attempt else ""
        questions = " ".join(question.id for question in open_questions(attempt))
        asked = questions or (attempt.delivery.asked if attempt else "")
        wait = (decision.waiting, decision.about, decision.wake, asked)
        if self._reported.get((run, name)) == wait:
            return
        self._reported[run, name] = wait
        self.log.info("waits", plan=plan, run=run, why=decision.why)
        tree = attempt.delivery.asked if attempt and decision.waiting in ANSWERED else ""
        notice = of_waiting(state, decision, **self._locate(plan, run, phase=name, tree=tree))
        if notice is not None:
            self._notify_once(notice, f"{notice.phase} {asked}")

    def tell_trouble(self, plan: str, error: RunplanError) -> None:
        self.log.warning("trouble", plan=plan, error=str(error))

    def tell_end(self, plan: str, run: str, state: RunState) -> None:
        """A schedule ends with its plan, and pauses when a phase fails."""
        self._reported = {key: wait for key, wait in self._reported.items() if key[0] != run}
        store = self._owner.repository.store
        row = store.get_schedule(plan)
        if row is not None and (why := pause_reason(state)):  # recorded with the end of the run
            row = None
            self.log.info("schedule-paused", plan=plan, why=why)
        elif row is not None and _is_complete(self._owner.context, plan) and store.drop_schedule(plan):
            row = None
            self.log.info("schedule-ended", plan=plan)
        if awaits_retry(state):
            about = "a comment /runplan retry on its pull request"
            now = iso(self._owner.repository.clock.now())
            store.put_wait(WaitRow(kind=WaitKind.REVIEW, plan=plan, about=about, since=now))
        fires = row.next if row is not None else None
        outcome = state.ended.outcome if state.ended else ""
        self.log.info("ended", plan=plan, run=run, outcome=outcome, **({"next": fires} if fires else {}))
        notice = of_ending(state, **self._locate(plan, run))
        if notice is not None and row is not None and fires:
            moment = parse_iso(fires).astimezone(zone(row.zone))
            notice = replace(notice, text=f"{notice.text} Next run: {moment:%Y-%m-%d %H:%M %Z}.")
        if notice is not None:
            self._services.notifier.send(notice)

    def tell_lost_keys(self, missing: tuple[str, ...], plan: str, run: str) -> None:
        self._services.notifier.send(of_lost_keys(missing, **self._locate(plan, run)))

    def tell_stopped_owner(self, owner: str, run: RunRow) -> None:
        """The process that owns the run does not work (Ctrl-Z)."""
        self._notify_once(of_stopped_owner(owner, **self._locate(run.plan, run.id)), owner)

    def _locate(self, plan: str, run: str, *, phase: str = "", tree: str = "") -> dict[str, str]:
        """The fields of a notice that say what it is about; the link answers the change with this tree."""
        links = self._services.links
        link = links.link_to_page(self._known.key, plan)
        if tree:
            try:
                link = links.link_to_answer(self._known.key, plan, phase, run, tree)
            except Unreachable as error:  # the page of the plan is better than no notice
                self.log.warning("link-not-signed", plan=plan, run=run, error=str(error))
        return {"repository": self._known.root, "plan": plan, "run": run, "link": link}

    def _notify_once(self, notice: Notice, about: str) -> None:
        """Send the notice, unless an earlier daemon sent one of this run for the same reason and cause."""
        if self._owner.repository.store.record_notice(notice.run, f"{notice.reason} {about}"):
            self._services.notifier.send(notice)


def _is_complete(context: RepositoryContext, plan: str) -> bool:
    context = context.for_plan(plan)
    text = read_plan(context.git, f"{context.tip()}:{plan}", plan)
    try:
        return text is not None and parse_plan(text, path=plan).complete
    except PlanUnreadable:
        return False
