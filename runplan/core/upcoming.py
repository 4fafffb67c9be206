"""When a schedule fires next, for those who only ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.core.errors import UsageError
from runplan.core.schedule import parse, spell
from runplan.core.slots import slots_after
from runplan.core.times import parse_iso, zone

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.core.rows import ScheduleRow


def upcoming(row: ScheduleRow, now: datetime) -> datetime | None:
    """The next slot that nobody has answered yet; None when this version or this machine cannot tell."""
    try:
        schedule, place = parse(row.spec), zone(row.zone)
    except (UsageError, LookupError, OSError, ValueError):
        return None  # written by a newer version, or in a zone that is not known here
    last = _last(row.last) if row.last else None
    after = max(now, parse_iso(last[0])) if last else now
    slots = slots_after(schedule, after=after, zone=place, anchor=parse_iso(row.anchor), seed=row.plan)
    return next(slot.at for slot in slots if last is None or slot.key > last[1])


def is_due(row: ScheduleRow, now: datetime) -> bool:
    """Whether it fires as soon as somebody is there for it: a slot has come, and nobody has answered it."""
    from runplan.core.due import what_is_due

    if row.paused or upcoming(row, now) is None or (row.last and _last(row.last) is None):
        return False
    return what_is_due(row, now).fire is not None


def _last(text: str) -> tuple[str, str] | None:
    """Moment and key of the slot that was answered last, as they are recorded."""
    match json.loads(text):
        case [str(at), str(key)]:
            return at, key
        case _:
            return None


def spelled(row: ScheduleRow) -> str:
    """The schedule as it is said: `every 4h`."""
    try:
        return spell(parse(row.spec))
    except UsageError:
        return f"every {row.spec}"
