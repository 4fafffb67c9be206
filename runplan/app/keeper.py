"""Looks after one repository: takes orders for it, goes on with its runs after a restart, fires its schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from runplan.app import lending, scheduling
from runplan.app.granting import Grants
from runplan.app.holding import Declined, Voice
from runplan.app.runner import always
from runplan.app.station import Station
from runplan.app.surroundings import Closed
from runplan.app.unasked import Unasked
from runplan.app.wishes import Wished
from runplan.core import backoff, events as e
from runplan.core.due import what_is_due
from runplan.core.errors import RunplanError
from runplan.core.quickclass import NamedTuple
from runplan.core.resting import why_to_rest
from runplan.core.run import awaiting
from runplan.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from datetime import datetime

    from runplan import ports
    from runplan.app.desk import Accepted, Desk
    from runplan.app.holding import Errand
    from runplan.app.lending import Lend
    from runplan.app.station import Opened
    from runplan.app.surroundings import Audience, HostTurns, Timers
    from runplan.app.wishes import Beside
    from runplan.core.decide import Decision
    from runplan.core.rows import ScheduleRow, Wish
    from runplan.core.run import RunState


class Made(NamedTuple):
    """What is told of a schedule that was made."""

    first: datetime  #: when it fires
    instead: str  #: of which other, as said after `every`; "" for none


class Keeper:
    """May be called from any thread; everything happens at the repository's own desk, and the future tells."""

    def __init__(
        self,
        root: str,
        open_up: Callable[[int], AbstractContextManager[Opened]],
        *,
        timers: Timers,
        clock: ports.Clock,
        audience: Audience,
        turns: HostTurns,
        rested: Callable[[], None],
        beside: Beside,
        begins: Callable[[], bool] = always,
    ) -> None:
        """`rested` is called whenever nothing is being done here any more; nothing is begun unless `begins`."""
        self.root = root
        self._timers = timers
        self._clock = clock
        self._audience = audience
        self._turns = turns
        self._troubles = 0  #: how often in a row the repository was closed before a step could be taken
        self._since = ""  #: when that was so for the first time
        self._heeded = 0  #: how often it was come to a step since it was opened
        self.trouble: Closed | None = None  #: while nothing can be done here
        self._opened: Opened | None = None  #: while the desk is open, for its thread
        self._waiting: dict[tuple[str, str], tuple[str, ...]] = {}  #: by plan and phase: the wait that was told
        self._foreign: dict[str, int] = {}  #: by plan: looks in a row that found our run in other hands
        voice = Voice(tell=lambda plan, run, event: audience.told(root, plan, run, event), warn=self._warn)
        self._station = Station(
            open_up,
            voice,
            turns=self,
            listener=self,
            begun=self._begun,
            heed=self._heed,
            closed=self._closed,
            rested=rested,
            end_beside=self._end_beside,
            begins=begins,
        )
        self._beside = beside
        self._grants = Grants(clock=clock, arm=self._arm, disarm=self._disarm, troubled=self.troubled)
        self._wished = Wished(root, self._station.order, beside=beside, granting=self._grants)
        self._unasked = Unasked(
            self._station.order, timers=timers, clock=clock, begins=self._station.begins, troubled=self._failed
        )

    def look(self) -> None:
        """Something may be due here."""
        self._station.look()

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being done here."""
        return self._station.at_rest

    def wake(self) -> None:
        """Let whoever waits here see what has changed."""
        self._station.wake()

    def end_agents(self) -> None:
        """End every process; that is recorded, and the next daemon starts the same ones again."""
        self._station.end_agents()

    def _end_beside(self) -> None:
        try:
            self._beside.end_agents(self.root)
        except (RunplanError, OSError) as error:
            self._audience.happened(self.root, "trouble", error=f"agents could not be ended: {error}")

    def let_go(self) -> None:
        """Take no further step; agents live on under their shims."""
        self._station.let_go()

    def close(self, within_s: float) -> bool:
        """The same, and wait for the step that is being taken; False when that takes longer."""
        self.let_go()
        return self._station.stop(within_s)

    # --- what people ask for ------------------------------------------------------------------------------

    def begin(self, errand: Errand, lend: Lend = lending.nothing) -> Future[Accepted | Declined]:
        """Work what a person asks for; who starts a plan anew lets its schedule go on as well."""

        def do(desk: Desk, opened: Opened) -> Accepted | Declined | Future[Accepted | Declined]:
            goes_on = desk.continues(errand)

            def begin() -> Accepted | Declined:
                if goes_on:
                    self._grants.require_keys(errand.started.plan, opened)
                return desk.begin(errand)

            answer = lending.begun(lend, begin, anew=not goes_on)
            if isinstance(answer, Declined):
                return answer
            if not answer.fresh:
                self._grants.bring_keys(errand.started.plan, lend, desk, opened)
            if errand.answer is None:
                self._grants.unpause(errand.started.plan, opened)
            return answer.later or answer

        return self._station.order(do)

    def goes_on(self, plan: str, run: str) -> Future[bool]:
        """Whether anything will be heard of that run without a person; "" for whichever the plan has."""
        return self._station.order(lambda desk, _: desk.goes_on(plan, run))

    def schedule(self, row: ScheduleRow, lend: Lend = lending.nothing) -> Future[Made]:
        """Make the plan's schedule."""

        def do(desk: Desk, opened: Opened) -> Made:
            self._grants.bring_keys(row.plan, lend, desk, opened)
            lend(row.plan not in desk.plans)
            if (before := opened.schedules.get(row.plan)) is not None:
                scheduling.give_up(before, opened.schedules, self._clock.now(), "the schedule was changed")
            opened.schedules.put(row)
            instead = before.spec if before is not None and before.spec != row.spec else ""
            return Made(first=self._arm(row), instead=instead)

        return self._station.order(do)

    def fire_now(self, plan: str) -> Future[Accepted | Declined | None]:
        """Fire the plan's schedule early, and keep it; None when it has none."""

        def do(desk: Desk, opened: Opened) -> Accepted | Declined | None:
            row = opened.schedules.get(plan)
            if row is None:
                return None
            answer = scheduling.fire_early(row, desk, opened.schedules, self._clock.now())
            if not isinstance(answer, Declined):
                self._grants.bring_keys(plan, lending.nothing, desk, opened)
                self._halt_without_keys(row, desk, opened)
            self._arm(opened.schedules.get(plan) or row)
            return answer

        return self._station.order(do)

    def want(self, wish: Wish) -> Future[list[str]]:
        """Have a plan stopped, paused or called on; tells what was done, or that it is as soon as it can be."""
        return self._wished.insist(wish)

    def remind(self) -> None:
        """Try again to record what could not be; also while we drain."""
        if self._wished.keeps:
            self._station.order(lambda _desk, _opened: None)

    # --- schedules ----------------------------------------------------------------------------------------

    def reload(self) -> None:
        """The settings of the repository are others than before."""
        self._unasked.do(f"reload {self.root}", lambda _desk, opened: self._arm_all(opened))

    def _arm_all(self, opened: Opened) -> None:
        """Every schedule, in the zone that is set now: what it is to work was settled when it was made, not that."""
        zone, misfire = opened.timing()
        for row in opened.schedules.all():
            timed = scheduling.timed(row, zone=zone, misfire=misfire)
            if timed != row:
                opened.schedules.put(timed)
                told = {"plan": row.plan, "zone": timed.zone, "misfire": timed.misfire}
                self._audience.happened(self.root, "schedule-retimed", **told)
            self._arm(timed)

    def _arm(self, row: ScheduleRow) -> datetime:
        """Let the timer call when the schedule is due next, at once for what was missed; who fires it arms it anew."""
        found = what_is_due(row, self._clock.now())
        moment = self._clock.now() if found.fire or found.missed else found.next.at
        key = self._key(row.plan)
        if not self._unasked.is_ordered(key):  # else it would be fired twice where it fails
            self._timers.at(key, self._unasked.earliest(key, moment), lambda: self._due(row.plan))
        return found.next.at

    def _due(self, plan: str) -> None:
        """While we drain it stays due: the next daemon answers it."""
        self._unasked.do(self._key(plan), lambda desk, opened: self._fire(plan, desk, opened), plan=plan)

    def _fire(self, plan: str, desk: Desk, opened: Opened) -> None:
        row = opened.schedules.get(plan)
        if row is None:
            return
        for one in scheduling.fire(row, desk, opened.schedules, self._clock.now()):
            self._audience.happened(self.root, "slot", plan=plan, answer=one.answer, slot=one.slot, why=one.why)
            if one.answer == "fired":
                self._halt_without_keys(row, desk, opened)
        self._arm(opened.schedules.get(plan) or row)

    def _disarm(self, plan: str) -> None:
        self._timers.cancel(self._key(plan))

    def _key(self, plan: str) -> str:
        return f"schedule {self.root} {plan}"

    # --- what the desk asks and tells -----------------------------------------------------------------------

    def ask(self, plan: str) -> bool:
        return self._turns.ask((self.root, plan))

    def leave(self, plan: str) -> None:
        self._turns.leave((self.root, plan))

    def enter(self, plan: str) -> None:
        self._turns.enter((self.root, plan))

    def ended(self, plan: str, run: str, state: RunState) -> None:
        self._waiting = {key: told for key, told in self._waiting.items() if key[0] != plan}
        if self._opened is not None:  # told at the desk itself: not later, when it may have been closed for good
            self._settle(plan, state, self._opened)
        self._audience.ended(self.root, plan, run, state)

    def waits(self, plan: str, run: str, state: RunState, decision: Decision) -> None:
        """Tell it once: a desk comes past what waits whenever there is something else to do."""
        waits = awaiting(state)
        phase, tree = (waits.read.phase, waits.asked) if waits else ("", "")
        told = (run, decision.waiting, decision.about, decision.wake, tree)
        if self._waiting.get((plan, phase)) != told:
            self._waiting[plan, phase] = told
            self._audience.waits(self.root, plan, run, state, decision)

    def troubled(self, plan: str, error: RunplanError) -> None:
        self._audience.happened(self.root, "trouble", plan=plan, error=str(error))

    def _failed(self, plan: str, error: str, again: str) -> None:
        self._audience.happened(self.root, "trouble", plan=plan, error=error, again=again)

    def _warn(self, words: str) -> None:
        self._audience.happened(self.root, "warning", words=words)

    def _settle(self, plan: str, state: RunState, opened: Opened) -> None:
        """A schedule ends with its plan, and rests when a phase fails."""
        if opened.schedules.get(plan) is None:
            return
        if why := why_to_rest(state):  # recorded with the end of the run
            self._audience.happened(self.root, "schedule-paused", plan=plan, why=why)
        elif opened.complete(plan) and opened.schedules.drop(plan):
            self._disarm(plan)
            self._audience.happened(self.root, "schedule-ended", plan=plan)

    # --- opening and closing --------------------------------------------------------------------------------

    def _begun(self, desk: Desk, opened: Opened) -> None:
        """Whatever the daemon was at in this repository is in its hands again."""
        self.trouble, self._heeded = None, 0
        self._opened = opened
        for started in opened.left():
            self._resume(started, desk, opened)
        self._turns.counted(self.root)
        self._wished.grant_noted(desk, opened)
        self._arm_all(opened)

    def _heed(self, desk: Desk, opened: Opened) -> None:
        """Before each step: what was noted while nobody could do it."""
        self._heeded += 1
        if self._heeded > 1:  # a step was taken, so the trouble is over
            self._troubles, self._since = 0, ""
        self._wished.grant_noted(desk, opened)

    def _resume(self, started: e.RunStarted, desk: Desk, opened: Opened) -> None:
        """Go on with a run of ours; one that is in other hands is looked at again, less and less often."""
        plan = started.plan
        answer = desk.resume(started)
        if isinstance(answer, Declined):
            looks = self._foreign[plan] = self._foreign.get(plan, 0) + 1
            again = self._clock.now() + timedelta(minutes=backoff.delay(looks))
            self._timers.at(f"foreign {self.root} {plan}", again, lambda: self._look_at(started))
            if backoff.told(looks):
                told = {"plan": plan, "owner": answer.owner, "again": again.isoformat()}
                self._audience.happened(self.root, "declined", **told)
            return
        self._foreign.pop(plan, None)
        if answer is not None:
            self._halt(started, desk, opened)

    def _look_at(self, started: e.RunStarted) -> None:
        def look(desk: Desk, opened: Opened) -> None:
            self._resume(started, desk, opened)
            self._wished.grant_noted(desk, opened)

        self._unasked.do(f"foreign {self.root} {started.plan}", look, plan=started.plan)

    def _halt_without_keys(self, row: ScheduleRow, desk: Desk, opened: Opened) -> None:
        self._halt(scheduling.errand_of(row).started, desk, opened)

    def _halt(self, started: e.RunStarted, desk: Desk, opened: Opened) -> None:
        """An agent without its keys would only fail: the run waits for a person who brings them."""
        if names := opened.missing(started):
            told = f"a restart: {', '.join(names)} of its caller are not known any more"
            desk.tell(started.plan, e.Halted(by=told, missing=names))

    def _closed(self, wake: datetime | None, trouble: RunplanError | None) -> None:
        self._opened = None
        if trouble is not None:
            self._troubles += 1
            now = self._clock.now()
            wake = now + timedelta(minutes=backoff.delay(self._troubles))
            self._since = self._since or iso(now)
            self.trouble = Closed(root=self.root, error=str(trouble), since=self._since, again=iso(wake))
            self._turns.counted(self.root)
            self._audience.happened(self.root, "closed", error=str(trouble), again=wake.isoformat())
        else:
            self._troubles, self._since = 0, ""
        if wake is not None:
            self._timers.at(f"wake {self.root}", wake, self.look)
