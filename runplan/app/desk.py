"""Works the runs of one repository side by side: each takes the steps that are due, none waits for another.

A desk is opened when something is to be done and closed when nothing runs any more: a run that waits holds neither
a thread nor a process. Everything it knows it reads from the journal, so opening it again is harmless.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from runplan.app.foreground import told_by_name
from runplan.app.holding import (
    Declined,
    Held,
    Rooms,
    interrupted,
    is_meant,
    is_other_errand,
    nothing_waits,
    reopen,
    resumed,
    take_up,
)
from runplan.app.journal import recorded
from runplan.app.runner import advance, always, record_ends
from runplan.core import backoff, events as e
from runplan.core.decide import decide
from runplan.core.dispatch import GRACE_S
from runplan.core.errors import Crashed, Fenced, RefusedEarly, RunplanError
from runplan.core.quickclass import dataclass
from runplan.core.resting import waits_for_person
from runplan.core.run import RunState, fold, open_lanes, running as dispatched, strands
from runplan.core.times import iso, parse_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from runplan.app.holding import Errand, Voice
    from runplan.app.world import World
    from runplan.core.decide import Decision


class OpenRooms(Rooms, Protocol):
    """A repository that stays open from run to run."""

    def renewed(self, world: World, started: e.RunStarted) -> World:
        """The world with the caller's environment of now."""
        ...


class Turns(Protocol):
    """Who may be at work, over all desks."""

    def ask(self, plan: str) -> bool: ...

    def leave(self, plan: str) -> None: ...

    def enter(self, plan: str) -> None:
        """Count a run whose process is running already."""
        ...


