"""The one timer of a daemon that has nothing to do: a look a minute, and nobody else is woken for it.

Whoever waits for a moment sleeps by a clock that nobody sets and that stands still while the machine sleeps. Such a
sleep is too long, or too short, only when the clock on the wall has jumped: then all of them are woken, and else none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

JUMP_S = 1.0  #: nobody is woken for less


class Pulse:
    """Belongs to one thread, which sleeps `left_s` and then calls `beat`."""

    def __init__(
        self,
        every_s: float,
        *,
        look: Callable[[], None],
        jumped: Callable[[], None],
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`look` is called each time; `jumped` before it, when the clock on the wall is not where it should be."""
        self._every_s = every_s
        self._look = look
        self._jumped = jumped
        self._wall = wall
        self._steady = steady
        self._looked = steady()
        self._ahead_s = self._wall_ahead_s()

    @property
    def left_s(self) -> float:
        """How long nothing has to be looked at."""
        return max(0.0, self._looked + self._every_s - self._steady())

    def beat(self) -> None:
        """Look, if it is time to; whatever woke us, a clock that jumped is seen at once."""
        ahead_s = self._wall_ahead_s()
        has_jumped = abs(ahead_s - self._ahead_s) >= JUMP_S
        if has_jumped:
            self._ahead_s = ahead_s
            self._jumped()
        if has_jumped or self.left_s == 0:
            self._looked = self._steady()
            self._look()

    def _wall_ahead_s(self) -> float:
        return self._wall() - self._steady()
