"""How often a plan that somebody else works is looked at again: the longer it takes, the more seldom."""

from __future__ import annotations

#: From the so manieth look on, so many minutes until the next.
_STEPS = ((26, 60), (16, 30), (10, 10), (1, 1))


def delay(n: int) -> int:
    """Minutes to wait after the n-th look in a row, counted from 1, that found the claim held."""
    return next(minutes for first, minutes in _STEPS if max(n, 1) >= first)


def told(n: int) -> bool:
    """Whether a person hears of the n-th look: of the first, and when it becomes rarer."""
    return any(n == first for first, _ in _STEPS)
