"""What `every …` means: an interval, times of day, or a cron line; read from words and written back.

An interval is elapsed time from its anchor; times of day and cron lines are what a clock on the wall shows.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from runplan.core.cron import Cron, read_cron
from runplan.core.errors import UsageError
from runplan.core.quickclass import dataclass

SCHEDULES = "4h, hour, day at 9am, weekday at 14:00, monday at 8, or five cron fields"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAY = (0, 1, 2, 3, 4)
DAY = tuple(range(7))
LONGEST_DAYS = 366  #: nobody waits longer for a phase; it is a slip of the keyboard

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_INTERVAL = re.compile(r"(\d+)([mhd])")
_TIME = re.compile(r"(\d{1,2})(?::([0-5]\d))? ?(am|pm)?")
_AT = re.compile(r"(\w+) at (.+)")
_CRON = re.compile(r"[\d*][\w*/,-]*( [\w*/,-]+){4}$|(?=.*\*)([\w*/,-]+( |$)){3,}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """So many seconds of elapsed time from the anchor, and again and again."""

    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOfDay:
    """A time on the clock, on some days of the week."""

    days: tuple[int, ...]  #: 0 is Monday
    hour: int
    minute: int


Schedule: TypeAlias = Interval | TimeOfDay | Cron


def parse(spec: str) -> Schedule:
    """The schedule that the words after `every` mean; else UsageError with the nearest that mean something."""
    text = " ".join(spec.lower().split()).removeprefix("every ")
    schedule = _read(text)
    if schedule is None:
        raise UsageError(f"every {text}: {_why(text)}")
    return schedule


def spell(schedule: Schedule) -> str:
    """The one way in which a schedule is written, such as `every 4h`; `parse` reads it."""
    match schedule:
        case Interval(seconds=3600):
            return "every hour"
        case Interval(seconds=seconds):
            unit = next(unit for unit in "dhm" if seconds % _UNITS[unit] == 0)
            return f"every {seconds // _UNITS[unit]}{unit}"
        case TimeOfDay(days=days, hour=hour, minute=minute):
            day = "day" if days == DAY else "weekday" if days == WEEKDAY else DAYS[days[0]]
            return f"every {day} at {_clock(hour, minute)}"
        case Cron(text=text):
            return f"every {text}"


def _clock(hour: int, minute: int) -> str:
    return f"{hour}am" if minute == 0 and 1 <= hour <= 11 else f"{hour}:{minute:02d}"


def _read(text: str) -> Schedule | None:
    """None when it is none; a cron line says itself what is wrong with it."""
    if text == "hour":
        return Interval(seconds=3600)
    if found := _INTERVAL.fullmatch(text):
        count = int(found[1].lstrip("0")[:12] or 0)
        return Interval(seconds=count * _UNITS[found[2]]) if _sane(count, found[2]) else None
    if found := _AT.fullmatch(text):
        return _time_of_day(found[1], found[2])
    if _CRON.match(text):
        return read_cron(text)
    return None


def _sane(count: int, unit: str) -> bool:
    return 0 < count * _UNITS[unit] <= LONGEST_DAYS * 86_400


def _time_of_day(day: str, said: str) -> TimeOfDay | None:
    days = {"day": DAY, "weekday": WEEKDAY} | {name: (number,) for number, name in enumerate(DAYS)}
    found = _TIME.fullmatch(said)
    if found is None or day not in days:
        return None
    hour, half = int(found[1]), found[3]
    if hour not in (range(1, 13) if half else range(24)):
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return TimeOfDay(days=days[day], hour=hour, minute=int(found[2] or 0))


def _why(text: str) -> str:
    from runplan.core.schedulehints import near  # only an error needs it

    guess = near(text)
    return f"unsupported schedule; say every {guess}" if _read(guess) else f"unsupported schedule; say {SCHEDULES}"
