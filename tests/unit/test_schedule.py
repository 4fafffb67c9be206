"""The meaning of `every …`, its written form, and the error for unknown words."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings, strategies as st

from runplan.errors import UsageError
from runplan.settings.schedule import Cron, Interval, Schedule, TimeOfDay, parse, spell

quick = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as error:
        parse(spec)
    return str(error.value)


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
        pytest.param("day at 9am", TimeOfDay(day="day", hour=9, minute=0), "every day at 9am", id="9am"),
        pytest.param("Day  AT 9 AM", TimeOfDay(day="day", hour=9, minute=0), "every day at 9am", id="case"),
        pytest.param("day at 14:00", TimeOfDay(day="day", hour=14, minute=0), "every day at 14:00", id="14:00"),
        pytest.param("day at 2:30pm", TimeOfDay(day="day", hour=14, minute=30), "every day at 14:30", id="2:30pm"),
        pytest.param("day at 12am", TimeOfDay(day="day", hour=0, minute=0), "every day at 0:00", id="12am"),
        pytest.param("day at 12pm", TimeOfDay(day="day", hour=12, minute=0), "every day at 12:00", id="12pm"),
        pytest.param(
            "weekday at 9:30", TimeOfDay(day="weekday", hour=9, minute=30), "every weekday at 9:30", id="weekday"
        ),
        pytest.param("monday at 8", TimeOfDay(day="monday", hour=8, minute=0), "every monday at 8am", id="monday"),
        pytest.param(
            "sunday at 23:59", TimeOfDay(day="sunday", hour=23, minute=59), "every sunday at 23:59", id="sunday"
        ),
    ],
)
def test_words_mean_a_schedule_and_are_written_one_way(spec: str, meaning: Schedule, written: str) -> None:
    assert parse(spec) == meaning
    assert spell(meaning) == written
    assert parse(written) == meaning


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param("fortnight", 'Unknown schedule "fortnight". Try: 4h, hour, day at 9am', id="F25"),
        pytest.param("0m", 'Interval "0m" is out of range. Try: 1m to 366d', id="F26a"),
        pytest.param("day at 25:00", 'Unknown time of day "25:00" in schedule "day at 25:00". Try: 9am', id="F26b"),
        pytest.param("-5m", "Unknown schedule", id="F-offset-negative"),
        pytest.param("foo", "Unknown schedule", id="F-offset-foo"),
        pytest.param("not a cron", "Unknown schedule", id="F32"),
        pytest.param("", "Missing schedule. Try: 4h", id="nothing"),
        pytest.param("367d", 'Interval "367d" is out of range', id="too-long"),
        pytest.param("9" * 5000 + "d", "Unknown schedule", id="much-too-long"),
        pytest.param("4h 2h", 'Unknown schedule "4h 2h"', id="two"),
        pytest.param("day", "Unknown schedule", id="day-alone"),
        pytest.param("day at 9:75", 'Unknown time of day "9:75"', id="minute-75"),
        pytest.param("day at 13pm", 'Unknown time of day "13pm"', id="13pm"),
        pytest.param("day at 0am", 'Unknown time of day "0am"', id="0am"),
        pytest.param("60 * * * *", 'Unknown minute "60" in schedule "60 * * * *". Try: 0-59,', id="minute-60"),
        pytest.param("0 24 * * *", 'Unknown hour "24"', id="hour-24"),
        pytest.param("0 0 0 * *", 'Unknown day "0"', id="day-0"),
        pytest.param("0 0 * foo *", 'Unknown month "foo"', id="month-foo"),
        pytest.param("0 0 * * 8", 'Unknown weekday "8"', id="weekday-8"),
        pytest.param("0 0 * * */9", 'Unknown weekday "*/9"', id="weekday-step"),
        pytest.param("0 0 * * 1,", 'Unknown weekday "1,"', id="weekday-list"),
        pytest.param("1- * * * *", 'Unknown minute "1-"', id="half-range"),
        pytest.param("1,,2 * * * *", 'Unknown minute "1,,2"', id="empty-item"),
        pytest.param("*/0 * * * *", 'Unknown minute "*/0"', id="step-0"),
        pytest.param("*/90 * * * *", 'Unknown minute "*/90"', id="step-90"),
        pytest.param("0 0 31 2 *", 'Schedule "0 0 31 2 *" never fires', id="31-february"),
        pytest.param("0 9 * *", 'Unknown schedule "0 9 * *". Try: 4h', id="four-fields"),
        pytest.param("0 0 9 * * 1", "Unknown ", id="six-fields"),
    ],
)
def test_an_unknown_schedule_is_refused_in_one_line_with_what_to_type(spec: str, message: str) -> None:
    error = refusal(spec)
    assert message in error
    assert "Try: " in error
    assert "\n" not in error


@pytest.mark.parametrize("line", ["0 0 31 2 5", "0 0 29 2 *", "0 0 31 2,3 *"])
def test_a_cron_line_that_comes_seldom_is_taken(line: str) -> None:
    assert isinstance(parse(line), Cron)


@quick
@given(st.text(alphabet="0123456789*/,- mhdaypontuewkrs:.@", max_size=24))
def test_any_text_is_a_schedule_that_can_be_written_and_read_or_is_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        found = parse(text)
        assert parse(spell(found)) == found


FIELD = st.one_of(
    st.builds("{}".format, st.integers(0, 70)),
    st.builds("{}-{}".format, st.integers(0, 60), st.integers(0, 60)),
    st.builds("*/{}".format, st.integers(0, 60)),
    st.builds("{}-{}/{}".format, st.integers(0, 30), st.integers(0, 60), st.integers(0, 9)),
    st.sampled_from(["*", "mon", "fri-mon", "jan-mar", "1,3", "1,mon", "x"]),
)


@quick
@given(st.lists(FIELD, min_size=5, max_size=5))
def test_any_cron_line_is_taken_or_refused(fields: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert spell(parse(" ".join(fields))) == "every " + " ".join(fields)
