"""How long and when, as people say it: `2h 15m`, `Tue 20:30 CET`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")  # strftime would speak the locale's language


def in_words(seconds: float) -> str:
    """A time span, rounded to what is worth saying: `45s`, `12m`, `2h 15m`, `3d 4h`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole}s"
    minutes = (whole + 30) // 60
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 1440:
        return _two(minutes, 60, "h", "m")
    return _two((minutes + 30) // 60, 24, "d", "h")


def _two(count: int, size: int, unit: str, lesser: str) -> str:
    return f"{count // size}{unit} {count % size}{lesser}" if count % size else f"{count // size}{unit}"


def clock(moment: datetime, zone: tzinfo, *, now: datetime) -> str:
    """What a clock in the zone shows: `20:30 CET`, with its day or date where that is not today's."""
    there = moment.astimezone(zone)
    days = (there.date() - now.astimezone(zone).date()).days
    name = there.tzname() or ""
    shown = f"{there:%H:%M} {f'UTC{name}' if name[:1] in ('+', '-') else name}"
    if days == 0:
        return shown
    # A week away the day of the week is today's: that needs the date.
    return f"{_WEEKDAYS[there.weekday()]} {shown}" if abs(days) < 7 else f"{there:%Y-%m-%d} {shown}"
