"""The moments at which a schedule fires: one slot after the other, each with a key by which it fires once.

Intervals are elapsed time. What a clock on the wall shows is resolved in a zone: a time that is left out when clocks go
forward fires at the first moment after the gap, one that comes twice when they go back fires the first time only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from runplan.core.cron import Cron, walls
from runplan.core.quickclass import NamedTuple
from runplan.core.schedule import Interval, TimeOfDay
from runplan.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

    from runplan.core.schedule import Schedule

JITTER_FROM_S, JITTER_TO_S = 60, 300  #: a time at :00 or :30, when everybody comes, is put off by this much
_SECOND = timedelta(seconds=1)


class Slot(NamedTuple):
    """One firing. Of two slots of a schedule the later has the greater key too."""

    at: datetime  #: UTC
    key: str  #: what the clock on the wall was asked to show; the moment itself for an interval


def next_after(schedule: Schedule, *, after: datetime, zone: tzinfo, anchor: datetime, seed: str) -> Slot:
    """The first slot later than `after`; for an interval `anchor` is where it is measured from."""
    return next(slots_after(schedule, after=after, zone=zone, anchor=anchor, seed=seed))


def slots_after(schedule: Schedule, *, after: datetime, zone: tzinfo, anchor: datetime, seed: str) -> Iterator[Slot]:
    """All slots later than `after`, in order, without end."""
    after = after.astimezone(UTC)
    match schedule:
        case Interval(seconds=seconds):
            return _elapsed(timedelta(seconds=seconds), anchor.astimezone(UTC).replace(microsecond=0), after)
        case TimeOfDay(days=days, hour=hour, minute=minute):
            cron = Cron(minutes=(minute,), hours=(hour,), weekdays=tuple((day + 1) % 7 for day in days))
            return _shown(cron, after, zone, jitter(seed) if minute in (0, 30) else timedelta())
        case Cron():
            return _shown(schedule, after, zone, timedelta())


def jitter(seed: str) -> timedelta:
    """One to five minutes in whole seconds, always the same for the same seed."""
    from hashlib import sha256  # dear, and only round times need it

    number = int.from_bytes(sha256(seed.encode()).digest()[:4])
    return timedelta(seconds=JITTER_FROM_S + number % (JITTER_TO_S - JITTER_FROM_S))


def _elapsed(period: timedelta, anchor: datetime, after: datetime) -> Iterator[Slot]:
    rounds = max(1, (after - anchor) // period + 1)
    while True:
        at = anchor + rounds * period
        yield Slot(at, iso(at))
        rounds += 1


def _shown(cron: Cron, after: datetime, zone: tzinfo, late: timedelta) -> Iterator[Slot]:
    """What a wall clock shows, `late` after it does; several times within one gap are one slot."""
    start = (after - late).astimezone(zone).replace(tzinfo=None, fold=0)
    held: Slot | None = None
    for wall in walls(cron, start.replace(second=0, microsecond=0)):
        exists, moment = _moment(wall, zone)
        slot = Slot(moment + late, wall.isoformat(timespec="minutes"))
        if held is not None and held.at < slot.at:
            yield held
            held = None
        if slot.at <= after:
            continue
        if exists:
            # The first of its moment or the real one after a gap: what is left out has become this.
            yield slot
            held = None
        else:
            held = slot


def _moment(wall: datetime, zone: tzinfo) -> tuple[bool, datetime]:
    """Whether a clock in the zone ever shows this, and when it first does; else when the gap ends."""
    early = wall.replace(tzinfo=zone).astimezone(UTC)
    if early.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return True, early
    # Within a gap the first reading uses the offset before it and lies behind it, the second the other way round.
    inside, behind = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), early
    offset = behind.astimezone(zone).utcoffset()
    while behind - inside > _SECOND:
        middle = inside + ((behind - inside) // 2 // _SECOND) * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            behind = middle
        else:
            inside = middle
    return False, behind
