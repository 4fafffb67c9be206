"""Schedules: the words after `every`, read into values and written back; and the slots at which they fire.

APScheduler's triggers compute the times. Intervals are elapsed time. A wall-clock time is computed without a zone and
then resolved in the schedule's zone: a time in a gap of the clock fires at the end of the gap, a time that comes twice
fires the first time only. The reason is in docs/dependencies.md. APScheduler is imported on first use.
"""

from __future__ import annotations

import json
import re
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from runplan.errors import UsageError
from runplan.times import iso, parse_iso, zone as zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from runplan.run.rows import ScheduleRow

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

JITTER_FROM_S, JITTER_TO_S = 60, 300  #: delay of times of day at :00 and :30, when many machines are busy
GRACE = timedelta(minutes=5)  #: a slot this late is on time, unless the next slot is nearer
#: A recorded time that is later than the next slot by more than this comes from a clock that was ahead.
CLOCK_ERROR = timedelta(days=1)

_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)


# --- words ---------------------------------------------------------------------------------------------


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


# --- slots ---------------------------------------------------------------------------------------------


class Slot(Struct, frozen=True):
    """One firing of a schedule. Keys of a schedule grow with time."""

    at: datetime  #: UTC
    key: str  #: the wall-clock time; of an interval the moment itself


class Due(Struct, frozen=True, kw_only=True):
    """The slots to answer now, and the first one after now."""

    fire: Slot | None
    missed: Slot | None  #: the newest that was not fired in time; it stands for those before it
    next: Slot


def what_is_due(row: ScheduleRow, now: datetime) -> Due:
    """The slots of a schedule that came since the last one answered. The newest fires, the others were missed."""
    begin, last = _answered(row, now)

    def slots(after: datetime) -> Iterator[Slot]:
        # The key counts too: after a change of the zone the slot answered last has another moment.
        return (slot for slot in _slots_of(row, after) if slot.key > last)

    following, span = next(slots(now)), timedelta(hours=1)
    while True:  # the newest two: a clock that was wrong by decades has millions of slots
        after = max(begin, now - span)
        found = deque(takewhile(lambda slot: slot.at <= now, slots(after)), maxlen=2)
        if len(found) == 2 or after == begin:
            break
        span *= 2
    newest, earlier = (found[-1] if found else None), (found[0] if len(found) == 2 else None)
    if newest is None or row.misfire != "skip" or now - newest.at <= min(GRACE, (following.at - newest.at) / 2):
        return Due(fire=newest, missed=earlier, next=following)
    return Due(fire=None, missed=newest, next=following)


def _answered(row: ScheduleRow, now: datetime) -> tuple[datetime, str]:
    """The moment and the key up to which slots are answered.

    A recorded time from a clock that was ahead does not count: the schedule would be silent until then. It is later
    than the next slot by more than a day. A clock that was set back by less fires no slot again.
    """
    at, key = json.loads(row.last) if row.last else (row.made, "")
    recorded = [parse_iso(at), parse_iso(row.made), parse_iso(row.anchor)]
    if max(recorded) <= now:
        return max(recorded), key
    limit = next(_slots_of(row, now - GRACE)).at + CLOCK_ERROR
    believed = [moment for moment in recorded if moment <= limit]
    if len(believed) < len(recorded):
        believed.append(now - GRACE)
    return max(believed), key if recorded[0] <= limit else ""


def _slots_of(row: ScheduleRow, after: datetime) -> Iterator[Slot]:
    anchor = parse_iso(row.anchor)
    return slots_after(parse(row.spec), after=after, zone=zone_of(row.zone), anchor=anchor, seed=row.plan)


def upcoming(row: ScheduleRow, now: datetime) -> datetime | None:
    """The next slot; None if this machine does not know the schedule's words or zone."""
    if is_armed(row, now):
        return parse_iso(row.next or "")
    found = _due(row, now)
    return found.next.at if found else None


def is_due(row: ScheduleRow, now: datetime) -> bool:
    """Whether the schedule fires as soon as a daemon runs."""
    if row.paused or is_armed(row, now):
        return False
    found = _due(row, now)
    return found is not None and found.fire is not None


def is_armed(row: ScheduleRow, now: datetime) -> bool:
    """Whether the recorded next slot is still to come, so that nothing has to be computed."""
    return row.next is not None and parse_iso(row.next) > now


def _due(row: ScheduleRow, now: datetime) -> Due | None:
    try:
        return what_is_due(row, now)
    except (UsageError, LookupError, OSError, ValueError):
        return None


def slots_after(schedule: Schedule, *, after: datetime, zone: tzinfo, anchor: datetime, seed: str) -> Iterator[Slot]:
    after = after.astimezone(UTC)
    if isinstance(schedule, Interval):
        return _elapsed(schedule, anchor, after)
    resolved = _resolved(wall_trigger(schedule), zone, after, delay_of(schedule, seed))
    # The times of one gap have the same moment. They are one slot, with the key of the last.
    moments = (deque(same, maxlen=1)[0] for _, same in groupby(resolved, key=lambda slot: slot.at))
    return (slot for slot in moments if slot.at > after)


def next_daily(time: str, *, after: datetime, zone: tzinfo) -> datetime:
    """The next moment at which a clock in the zone shows the time, such as 08:00."""
    hour, minute = time.split(":")
    return next(slots_after(parse(f"{minute} {hour} * * *"), after=after, zone=zone, anchor=after, seed="")).at


def delay_of(schedule: Schedule, seed: str) -> timedelta:
    """One to five minutes for a full or half hour, always the same for the same seed; else nothing."""
    if not isinstance(schedule, TimeOfDay) or schedule.minute not in (0, 30):
        return timedelta()
    from hashlib import sha256  # slow to import

    number = int.from_bytes(sha256(seed.encode()).digest()[:4])
    return timedelta(seconds=JITTER_FROM_S + number % (JITTER_TO_S - JITTER_FROM_S))


def _elapsed(interval: Interval, anchor: datetime, after: datetime) -> Iterator[Slot]:
    from apscheduler.triggers.interval import IntervalTrigger

    period = timedelta(seconds=interval.seconds)
    start = anchor.astimezone(UTC).replace(microsecond=0)
    start -= max(0, (start - after) // period + 1) * period
    trigger = IntervalTrigger(seconds=interval.seconds, start_date=start, timezone=UTC)
    return (Slot(at, iso(at)) for at in _times(trigger, after))


def _resolved(trigger: Any, zone: tzinfo, after: datetime, delay: timedelta) -> Iterator[Slot]:
    wall_now = (after - delay).astimezone(zone).replace(tzinfo=UTC, fold=0)
    for wall in _times(trigger, wall_now):
        shown = wall.replace(tzinfo=None)
        yield Slot(_moment(shown, zone) + delay, shown.isoformat(timespec="minutes"))


def _times(trigger: Any, after: datetime) -> Iterator[datetime]:
    """The fire times of a trigger, which are whole seconds, later than `after`."""
    time = after.replace(microsecond=0)
    while (time := trigger.get_next_fire_time(None, time + _SECOND)) is not None:
        yield time


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    """When a clock in the zone first shows this time; in a gap, the end of the gap."""
    while True:
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == wall:
            return moment
        wall += _MINUTE
