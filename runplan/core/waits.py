"""How long to wait for a provider: until its limit resets, or a growing while when it is merely busy."""

from __future__ import annotations

from hashlib import sha256

from runplan.core.backoff import delay_s

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
