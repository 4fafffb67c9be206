"""Schedules: the words after `every`, read into values and written back. `settings/slots.py` computes when they fire.

Importing this module is cheap. APScheduler is imported only for a schedule by the wall clock.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from runplan.errors import UsageError

EXAMPLES = "4h, hour, day at 9am, weekday at 14:00, monday at 8, or five cron fields such as 30 6 * * 1-5"
LONGEST_DAYS = 366  #: a longer interval is a typing error

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_INTERVAL = re.compile(r"(?:(\d{1,9})([mhd])|hour)(?= |$)")
_TIME_OF_DAY = re.compile(r"(day|weekday|(?:mon|tues|wednes|thurs|fri|satur|sun)day) at (\S+(?: [ap]m)?)(?= |$)")
_TIME = re.compile(r"(\d{1,2})(?::([0-5]\d))? ?(am|pm)?")
_CRON = re.compile(r"[\d*]\S*(?: \S+){4}(?= |$)")

#: The fields of a cron line by their APScheduler names, with the values that they take.
_CRON_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day": "1-31",
    "month": "1-12 or jan-dec",
    "day_of_week": "0-7 or sun-sat",
}
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Interval(Struct, frozen=True, kw_only=True):
    """Elapsed time, counted from the schedule's anchor."""

    seconds: int


class TimeOfDay(Struct, frozen=True, kw_only=True):
    """A wall-clock time on some days of the week."""

    day: str  #: day, weekday, or the name of one
    hour: int
    minute: int


class Cron(Struct, frozen=True, kw_only=True):
    """The wall-clock times of five cron fields."""

    text: str


Schedule: TypeAlias = Interval | TimeOfDay | Cron


def parse(text: str) -> Schedule:
    """Read a schedule such as `4h` or `every 4h`."""
    words = deque(text.split())
    if words and words[0].lower() == "every":
        words.popleft()
    schedule = take(words)
    if words:
        raise _unknown(text)
    return schedule


def take(words: deque[str]) -> Schedule:
    """Read the schedule with which the words begin, and remove its words."""
    text = " ".join(words).lower()
    if found := _INTERVAL.match(text):
        schedule: Schedule = _interval(found)
    elif found := _TIME_OF_DAY.match(text):
        schedule = _time_of_day(found)
    elif found := _CRON.match(text):
        wall_trigger(schedule := Cron(text=found[0]))  # raises UsageError where it is none
    else:
        raise _unknown(text)
    for _ in found[0].split():
        words.popleft()
    return schedule


def spell(schedule: Schedule) -> str:
    """Write a schedule in its one canonical form, such as `every 4h`."""
    match schedule:
        case Interval(seconds=3600):
            return "every hour"
        case Interval(seconds=seconds):
            unit = next(unit for unit in "dhm" if seconds % _UNITS[unit] == 0)
            return f"every {seconds // _UNITS[unit]}{unit}"
        case TimeOfDay(day=day, hour=hour, minute=minute):
            time = f"{hour}am" if minute == 0 and 1 <= hour <= 11 else f"{hour}:{minute:02d}"
            return f"every {day} at {time}"
        case Cron(text=text):
            return f"every {text}"


@lru_cache(maxsize=32)
def wall_trigger(schedule: TimeOfDay | Cron) -> Any:
    """The APScheduler trigger of a wall-clock schedule. Its zone is UTC, which stands for the wall clock."""
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger

    if isinstance(schedule, TimeOfDay):
        days = {"day": "*", "weekday": "mon-fri"}.get(schedule.day, schedule.day[:3])
        return CronTrigger(day_of_week=days, hour=schedule.hour, minute=schedule.minute, timezone=UTC)
    fields = _cron_fields(schedule.text)
    # As in cron: a day field that begins with a star restricts nothing, two that do not are alternatives.
    _, _, day, _, weekday = schedule.text.split()
    by_star = day.startswith("*") or weekday.startswith("*")
    alternatives = [fields] if by_star else [{**fields, "day": "*"}, {**fields, "day_of_week": "*"}]
    trigger = OrTrigger([CronTrigger(**one, timezone=UTC) for one in alternatives])
    if trigger.get_next_fire_time(None, datetime(2000, 1, 1, tzinfo=UTC)) is None:
        raise UsageError(f'Schedule "{schedule.text}" never fires: no such month has that day. Try: a day from 1 to 28')
    return trigger


def _cron_fields(text: str) -> dict[str, str]:
    """The fields of a cron line as APScheduler takes them."""
    from apscheduler.triggers.cron import CronTrigger

    fields = dict(zip(_CRON_FIELDS, text.split(), strict=True))
    for name, field in fields.items():
        try:
            fields[name] = _by_name(field) if name == "day_of_week" else field
            CronTrigger(**{name: fields[name]}, timezone=UTC)
        except ValueError as error:
            kind = "weekday" if name == "day_of_week" else name
            raise UsageError(
                f'Unknown {kind} "{field}" in schedule "{text}". '
                f"Try: {_CRON_FIELDS[name]}, a list 1,3, a range 1-5, a step */2, or *"
            ) from error
    return fields


def _by_name(field: str) -> str:
    """A weekday field with names for numbers: APScheduler counts from Monday, cron from Sunday."""
    for number, name in enumerate(_WEEKDAYS):
        field = field.replace(name, str(number))
    days: set[str] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = ("0-6" if span == "*" else span).partition("-")
        low, high = int(first), int(last if dash else "6" if slash else first)
        if low > 7 or high > 7 or (slash and not 0 < int(step) < 7):
            raise ValueError(part)
        high += 7 if high < low else 0  # fri-mon
        days |= {_WEEKDAYS[day % 7] for day in range(low, high + 1, int(step or 1))}
    return ",".join(sorted(days))


def _interval(found: re.Match[str]) -> Interval:
    seconds = int(found[1]) * _UNITS[found[2]] if found[1] else 3600
    if not 0 < seconds <= LONGEST_DAYS * 86_400:
        raise UsageError(f'Interval "{found[0]}" is out of range. Try: 1m to {LONGEST_DAYS}d')
    return Interval(seconds=seconds)


def _time_of_day(found: re.Match[str]) -> TimeOfDay:
    time = _TIME.fullmatch(found[2])
    hours = range(1, 13) if time and time[3] else range(24)
    if time is None or int(time[1]) not in hours:
        raise UsageError(f'Unknown time of day "{found[2]}" in schedule "{found[0]}". Try: 9am or 14:00')
    hour = int(time[1])
    if time[3]:
        hour = hour % 12 + (12 if time[3] == "pm" else 0)
    return TimeOfDay(day=found[1], hour=hour, minute=int(time[2] or 0))


def _unknown(text: str) -> UsageError:
    what = f'Unknown schedule "{text}"' if text else "Missing schedule"
    return UsageError(f"{what}. Try: {EXAMPLES}")
