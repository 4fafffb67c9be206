"""In every order of events a plan has at most one live run, and every due slot is recorded."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.decoding import to_json
from runplan.domain.run.events import RunStarted
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import Answer, FiringRow, ScheduleRow
from runplan.domain.run.state import RunState
from runplan.domain.settings.schedule import parse_schedule, slots_after
from runplan.domain.times import iso, parse_iso, zone
from runplan.hosts.commands import fire_early, fire_schedule, give_up
from runplan.hosts.owner import RunOwner

PLANS = ("plans/A.md", "plans/B.md")
ZONE = "Europe/Berlin"
#: In the week in which clocks there go back.
BEGIN = datetime(2026, 10, 22, 9, 17, 3, tzinfo=UTC)


class Death(Exception):
    """The daemon is killed."""


class Disk:
    """The state that survives a crash: schedules with the answers to their slots, and unfinished runs."""

    def __init__(self) -> None:
        self.rows: dict[str, ScheduleRow] = {}
        self.firings: dict[tuple[str, str], FiringRow] = {}
        self.unfinished: dict[str, str] = {}
        self.begun: list[tuple[str, str]] = []  #: plan, run
        self.dies = False  #: the process is killed after it began a run and before that is recorded

    # --- the store's own words ---

    def get_schedule(self, plan: str) -> ScheduleRow | None:
        return self.rows.get(plan)

    def put_schedule(self, row: ScheduleRow) -> None:
        self.rows[row.plan] = row

    def drop_schedule(self, plan: str) -> bool:
        return self.rows.pop(plan, None) is not None

    def pause_schedule(self, plan: str, why: str | None) -> bool:
        if plan not in self.rows:
            return False
        self.rows[plan] = replace(self.rows[plan], paused=why)
        return True

    def answer_slot(self, firing: FiringRow) -> bool:
        if self.dies and firing.answer == "fired":
            raise Death
        found = self.firings.get((firing.plan, firing.slot))
        fresh = found is None or firing.at < found.at
        if fresh:
            self.firings[firing.plan, firing.slot] = firing
        if firing.plan in self.rows:
            self.rows[firing.plan] = replace(self.rows[firing.plan], last=firing.slot)
        return fresh

    def is_slot_answered(self, plan: str, slot: str, *, before: str) -> bool:
        found = self.firings.get((plan, slot))
        return found is not None and found.at <= before


class Runs:
    """Runs in memory; those on the disk are adopted, as a worker does when it opens its repository."""

    def __init__(self, disk: Disk, foreign: set[str]) -> None:
        self.disk = disk
        self.foreign = foreign  #: plans that another process works
        self.repository = SimpleNamespace(store=disk)
        self.runs = {plan: run for plan, run in disk.unfinished.items() if plan not in foreign}

    def begin(self, request: RunRequest) -> Answer:
        plan = request.started.plan
        if plan in self.foreign:
            return Answer(declined=True, owner="1:1:other", why="it lives")
        if plan in self.runs:
            return Answer(run=self.runs[plan])
        assert plan not in self.disk.unfinished, "two live runs of one plan"
        run = f"r{len(self.disk.begun)}"
        self.disk.begun.append((plan, run))
        self.disk.unfinished[plan] = self.runs[plan] = run
        return Answer(run=run, fresh=True)

    def newest(self, _plan: str) -> RunState:
        return RunState()

    def end(self, plan: str) -> None:
        if plan in self.runs:
            del self.runs[plan], self.disk.unfinished[plan]


class History:
    """A daemon's life, step by step, and every slot that came due in it."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.now = BEGIN
        self.foreign: set[str] = set()
        self.runs = Runs(self.disk, self.foreign)
        self.owed: set[tuple[str, str]] = set()
        self.latest: dict[str, datetime] = {}  #: up to when its slots are answered

    def start(self, plan: str, spec: str, misfire: str) -> None:
        started = RunStarted(plan=plan, title="", mode=Mode.NEXT, wanted="", auto=True, landing="cherry-pick",
                             target="main", slug="a", daemon=True)  # fmt: skip
        if (before := self._row(plan)) is not None:
            give_up(before, cast("SqliteStore", self.disk), self.now, "changed")
        self.disk.put_schedule(
            ScheduleRow(
                plan=plan, spec=spec, zone=ZONE, misfire=misfire, request=to_json(started),
                anchor=iso(self.now), made=iso(self.now),
            )
        )  # fmt: skip
        self.latest[plan] = self.now

    def stop(self, plan: str) -> None:
        if (row := self._row(plan)) is not None:
            give_up(row, cast("SqliteStore", self.disk), self.now, "cancelled")
        self.disk.drop_schedule(plan)
        self.runs.end(plan)

    def pause(self, plan: str) -> None:
        row = self.disk.get_schedule(plan)
        self.disk.pause_schedule(plan, None if row and row.paused else "a person")

    def end(self, plan: str) -> None:
        self.runs.end(plan)

    def crash(self) -> None:
        self.runs = Runs(self.disk, self.foreign)

    def die(self) -> None:
        """Fire what is due, and be killed between the run that was begun and the record of its slot."""
        self.disk.dies = True
        with contextlib.suppress(Death):
            self.look()
        self.disk.dies = False
        self.crash()

    def take(self, plan: str) -> None:
        """Another process begins or ends its own run of the plan."""
        if plan in self.foreign:
            self.foreign.discard(plan)
        elif plan not in self.disk.unfinished:
            self.foreign.add(plan)

    def pass_time(self, seconds: int) -> None:
        """Forwards, or backwards when the clock is set."""
        self.now += timedelta(seconds=seconds)

    def early(self, plan: str) -> None:
        if (row := self._row(plan)) is not None:
            fire_early(row, cast("RunOwner", self.runs), self.now)

    def look(self) -> None:
        for row in filter(None, map(self._row, list(self.disk.rows))):
            fire_schedule(row, cast("RunOwner", self.runs), self.now)

    def _row(self, plan: str) -> ScheduleRow | None:
        """The schedule, when it is handled: the slots since the last time need an answer."""
        row = self.disk.rows.get(plan)
        if row is None:
            return None
        found = slots_after(
            parse_schedule(row.spec),
            after=self.latest[plan],
            zone=zone(row.zone),
            anchor=parse_iso(row.anchor),
            seed=plan,
        )
        for slot in found:
            if slot.at > self.now:
                break
            self.owed.add((plan, slot.key))
        self.latest[plan] = max(self.latest[plan], self.now)
        return row


