"""When a try that failed is repeated, and when something that another process holds is looked at again."""

from __future__ import annotations

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
