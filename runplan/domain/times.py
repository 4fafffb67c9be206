"""Moments as text, and delays before something is tried again."""

from datetime import UTC, datetime, time, timedelta, tzinfo
from zlib import crc32

MARGIN_S = 60.0  #: clocks differ, and a limit may reset a little late
JITTER_S = 120.0  #: spreads the runs that wait for the same reset
FIRST_UNKNOWN_S = 300.0  #: the first wait for a limit without a known end
FIRST_BUSY_S = 30.0  #: the first wait for an overloaded provider
FIRST_PARENT_S = 600.0  #: the first wait for a parent that holds the end of a plan
#: A recorded time that is later than any due one by more than this comes from a clock that was ahead.
CLOCK_ERROR = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
LOOKS = {26: 60, 16: 30, 10: 10, 1: 1}  #: from the n-th look on: minutes until the next one


def iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"  # also years before 1000


def iso_at(seconds: float) -> str:
    return iso(datetime.fromtimestamp(seconds, UTC))


def parse_iso(text: str) -> datetime:
    moment = datetime.fromisoformat(text)  # not strptime, which imports the locale's calendar
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)


def git_date(moment: datetime) -> str:
    return f"{int(moment.timestamp())} +0000"


def zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # 4 ms, and most times are UTC

    return ZoneInfo(name)


def closed_between(hours: str, now: datetime, zone_name: str) -> tuple[datetime, datetime] | None:
    """When hours such as 22:00-07:00 ended, and when they begin again; None while they last."""
    begin, end = map(time.fromisoformat, hours.split("-"))
    there = zone(zone_name)

    def is_open(moment: datetime) -> bool:
        local = moment.astimezone(there).time()
        is_late, is_early = local >= begin, local < end
        return (is_late and is_early) if begin < end else (is_late or is_early)

    if is_open(now):
        return None
    # Minute by minute: where clocks change, a time of day comes twice or not at all.
    opening = now.astimezone(UTC).replace(second=0, microsecond=0)
    closing = opening
    while not is_open(opening):
        opening += _MINUTE
    while not is_open(closing - _MINUTE):
        closing -= _MINUTE
    return closing, opening


def delay_s(n: int, *, first_s: float = 60.0, longest_s: float = 3600.0, factor: float = 2.0) -> float:
    """Seconds to wait after the n-th failure in a row, counted from 1."""
    return min(first_s * factor ** min(max(n, 1) - 1, 100), longest_s)


def look_s(n: int) -> float:
    """Seconds to wait after the n-th look in a row, counted from 1, that found something in use."""
    return 60.0 * next(minutes for first, minutes in LOOKS.items() if max(n, 1) >= first)


def limit_ends(resets: float | None, *, now: float, times: int, seed: str) -> float:
    """When to try again after a usage limit, in seconds since the epoch; `times` counts limits in a row, from 1."""
    if resets is not None:
        return max(resets, now) + MARGIN_S + jitter(seed)
    return now + delay_s(times, first_s=FIRST_UNKNOWN_S) + jitter(seed)


def busy_ends(*, now: float, times: int, seed: str) -> float:
    """When to try again after an overload; `times` counts overloads in a row, from 1."""
    wait_s = delay_s(times, first_s=FIRST_BUSY_S)
    return now + wait_s + jitter(seed) * min(1.0, wait_s / JITTER_S / 4)


def jitter(seed: str) -> float:
    return crc32(seed.encode("utf-8", "surrogatepass")) / 2**32 * JITTER_S
