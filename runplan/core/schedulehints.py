"""What somebody probably meant who wrote a schedule that is none; asked only for an error message."""

from __future__ import annotations

import re
from difflib import get_close_matches

_SAID = {
    "minute": "1m",
    "half hour": "30m",
    "hourly": "hour",
    "@hourly": "hour",
    "daily": "day at 9am",
    "@daily": "day at 0:00",
    "morning": "day at 9am",
    "noon": "day at 12:00",
    "evening": "day at 18:00",
    "night": "day at 2am",
    "nightly": "day at 2am",
    "midnight": "day at 0:00",
    "other day": "2d",
    "weekend": "0 9 * * 6,0",
    "week": "7d",
    "weekly": "monday at 9am",
    "@weekly": "sunday at 0:00",
    "fortnight": "14d",
    "month": "0 9 1 * *",
    "monthly": "0 9 1 * *",
    "@monthly": "0 0 1 * *",
    "year": "0 9 1 1 *",
}
_DAYS = ("day", "weekday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0, "w": 10_080.0}
_SPAN = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?(s|m|h|d|w)[a-z]*")
_DAY = re.compile(r"(?:([a-z]+)\b(?!:))?(?: at)? ?(.*)")
_TIME = re.compile(r"(\d{1,4})(?:[:.h](\d{1,4}))? ?([ap]m?)?\.?")
_LONGEST_M = 366 * 1440


def near(text: str) -> str:
    """The words of a schedule that come nearest; empty when nothing does."""
    bare = re.sub(r"^(?:at|each|on) ", "", text)
    if bare in _SAID:
        return _SAID[bare]
    if re.fullmatch(rf"(?:{_SPAN.pattern}[ ,]*)+", bare):
        return _interval(bare)
    found = _DAY.fullmatch(bare)
    if found is None or not bare:
        return ""
    day = _day(found[1]) if found[1] else "day" if _TIME.fullmatch(found[2]) else ""
    if day in ("", "hour"):
        return day
    return f"{day} at {_time(found[2].strip())}"


def _interval(text: str) -> str:
    minutes = round(sum(float(count) * _MINUTES[unit] for count, unit in _SPAN.findall(text)))
    minutes = min(max(minutes, 1), _LONGEST_M)
    for unit in "dh":
        if minutes % _MINUTES[unit] == 0:
            return f"{minutes // int(_MINUTES[unit])}{unit}"
    return f"{minutes}m"


def _day(word: str) -> str:
    known = (*_DAYS, "hour")
    short = [day for day in known if len(word) >= 3 and day.startswith(word)]
    return next(iter(short or get_close_matches(word, known, n=1)), "")


def _time(said: str) -> str:
    """The time of day nearest to what was said; nine in the morning when that is nothing."""
    found = _TIME.fullmatch(said)
    if found is None:
        return {"noon": "12:00", "midnight": "0:00"}.get(said, "9am")
    hour, minute = min(int(found[1]), 23), min(int(found[2] or 0), 59)
    if found[3] and 1 <= hour <= 12:
        return f"{hour}:{minute:02d}{found[3][0]}m" if minute else f"{hour}{found[3][0]}m"
    return f"{hour}:{minute:02d}"
