"""The journal of one run: events go to the store, and the state is folded from them alone."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.clock import SystemClock
from runplan.adapters.store.protocol import Store
from runplan.adapters.store.sql import Append
from runplan.domain.decoding import to_json
from runplan.domain.run.decide import pause_reason
from runplan.domain.run.events import Event, RunStarted
from runplan.domain.run.projection import CurrentStep, project_run, start_of_current_step
from runplan.domain.run.recorded import Recorded, may_wait, read_row, sanitize_event
from runplan.domain.run.state import RunState, apply
from runplan.domain.settings.schema import Settings
from runplan.domain.times import iso


class Journal(Struct, eq=False):
    """The events of one run; `on_event` gets each one with its phase, `settings` count instead of recorded ones."""

    store: Store
    clock: SystemClock
    run: str
    plan: str
    fence: int
    on_event: Callable[[Event, str], None]
    settings: Settings | None = None
    state: RunState = RunState()
    started: str = ""
    current_step: CurrentStep = CurrentStep()

    def __post_init__(self) -> None:
        for record in list_records(self.store, self.run):
            self.started = self.started or record.at
            event = record.event
            if isinstance(event, RunStarted) and self.settings is not None:
                event = replace(event, settings=self.settings)
            self.state = apply(self.state, event)
            self.current_step = start_of_current_step(self.current_step, self.state, record.at)

    def append(self, *events: Event, lane: str = "") -> None:
        """Record events together. They are durable when this returns, unless all of them may wait for the next."""
        now = iso(self.clock.now())
        state = self.state
        step = self.current_step
        facts = [replace(sanitize_event(event), lane=lane) for event in events]
        for fact in facts:
            state = apply(state, fact)
            step = start_of_current_step(step, state, now)
        self.started = self.started or now
        row = project_run(state, run=self.run, plan=self.plan, started=self.started, since=step.since)
        rows = [(now, type(fact).__name__, to_json(fact)) for fact in facts]
        self.store.append(Append(rows, row, self.fence, pause_reason(state)), waits=all(map(may_wait, facts)))
        self.state = state
        self.current_step = step
        attempt = state.of_lane(lane).attempt
        for fact in facts:
            self.on_event(fact, attempt.chosen.phase if attempt else "")


def list_records(store: Store, run: str) -> list[Recorded[Event]]:
    return [record for row in store.list_events(run) if (record := read_row(row)) is not None]