plans = st.sampled_from(PLANS)
specs = st.sampled_from(("30m", "4h", "day at 2:30", "weekday at 9:30", "17 */3 * * *"))
MINUTE, HOUR, DAY = 60, 3600, 86_400
AHEAD = ("pass_time", 9 * HOUR)
spans = st.one_of(st.integers(1, 10 * MINUTE), st.integers(MINUTE, 5 * DAY), st.integers(-DAY, -1))
starts = st.tuples(st.just("start"), plans, specs, st.sampled_from(("run-once", "skip")))
steps = st.one_of(
    starts,
    st.tuples(st.sampled_from(("stop", "pause", "end", "take", "early")), plans),
    st.tuples(st.sampled_from(("crash", "die", "look"))),
    st.tuples(st.just("pass_time"), spans),
)


@given(starts, st.lists(steps, min_size=1, max_size=40))
@example(
    ("start", PLANS[0], "30m", "run-once"), [("pass_time", 1800), ("look",), ("pass_time", 1800), ("early", PLANS[0])]
)
@example(  # forwards over two slots, killed in the middle of firing, back before both, and forwards once more
    ("start", PLANS[0], "4h", "run-once"),
    [AHEAD, ("die",), ("pass_time", -8 * HOUR), ("look",), ("end", PLANS[0]), AHEAD],
)
def test_slots_that_come_due_are_answered_once_and_no_plan_runs_twice(
    first: tuple[object, ...], life: list[tuple[object, ...]]
) -> None:
    history = History()
    for name, *words in [first, *life]:
        getattr(history, str(name))(*words)
    history.look()
    for plan, key in history.owed:
        answers = [key_of(slot) for answered, slot in history.disk.firings if answered == plan]
        assert max(answers, default="") >= key, "a slot has vanished: neither it nor a later one has an answer"
    fired = [(row.plan, row.why) for row in history.disk.firings.values() if row.answer == "fired"]
    assert len(set(fired)) == len(fired), "one run answers two slots"
    assert set(fired) <= set(history.disk.begun)
    slots = [(plan, slot) for plan, slot in history.disk.firings]
    assert len({(plan, key_of(slot)) for plan, slot in slots}) == len(slots), "one slot is answered twice"


def test_a_slot_names_its_run_or_the_process_that_has_the_plan() -> None:
    history = History()
    history.start(PLANS[0], "30m", "run-once")
    history.take(PLANS[0])
    for _ in range(2):
        history.pass_time(1800)
        history.look()
        history.foreign.clear()
        history.crash()
    answers = [(row.answer, row.why) for row in history.disk.firings.values()]
    assert answers == [("skipped", "another process owns the plan (1:1:other)"), ("fired", "r0")]


def key_of(slot: str) -> str:
    return str(json.loads(slot)[1])
