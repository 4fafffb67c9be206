"""When a usage limit ends, read from the words in which a program says so."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

#: No provider locks anybody out for longer; a later time was misread.
FARTHEST_S = 8 * 86_400.0

#: A time of day that has passed by no more than this is the one that was meant, and not tomorrow's.
JUST_PASSED_S = 900.0

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST = 4_000

_EPOCH = re.compile(r"\|\s*(\d{10})\b")
_ISO = re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?)\s?(Z|UTC|[+-]\d\d:?\d\d)?")
_CLOCK = re.compile(
    r"(?:resets?|try again|available again|come back)(?: on| at)?:? "
    r"(?:(?P<month>[a-z]{3})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?,?(?: (?P<year>\d{4}),?)?(?: at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)?\b\.?"
    r"(?: ?\((?P<zone>[\w/+-]{1,40})\)| (?P<utc>UTC|GMT)\b)?",
    re.IGNORECASE,
)
_SPAN = re.compile(
    r"(?:try again|retry|resets?|wait|available)(?: after| in)[:=]? "
    r"(?:about )?((?:\d{1,9}(?:\.\d{1,9})? ?"
    r"(?:days?|d|hours?|hrs?|h|minutes?|mins?|ms|m|seconds?|secs?|s)(?![a-z])[ ,]{0,2}(?:and )?){1,4})",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(r"retry[-_ ]after\W{1,4}(\d{1,9}(?:\.\d{1,9})?)\b(?! ?(?:m|h|d))", re.IGNORECASE)
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}


def reset_time(words: str, *, now: float, zone: tzinfo | None = None) -> float | None:
    """The moment the words name, in seconds since the epoch; None when they name none within eight days.

    A time of day that has just passed is now.

    `now` is when the words were said, `zone` the one whose clock the program shows when it names no other.
    """
    text = words[-_LONGEST:]
    for read in (_from_epoch, _from_iso, _from_clock, _from_span):
        found = read(text, now, zone or UTC)
        if found is not None and now <= found <= now + FARTHEST_S:
            return found
    return None


def reset_header(headers: Mapping[str, object], *, now: float) -> float | None:
    """The same from the headers of an answer; a wait of nothing is no time."""
    told = {name.lower(): str(value).strip()[:100] for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        wait = _number(told.get(name, "")) * unit
        if 0 < wait <= FARTHEST_S:
            return now + wait
    for name, value in sorted(told.items()):
        if "ratelimit" in name and name.endswith("reset"):
            when = _number(value)
            found = when if when else _from_iso(value, now, UTC)
            if found is not None and now < found <= now + FARTHEST_S:
                return found
    return None


def _from_epoch(text: str, now: float, zone: tzinfo) -> float | None:  # noqa: ARG001 - all are asked alike
    found = _EPOCH.search(text)
    return float(found[1]) if found else None


def _from_iso(text: str, now: float, zone: tzinfo) -> float | None:  # noqa: ARG001
    found = _ISO.search(text)
    if found is None:
        return None
    offset = {"Z": "+00:00", "UTC": "+00:00", None: ""}.get(found[2], found[2])
    try:
        moment = datetime.fromisoformat(f"{found[1]}{offset}")
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def _from_clock(text: str, now: float, zone: tzinfo) -> float | None:
    found = _CLOCK.search(text)
    if found is None or (found["half"] is None and found["minute"] is None):
        return None
    named = found["zone"] or found["utc"]
    there = _zone(named) if named else zone
    hour, minute = _hour(int(found["hour"]), found["half"]), int(found["minute"] or 0)
    if there is None or hour is None or minute > 59:
        return None
    today = datetime.fromtimestamp(now, there).replace(hour=hour, minute=minute, second=0, microsecond=0)
    if not found["month"]:
        return _next(today, now)
    return _dated(today, found["month"].lower(), int(found["day"]), found["year"], now)


def _next(moment: datetime, now: float) -> float:
    """The first such time after now; a minute that is not over yet has to end."""
    if moment.timestamp() > now:
        return moment.timestamp()
    if moment.timestamp() + JUST_PASSED_S > now:
        return max(moment.timestamp() + 60, now)
    return (moment + timedelta(days=1)).timestamp()


def _dated(today: datetime, month: str, day: int, year: str | None, now: float) -> float | None:
    if month not in _MONTHS:
        return None
    for each in (int(year),) if year else (today.year, today.year + 1):
        try:
            moment = today.replace(year=each, month=_MONTHS.index(month) + 1, day=day).timestamp()
        except (ValueError, OverflowError):
            continue
        if moment > now - JUST_PASSED_S:
            return max(moment, now)
    return None


def _from_span(text: str, now: float, zone: tzinfo) -> float | None:  # noqa: ARG001
    if found := _SPAN.search(text):
        wait = sum(_seconds(float(count), unit) for count, unit in _PART.findall(found[1]))
        return now + wait if wait else None
    if found := _RETRY_AFTER.search(text):
        return now + float(found[1]) if float(found[1]) else None
    return None


def _seconds(count: float, unit: str) -> float:
    return count / 1000 if unit.lower() == "ms" else count * _UNITS[unit[0].lower()]


def _hour(hour: int, half: str | None) -> int | None:
    if half is None:
        return hour if hour < 24 else None
    if not 1 <= hour <= 12:
        return None
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _zone(name: str) -> tzinfo | None:
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # dear, and nearly all say UTC

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", text) else 0.0
