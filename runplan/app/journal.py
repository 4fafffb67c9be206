"""The journal of one run: what is appended is on disk, and the state is folded from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.decide import decide
from runplan.core.eventtext import Recorded, from_json, name_of, to_json
from runplan.core.plain import plainly
from runplan.core.rows import RunRow
from runplan.core.run import RunState, apply
from runplan.core.times import iso
from runplan.core.told import step_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan import ports
    from runplan.core.decide import Decision
    from runplan.core.events import Event


class Journal:
    """One run's events, kept in the store."""

    def __init__(
        self, store: ports.Store, clock: ports.Clock, *, run: str, plan: str, fence: int, told: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._run = run
        self._plan = plan
        self._fence = fence
        self._told = told
        self.state = RunState()
        self._started = ""
        self._since = ""
        for row in store.events(run):
            event = from_json(row.type, row.body)
            if event is not None:
                self._started = self._started or row.at
                self._since = row.at
                self.state = apply(self.state, event)

    def append(self, *events: Event) -> None:
        """Record facts that belong together; they are durable when this returns."""
        at = iso(self._clock.now())
        state = self.state
        events = tuple(plainly(event) for event in events)
        for event in events:
            state = apply(state, event)
        before = (self.state.phase is not None and step_of(self.state.phase)) or ""
        after = (state.phase is not None and step_of(state.phase)) or ""
        self._started = self._started or at
        if before != after or not self._since:
            self._since = at
        row = project(state, run=self._run, plan=self._plan, started=self._started, since=self._since)
        self._store.append([(at, name_of(event), to_json(event)) for event in events], row, fence=self._fence)
        self.state = state
        for event in events:
            self._told(event)


def project(state: RunState, *, run: str, plan: str, started: str, since: str) -> RunRow:
    """What `status` shows, from the same state and the same decision that drive the run."""
    decision = decide(state)
    ended = state.ended
    standing = {"done": "done", "nothing-to-do": "done", "stopped": "stopped"}
    phase = state.phase
    return RunRow(
        id=run,
        plan=plan,
        started=started,
        state=standing.get(ended.outcome, "failed") if ended else _state(decision),
        phase=phase.read.phase if phase and phase.read.phase else None,
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


def _state(decision: Decision) -> str:
    if decision.waiting == "slot":
        return "queued"
    return "waiting" if decision.waiting else "running"


def recorded(store: ports.Store, run: str) -> list[Recorded]:
    """The whole journal of a run, for those who only read."""
    rows = ((row, from_json(row.type, row.body)) for row in store.events(run))
    return [Recorded(seq=row.seq, at=row.at, event=event) for row, event in rows if event is not None]
