"""What a scheduler does that wakes late, or whose clock has jumped: every slot fires or is recorded as missed, once."""

from __future__ import annotations

import json
from collections import deque
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from runplan.core.quickclass import dataclass
from runplan.core.schedule import parse
from runplan.core.slots import Slot, slots_after
from runplan.core.times import parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime, tzinfo

    from runplan.core.rows import ScheduleRow
    from runplan.core.schedule import Schedule

Misfire: TypeAlias = Literal["run-once", "skip"]

#: A slot this late is still on time, as timers are merged and machines are busy; unless the next one is due by then.
GRACE_S = 300.0
MOST_LISTED = 1000  #: missed slots told one by one; a clock that was wrong by years makes millions


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done now, and when to ask again."""

    fire: Slot | None
    missed: tuple[Slot, ...]  #: oldest first
    through: Slot | None  #: where too many were missed to list them: the last one, and all in between are missed too
    next: Slot

    @property
    def handled(self) -> Slot | None:
        """The newest slot this answer deals with: `last` of the next question, when there is one."""
        return self.fire or self.through or next(reversed(self.missed), None)


def what_is_due(row: ScheduleRow, now: datetime) -> Due:
    """The slots of a schedule that are due, and the one after them."""
    return due(
        parse(row.spec),
        last=_slot(row.last) if row.last else None,
        since=parse_iso(row.made),
        now=now,
        zone=zone(row.zone),
        anchor=parse_iso(row.anchor),
        seed=row.plan,
        misfire="skip" if row.misfire == "skip" else "run-once",
    )


def due(
    schedule: Schedule,
    *,
    last: Slot | None,
    since: datetime,
    now: datetime,
    zone: tzinfo,
    anchor: datetime,
    seed: str,
    misfire: Misfire,
) -> Due:
    """The slots later than `since` and than `last`, the newest one dealt with, up to `now`.

    A clock that was set back fires nothing again: the next slot is then later than `last`, not only than `now`.
    """

    def fresh(after: datetime) -> Iterator[Slot]:
        begin = max(after, since, last.at) if last else max(after, since)
        slots = slots_after(schedule, after=begin, zone=zone, anchor=anchor, seed=seed)
        # The key too: in another zone, or with another seed, the same slot has another moment.
        return (slot for slot in slots if last is None or slot.key > last.key)

    def until_now(after: datetime) -> Iterator[Slot]:
        for slot in fresh(after):
            if slot.at > now:
                return
            yield slot

    listed = tuple(islice(until_now(since), MOST_LISTED + 2))
    following = next(fresh(now))
    if not listed:
        return Due(fire=None, missed=(), through=None, next=following)
    earlier, newest, through = listed[:-1], listed[-1], None
    if len(earlier) > MOST_LISTED:
        earlier = earlier[:MOST_LISTED]
        through, newest = _two_newest(until_now, now)
    if misfire == "run-once" or (now - newest.at).total_seconds() <= _grace_s(newest, following):
        return Due(fire=newest, missed=earlier, through=through, next=following)
    if through is not None:
        return Due(fire=None, missed=earlier, through=newest, next=following)
    return Due(fire=None, missed=(*earlier, newest), through=None, next=following)


def _grace_s(slot: Slot, following: Slot) -> float:
    """Half of what lies between two slots at the most: of those that come every minute each is soon the past."""
    return min(GRACE_S, (following.at - slot.at).total_seconds() / 2)


def _two_newest(until_now: Callable[[datetime], Iterator[Slot]], now: datetime) -> tuple[Slot, Slot]:
    """The last two slots of a great many, without going through them all."""
    span = timedelta(hours=1)
    while len(found := deque(until_now(now - span), maxlen=2)) < 2:
        span *= 2
    return found[0], found[1]


def _slot(text: str) -> Slot:
    at, key = json.loads(text)
    return Slot(at=parse_iso(at), key=key)
