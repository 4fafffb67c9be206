"""Five cron fields: which days, hours and minutes they mean, and the wall-clock times that follow."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from runplan.core.errors import UsageError
from runplan.core.quickclass import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  #: what a month has at most


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    unit: str = ""  #: in which an interval is written, for those who mean one


_FIELDS = (
    _Field("minute", 0, 59, (), "m"),
    _Field("hour", 0, 23, (), "h"),
    _Field("day", 1, 31, (), "d"),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """The times of a cron line; every tuple sorted."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...] = tuple(range(1, 32))
    months: tuple[int, ...] = tuple(range(1, 13))
    weekdays: tuple[int, ...] = tuple(range(7))  #: 0 is Sunday
    either: bool = False  #: whether the day of the month or of the week is enough; else it takes both
    text: str = ""  #: as written


def read_cron(text: str) -> Cron:
    """The meaning of five fields; what no cron would take, or what never comes, is refused."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise UsageError(f"every {text}: a cron line has five fields, not {len(fields)}; say every 0 9 * * 1-5")
    minutes, hours, days, months, weekdays = (
        _numbers(field, written, text) for field, written in zip(_FIELDS, fields, strict=True)
    )
    # As in cron: a field that begins with a star restricts nothing, two that do not are alternatives.
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either and not any(days[0] <= _LONGEST[month - 1] for month in months):
        longest = max(_LONGEST[month - 1] for month in months)
        raise UsageError(
            f"every {text}: no such month has {days[0]} days; say every {_with(fields, 2, str(longest))}",
        )
    return Cron(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=tuple(sorted({day % 7 for day in weekdays})),
        either=either,
        text=" ".join(fields),
    )


def walls(cron: Cron, start: datetime) -> Iterator[datetime]:
    """The wall-clock times (without a zone) from `start` on, in order, without end."""
    first = start.replace(second=0, microsecond=0)
    for day in _days(cron, first.date()):
        begins = first.hour if day == first.date() else 0
        for hour in cron.hours:
            if hour >= begins:
                for minute in cron.minutes:
                    wall = datetime(day.year, day.month, day.day, hour, minute)
                    if wall >= start:
                        yield wall


def _days(cron: Cron, day: date) -> Iterator[date]:
    while True:
        if day.month not in cron.months:
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            continue
        on_day, on_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
        if (on_day or on_weekday) if cron.either else (on_day and on_weekday):
            yield day
        day += timedelta(days=1)


# --- one field -----------------------------------------------------------------------------------------


def _numbers(field: _Field, written: str, text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in written.split(","):
        found.update(_part(field, part, written, text))
    return tuple(sorted(found))


def _part(field: _Field, part: str, written: str, text: str) -> range:
    """One piece of a list: a number, a range or a star, the latter two with or without a step."""
    span, slash, step = part.partition("/")
    if span == "*":
        low, high = field.low, 6 if field.name == "weekday" else field.high
    else:
        first, dash, last = span.partition("-")
        low = _number(field, first, text)
        high = _number(field, last, text) if dash else low
        if field.name == "weekday" and dash and high == 0 < low:
            high = 7  # fri-sun
        if slash and not dash:
            whole = written.replace(part, f"{first}-{field.high}/{step}")
            raise UsageError(f"every {text}: a step needs a range; say {whole} for the {field.name}")
        if low > high:
            turned = f"{first}-{field.high},{field.low}-{last}"
            raise UsageError(f"every {text}: {part} goes backwards; say {turned} for the {field.name}")
    return range(low, high + 1, _step(field, step, high - low, text) if slash else 1)


def _step(field: _Field, step: str, span: int, text: str) -> int:
    if not (step.isascii() and step.isdigit() and len(step) < 5) or int(step) == 0:
        raise UsageError(f"every {text}: a step is a number from 1; say */5 for the {field.name}")
    if int(step) > span:
        # Cron would take it and fire once in every round of the field, which nobody means.
        other = f"every {int(step)}{field.unit}" if field.unit else f"at most {span}"
        raise UsageError(f"every {text}: no {field.name} is {step} after another; say {other}")
    return int(step)


def _number(field: _Field, word: str, text: str) -> int:
    if word in field.names:
        return field.names.index(word) + (1 if field.name == "month" else 0)
    if word.isascii() and word.isdigit() and len(word) < 5 and field.low <= int(word) <= field.high:
        return int(word)
    named = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    raise UsageError(f"every {text}: {word or 'nothing'} is no {field.name}; say {field.low} to {field.high}{named}")


def _with(fields: list[str], place: int, field: str) -> str:
    return " ".join([*fields[:place], field, *fields[place + 1 :]])
