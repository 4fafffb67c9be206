"""A scheduler that sleeps, is off, or whose clock jumps: no slot vanishes and none fires twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings, strategies as st

from runplan.core.due import GRACE_S, MOST_LISTED, Due, Misfire, due
from runplan.core.schedule import Schedule, parse
from runplan.core.slots import Slot, slots_after

if TYPE_CHECKING:
    from collections.abc import Sequence

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [BERLIN, ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("UTC")]
SPECS = [
    "30m",
    "4h",
    "2d",
    "hour",
    "day at 9am",
    "day at 2:30",
    "day at 1:30",
    "day at 0:00",
    "weekday at 9:30",
    "monday at 8",
    "17 2 * * *",
    "*/20 * * * *",
    "*/15 1-3 * * sun",
    "0 9 13 * 5",
]
#: Shortly before clocks change in one of the zones, and an ordinary day.
STARTS = [
    datetime(2026, *when, tzinfo=UTC)
    for when in ((3, 7, 20), (3, 28, 12), (4, 4, 3), (6, 15, 9), (10, 3, 3), (10, 24, 12), (10, 31, 18))
]

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ask(spec: str, *, since: str, now: str, last: Slot | None = None, misfire: Misfire = "run-once") -> Due:
    made = at(since)
    return due(parse(spec), last=last, since=made, now=at(now), zone=UTC, anchor=made, seed="x", misfire=misfire)


def keys(slots: Sequence[Slot]) -> list[str]:
    return [slot.key[11:16] for slot in slots]


# --- single questions ----------------------------------------------------------------------------------


def test_before_its_time_nothing_is_due() -> None:
    found = ask("4h", since="2026-04-19 10:09", now="2026-04-19 14:08")
    assert (found.fire, found.missed, found.handled) == (None, (), None)
    assert found.next.at == at("2026-04-19 14:09")


@pytest.mark.parametrize("misfire", ["run-once", "skip"])
def test_in_time_it_fires_whatever_is_said_of_missed_ones(misfire: Misfire) -> None:
    found = ask("4h", since="2026-04-19 10:09", now="2026-04-19 14:10", misfire=misfire)
    assert found.fire == found.handled == Slot(at("2026-04-19 14:09"), "2026-04-19T14:09:00Z")
    assert found.missed == ()
    assert found.next.at == at("2026-04-19 18:09")


def test_what_was_missed_collapses_to_one_run() -> None:
    found = ask("4h", since="2026-04-19 10:09", now="2026-04-20 03:00")
    assert found.fire is not None
    assert keys([found.fire]) == ["02:09"]
    assert keys(found.missed) == ["14:09", "18:09", "22:09"]
    assert found.next.at == at("2026-04-20 06:09")


def test_what_was_missed_is_only_recorded_when_it_is_to_be_skipped() -> None:
    found = ask("4h", since="2026-04-19 10:09", now="2026-04-20 03:00", misfire="skip")
    assert found.fire is None
    assert keys(found.missed) == ["14:09", "18:09", "22:09", "02:09"]
    assert found.handled == found.missed[-1]


@pytest.mark.parametrize(
    ("spec", "late", "fires"),
    [
        ("1m", 30, True),
        ("1m", 31, False),
        ("* * * * *", 31, False),
        ("4m", 120, True),
        ("4m", 121, False),
        ("10m", 300, True),
        ("10m", 301, False),
    ],
)
def test_what_comes_often_is_late_before_the_next_one_is_nearer(spec: str, late: int, fires: bool) -> None:
    made = at("2026-04-19 10:00")
    first = next(slots_after(parse(spec), after=made, zone=UTC, anchor=made, seed="x"))
    now = first.at + timedelta(seconds=late)
    found = due(parse(spec), last=None, since=made, now=now, zone=UTC, anchor=made, seed="x", misfire="skip")
    assert (found.fire, found.missed) == ((first, ()) if fires else (None, (first,)))


@pytest.mark.parametrize(("late", "fires"), [(0, True), (GRACE_S, True), (GRACE_S + 1, False)])
def test_a_little_late_is_in_time(late: float, fires: bool) -> None:
    made = at("2026-04-19 10:00")
    now = made + timedelta(hours=1, seconds=late)
    found = due(parse("hour"), last=None, since=made, now=now, zone=UTC, anchor=made, seed="x", misfire="skip")
    assert (found.fire is not None, len(found.missed)) == (fires, 0 if fires else 1)


def test_a_clock_that_was_set_back_fires_nothing_again() -> None:
    first = ask("hour", since="2026-04-19 10:00", now="2026-04-19 13:00")
    back = ask("hour", since="2026-04-19 10:00", now="2026-04-19 11:30", last=first.handled)
    assert (back.fire, back.missed) == (None, ())
    assert back.next.at == at("2026-04-19 14:00")


def test_a_pause_is_over_from_since_on() -> None:
    """What fell into it is neither fired nor missed."""
    last = Slot(at("2026-04-19 11:00"), "2026-04-19T11:00:00Z")
    found = due(
        parse("hour"),
        last=last,
        since=at("2026-04-19 15:30"),
        now=at("2026-04-19 15:31"),
        zone=UTC,
        anchor=at("2026-04-19 10:00"),
        seed="x",
        misfire="run-once",
    )
    assert (found.fire, found.missed, found.next.at) == (None, (), at("2026-04-19 16:00"))


@pytest.mark.parametrize(("zone", "seed"), [("America/New_York", "x"), ("Europe/Berlin", "another")])
def test_the_same_slot_does_not_fire_again_in_another_zone_or_with_another_seed(zone: str, seed: str) -> None:
    made = at("2026-04-18 12:00")
    nine = parse("day at 9am")
    first = due(
        nine,
        last=None,
        since=made,
        now=at("2026-04-19 07:30"),
        zone=BERLIN,
        anchor=made,
        seed="x",
        misfire="run-once",
    )
    assert first.fire is not None
    assert first.fire.key == "2026-04-19T09:00"
    again = due(
        nine,
        last=first.handled,
        since=made,
        now=at("2026-04-19 20:00"),
        zone=ZoneInfo(zone),
        anchor=made,
        seed=seed,
        misfire="run-once",
    )
    assert (again.fire, again.missed, again.next.key) == (None, (), "2026-04-20T09:00")


def test_in_another_zone_nothing_is_due_from_before_the_last_slot() -> None:
    """At half past twelve UTC a clock in Berlin has struck one and two already; noon was the last."""
    noon = Slot(at("2026-06-01 12:00"), "2026-06-01T12:00")
    found = due(
        parse("0 * * * *"),
        last=noon,
        since=at("2026-06-01 00:00"),
        now=at("2026-06-01 12:30"),
        zone=BERLIN,
        anchor=at("2026-06-01 00:00"),
        seed="x",
        misfire="run-once",
    )
    assert (found.fire, found.missed, found.next.key) == (None, (), "2026-06-01T15:00")


@pytest.mark.parametrize("spec", ["1m", "* * * * *", "* * 29 2 *"])
@pytest.mark.parametrize("misfire", ["run-once", "skip"])
def test_a_clock_that_was_wrong_by_decades_is_told_as_a_span(spec: str, misfire: Misfire) -> None:
    """Millions of slots are not listed one by one, and none is left out."""
    now = "2026-03-01 00:00"
    found = ask(spec, since="1970-01-01 00:00", now=now, misfire=misfire)
    assert len(found.missed) == MOST_LISTED
    assert found.through is not None
    assert found.handled is not None
    in_time = spec != "* * 29 2 *"
    assert (found.fire is not None) == (misfire == "run-once" or in_time)
    newest = "2026-03-01 00:00" if in_time else "2024-02-29 23:59"
    assert found.handled.at == at(newest)
    assert found.through.at == at(newest) - timedelta(minutes=1 if found.fire else 0)
    assert found.next.at == at("2026-03-01 00:01" if in_time else "2028-02-29 00:00")


def test_one_more_than_are_listed_is_still_told() -> None:
    for count in (MOST_LISTED, MOST_LISTED + 1, MOST_LISTED + 2):
        made = at("2026-04-19 10:00")
        now = made + timedelta(minutes=count)
        found = due(parse("1m"), last=None, since=made, now=now, zone=UTC, anchor=made, seed="x", misfire="run-once")
        assert len(found.missed) == min(count - 1, MOST_LISTED)
        assert (found.through is not None) == (count - 1 > MOST_LISTED)


# --- any sequence --------------------------------------------------------------------------------------

JUMPS = st.one_of(
    st.integers(0, 300),
    st.integers(300, 3 * 86_400),
    st.integers(-2 * 86_400, 0),
    st.sampled_from([-3600, 3600, -1800, 1800, 86_400]),
)


def all_slots(schedule: Schedule, zone: ZoneInfo, since: datetime, until: datetime) -> list[Slot]:
    slots = slots_after(schedule, after=since, zone=zone, anchor=since, seed="x")
    return list(takewhile(lambda slot: slot.at <= until, slots))


@quick
@given(
    spec=st.sampled_from(SPECS),
    zone=st.sampled_from(ZONES),
    since=st.sampled_from(STARTS),
    jumps=st.lists(JUMPS, min_size=1, max_size=8),
    misfire=st.sampled_from(["run-once", "skip"]),
)
@example(spec="day at 2:30", zone=BERLIN, since=STARTS[1], jumps=[86_400, -3600, 3600], misfire="run-once")
def test_every_slot_is_fired_or_missed_exactly_once_whatever_the_clock_does(
    spec: str, zone: ZoneInfo, since: datetime, jumps: list[int], misfire: Misfire
) -> None:
    schedule = parse(spec)
    now, latest, last = since, since, None
    fired: list[Slot] = []
    handled: list[Slot] = []
    for jump in jumps:
        now += timedelta(seconds=jump)
        latest = max(latest, now)
        found = due(schedule, last=last, since=since, now=now, zone=zone, anchor=since, seed="x", misfire=misfire)
        assert found.next.at > now
        assert last is None or found.next.key > last.key
        assert found.through is None
        fired += [found.fire] if found.fire else []
        handled += [*found.missed, *([found.fire] if found.fire else [])]
        if misfire == "run-once":
            assert not found.missed or found.fire, "what was missed is made up for by one run"
        last = found.handled or last
        again = due(schedule, last=last, since=since, now=now, zone=zone, anchor=since, seed="x", misfire=misfire)
        assert (again.fire, again.missed, again.next) == (None, (), found.next)
    assert handled == all_slots(schedule, zone, since, latest)
    assert len({slot.key for slot in fired}) == len(fired)


@quick
@given(spec=st.sampled_from(SPECS), zone=st.sampled_from(ZONES), since=st.sampled_from(STARTS), days=st.integers(1, 4))
def test_slots_and_their_keys_grow_and_a_scheduler_that_is_in_time_fires_them_all(
    spec: str, zone: ZoneInfo, since: datetime, days: int
) -> None:
    schedule = parse(spec)
    slots = all_slots(schedule, zone, since, since + timedelta(days=days))
    assert all(one.at < two.at and one.key < two.key for one, two in pairwise(slots))
    last = None
    for slot in slots:
        found = due(schedule, last=last, since=since, now=slot.at, zone=zone, anchor=since, seed="x", misfire="skip")
        assert (found.fire, found.missed) == (slot, ())
        last = found.handled
