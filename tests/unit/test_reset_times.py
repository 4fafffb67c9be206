"""The end of a usage limit is read from the words of each program, in the right zone, and never believed blindly."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from runplan.adapters.agents.endings import FARTHEST_S, reset_header, reset_time

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 15, 1, 5, tzinfo=UTC)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("You've hit your limit · resets 1:27am (UTC)", "2026-11-15T01:27"),
        ("You've hit your limit · resets 12:30am (UTC)", "2026-11-16T00:30"),
        ("You've hit your limit · resets 12:30pm (UTC)", "2026-11-15T12:30"),
        ("You've hit your limit · resets 3am (Europe/Berlin)", "2026-11-15T02:00"),
        ("You've hit your limit · resets Nov 16, 2:30am (UTC)", "2026-11-16T02:30"),
        ("You've hit your limit · resets Nov 16 at 2am (America/New_York)", "2026-11-16T07:00"),
        ("Claude AI usage limit reached|1794708289", "2026-11-15T02:04:49"),
        ("You’ve hit your usage limit. Upgrade or try again at 2:06 AM.", "2026-11-15T02:06"),
        ("You've hit your usage limit. Try again at 2:06 AM.", "2026-11-15T02:06"),
        ("… try again at Nov 16th, 2026 2:30 AM.", "2026-11-16T02:30"),
        ("… try again at November 16th, 2026, 2:30 PM.", "2026-11-16T14:30"),
        ("try again in 5 days 3 hours 20 minutes.", "2026-11-20T04:25"),
        ("Please retry in 34s.", "2026-11-15T01:05:34"),
        ("Resets in 2h 30m", "2026-11-15T03:35"),
        ("Please try again in 1 hour and 1 minute", "2026-11-15T02:06"),
        ("on requests per day (RPD): Limit 200. Please try again in 61m0s. Visit", "2026-11-15T02:06"),
        ("Please try again in 1h1m", "2026-11-15T02:06"),
        ("429, retry-after: 3600", "2026-11-15T02:05"),
        ('{"retry_after": 90}', "2026-11-15T01:06:30"),
        ("resets 15:05 UTC", "2026-11-15T15:05"),
        ("try again at 1:05 AM", "2026-11-15T01:06"),  # that minute has to end first
        ("try again at 1:04 AM", "2026-11-15T01:05"),  # just over: it means now
        ("You've hit your limit · resets 12:51am (UTC)", "2026-11-15T01:05"),
        ("You've hit your limit · resets Nov 15, 12:51am (UTC)", "2026-11-15T01:05"),
        ("try again at 12:49 AM", "2026-11-16T00:49"),
    ],
)
def test_the_moment_is_read(words: str, moment: str) -> None:
    assert reset_time(words, now=NOW.timestamp(), zone=UTC) == at(moment)


@pytest.mark.parametrize(
    "words",
    [
        *("", "You have exhausted your daily quota on this model.", "resets soon", "try again at 99:99 AM"),
        *("resets 13pm (UTC)", "resets 5", "resets 1am (Mars/Olympus)", "resets Feb 30, 2am (UTC)"),
        *("resets Foo 12, 2am (UTC)", "limit reached|1000000000", "limit reached|9999999999", "try again in 9 days"),
        *("retry-after: 0", "try again in 0s", "at 2026-99-99T00:00:00Z"),
        "resets Dec 24, 2:30am (UTC)",  # more than eight days away
        "try again at Nov 14th, 2026 2:30 AM.",  # over
    ],
)
def test_a_text_without_a_time_within_eight_days_is_unknown(words: str) -> None:
    assert reset_time(words, now=NOW.timestamp(), zone=UTC) is None


def test_a_clock_without_a_zone_is_the_given_ones() -> None:
    words = "try again at 2:30 AM."
    assert reset_time(words, now=NOW.timestamp(), zone=BERLIN) == at("2026-11-15T01:30")
    assert reset_time(words, now=NOW.timestamp()) == at("2026-11-15T02:30")


def test_skipped_and_repeated_hours_are_read() -> None:
    for night in (datetime(2026, 3, 28, 23, tzinfo=BERLIN), datetime(2026, 10, 24, 23, tzinfo=BERLIN)):
        found = reset_time("try again at 2:30 AM.", now=night.timestamp(), zone=BERLIN)
        assert found is not None
        assert timedelta(hours=2).total_seconds() <= found - night.timestamp() <= timedelta(hours=5).total_seconds()


def test_a_time_in_the_second_of_two_same_hours_is_not_tomorrows() -> None:
    now = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=BERLIN).timestamp()
    assert reset_time("try again at 2:30 AM.", now=now, zone=BERLIN) == now + 20 * 60


def test_the_year_turns() -> None:
    eve = datetime(2026, 12, 31, 22, tzinfo=UTC)
    assert reset_time("resets Jan 2, 2:30am (UTC)", now=eve.timestamp()) == at("2027-01-02T02:30")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        *((headers, 3600.0) for headers in ({"retry-after": "3600"}, {"Retry-After": "3600"})),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        *((headers, None) for headers in ({"retry-after": "0"}, {"retry-after": "a while"}, {"retry-after": 10**400})),
        *((headers, None) for headers in ({"x-ratelimit-reset": "12"}, {})),
    ],
)
def test_headers_are_read(headers: dict[str, object], wait: float | None) -> None:
    found = reset_header(headers, now=NOW.timestamp())
    assert found == (None if wait is None else NOW.timestamp() + wait)


WORDS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                *("resets", "try again at", "in", "Nov", "16th,", "2026", "2:30", "AM", "pm", "(UTC)", "(X/Y)"),
                *("retry-after:", "99", "0", "days", "h", "Feb", "31"),
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@given(words=WORDS, now=st.floats(min_value=1, max_value=4e9))
def test_a_reset_time_is_always_in_the_near_future(words: str, now: float) -> None:
    found = reset_time(words, now=now, zone=BERLIN)
    assert found is None or now < found <= now + FARTHEST_S
