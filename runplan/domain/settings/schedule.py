"""Schedules: the words after `every`, read into values and written back; and the slots at which they fire.

APScheduler's triggers compute the times. A wall-clock time is computed without a zone and then resolved in it: one in a
gap of the clock fires at the end of the gap, one that comes twice the first time only (docs/dependencies.md).
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Any

from msgspec import Struct

from runplan.domain.errors import UsageError
from runplan.domain.run.rows import ScheduleRow
from runplan.domain.settings.schema import format_duration, parse_duration as seconds_of
from runplan.domain.times import CLOCK_ERROR, JITTER_S, iso, jitter, parse_iso, zone as zone_of

EXAMPLES = "4h, hour, day at 9am, weekday at 14:00, monday at 8, or five cron fields such as 30 6 * * 1-5"
LONGEST_DAYS = 366  #: a longer interval is a typing error
_TIME_OF_DAY = r"(day|weekday|(?:mon|tues|wednes|thurs|fri|satur|sun)day) at (\d{1,2})(?::([0-5]\d))? ?(am|pm)?(?= |$)"
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
JITTER_FROM_S, JITTER_TO_S = 60, 300  #: delay of times of day at :00 and :30, when many machines are busy
GRACE = timedelta(minutes=5)  #: a slot this late is on time, unless the next slot is nearer
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


class Schedule(Struct, frozen=True, kw_only=True):
    """Either elapsed time, counted from the schedule's anchor, or the wall-clock times of a cron line."""

    text: str  #: the one canonical form, without `every`
    seconds: int = 0
    cron: str = ""
    is_delayed: bool = False  #: a time of day at :00 or :30


def parse_schedule(text: str) -> Schedule:
    words = deque(text.split())
    if words and words[0].lower() == "every":
        words.popleft()
    schedule = take_schedule(words)
    if words:
        raise _unknown_schedule(text)
    return schedule


def take_schedule(words: deque[str]) -> Schedule:
    text = " ".join(words).lower()
    schedule = None
    if match := re.match(r"(?:(\d{1,9}[mhd])|hour)(?= |$)", text):
        seconds = int(seconds_of(match[1] or "1h") or 0)
        written = "hour" if seconds == 3600 else format_duration(seconds)
        schedule = Schedule(text=written, seconds=seconds) if 0 < seconds <= LONGEST_DAYS * 86_400 else None
    elif match := re.match(_TIME_OF_DAY, text):
        schedule = _parse_time_of_day(match)
    elif match := re.match(r"[\d*]\S*(?: \S+){4}(?= |$)", text):
        with suppress(ValueError):
            if _make_trigger(match[0]).get_next_fire_time(None, datetime(2000, 1, 1, tzinfo=UTC)) is None:
                raise UsageError(f'Schedule "{match[0]}": this date never comes. Change its day or its month')
            schedule = Schedule(text=match[0], cron=match[0])
    if match is None or schedule is None:
        raise _unknown_schedule(text)
    for _ in match[0].split():
        words.popleft()
    if schedule.seconds and words and words[0].lower() == "at":
        raise UsageError(f"every {schedule.text}: an interval has no time of day. Try: day at 9am, or monday at 8")
    return schedule


def _unknown_schedule(text: str) -> UsageError:
    problem = f'Unknown schedule "{text}"' if text else "Missing schedule"
    return UsageError(f"{problem}. Try: {EXAMPLES}")


def _parse_time_of_day(match: re.Match[str]) -> Schedule | None:
    day = match[1]
    hour = int(match[2])
    minute = int(match[3] or 0)
    half = match[4]
    if hour not in (range(1, 13) if half else range(24)):
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    time = f"{hour}am" if minute == 0 and 1 <= hour <= 11 else f"{hour}:{minute:02d}"
    days = {"day": "*", "weekday": "mon-fri"}.get(day, day[:3])
    return Schedule(text=f"{day} at {time}", cron=f"{minute} {hour} * * {days}", is_delayed=minute in (0, 30))


@lru_cache(maxsize=32)
def _make_trigger(cron: str) -> Any:
    from apscheduler.triggers.combining import OrTrigger  # 60 ms, and `status` knows most next times
    from apscheduler.triggers.cron import CronTrigger  # as slow

    minute, hour, day, month, weekday = cron.split()
    field = weekday
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
    fields = {"minute": minute, "hour": hour, "day": day, "month": month, "day_of_week": ",".join(sorted(days))}
    # As in cron: a day field that begins with a star restricts nothing, two that do not are alternatives.
    by_star = day.startswith("*") or weekday.startswith("*")
    alternatives = [fields] if by_star else [{**fields, "day": "*"}, {**fields, "day_of_week": "*"}]
    return OrTrigger([CronTrigger(**fields, timezone=UTC) for fields in alternatives])


class Slot(Struct, frozen=True):
    at: datetime  #: UTC
    key: str  #: the wall-clock time; of an interval the moment itself


class Due(Struct, frozen=True, kw_only=True):
    fire: Slot | None
    missed: Slot | None  #: the newest that was not fired in time; it stands for those before it
    next: Slot


