"""When schedules fire: elapsed time, wall clocks over changes of the clock, cron days, and jitter."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from runplan.domain.settings.schedule import JITTER_FROM_S, JITTER_TO_S, Slot, delay_of, parse_schedule, slots_after

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
APIA = ZoneInfo("Pacific/Apia")


def at(text: str, zone: ZoneInfo | None = None) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC)


def following(spec: str, after: datetime, count: int, zone: ZoneInfo | None = None) -> list[Slot]:
    return list(islice(slots_after(parse_schedule(spec), after=after, zone=zone or UTC, anchor=after, seed="x"), count))


def first(spec: str, *, after: datetime, anchor: datetime, zone: tzinfo = UTC, seed: str = "x") -> Slot:
    return next(slots_after(parse_schedule(spec), after=after, zone=zone, anchor=anchor, seed=seed))


def shown(slots: list[Slot], zone: ZoneInfo) -> list[str]:
    return [f"{slot.at.astimezone(zone):%m-%d %H:%M%z}" for slot in slots]


# --- intervals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "made", "fires"),
    [
        pytest.param("4h", "2026-04-19 10:09", ["19 14:09", "19 18:09", "19 22:09", "20 02:09"], id="F22"),
        pytest.param("30m", "2026-04-19 10:00", ["19 10:30", "19 11:00"], id="F20-30m"),
        pytest.param("2d", "2026-04-29 10:00", ["01 10:00", "03 10:00"], id="2d"),
        pytest.param("5m", "2026-04-19 23:58", ["20 00:03"], id="F-midnight"),
        pytest.param("5m", "2027-02-28 23:58", ["01 00:03"], id="F-february"),
        pytest.param("5m", "2028-02-29 23:58", ["01 00:03"], id="F-leap-29"),
        pytest.param("24h", "2026-04-19 10:01", ["20 10:01"], id="F-1440"),
    ],
)
def test_an_interval_is_that_long_from_when_it_was_made(spec: str, made: str, fires: list[str]) -> None:
    assert [f"{slot.at:%d %H:%M}" for slot in following(spec, at(made), len(fires))] == fires


def test_an_interval_keeps_its_grid_however_late_it_is_asked() -> None:
    made = at("2026-04-19 10:09:30")
    late = first("4h", after=at("2026-04-20 13:00"), anchor=made)
    assert late == Slot(at("2026-04-20 14:09:30"), "2026-04-20T14:09:30Z")


@pytest.mark.parametrize(
    ("after", "fires"),
    [
        ("2026-03-08 00:09", ["03-08 05:09-0400", "03-08 09:09-0400"]),
        ("2026-11-01 00:09", ["11-01 03:09-0500", "11-01 07:09-0500"]),
    ],
)
def test_an_interval_is_elapsed_time_when_clocks_change(after: str, fires: list[str]) -> None:
    assert shown(following("4h", at(after, NEW_YORK), 2, NEW_YORK), NEW_YORK) == fires


def test_every_slot_of_an_interval_has_its_own_key_in_an_hour_that_comes_twice() -> None:
    slots = following("30m", at("2026-10-25 00:00"), 6, BERLIN)
    assert len({slot.key for slot in slots}) == 6


# --- wall clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "zone", "after", "fires"),
    [
        ("day at 2:17", BERLIN, "2026-03-28 12:00", ["03-29 03:00+0200", "03-30 02:17+0200"]),
        ("day at 2:17", BERLIN, "2026-10-24 12:00", ["10-25 02:17+0200", "10-26 02:17+0100"]),
        ("0 9 * * *", APIA, "2011-12-29 12:00", ["12-31 00:00+1400", "12-31 09:00+1400"]),
    ],
)
def test_a_time_that_is_left_out_fires_after_the_gap_and_one_that_comes_twice_fires_once(
    spec: str, zone: ZoneInfo, after: str, fires: list[str]
) -> None:
    assert shown(following(spec, at(after, zone), 2, zone), zone) == fires


@pytest.mark.parametrize(
    ("spec", "after", "keys"),
    [
        ("*/30 * * * *", "2026-03-29 01:15", ["29T01:30", "29T03:00", "29T03:30"]),
        ("0 2,3 * * *", "2026-03-29 01:15", ["29T03:00", "30T02:00"]),
        ("10-50/20 * * * *", "2026-03-29 01:40", ["29T01:50", "29T02:50", "29T03:10"]),
        ("*/30 * * * *", "2026-10-25 01:45", ["25T02:00", "25T02:30", "25T03:00"]),
    ],
)
def test_times_that_fall_on_one_moment_after_a_gap_are_one_slot(spec: str, after: str, keys: list[str]) -> None:
    slots = following(spec, at(after, BERLIN), len(keys), BERLIN)
    assert [slot.key[8:] for slot in slots] == keys


def test_asked_in_the_second_round_of_an_hour_the_times_of_the_first_are_over() -> None:
    second = at("2026-10-25 02:10", BERLIN).replace(fold=1)
    assert shown(following("*/20 * * * *", second, 1, BERLIN), BERLIN) == ["10-25 03:00+0100"]


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        pytest.param("*/5 * * * *", ["10:05", "10:10"], id="F28"),
        ("5,1,1-3 * * * *", ["10:01", "10:02", "10:03", "10:05", "11:01"]),
        ("10-50/20 * * * *", ["10:10", "10:30", "10:50", "11:10"]),
        ("0 8-18/5 * * *", ["13:00", "18:00", "08:00"]),
    ],
)
def test_a_cron_field_takes_lists_ranges_and_steps(line: str, fires: list[str]) -> None:
    assert [f"{slot.at:%H:%M}" for slot in following(line, at("2026-04-19 10:00"), len(fires))] == fires


@pytest.mark.parametrize(
    ("spec", "after", "fires"),
    [
        pytest.param("0 14 * * 1-5", "2026-10-23 14:00", ["Mon 26", "Tue 27", "Wed 28", "Thu 29", "Fri 30"], id="1-5"),
        pytest.param("weekday at 9:31", "2026-10-23 14:00", ["Mon 26", "Tue 27"], id="weekday"),
        pytest.param("0 0 * * 7", "2026-10-23 14:00", ["Sun 25", "Sun 01"], id="7-sunday"),
        pytest.param("0 14 * * 5-7", "2026-10-23 14:00", ["Sat 24", "Sun 25", "Fri 30"], id="5-7"),
        pytest.param("0 14 * * fri-mon", "2026-10-23 14:00", ["Sat 24", "Sun 25", "Mon 26", "Fri 30"], id="fri-mon"),
        pytest.param("0 14 * * 0-1", "2026-10-23 14:00", ["Sun 25", "Mon 26", "Sun 01"], id="0-1"),
        pytest.param("0 14 * * mon,wed,5", "2026-10-23 14:00", ["Mon 26", "Wed 28", "Fri 30"], id="list"),
        pytest.param("0 14 * * */2", "2026-10-23 14:00", ["Sat 24", "Sun 25", "Tue 27"], id="step-from-sunday"),
        pytest.param("0 0 1 jan-mar,12 *", "2026-02-02 00:00", ["Sun 01", "Tue 01", "Fri 01"], id="months"),
        pytest.param("0 9 13 * */2", "2026-11-01 00:00", ["Sun 13", "Sat 13"], id="weekday-step-takes-both"),
        pytest.param("0 9 13 * 5", "2026-11-01 00:00", ["Fri 06", "Fri 13", "Fri 20", "Fri 27"], id="either-together"),
        pytest.param("0 9 14 * 5", "2026-11-07 00:00", ["Fri 13", "Sat 14", "Fri 20"], id="either-apart"),
        pytest.param("0 9 */10 * 5", "2026-09-01 00:00", ["Fri 11", "Fri 11"], id="star-step-takes-both"),
        pytest.param("0 0 31 * *", "2026-01-31 00:00", ["Tue 31", "Sun 31", "Fri 31"], id="only-long-months"),
        pytest.param("0 0 29 2 *", "2096-03-01 00:00", ["Fri 29"], id="leap-day-after-eight-years"),
        pytest.param("0 14 19 5 *", "2026-05-19 12:00", ["Tue 19", "Wed 19"], id="F29"),
    ],
)
def test_days_are_those_of_cron(spec: str, after: str, fires: list[str]) -> None:
    """A cron line always comes again, so that the next time may be as far away as it likes (F29, F31)."""
    assert [f"{slot.at:%a %d}" for slot in following(spec, at(after), len(fires))] == fires


MINUTE = timedelta(minutes=1)
#: Each line with the wall-clock times that it means.
LINES: dict[str, Callable[[datetime], bool]] = {
    "*/7 * * * *": lambda wall: wall.minute % 7 == 0,
    "13 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 13),
    "5,35 1-3 * * *": lambda wall: wall.hour in (1, 2, 3) and wall.minute in (5, 35),
    "0 0 * * sun": lambda wall: wall.isoweekday() == 7 and (wall.hour, wall.minute) == (0, 0),
    "15 2 29 3 mon": lambda wall: (
        wall.month == 3 and (wall.day == 29 or wall.isoweekday() == 1) and (wall.hour, wall.minute) == (2, 15)
    ),
    "*/20 2 * * *": lambda wall: wall.hour == 2 and wall.minute % 20 == 0,
    "50 23 1-8 * 6": lambda wall: (wall.day <= 8 or wall.isoweekday() == 6) and (wall.hour, wall.minute) == (23, 50),
    "30 1,2 * * 1-5": lambda wall: wall.isoweekday() <= 5 and wall.hour in (1, 2) and wall.minute == 30,
    "30 1,2 * * 0,6": lambda wall: wall.isoweekday() >= 6 and wall.hour in (1, 2) and wall.minute == 30,
}
CHANGES = [
    (BERLIN, at("2026-03-29 01:00")),
    (BERLIN, at("2026-10-25 01:00")),
    (NEW_YORK, at("2026-03-08 07:00")),
    (NEW_YORK, at("2026-11-01 06:00")),
    (LORD_HOWE, at("2026-04-04 15:00")),
    (LORD_HOWE, at("2026-10-03 15:30")),
]


def by_the_minute(zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[tuple[datetime, list[datetime]]]:
    """A clock that is looked at every minute, with the times that it shows for the first time or jumps over."""
    latest = begin.astimezone(zone).replace(tzinfo=None)
    moment = begin + MINUTE
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
        yield moment, [latest + count * MINUTE for count in range(1, (wall - latest) // MINUTE + 1)]
        latest = max(latest, wall)
        moment += MINUTE


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_around_a_change_of_the_clock_a_line_fires_as_a_clock_that_is_watched(zone: ZoneInfo, change: datetime) -> None:
    begin, end = change - timedelta(hours=5), change + timedelta(hours=30)
    minutes = [*by_the_minute(zone, begin, end)]
    for line, wanted in LINES.items():
        slots = slots_after(parse_schedule(line), after=begin, zone=zone, anchor=begin, seed="x")
        found = [slot.at for slot in takewhile(lambda slot: slot.at <= end, slots)]
        assert found == [moment for moment, passed in minutes if any(map(wanted, passed))], line


# --- jitter --------------------------------------------------------------------------------------------


@given(
    seed=st.text(max_size=12),
    spec=st.sampled_from(["day at 9am", "day at 14:30", "weekday at 0:00", "sunday at 23:30"]),
    zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE]),
    day=st.integers(0, 800),
)
def test_a_round_time_of_day_is_put_off_by_a_few_minutes(seed: str, spec: str, zone: ZoneInfo, day: int) -> None:
    after = at("2026-01-01 00:00") + timedelta(days=day)
    slot = first(spec, after=after, zone=zone, anchor=after, seed=seed)
    asked = datetime.fromisoformat(slot.key).replace(tzinfo=zone)
    assert JITTER_FROM_S <= (slot.at - asked).total_seconds() < JITTER_TO_S
    assert slot.at.astimezone(zone).minute not in (0, 30)
    assert slot == first(spec, after=after, zone=zone, anchor=at("2020-01-01 00:00"), seed=seed)


@pytest.mark.parametrize("spec", ["day at 9:17", "0 9 * * *", "30 9 * * *"])
def test_an_odd_minute_and_a_cron_line_are_taken_literally(spec: str) -> None:
    (slot,) = following(spec, at("2026-01-01 00:00"), 1)
    assert slot.at.isoformat() == f"{slot.key}:00+00:00"


def test_jitter_keeps_schedules_apart() -> None:
    assert len({delay_of(parse_schedule("day at 9am"), f"plans/{number}.md") for number in range(50)}) > 35


def test_a_slot_whose_jitter_is_not_over_is_still_to_come() -> None:
    fires = at("2026-01-01 09:00") + delay_of(parse_schedule("day at 9am"), "x")
    (slot,) = following("day at 9am", fires - timedelta(seconds=1), 1)
    assert slot.key == "2026-01-01T09:00"
    (later,) = following("day at 9am", slot.at, 1)
    assert later.key == "2026-01-02T09:00"