class Listener(Protocol):
    """Who is told what becomes of runs."""

    def ended(self, plan: str, run: str, state: RunState) -> None: ...

    def waits(self, plan: str, run: str, state: RunState, decision: Decision) -> None: ...

    def troubled(self, plan: str, error: RunplanError) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The plan is, or was already, in our hands."""

    run: str
    fresh: bool  #: False when it was at work already, and nothing was changed
    warnings: tuple[str, ...] = ()  #: for the caller
    later: Future[Accepted | Declined] | None = None  #: this run has to end first; what then becomes of what was asked


class Desk:
    """The runs in our hands, in one thread."""

    def __init__(
        self, rooms: OpenRooms, voice: Voice, *, turns: Turns, listener: Listener, begins: Callable[[], bool] = always
    ) -> None:
        """As soon as `begins` does not hold any more, nothing new is begun."""
        self._rooms = rooms
        self._voice = voice
        self._turns = turns
        self._listener = listener
        self._begins = begins
        self._held: dict[str, Held] = {}
        #: What is to be begun when the run before it has ended, and who is told what becomes of it.
        self._next: dict[str, tuple[Errand, Future[Accepted | Declined]]] = {}

    # --- what people ask for ----------------------------------------------------------------------------

    def begin(self, errand: Errand) -> Accepted | Declined:
        """Work what is asked for; a plan that waits is called on, one that runs is left to run."""
        plan = errand.started.plan
        held = self._held.get(plan)
        if errand.fired and not self._is_at_work(held) and (why := waits_for_person(self.newest(plan), plan)):
            return Declined(owner="", why=why, readable=True)
        if held is None:
            answer = take_up(errand, self._rooms, self._voice)
            if isinstance(answer, Declined):
                return answer
            self._hold(plan, answer)
            if answer.ends:
                return self._after(errand, answer)
            return Accepted(run=answer.world.run, fresh=True, warnings=answer.warnings)
        if errand.answer is not None and not is_meant(held.journal.state, errand.answer):
            return Declined(owner="", why=nothing_waits(plan), readable=True)
        if held.journal.state.stop and errand.answer is None:
            return self._after(errand, held)
        if self._is_at_work(held) and errand.answer is None:
            return Accepted(run=held.world.run, fresh=False)
        if errand.answer is None and is_other_errand(held.journal.state, errand.started):
            held.journal.append(e.StopRequested(by="a new start"))
            return self._after(errand, held)
        held.journal.append(errand.answer or self._called_on(errand.started, held))
        return Accepted(run=held.world.run, fresh=True)

    def continues(self, errand: Errand) -> bool:
        """Whether `begin` would continue an unfinished run of the plan that waits, instead of beginning a new one."""
        held = self._held.get(errand.started.plan)
        if held is not None and (errand.answer is not None or self._is_at_work(held)):
            return False
        state = held.journal.state if held is not None else self.newest(errand.started.plan)
        unfinished = state.started is not None and state.ended is None and not state.stop
        return unfinished and not is_other_errand(state, errand.started)

    def newest(self, plan: str) -> RunState:
        """The state of the plan's newest run, in whose hands it ever is; an empty one for none."""
        row = self._rooms.store.newest(plan)
        return fold(one.fact for one in recorded(self._rooms.store, row.id)) if row is not None else RunState()

    def _is_at_work(self, held: Held | None) -> bool:
        return held is not None and not decide(held.journal.state).waiting

    def _called_on(self, asked: e.RunStarted, held: Held) -> e.RunResumed:
        assert held.journal.state.started is not None
        return resumed(asked, held.journal.state.started)

    def _after(self, errand: Errand, held: Held) -> Accepted:
        """Begin it when the run that is in its way has ended."""
        plan = errand.started.plan
        if plan in self._next:
            self._next[plan][1].set_exception(RefusedEarly("another start came before this one could begin"))
        later: Future[Accepted | Declined] = Future()
        self._next[plan] = (errand, later)
        return Accepted(run=held.world.run, fresh=True, later=later)

    def resume(self, started: e.RunStarted) -> Accepted | Declined | None:
        """Go on with the plan's unfinished run, which began so, as it stands; None when there is none."""
        plan = started.plan
        if plan in self._held:
            return Accepted(run=self._held[plan].world.run, fresh=False)
        row = interrupted(self._rooms.store, plan)
        if row is None:
            return None
        answer = reopen(row, started, rooms=self._rooms, voice=self._voice)
        if isinstance(answer, Declined):
            return answer
        self._hold(plan, answer)
        return Accepted(run=row.id, fresh=True)

    def _hold(self, plan: str, held: Held) -> None:
        """Take the run; one that an earlier process left with an agent at work has its turn already."""
        self._held[plan] = held
        if dispatched(held.journal.state):
            self._turns.enter(plan)

    def tell(self, plan: str, event: e.StopRequested | e.Halted | e.Continued) -> bool:
        """Record what a person wants of the plan's run; False when it is not in our hands."""
        held = self._held.get(plan)
        if held is None:
            return False
        if not isinstance(event, e.Halted) or held.journal.state.halted != event.by:
            held.journal.append(event)
        return True

    def goes_on(self, plan: str, run: str = "") -> bool:
        """Whether the plan's run, or only that one, is in our hands and will go on without a person."""
        held = self._held.get(plan)
        if held is not None and run not in ("", held.world.run):
            return False
        decision = decide(held.journal.state) if held else None
        return decision is not None and bool(decision.actions or decision.waiting in ("slot", "checkout"))

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(self._held)

    def end_agents(self) -> None:
        """End every process of every run, all at the same time; the next runner starts the same ones again."""
        found = list(self._held.values())
        if ids := [dispatch for held in found for dispatch in dispatched(held.journal.state)]:
            found[0].world.dispatches.end(ids, grace_s=GRACE_S)  # those of the repository, of whichever run
        for plan, held in self._held.items():
            try:
                record_ends(held.journal, held.world)
            except RunplanError as error:  # it is over all the same, and the next runner sees that
                self._listener.troubled(plan, error)

    def close(self, trouble: RunplanError) -> None:
        """Nothing more is begun here: whoever waits for that is told why."""
        while self._next:
            self._next.popitem()[1][1].set_exception(trouble)

    # --- the work -----------------------------------------------------------------------------------------

    def turn(self, between: Callable[[], None]) -> tuple[list[str], datetime | None]:
        """Take every step that is due; the dispatches that run now, and when to look again at the latest.

        `between` is called after each plan, so that nobody who asks for something waits for all of them; a plan for
        which that began or changed something has its step afterwards, also when it had had one.
        """
        stepped: dict[str, RunState] = {}
        wakes: dict[str, str] = {}
        while (plan := self._unstepped(stepped)) is not None:
            decision = self._step(plan)
            if (held := self._held.get(plan)) is not None:
                stepped[plan] = held.journal.state
            wakes[plan] = decision.wake if decision else ""
            between()
        running = [one for held in self._held.values() for one in _looked_at(held.journal.state)]
        return running, min((parse_iso(wakes[plan]) for plan in self._held if wakes[plan]), default=None)

    def _unstepped(self, stepped: Mapping[str, RunState]) -> str | None:
        """A plan that has had no step since its state became what it is."""
        return next((plan for plan, held in self._held.items() if stepped.get(plan) is not held.journal.state), None)

    def _step(self, plan: str) -> Decision | None:
        held = self._held[plan]
        try:
            decision = self._advance(plan, held)
        except Fenced:
            self._let_go(plan)
            return None
        except Crashed as error:
            self._listener.troubled(plan, error)
            return self._over(plan, held)
        except RunplanError as error:
            decision = self._put_off(plan, held, error)
            # What goes on beside the lane that waits now goes on at once.
            return self._step(plan) if error.lane and decide(_strand(held, error.lane)).waiting else decision
        if held.journal.state.ended is not None:
            return self._over(plan, held)
        return decision

    def _advance(self, plan: str, held: Held) -> Decision:
        journal = held.journal
        decision = decide(journal.state)
        if not self._may_work(plan, held, decision):
            return decide(journal.state)
        held = self._renewed(plan, held)
        try:
            decision = advance(journal, held.world, self._begins)
        except RunplanError:
            raise
        except Exception as error:
            raise told_by_name(error, journal, held.world) from error
        if journal.state.ended is None:
            self._look_again_at_checkouts(held)
            decision = self._waits(plan, held)
        return decision

    def _renewed(self, plan: str, held: Held) -> Held:
        """Whatever is begun from here on is begun with the keys of now."""
        assert held.journal.state.started is not None
        world = self._rooms.renewed(held.world, held.journal.state.started)
        self._held[plan] = held if world is held.world else replace(held, world=world)
        return self._held[plan]

    def _may_work(self, plan: str, held: Held, decision: Decision) -> bool:
        """Whether it has its turn; one that waits for something else needs none."""
        journal = held.journal
        waits = decision.waiting and decision.waiting != "slot" and not decision.wake
        if waits or journal.state.stop or dispatched(journal.state) or not self._begins():
            return True
        if decision.waiting and decision.wake and parse_iso(decision.wake) > held.world.clock.now():
            return True
        if not self._turns.ask(plan):
            if not journal.state.queued:
                journal.append(e.Queued())
            return False
        if journal.state.queued:
            journal.append(e.Admitted())
        return True

    def _look_again_at_checkouts(self, held: Held) -> None:
        """A checkout in use is looked at again by itself."""
        for lane, state in strands(held.journal.state):
            decision = decide(state)
            if decision.waiting == "checkout" and not decision.wake:
                until = held.world.clock.now() + timedelta(minutes=backoff.delay(state.waits + 1))
                words = state.phase.held if state.phase else ""
                held.journal.append(e.Paused(kind="checkout", until=iso(until), words=words), lane=lane)

    def _waits(self, plan: str, held: Held) -> Decision:
        """Who waits is told of, lane by lane; while nothing else goes on, others have their turn."""
        state, run = held.journal.state, held.world.run
        decision = decide(state)
        for lane in open_lanes(state):
            if (alone := decide(lane.state)).waiting:
                self._listener.waits(plan, run, lane.state, alone)
        if decision.waiting and not dispatched(state):
            if decision.waiting != "slot":
                self._turns.leave(plan)
            if not open_lanes(state):
                self._listener.waits(plan, run, state, decision)
        return decision

    def _put_off(self, plan: str, held: Held, error: RunplanError) -> Decision:
        """Git, disk or network do not answer: it is tried again, less and less often."""
        minutes = backoff.delay(_strand(held, error.lane).waits + 1)
        until = held.world.clock.now() + timedelta(minutes=minutes)
        held.journal.append(e.Paused(kind="unreachable", until=iso(until), words=str(error)), lane=error.lane)
        self._listener.troubled(plan, error)
        return self._waits(plan, held)

    def _over(self, plan: str, held: Held) -> Decision | None:
        """The run has ended: what was to begin after it begins."""
        self._let_go(plan)
        self._rooms.claims.release(plan, run=held.world.run)
        self._listener.ended(plan, held.world.run, held.journal.state)
        return self._step(plan) if self._begin_next(plan) else None

    def _begin_next(self, plan: str) -> bool:
        """Begin what waited for the end of the run before it; False when there is nothing to do."""
        if plan not in self._next or not self._begins():
            return False
        errand, later = self._next.pop(plan)
        try:
            answer = self.begin(errand)
        except RunplanError as error:
            later.set_exception(error)
            return False
        later.set_result(answer)
        return isinstance(answer, Accepted)

    def _let_go(self, plan: str) -> None:
        self._held.pop(plan, None)
        self._turns.leave(plan)


def _strand(held: Held, lane: str) -> RunState:
    """The state of one lane, or of the run itself."""
    return held.journal.strand(lane).state if lane else held.journal.state


def _looked_at(state: RunState) -> list[str]:
    """The dispatches whose end is waited for; one that waits for something else is looked at again at its time."""
    return [id_ for _, one in strands(state) if not decide(one).waiting for id_ in dispatched(one)]
