"""Delays: when a failed try is repeated, how long a provider is waited for, when a dispatch is overdue."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from runplan.times import parse_iso

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.run.events import DispatchStarted


#: From the n-th look on: minutes until the next one.
_STEPS = ((26, 60), (16, 30), (10, 10), (1, 1))


def delay_s(n: int, *, first_s: float = 60.0, longest_s: float = 3600.0, factor: float = 2.0) -> float:
    """Seconds to wait after the n-th failure in a row, counted from 1."""
    return min(first_s * factor ** min(max(n, 1) - 1, 100), longest_s)


def look_s(n: int) -> float:
    """Seconds to wait after the n-th look in a row, counted from 1, that found it held by another."""
    return 60.0 * next(minutes for first, minutes in _STEPS if max(n, 1) >= first)


def is_told(n: int) -> bool:
    """Whether a person is told of the n-th look: of the first, and when looks become rarer."""
    return any(n == first for first, _ in _STEPS)


MARGIN_S = 60.0  #: clocks differ, and a limit that has just reset is not always there at once
JITTER_S = 120.0  #: so that not everybody who waits for one reset comes back in the same second
FIRST_UNKNOWN_S = 300.0  #: the first wait for a limit whose end nobody names
FIRST_BUSY_S = 30.0  #: the first wait for a provider that is busy
MOST_BUSY = 5  #: how often in a row it may be


def limit_ends(resets: float | None, *, now: float, times: int, seed: str) -> float:
    """When to try again after a usage limit, in seconds since the epoch; `times` counts limits in a row, from 1."""
    if resets is not None:
        return max(resets, now) + MARGIN_S + jitter(seed)
    return now + delay_s(times, first_s=FIRST_UNKNOWN_S) + jitter(seed)


def busy_ends(*, now: float, times: int, seed: str) -> float:
    """When to try again after an overload; `times` counts them in a row, from 1."""
    wait_s = delay_s(times, first_s=FIRST_BUSY_S)
    return now + wait_s + jitter(seed) * min(1.0, wait_s / JITTER_S / 4)


def jitter(seed: str) -> float:
    """Between 0 and JITTER_S, always the same for the same seed."""
    return int.from_bytes(sha256(seed.encode()).digest()[:4]) / 2**32 * JITTER_S


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
