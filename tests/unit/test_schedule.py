"""What `every …` means, how it is written back, and what is said when it means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from runplan.core.cron import Cron
from runplan.core.errors import UsageError
from runplan.core.options import parse_words
from runplan.core.schedule import DAY, WEEKDAY, Interval, Schedule, TimeOfDay, parse, spell

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as told:
        parse(spec)
    return str(told.value)


@pytest.mark.parametrize(
    ("spec", "meaning", "written"),
    [
        pytest.param("30m", Interval(seconds=1800), "every 30m", id="F23a"),
        pytest.param("4h", Interval(seconds=14_400), "every 4h", id="F23b"),
        pytest.param("every hour", Interval(seconds=3600), "every hour", id="F23c"),
        pytest.param("2d", Interval(seconds=172_800), "every 2d", id="2d"),
        pytest.param("004H", Interval(seconds=14_400), "every 4h", id="004H"),
        pytest.param("60m", Interval(seconds=3600), "every hour", id="60m"),
        pytest.param("90m", Interval(seconds=5400), "every 90m", id="90m"),
        pytest.param("24h", Interval(seconds=86_400), "every 1d", id="24h"),
        pytest.param("366d", Interval(seconds=366 * 86_400), "every 366d", id="366d"),
        pytest.param("day at 9am", TimeOfDay(days=DAY, hour=9, minute=0), "every day at 9am", id="9am"),
        pytest.param("Day  AT 9 AM", TimeOfDay(days=DAY, hour=9, minute=0), "every day at 9am", id="case"),
        pytest.param("day at 14:00", TimeOfDay(days=DAY, hour=14, minute=0), "every day at 14:00", id="14:00"),
        pytest.param("day at 2:30pm", TimeOfDay(days=DAY, hour=14, minute=30), "every day at 14:30", id="2:30pm"),
        pytest.param("day at 12am", TimeOfDay(days=DAY, hour=0, minute=0), "every day at 0:00", id="12am"),
        pytest.param("day at 12pm", TimeOfDay(days=DAY, hour=12, minute=0), "every day at 12:00", id="12pm"),
        pytest.param(
            "weekday at 9:30", TimeOfDay(days=WEEKDAY, hour=9, minute=30), "every weekday at 9:30", id="weekday"
        ),
        pytest.param("monday at 8", TimeOfDay(days=(0,), hour=8, minute=0), "every monday at 8am", id="monday"),
        pytest.param("sunday at 23:59", TimeOfDay(days=(6,), hour=23, minute=59), "every sunday at 23:59", id="sunday"),
    ],
)
def test_words_mean_a_schedule_and_are_written_one_way(spec: str, meaning: Schedule, written: str) -> None:
    assert parse(spec) == meaning
    assert spell(meaning) == written
    assert parse(written) == meaning


@pytest.mark.parametrize(
    ("line", "part", "expected"),
    [
        pytest.param("*/5 * * * *", "minutes", tuple(range(0, 60, 5)), id="F28"),
        ("0 14 * * 1-5", "weekdays", (1, 2, 3, 4, 5)),
        ("0 14 * * MON-FRI", "weekdays", (1, 2, 3, 4, 5)),
        ("0 14 * * 0", "weekdays", (0,)),
        ("0 14 * * 7", "weekdays", (0,)),
        ("0 14 * * sun", "weekdays", (0,)),
        ("0 14 * * fri-sun", "weekdays", (0, 5, 6)),
        ("0 14 * * 5-7", "weekdays", (0, 5, 6)),
        ("0 14 * * */2", "weekdays", (0, 2, 4, 6)),
        ("0 14 * * mon,wed,5", "weekdays", (1, 3, 5)),
        ("5,1,1-3 * * * *", "minutes", (1, 2, 3, 5)),
        ("10-50/20 * * * *", "minutes", (10, 30, 50)),
        ("0 8-18/5 * * *", "hours", (8, 13, 18)),
        ("0 0 * jan-mar,12 *", "months", (1, 2, 3, 12)),
        ("0 0 1,15,31 * *", "days", (1, 15, 31)),
    ],
)
def test_a_cron_field_takes_lists_ranges_steps_and_names(line: str, part: str, expected: tuple[int, ...]) -> None:
    """Monday is 1 and Sunday both 0 and 7, as in cron."""
    found = parse(line)
    assert isinstance(found, Cron)
    assert getattr(found, part) == expected
    assert spell(found) == f"every {line.lower()}"
    assert parse(spell(found)) == found


@pytest.mark.parametrize(
    ("line", "either"),
    [
        ("0 9 13 * 5", True),
        ("0 9 1-7 * mon", True),
        ("0 9 * * 5", False),
        ("0 9 13 * *", False),
        ("0 9 */2 * 5", False),
        ("0 9 13 * */2", False),
    ],
)
def test_two_day_fields_that_restrict_are_alternatives_as_in_cron(line: str, either: bool) -> None:
    found = parse(line)
    assert isinstance(found, Cron)
    assert found.either == either


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param("fortnight", "every fortnight: unsupported schedule; say every 14d", id="F25"),
        pytest.param("0m", "every 0m: unsupported schedule; say every 1m", id="F26a"),
        pytest.param("day at 25:00", "every day at 25:00: unsupported schedule; say every day at 23:00", id="F26b"),
        pytest.param("-5m", "unsupported schedule; say 4h, hour, day at 9am", id="F-offset-negative"),
        pytest.param("foo", "unsupported schedule; say 4h, hour, day at 9am", id="F-offset-foo"),
        pytest.param("not a cron", "unsupported schedule; say ", id="F32"),
        pytest.param("", "unsupported schedule; say 4h, hour,", id="nothing"),
        pytest.param("10s", "say every 1m", id="seconds"),
        pytest.param("999999999d", "say every 366d", id="too-long"),
        pytest.param("9" * 5000 + "d", "unsupported schedule", id="much-too-long"),
        pytest.param("2 hours", "say every 2h", id="hours"),
        pytest.param("1h30m", "say every 90m", id="two-units"),
        pytest.param("1.5h", "say every 90m", id="fraction"),
        pytest.param("1w", "say every 7d", id="week"),
        pytest.param("week", "say every 7d", id="week-word"),
        pytest.param("hourly", "say every hour", id="hourly"),
        pytest.param("hours", "say every hour", id="misspelt-hour"),
        pytest.param("day", "say every day at 9am", id="day-alone"),
        pytest.param("day at 9:75", "say every day at 9:59", id="minute-75"),
        pytest.param("day at 13pm", "say every day at 13:00", id="13pm"),
        pytest.param("day at 0am", "say every day at 0:00", id="0am"),
        pytest.param("day at noon", "say every day at 12:00", id="noon"),
        pytest.param("day 9am", "say every day at 9am", id="no-at"),
        pytest.param("9am", "say every day at 9am", id="no-day"),
        pytest.param("at 9:30", "say every day at 9:30", id="only-at"),
        pytest.param("mon at 8", "say every monday at 8:00", id="short-day"),
        pytest.param("weekdya at 9", "say every weekday at 9:00", id="misspelt-day"),
        pytest.param("tuesdays", "say every tuesday at 9am", id="plural"),
        pytest.param("60 * * * *", "60 is no minute; say 0 to 59", id="minute-60"),
        pytest.param("0 24 * * *", "24 is no hour; say 0 to 23", id="hour-24"),
        pytest.param("0 0 0 * *", "0 is no day; say 1 to 31", id="day-0"),
        pytest.param("0 0 * foo *", "foo is no month; say 1 to 12 or jan to dec", id="month-foo"),
        pytest.param("0 0 * * 8", "8 is no weekday; say 0 to 7 or sun to sat", id="weekday-8"),
        pytest.param("1- * * * *", "nothing is no minute", id="half-range"),
        pytest.param("1,,2 * * * *", "nothing is no minute", id="empty-item"),
        pytest.param("5/15 * * * *", "a step needs a range; say 5-59/15 for the minute", id="step-alone"),
        pytest.param("*/0 * * * *", "a step is a number from 1; say */5", id="step-0"),
        pytest.param("*/90 * * * *", "no minute is 90 after another; say every 90m", id="step-90"),
        pytest.param("0 9 * * sat-tue", "sat-tue goes backwards; say sat-7,0-tue for the weekday", id="backwards"),
        pytest.param("0 0 31 2 *", "no such month has 31 days; say every 0 0 29 2 *", id="31-february"),
        pytest.param("0 0 31 4,6 *", "no such month has 31 days; say every 0 0 30 4,6 *", id="31-april-june"),
        pytest.param("0 9 * *", "a cron line has five fields, not 4; say every 0 9 * * 1-5", id="four-fields"),
        pytest.param("0 0 9 * * 1", "a cron line has five fields, not 6", id="six-fields"),
    ],
)
def test_what_is_no_schedule_is_refused_with_what_comes_nearest(spec: str, message: str) -> None:
    assert message in refusal(spec)


@pytest.mark.parametrize("line", ["0 0 31 2 5", "0 0 29 2 *", "0 0 31 2,3 *"])
def test_a_cron_line_that_comes_seldom_is_taken(line: str) -> None:
    assert isinstance(parse(line), Cron)


@quick
@given(st.text(alphabet="0123456789*/,- mhdaypontuewkrs:.@", max_size=24))
def test_any_text_is_a_schedule_that_can_be_written_and_read_or_is_refused_with_something_better(text: str) -> None:
    try:
        found = parse(text)
    except UsageError as error:
        said = str(error).partition("; say every ")[2]
        if said:
            parse(said)
    else:
        assert parse(spell(found)) == found


SPECS = st.one_of(
    st.builds("{}{}".format, st.integers(0, 366), st.sampled_from("mhd")),
    st.builds(
        "{} at {}{}".format,
        st.sampled_from(["day", "weekday", "friday"]),
        st.integers(0, 26),
        st.sampled_from(["", "am", "pm", ":00", ":30", ":75"]),
    ),
    st.builds("{0} {0} {0} {0} {0}".format, st.sampled_from(["*", "1-5", "*/2", "7", "1,3", "2-4/2"])),
)


@quick
@given(SPECS)
def test_the_words_of_a_start_are_read_as_here(spec: str) -> None:
    """What starts accept is a schedule, and what they refuse is none; a slip within a cron line is seen here."""
    try:
        taken = parse_words(["every", spec], phases=()).every
    except UsageError:
        refusal(spec)
        return
    assert taken is not None
    assert parse(taken) == parse(spec)