def what_is_due(row: ScheduleRow, now: datetime) -> Due:
    """The slots of a schedule that came since the last one answered. The newest fires, the others were missed."""
    moment, last = json.loads(row.last) if row.last else (row.made, "")
    recorded = [parse_iso(moment), parse_iso(row.made), parse_iso(row.anchor)]
    begin = max(recorded)
    if begin > now:
        # A recorded time from a clock that was ahead does not count: the schedule would be silent until then. It is
        # later than the next slot by more than a day. A clock that was set back by less fires no slot again.
        limit = next(_slots_of(row, now - GRACE)).at + CLOCK_ERROR
        believed = [time for time in recorded if time <= limit]
        # The slot that was armed since then may have come while no daemon ran.
        renewed = min([now - GRACE, *([parse_iso(row.next) - _SECOND] if row.next else [])])
        begin = max(believed if len(believed) == len(recorded) else [*believed, renewed])
        last = last if recorded[0] <= limit else ""

    def slots(after: datetime) -> Iterator[Slot]:
        # The key counts too: after a change of the zone the slot answered last has another moment.
        return (slot for slot in _slots_of(row, after) if slot.key > last)

    following = next(slots(now))
    span = timedelta(hours=1)
    while True:  # the newest two: a clock that was wrong by decades has millions of slots
        after = max(begin, now - span)
        due = deque(takewhile(lambda slot: slot.at <= now, slots(after)), maxlen=2)
        if len(due) == 2 or after == begin:
            break
        span *= 2
    newest = due[-1] if due else None
    earlier = due[0] if len(due) == 2 else None
    if newest is None or row.misfire != "skip" or now - newest.at <= min(GRACE, (following.at - newest.at) / 2):
        return Due(fire=newest, missed=earlier, next=following)
    return Due(fire=None, missed=newest, next=following)


def _slots_of(row: ScheduleRow, after: datetime) -> Iterator[Slot]:
    zone = zone_of(row.zone)
    return slots_after(parse_schedule(row.spec), after=after, zone=zone, anchor=parse_iso(row.anchor), seed=row.plan)


def next_slot(row: ScheduleRow, now: datetime) -> tuple[datetime | None, bool]:
    """The next slot, None if its words or zone are not known here; and whether one fires as soon as a daemon runs."""
    if row.next is not None and (recorded := parse_iso(row.next)) > now:
        return recorded, False
    try:
        due = what_is_due(row, now)
    except (UsageError, LookupError, OSError, ValueError):
        return None, False
    return due.next.at, due.fire is not None and not row.paused


def slots_after(schedule: Schedule, *, after: datetime, zone: tzinfo, anchor: datetime, seed: str) -> Iterator[Slot]:
    after = after.astimezone(UTC)
    if schedule.seconds:
        from apscheduler.triggers.interval import IntervalTrigger  # slow to import

        period = timedelta(seconds=schedule.seconds)
        start = anchor.astimezone(UTC).replace(microsecond=0)
        start -= max(0, (start - after) // period + 1) * period
        trigger = IntervalTrigger(seconds=schedule.seconds, start_date=start, timezone=UTC)
        yield from (Slot(moment, iso(moment)) for moment in _fire_times(trigger, after))
    delay = delay_of(schedule, seed)
    wall_now = (after - delay).astimezone(zone).replace(tzinfo=UTC, fold=0)
    walls = (wall.replace(tzinfo=None) for wall in _fire_times(_make_trigger(schedule.cron), wall_now))
    slots = (Slot(_wall_time(wall, zone) + delay, wall.isoformat(timespec="minutes")) for wall in walls)
    # The times of one gap have the same moment. They are one slot, with the key of the last.
    for moment, same in groupby(slots, key=lambda slot: slot.at):
        if moment > after:
            yield deque(same, maxlen=1)[0]


def delay_of(schedule: Schedule, seed: str) -> timedelta:
    """One to five minutes for a full or half hour, always the same for the same seed; else nothing."""
    if not schedule.is_delayed:
        return timedelta()
    spread_s = (JITTER_TO_S - JITTER_FROM_S) * jitter(seed) / JITTER_S
    return timedelta(seconds=JITTER_FROM_S + int(spread_s))


def describe_delay(spec: str, plan: str) -> str:
    match = re.match(_TIME_OF_DAY, spec)
    delay = delay_of(schedule, plan) if match and (schedule := _parse_time_of_day(match)) else timedelta()
    return f"{delay.seconds // 60} min after the full or half hour, when providers are busy" if delay else ""


def _fire_times(trigger: Any, after: datetime) -> Iterator[datetime]:
    time = after.replace(microsecond=0)
    while (time := trigger.get_next_fire_time(None, time + _SECOND)) is not None:
        yield time


def _wall_time(wall: datetime, zone: tzinfo) -> datetime:
    """When a clock in the zone first shows this time; in a gap, the end of the gap."""
    while True:
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == wall:
            return moment
        wall += _MINUTE
