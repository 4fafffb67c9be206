"""Delays before something is tried again."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from runplan.domain.times import (
    FIRST_BUSY_S,
    FIRST_PARENT_S,
    JITTER_S,
    LOOKS,
    MARGIN_S,
    busy_ends,
    closed_between,
    delay_s,
    iso,
    limit_ends,
    look_s,
    parse_iso,
)

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("before", "minutes", "said"),
    [
        pytest.param(0, 1, True, id="G1"),
        pytest.param(8, 1, False, id="ninth"),
        pytest.param(9, 10, True, id="G2-G7"),
        pytest.param(14, 10, False, id="fifteenth"),
        pytest.param(15, 30, True, id="sixteenth"),
        pytest.param(24, 30, False, id="twenty-fifth"),
        pytest.param(25, 60, True, id="G4"),
        pytest.param(30, 60, False, id="G5"),
        pytest.param(10_000, 60, False, id="for-ever"),
    ],
)
def test_the_delay_grows_with_the_number_of_failures(before: int, minutes: int, said: bool) -> None:
    """The delay follows from the count alone (G7)."""
    n = before + 1
    assert (look_s(n), n in LOOKS) == (60 * minutes, said)


def test_a_retry_waits_twice_as_long_each_time_up_to_an_hour() -> None:
    assert [delay_s(n) for n in (0, 1, 2, 3, 6, 7, 10_000)] == [60, 60, 120, 240, 1920, 3600, 3600]
    assert [delay_s(n, first_s=2, longest_s=50, factor=5) for n in (1, 2, 3)] == [2, 10, 50]
    assert [delay_s(n, first_s=FIRST_PARENT_S) for n in (1, 2, 3, 4, 11)] == [600, 1200, 2400, 3600, 3600], "G16"


@given(st.floats(-1e6, 1e6), st.integers(1, 100), st.text(max_size=20))
def test_a_limit_is_waited_out_with_a_margin_and_never_ends_in_the_past(offset: float, times: int, seed: str) -> None:
    resets = NOW + offset
    until = limit_ends(resets, now=NOW, times=times, seed=seed)
    assert max(resets, NOW) + MARGIN_S <= until <= max(resets, NOW) + MARGIN_S + JITTER_S


def test_a_limit_without_a_reset_time_is_waited_for_longer_each_time_up_to_an_hour() -> None:
    waits = [limit_ends(None, now=NOW, times=times, seed="x") - NOW for times in range(1, 12)]
    assert waits == sorted(waits)
    assert 300 <= waits[0] <= 300 + JITTER_S
    assert waits[-1] <= 3600.0 + JITTER_S


def test_a_busy_provider_is_waited_for_twice_as_long_each_time() -> None:
    waits = [busy_ends(now=NOW, times=times, seed="x") - NOW for times in range(1, 6)]
    assert waits == sorted(waits)
    assert FIRST_BUSY_S <= waits[0] <= 2 * FIRST_BUSY_S
    assert waits[4] >= 16 * FIRST_BUSY_S


@pytest.mark.parametrize(
    ("hours", "now", "opens"),
    [
        ("22:00-07:00", "2026-01-01T21:59:59", "2026-01-01T22:00:00"),
        ("22:00-07:00", "2026-01-01T22:00:00", None),
        ("22:00-07:00", "2026-01-01T06:59:59", None),
        ("22:00-07:00", "2026-01-01T07:00:00", "2026-01-01T22:00:00"),
        ("09:00-17:00", "2026-01-01T12:00:00", None),
        ("09:00-17:00", "2026-01-01T17:00:00", "2026-01-02T09:00:00"),
        ("09:00-17:00", "2026-01-01T08:00:00", "2026-01-01T09:00:00"),
    ],
)
def test_hours_last_or_begin_next(hours: str, now: str, opens: str | None) -> None:
    found = closed_between(hours, datetime.fromisoformat(f"{now}+00:00"), "UTC")
    assert (found and found[1]) == (datetime.fromisoformat(f"{opens}+00:00") if opens else None)
    assert found is None or (found[0] <= datetime.fromisoformat(f"{now}+00:00") < found[1])
    berlin = closed_between("22:00-07:00", datetime.fromisoformat("2026-07-01T12:00:00+00:00"), "Europe/Berlin")
    assert berlin == tuple(datetime.fromisoformat(f"2026-07-01T{at}:00:00+00:00") for at in ("05", "20"))


@pytest.mark.parametrize("hours", ["02:30-06:00", "06:00-02:30", "02:10-02:20", "03:00-02:00", "22:00-07:00"])
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_hours_begin_later_and_have_ended_where_clocks_change(hours: str, day: str) -> None:
    begin = hours.partition("-")[0]
    for minute in range(0, 6 * 60, 5):
        now = datetime.fromisoformat(f"{day}T00:00:30+00:00") + timedelta(minutes=minute - 120)
        closed = closed_between(hours, now, "Europe/Berlin")
        if closed is None:
            continue
        ended, opens = closed
        assert ended <= now < opens <= now + timedelta(days=2)
        assert closed_between(hours, opens, "Europe/Berlin") is None
        local = opens.astimezone(ZoneInfo("Europe/Berlin"))
        assert f"{local:%H:%M}" in (begin, "02:00", "03:00"), "its time, or that to which the clock was set"


@pytest.mark.parametrize("year", [1, 202, 2026])
def test_a_written_moment_can_be_read_again(year: int) -> None:
    moment = datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert parse_iso(iso(moment)) == moment, "report --since 0202-01-01"
