"""The meaning of `every …`, its written form, and the error for unknown words."""

import contextlib

import pytest
from hypothesis import given, strategies as st

from runplan.domain.errors import UsageError
from runplan.domain.settings.schedule import EXAMPLES, Schedule, parse_schedule


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as error:
        parse_schedule(spec)
    return str(error.value)


@pytest.mark.parametrize(
    ("spec", "written", "seconds"),
    [
        pytest.param("30m", "30m", 1800, id="F23a"),
        pytest.param("4h", "4h", 14_400, id="F23b"),
        pytest.param("every hour", "hour", 3600, id="F23c"),
        ("004H", "4h", 14_400),
        ("60m", "hour", 3600),
        ("24h", "1d", 86_400),
        ("366d", "366d", 366 * 86_400),
    ],
)
def test_an_interval_is_written_one_way(spec: str, written: str, seconds: int) -> None:
    assert parse_schedule(spec) == parse_schedule(f"every {written}") == Schedule(text=written, seconds=seconds)


@pytest.mark.parametrize(
    ("spec", "written", "cron"),
    [
        ("day at 9am", "day at 9am", "0 9 * * *"),
        ("Day  AT 9 AM", "day at 9am", "0 9 * * *"),
        ("day at 2:30pm", "day at 14:30", "30 14 * * *"),
        ("day at 12am", "day at 0:00", "0 0 * * *"),
        ("day at 12pm", "day at 12:00", "0 12 * * *"),
        ("weekday at 9:30", "weekday at 9:30", "30 9 * * mon-fri"),
        ("monday at 8", "monday at 8am", "0 8 * * mon"),
    ],
)
def test_a_time_of_day_is_a_cron_line_and_is_written_one_way(spec: str, written: str, cron: str) -> None:
    delayed = cron.startswith(("0 ", "30 "))
    found = Schedule(text=written, cron=cron, is_delayed=delayed)
    assert parse_schedule(spec) == parse_schedule(f"every {written}") == found


UNKNOWN = (
    *("fortnight", "0m", "day at 25:00", "-5m", "not a cron", "367d", "9" * 5000 + "d", "4h 2h", "day", "day at 13pm"),
    *("day at 0am", "60 * * * *", "0 0 * foo *", "0 0 * * */9", "0 0 * * 1,", "1,,2 * * * *", "*/0 * * * *"),
    *("0 9 * *", "0 0 9 * * 1"),
)


@pytest.mark.parametrize("spec", UNKNOWN)
def test_an_unknown_schedule_is_refused_in_one_line_with_what_to_type(spec: str) -> None:
    assert refusal(spec) == f'Unknown schedule "{spec}". Try: {EXAMPLES}'


@pytest.mark.parametrize(("spec", "interval"), [("1d at 02:30", "1d"), ("hour at 9", "hour")])
def test_an_interval_with_a_time_of_day_is_refused_with_what_to_type(spec: str, interval: str) -> None:
    assert refusal(spec) == f"every {interval}: an interval has no time of day. Try: day at 9am, or monday at 8"


@pytest.mark.parametrize("line", [pytest.param("0 0 31 2 *", marks=pytest.mark.rest), "0 9 31 4,6,9,11 *"])
def test_a_date_that_never_comes_is_named_as_such(line: str) -> None:
    assert refusal(line) == f'Schedule "{line}": this date never comes. Change its day or its month'


@pytest.mark.parametrize("line", ["0 0 31 2 5", "0 0 29 2 *", "0 0 31 2,3 *"])
def test_a_cron_line_that_comes_seldom_is_taken(line: str) -> None:
    assert parse_schedule(line).cron == line


@given(st.text(alphabet="0123456789*/,- mhdaypontuewkrs:.@", max_size=24))
def test_any_text_is_a_schedule_that_can_be_written_and_read_or_is_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        found = parse_schedule(text)
        assert parse_schedule(found.text) == found


FIELD = st.one_of(
    st.builds("{}".format, st.integers(0, 70)),
    st.builds("{}-{}".format, st.integers(0, 60), st.integers(0, 60)),
    st.builds("*/{}".format, st.integers(0, 60)),
    st.builds("{}-{}/{}".format, st.integers(0, 30), st.integers(0, 60), st.integers(0, 9)),
    st.sampled_from(["*", "mon", "fri-mon", "jan-mar", "1,3", "1,mon", "x"]),
)


@given(st.lists(FIELD, min_size=5, max_size=5))
def test_any_cron_line_is_taken_or_refused(fields: list[str]) -> None:
    with contextlib.suppress(UsageError):
        assert parse_schedule(" ".join(fields)).text == " ".join(fields)
