"""Slots: the moments at which a schedule fires, and which of them are due.

APScheduler's triggers compute the times. Intervals are elapsed time. A wall-clock time is computed without a zone and
then resolved in the schedule's zone: a time in a gap of the clock fires at the end of the gap, a time that comes twice
fires the first time only. The reason is in docs/dependencies.md. APScheduler is imported on first use.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.errors import UsageError
from runplan.settings.schedule import Interval, TimeOfDay, parse, wall_trigger
from runplan.times import iso, parse_iso, zone as zone_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from runplan.run.rows import ScheduleRow
    from runplan.settings.schedule import Schedule

JITTER_FROM_S, JITTER_TO_S = 60, 300  #: delay of times of day at :00 and :30, when many machines are busy
GRACE = timedelta(minutes=5)  #: a slot this late is on time, unless the next slot is nearer
MOST_LISTED = 1000  #: missed slots that are listed one by one
#: A recorded time that is later than the next slot by more than this comes from a clock that was ahead.
CLOCK_ERROR = timedelta(days=1)

_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class Slot(Struct, frozen=True):
    """One firing of a schedule. Keys of a schedule grow with time."""

    at: datetime  #: UTC
    key: str  #: the wall-clock time; of an interval the moment itself


class Due(Struct, frozen=True, kw_only=True):
    """The slots to answer now, and the first one after now."""

    fire: Slot | None
    missed: tuple[Slot, ...]  #: oldest first
    through: Slot | None  #: if more were missed than are listed: the last of them
    next: Slot


# --- due -----------------------------------------------------------------------------------------------


def what_is_due(row: ScheduleRow, now: datetime) -> Due:
    """The slots of a schedule that came since the last one answered. The newest fires, the others were missed."""
    begin, last = _answered(row, now)

    def slots(after: datetime) -> Iterator[Slot]:
        # The key counts too: after a change of the zone the slot answered last has another moment.
        return (slot for slot in _slots_of(row, max(begin, after)) if slot.key > last)

    def until_now(after: datetime) -> Iterator[Slot]:
        return takewhile(lambda slot: slot.at <= now, slots(after))

    following = next(slots(now))
    listed = tuple(islice(until_now(begin), MOST_LISTED + 2))
    if not listed:
        return Due(fire=None, missed=(), through=None, next=following)
    earlier, newest, through = listed[:-1], listed[-1], None
    if len(earlier) > MOST_LISTED:
        earlier = earlier[:MOST_LISTED]
        span = timedelta(hours=1)
        while len(newest_two := deque(until_now(now - span), maxlen=2)) < 2:
            span *= 2
        through, newest = newest_two
    if row.misfire != "skip" or now - newest.at <= min(GRACE, (following.at - newest.at) / 2):
        return Due(fire=newest, missed=earlier, through=through, next=following)
    if through is not None:
        return Due(fire=None, missed=earlier, through=newest, next=following)
    return Due(fire=None, missed=(*earlier, newest), through=None, next=following)


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


# --- slots ---------------------------------------------------------------------------------------------


def slots_after(schedule: Schedule, *, after: datetime, zone: tzinfo, anchor: datetime, seed: str) -> Iterator[Slot]:
    after = after.astimezone(UTC)
    if isinstance(schedule, Interval):
        return _elapsed(schedule, anchor, after)
    is_round = isinstance(schedule, TimeOfDay) and schedule.minute in (0, 30)
    delay = jitter(seed) if is_round else timedelta()
    resolved = _resolved(wall_trigger(schedule), zone, after, delay)
    # The times of one gap have the same moment. They are one slot, with the key of the last.
    moments = (deque(same, maxlen=1)[0] for _, same in groupby(resolved, key=lambda slot: slot.at))
    return (slot for slot in moments if slot.at > after)


def next_daily(time: str, *, after: datetime, zone: tzinfo) -> datetime:
    """The next moment at which a clock in the zone shows the time, such as 08:00."""
    hour, minute = time.split(":")
    return next(slots_after(parse(f"{minute} {hour} * * *"), after=after, zone=zone, anchor=after, seed="")).at


def jitter(seed: str) -> timedelta:
    """One to five minutes, always the same for the same seed."""
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
