"""Time spans and moments as people say them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from runplan.domain.text import clock, dated, in_words

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 2, 10, 12, 0, tzinfo=UTC)  # a Tuesday


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-5, "0s"), (0.4, "0s"), (59.4, "59s"), (59.6, "1m"), (89, "1m"), (90, "2m"), (3569, "59m"), (3570, "1h")),
        *((8100, "2h 15m"), (4 * 3600 - 0.2, "4h"), (84_700, "23h 32m"), (86_399, "1d"), (86_400 + 3600, "1d 1h")),
        (3 * 86_400 + 4 * 3600 + 100, "3d 4h"),
    ],
)
def test_a_span_has_at_most_two_units_and_is_rounded(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


@pytest.mark.parametrize(
    ("away", "zone", "shown"),
    [
        (timedelta(hours=7, minutes=30), BERLIN, "20:30 CET"),
        (timedelta(hours=11), BERLIN, "Wed 00:00 CET"),
        (timedelta(hours=-13), BERLIN, "00:00 CET"),
        (timedelta(hours=-14), BERLIN, "Mon 23:00 CET"),
        (timedelta(days=6), BERLIN, "Mon 13:00 CET"),
        (timedelta(days=7), BERLIN, "2026-02-17 13:00 CET"),
        (timedelta(days=60), BERLIN, "2026-04-11 14:00 CEST"),
        (timedelta(hours=1), ZoneInfo("America/Sao_Paulo"), "10:00 UTC-03"),
        (timedelta(hours=1), None, f"{(NOW + timedelta(hours=1)).astimezone():%H:%M %Z}"),
    ],
)
def test_a_moment_names_its_zone_and_a_day_but_today(away: timedelta, zone: ZoneInfo | None, shown: str) -> None:
    assert clock(NOW + away, zone, now=NOW) == shown


@pytest.mark.parametrize(
    ("zone", "said"),
    [("UTC", "12:00 UTC"), ("Europe/Berlin", "13:00 CET"), ("America/Sao_Paulo", "09:00 UTC-03")],
)
def test_a_zone_without_a_name_is_told_by_its_distance_to_utc(zone: str, said: str) -> None:
    moment = datetime(2026, 11, 20, 12, tzinfo=UTC).astimezone(ZoneInfo(zone))
    assert dated(moment) == f"2026-11-20 {said}"
    assert clock(moment, ZoneInfo(zone), now=moment) == said
