"""How long a dispatch may still run, by the journal, before its shim has to be called stuck; and how long it ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.times import parse_iso

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.core.events import DispatchStarted

#: What a shim gets beyond its limit: the agent's own grace, then to end what it leaves and to write down how it was.
LATE_S = 10.0


def left_s(started: DispatchStarted, now: datetime) -> float | None:
    """What is left until its shim has to be called stuck; None when it has no limit.

    A clock that was set ahead lets a shim look late: it always has LATE_S from now.
    """
    return max(started.seconds - _passed(started, now), 0.0) + LATE_S if started.seconds else None


def ran_s(started: DispatchStarted, now: datetime) -> float:
    """How long one ran of which nobody tells, at the most: it may have ended long before that is seen."""
    passed = _passed(started, now)
    return min(passed, started.seconds) if started.seconds else passed


def _passed(started: DispatchStarted, now: datetime) -> float:
    """Nothing for what an earlier version recorded, without its moment, and when the clock was put back."""
    return max(0.0, (now - parse_iso(started.at)).total_seconds()) if started.at else 0.0
