"""The journal of one run: what is appended is kept in the store, and the state is folded from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.run.decide import Since, decide, moved, pause_reason
from runplan.run.events import LaneFact, Recorded, may_wait, name_of, recorded_as, sanitized, to_json
from runplan.run.reasons import step_of
from runplan.run.rows import RunRow
from runplan.run.state import RunState, apply, open_lanes, shown
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.clock import Clock
    from runplan.run.decide import Decision
    from runplan.run.events import Event, Fact
    from runplan.store.sqlite import Store


class Journal:
    """One run's events, kept in the store."""

    def __init__(
        self, store: Store, clock: Clock, *, run: str, plan: str, fence: int, told: Callable[[Fact], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._run = run
        self._plan = plan
        self._fence = fence
        self._told = told
        self.state = RunState()
        self._started = ""
        self._since = Since()
        for row in store.events(run):
            fact = recorded_as(row.type, row.body)
            if fact is not None:
                self._started = self._started or row.at
                self.state = apply(self.state, fact)
                self._since = moved(self._since, self.state, row.at)

    def append(self, *events: Event, lane: str = "") -> None:
        """Record facts that belong together; they are durable when this returns, unless they may wait for the next."""
        at = iso(self._clock.now())
        state, since = self.state, self._since
        plain = [sanitized(event) for event in events]
        facts = [LaneFact(lane=lane, event=event) if lane else event for event in plain]
        for fact in facts:
            state = apply(state, fact)
            since = moved(since, state, at)
        self._started = self._started or at
        row = project(state, run=self._run, plan=self._plan, started=self._started, since=since.at)
        told = [(at, name_of(fact), to_json(fact)) for fact in facts]
        waits = all(map(may_wait, plain))
        self._store.append(told, row, fence=self._fence, rests=pause_reason(state), waits=waits)
        self.state, self._since = state, since
        for fact in facts:
            self._told(fact)

    def strand(self, lane: str) -> Strand:
        """What goes on in one lane."""
        return Strand(self, lane)


class Strand:
    """The part of a journal that the steps of one lane see and write."""

    def __init__(self, journal: Journal, lane: str) -> None:
        self._journal = journal
        self._lane = lane

    @property
    def state(self) -> RunState:
        return {lane.name: lane.state for lane in self._journal.state.lanes}[self._lane]

    def append(self, *events: Event) -> None:
        self._journal.append(*events, lane=self._lane)


def project(state: RunState, *, run: str, plan: str, started: str, since: str) -> RunRow:
    """What `status` shows, from the same state and the same decision that drive the run."""
    decision = decide(state)
    ended = state.ended
    standing = {"done": "done", "nothing-to-do": "done", "stopped": "stopped"}
    phase = shown(state)
    return RunRow(
        id=run,
        plan=plan,
        started=started,
        state=standing.get(ended.outcome, "failed") if ended else _state(decision),
        phase=(phase.read.phase if phase else _first(state)) or None,
        step=None if ended or phase is None else step_of(phase),
        since=since,
        attempt=phase.lease.attempt if phase and phase.lease else 1,
        outcome=ended.outcome if ended else None,
        reason=(ended.reason or None) if ended else None,
        waiting_for=decision.waiting or None,
        landing=state.started.landing if state.started else "cherry-pick",
        about=decision.about or None,
        wake=decision.wake or None,
    )


def _first(state: RunState) -> str:
    """Of phases side by side that are yet to begin, the first."""
    return next((lane.phase for lane in open_lanes(state)), "")


def _state(decision: Decision) -> str:
    if decision.waiting == "slot":
        return "queued"
    return "waiting" if decision.waiting else "running"


def recorded(store: Store, run: str) -> list[Recorded]:
    """The whole journal of a run, for those who only read."""
    found = []
    for row in store.events(run):
        match recorded_as(row.type, row.body):
            case LaneFact(lane=lane, event=event):
                found.append(Recorded(seq=row.seq, at=row.at, event=event, lane=lane))
            case None:
                pass
            case event:
                found.append(Recorded(seq=row.seq, at=row.at, event=event))
    return found
