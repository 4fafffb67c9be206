"""Works the runs of one repository side by side: each takes the steps that are due, none waits for another.

A desk is opened when something is to be done and closed when nothing runs any more: a run that waits holds neither
a thread nor a process. Everything it knows it reads from the journal, so opening it again is harmless.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from runplan.app.foreground import told_by_name
from runplan.app.holding import Declined, Held, interrupted, reopen, resumed, take_up
from runplan.app.runner import advance
from runplan.core import backoff, events as e
from runplan.core.decide import decide
from runplan.core.errors import Crashed, Fenced, RunplanError
from runplan.core.quickclass import dataclass
from runplan.core.times import iso, parse_iso

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.app.holding import Errand, Rooms, Voice
    from runplan.core.decide import Decision
    from runplan.core.run import RunState


class Turns(Protocol):
    """Who may be at work, over all desks."""

    def ask(self, plan: str) -> bool: ...

    def leave(self, plan: str) -> None: ...


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


class Desk:
    """The runs in our hands, in one thread."""

    def __init__(self, rooms: Rooms, voice: Voice, *, turns: Turns, listener: Listener) -> None:
        self._rooms = rooms
        self._voice = voice
        self._turns = turns
        self._listener = listener
        self._held: dict[str, Held] = {}
        self._next: dict[str, Errand] = {}  #: what is to be begun when the run before it has ended

    # --- what people ask for ----------------------------------------------------------------------------

    def begin(self, errand: Errand) -> Accepted | Declined:
        """Work what is asked for; a plan that waits is called on, one that runs is left to run."""
        plan = errand.started.plan
        held = self._held.get(plan)
        if held is None:
            answer = take_up(errand, self._rooms, self._voice)
            if isinstance(answer, Declined):
                return answer
            self._held[plan] = answer
            if answer.ends:
                self._next[plan] = errand
            return Accepted(run=answer.world.run, fresh=True)
        if not decide(held.journal.state).waiting and errand.answer is None:
            return Accepted(run=held.world.run, fresh=False)
        held.journal.append(*([errand.answer] if errand.answer else [resumed(errand.started)]))
        return Accepted(run=held.world.run, fresh=True)

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
        self._held[plan] = answer
        return Accepted(run=row.id, fresh=True)

    def tell(self, plan: str, event: e.StopRequested | e.Halted | e.Continued) -> bool:
        """Record what a person wants of the plan's run; False when it is not in our hands."""
        held = self._held.get(plan)
        if held is None:
            return False
        if not isinstance(event, e.Halted) or held.journal.state.halted != event.by:
            held.journal.append(event)
        return True

    def goes_on(self, plan: str) -> bool:
        """Whether the plan's run is in our hands and will go on without a person."""
        held = self._held.get(plan)
        decision = decide(held.journal.state) if held else None
        return decision is not None and bool(decision.actions or decision.waiting in ("slot", "checkout"))

    @property
    def plans(self) -> tuple[str, ...]:
        return tuple(self._held)

    # --- the work -----------------------------------------------------------------------------------------

    def turn(self) -> tuple[list[str], datetime | None]:
        """Take every step that is due; the dispatches that run now, and when to look again at the latest."""
        running: list[str] = []
        wakes: list[datetime] = []
        for plan in list(self._held):
            decision = self._step(plan)
            held = self._held.get(plan)
            if held is None or decision is None:
                continue
            phase = held.journal.state.phase
            if decision.wake:
                wakes.append(parse_iso(decision.wake))
            elif phase is not None and phase.dispatch is not None:
                running.append(phase.dispatch.id)
        return running, min(wakes, default=None)

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
            return self._put_off(plan, held, error)
        if held.journal.state.ended is not None:
            return self._over(plan, held)
        return decision

    def _advance(self, plan: str, held: Held) -> Decision:
        journal = held.journal
        decision = decide(journal.state)
        if not self._may_work(plan, held, decision):
            return decide(journal.state)
        try:
            decision = advance(journal, held.world)
        except RunplanError:
            raise
        except Exception as error:
            raise told_by_name(error, journal, held.world) from error
        if journal.state.ended is None and decision.waiting and not _runs(journal.state):
            decision = self._waits(plan, held, decision)
        return decision

    def _may_work(self, plan: str, held: Held, decision: Decision) -> bool:
        """Whether it has its turn; one that waits for something else needs none."""
        journal = held.journal
        waits = decision.waiting and decision.waiting != "slot" and not decision.wake
        if waits or journal.state.stop or _runs(journal.state):
            return True
        if decision.wake and parse_iso(decision.wake) > held.world.clock.now():
            return True
        if not self._turns.ask(plan):
            if not journal.state.queued:
                journal.append(e.Queued())
            return False
        if journal.state.queued:
            journal.append(e.Admitted())
        return True

    def _waits(self, plan: str, held: Held, decision: Decision) -> Decision:
        """Others have their turn while it waits; a checkout in use is looked at again by itself."""
        if decision.waiting == "checkout" and not decision.wake:
            minutes = backoff.delay(held.journal.state.waits + 1)
            until = held.world.clock.now() + timedelta(minutes=minutes)
            words = held.journal.state.phase.held if held.journal.state.phase else ""
            held.journal.append(e.Paused(kind="checkout", until=iso(until), words=words))
            decision = decide(held.journal.state)
        if decision.waiting != "slot":
            self._turns.leave(plan)
        self._listener.waits(plan, held.world.run, held.journal.state, decision)
        return decision

    def _put_off(self, plan: str, held: Held, error: RunplanError) -> Decision:
        """Git, disk or network do not answer: it is tried again, less and less often."""
        minutes = backoff.delay(held.journal.state.waits + 1)
        until = held.world.clock.now() + timedelta(minutes=minutes)
        held.journal.append(e.Paused(kind="unreachable", until=iso(until), words=str(error)))
        self._listener.troubled(plan, error)
        return self._waits(plan, held, decide(held.journal.state))

    def _over(self, plan: str, held: Held) -> Decision | None:
        """The run has ended: what was to begin after it begins."""
        self._let_go(plan)
        self._rooms.claims.release(plan, run=held.world.run)
        self._listener.ended(plan, held.world.run, held.journal.state)
        errand = self._next.pop(plan, None)
        if errand is None or isinstance(self.begin(errand), Declined):
            return None
        return self._step(plan)

    def _let_go(self, plan: str) -> None:
        self._held.pop(plan, None)
        self._turns.leave(plan)


def _runs(state: RunState) -> bool:
    return state.phase is not None and state.phase.dispatch is not None
