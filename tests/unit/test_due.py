"""A scheduler that sleeps, is off, or whose clock jumps: no slot vanishes and none fires twice."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from runplan.domain.run.rows import ScheduleRow
from runplan.domain.settings.schedule import GRACE, Due, Slot, next_slot, parse_schedule, slots_after, what_is_due
from runplan.domain.times import iso, parse_iso

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]
SPECS = [
    *("30m", "4h", "2d", "hour", "day at 9am", "day at 2:30", "day at 1:30", "day at 0:00", "weekday at 9:30"),
    *("monday at 8", "17 2 * * *", "*/20 * * * *", "*/15 1-3 * * sun", "0 9 13 * 5"),
]
#: Shortly before clocks change in one of the zones, and an ordinary day.
STARTS = [
    datetime(2026, *when, tzinfo=UTC)
    for when in ((3, 7, 20), (3, 28, 12), (4, 4, 3), (6, 15, 9), (10, 3, 3), (10, 24, 12), (10, 31, 18))
]
DAY = 86_400


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_row(spec: str, since: str | datetime, **more: str) -> ScheduleRow:
    made = iso(at(since) if isinstance(since, str) else since)
    fields = {"zone": "UTC", "misfire": "run-once", "request": "{}", "anchor": made, "made": made, **more}
    return ScheduleRow(plan="x", spec=spec, **fields)


def answered(row: ScheduleRow, found: Due) -> ScheduleRow:
    """The schedule after its due slots were recorded."""
    slot = found.fire or found.missed
    return row if slot is None else replace(row, last=json.dumps([iso(slot.at), slot.key]))


def ask(row: ScheduleRow, now: str) -> Due:
    return what_is_due(row, at(now))


def key(slot: Slot | None) -> str:
    return slot.key[11:16] if slot else ""


# --- single questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "now", "fire", "missed", "next_"),
    [
        pytest.param({}, "2026-04-19 14:08", "", "", "2026-04-19 14:09", id="before its time nothing is due"),
        pytest.param({}, "2026-04-20 03:00", "02:09", "22:09", "2026-04-20 06:09", id="missed slots are one run"),
        pytest.param({"misfire": "skip"}, "2026-04-20 03:00", "", "02:09", "2026-04-20 06:09", id="or only recorded"),
        pytest.param(
            {"anchor": "2026-04-19T11:00:00Z"},
            "2026-04-19 14:30",
            "",
            "",
            "2026-04-19 15:00",
            id="an interval that fired early is counted from there",
        ),
    ],
)
def test_what_is_due_of_an_interval(more: dict[str, str], now: str, fire: str, missed: str, next_: str) -> None:
    found = ask(a_row("4h", "2026-04-19 10:09", **more), now)
    assert (key(found.fire), key(found.missed), found.next.at) == (fire, missed, at(next_))


@pytest.mark.parametrize(
    ("spec", "late", "fires"),
    [
        ("1m", 30, True),
        ("1m", 31, False),
        ("* * * * *", 31, False),
        ("10m", 300, True),
        ("10m", 301, False),
        ("hour", GRACE.total_seconds(), True),
        ("hour", GRACE.total_seconds() + 1, False),
    ],
)
def test_a_slot_within_its_grace_is_on_time(spec: str, late: float, fires: bool) -> None:
    row = a_row(spec, "2026-04-19 10:00", misfire="skip")
    first = ask(row, "2026-04-19 10:00").next
    found = what_is_due(row, first.at + timedelta(seconds=late))
    assert (found.fire, found.missed) == ((first, None) if fires else (None, first))


@pytest.mark.parametrize(("zone", "plan"), [("America/New_York", "x"), ("Europe/Berlin", "another")])
def test_the_same_slot_does_not_fire_again_in_another_zone_or_with_another_seed(zone: str, plan: str) -> None:
    row = a_row("day at 9am", "2026-04-18 12:00", zone="Europe/Berlin")
    first = ask(row, "2026-04-19 07:30")
    assert first.fire is not None
    assert first.fire.key == "2026-04-19T09:00"
    again = ask(replace(answered(row, first), zone=zone, plan=plan), "2026-04-19 20:00")
    assert (again.fire, again.missed, again.next.key) == (None, None, "2026-04-20T09:00")


def test_in_another_zone_nothing_is_due_from_before_the_last_slot() -> None:
    """At half past twelve UTC a clock in Berlin has struck one and two already; noon was the last."""
    noon = json.dumps(["2026-06-01T12:00:00Z", "2026-06-01T12:00"])
    row = a_row("0 * * * *", "2026-06-01 00:00", zone="Europe/Berlin", last=noon)
    found = ask(row, "2026-06-01 12:30")
    assert (found.fire, found.missed, found.next.key) == (None, None, "2026-06-01T15:00")


@pytest.mark.parametrize("spec", ["1m", "* * * * *", "* * 29 2 *"])
@pytest.mark.parametrize("misfire", ["run-once", "skip"])
def test_a_clock_wrong_by_decades_is_answered_at_once(spec: str, misfire: str) -> None:
    """Millions of slots are not computed one by one."""
    found = ask(a_row(spec, "1970-01-01 00:00", misfire=misfire), "2026-03-01 00:00")
    in_time = spec != "* * 29 2 *"
    last = at("2026-03-01 00:00" if in_time else "2024-02-29 23:59")
    assert (found.fire is not None) == (misfire == "run-once" or in_time)
    assert found.missed is not None
    assert (found.fire or found.missed).at == last
    assert found.missed.at == last - timedelta(minutes=1 if found.fire else 0)
    assert found.next.at == at("2026-03-01 00:01" if in_time else "2028-02-29 00:00")


# --- a clock that was wrong ----------------------------------------------------------------------------


def test_a_clock_that_was_set_back_fires_nothing_again() -> None:
    row = a_row("hour", "2026-04-19 10:00")
    row = answered(row, ask(row, "2026-04-19 13:00"))
    back = ask(row, "2026-04-19 11:30")
    assert (back.fire, back.missed, back.next.at) == (None, None, at("2026-04-19 14:00"))


@pytest.mark.parametrize("spec", ["4h", "day at 9:17", "17 9 * * *", "0 9 1 1 *"])
@pytest.mark.parametrize("fields", [("last",), ("anchor",), ("made", "anchor"), ("last", "made", "anchor")])
def test_a_clock_that_was_ahead_does_not_silence_a_schedule(spec: str, fields: tuple[str, ...]) -> None:
    """Whether it fired, fired early, or was made then: the next slot after now counts, and fires when it comes."""
    row = a_row(spec, "2026-04-01 10:00")
    slot = ask(row, "2028-06-01 12:00").fire
    assert slot is not None
    ahead = {"last": json.dumps([iso(slot.at), slot.key]), "anchor": iso(slot.at), "made": iso(slot.at)}
    row = replace(row, **{name: ahead[name] for name in fields})
    now = at("2026-04-19 12:00")
    found = what_is_due(row, now)
    period = timedelta(days=366 if spec == "0 9 1 1 *" else 1)
    assert (found.fire, found.missed) == (None, None)
    assert now < found.next.at <= now + period
    fired = what_is_due(row, found.next.at + timedelta(seconds=1))
    assert (fired.fire, fired.missed) == (found.next, None)
    again = what_is_due(answered(row, fired), found.next.at + timedelta(seconds=2))
    assert (again.fire, again.missed) == (None, None)


def test_after_a_clock_that_was_ahead_a_slot_that_nobody_saw_in_time_is_made_up_for() -> None:
    row = a_row("4h", "2026-04-01 10:00")
    row = answered(row, ask(row, "2028-06-01 12:00"))
    row = replace(row, next=iso(ask(row, "2026-04-19 12:30").next.at))
    late = ask(row, "2026-04-19 19:00")
    assert late.missed is not None
    assert late.fire is not None
    assert (late.missed.at, late.fire.at) == (at("2026-04-19 14:00"), at("2026-04-19 18:00"))
    again = ask(answered(row, late), "2026-04-19 19:30")
    assert (again.missed, again.fire, again.next.at) == (None, None, at("2026-04-19 22:00"))


# --- any sequence --------------------------------------------------------------------------------------


def slots_of(row: ScheduleRow, after: datetime) -> Iterator[Slot]:
    anchor = parse_iso(row.made)
    return slots_after(parse_schedule(row.spec), after=after, zone=ZoneInfo(row.zone), anchor=anchor, seed=row.plan)


def all_slots(row: ScheduleRow, until: datetime) -> list[Slot]:
    return list(takewhile(lambda slot: slot.at <= until, slots_of(row, parse_iso(row.made))))


#: Sleeps, restarts and clocks that are set, in seconds; backwards by up to a day.
JUMPS = st.one_of(
    st.integers(0, 300),
    st.integers(300, 3 * DAY),
    st.integers(-DAY, 0),
    st.sampled_from([-3600, 3600, -1800, 1800, DAY]),
)
schedules = st.builds(
    a_row,
    st.sampled_from(SPECS),
    st.sampled_from(STARTS),
    zone=st.sampled_from(ZONES),
    misfire=st.sampled_from(["run-once", "skip"]),
)


@given(row=schedules, jumps=st.lists(JUMPS, min_size=1, max_size=8))
@example(row=a_row("day at 2:30", STARTS[1], zone="Europe/Berlin"), jumps=[DAY, -3600, 3600])
def test_no_slot_is_answered_twice_and_none_is_passed_over_under_any_clock(row: ScheduleRow, jumps: list[int]) -> None:
    now = latest = parse_iso(row.made)
    handled: list[Slot] = []
    for jump in jumps:
        now = max(now + timedelta(seconds=jump), latest - timedelta(days=1))
        latest = max(latest, now)
        found = what_is_due(row, now)
        assert found.next.at > now
        handled += [slot for slot in (found.missed, found.fire) if slot]
        if row.misfire == "run-once":
            assert not found.missed or found.fire, "what was missed is made up for by one run"
        row = answered(row, found)
        again = what_is_due(row, now)
        assert (again.fire, again.missed, again.next) == (None, None, found.next)
    every = all_slots(row, latest)
    assert handled == [slot for slot in every if slot in handled]
    assert handled[-1:] == every[-1:]


AHEAD = st.one_of(st.integers(3600, 4 * DAY), st.integers(4 * DAY, 900 * DAY))


@given(row=schedules, ahead=AHEAD, jumps=st.lists(st.integers(0, 2 * DAY), max_size=6))
def test_a_clock_that_was_ahead_for_a_moment_silences_no_schedule_and_fires_no_slot_twice(
    row: ScheduleRow, ahead: int, jumps: list[int]
) -> None:
    """A schedule misses at most the slots of one day after its next one."""
    now = parse_iso(row.made) + timedelta(seconds=5)
    row = answered(row, what_is_due(row, now + timedelta(seconds=ahead)))
    fired: list[str] = []
    for jump in jumps:
        now += timedelta(seconds=jump)
        found = what_is_due(row, now)
        real = next(slots_of(row, now))
        assert found.next.at <= next(slots_of(row, real.at + timedelta(days=1))).at
        row = answered(row, found)
        fired += [found.fire.key] if found.fire else []
        again = what_is_due(row, now)
        assert (again.fire, again.missed, again.next) == (None, None, found.next)
    assert fired == sorted({*fired})


@given(row=schedules, days=st.integers(1, 4))
def test_slots_and_their_keys_grow_and_a_scheduler_that_is_in_time_fires_them_all(row: ScheduleRow, days: int) -> None:
    slots = all_slots(row, parse_iso(row.made) + timedelta(days=days))
    assert all(one.at < two.at and one.key < two.key for one, two in pairwise(slots))
    for slot in slots:
        found = what_is_due(row, slot.at)
        assert (found.fire, found.missed) == (slot, None)
        row = answered(row, found)


# --- for those who only ask ----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["4h", "day at 9am", "weekday at 14:15", "monday at 8", "*/7 3-5 * * *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_readers_see_the_slot_that_the_daemon_waits_for(spec: str, zone: str) -> None:
    row, now = a_row(spec, "2026-01-01 09:30", zone=zone), at("2026-01-01 12:00")
    assert next_slot(row, now)[0] == what_is_due(row, now).next.at


def test_readers_use_the_recorded_slot_until_it_is_due() -> None:
    row = replace(a_row("4h", "2026-01-01 09:30"), next="2026-01-01T13:00:00Z")
    early, late = at("2026-01-01 12:59"), at("2026-01-01 13:30")
    assert next_slot(row, early) == (at("2026-01-01 13:00"), False)
    assert next_slot(row, late) == (at("2026-01-01 17:30"), True)


@pytest.mark.parametrize("more", [{"spec": "full moon"}, {"zone": "Moon/Far_Side"}, {"zone": "../etc"}])
def test_a_slot_in_an_unknown_zone_is_not_guessed(more: dict[str, str]) -> None:
    row, now = replace(a_row("4h", "2026-01-01 09:30"), **more), at("2026-01-01 15:00")
    assert next_slot(row, now) == (None, False)


@pytest.mark.parametrize(
    ("more", "hours", "fires"),
    [
        ({}, 3.9, False),
        ({}, 4.5, True),
        ({"misfire": "skip"}, 4.5, False),
        ({"misfire": "skip"}, 4.05, True),
        ({"paused": "phase 1 failed"}, 4.5, False),
        ({"last": json.dumps(["2026-01-01T13:30:00Z", "2026-01-01T13:30:00Z"])}, 4.5, False),
    ],
)
def test_a_slot_that_has_come_without_an_answer_is_due(more: dict[str, str], hours: float, fires: bool) -> None:
    row = a_row("4h", "2026-01-01 09:30", **more)
    assert next_slot(row, at("2026-01-01 09:30") + timedelta(hours=hours))[1] is fires
