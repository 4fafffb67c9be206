"""The timer of the daemon, and its shutdown in steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

JUMP_S = 1.0  #: smaller clock changes are ignored


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
        """`look` is called each time; before it `jumped`, when the wall clock was set or the machine slept."""
        self._every_s = every_s
        self._look = look
        self._jumped = jumped
        self._wall = wall
        self._steady = steady
        self._looked = steady()
        self._ahead_s = self._wall_ahead_s()

    @property
    def left_s(self) -> float:
        """The time until the next look."""
        return max(0.0, self._looked + self._every_s - self._steady())

    def beat(self) -> None:
        """Look, if it is time to or the clock has jumped."""
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


#: Time to end all agents, in parallel.
ENDING_S = 30.0


class Drained(Protocol):
    """The daemon, as `Drain` sees it."""

    @property
    def at_rest(self) -> bool: ...

    def drain(self) -> None: ...

    def end_agents(self) -> None: ...


class Drain:
    """The shutdown; only the main thread calls it."""

    def __init__(
        self,
        daemon: Drained,
        *,
        grace_s: Callable[[], float],
        told: Callable[[str, float], None],
        interrupt: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`told` is called with each step, `draining` and `ending-agents`, and its time limit in seconds.

        `interrupt` ends calls to remotes, so that the current step ends and agents can be ended.
        """
        self._daemon = daemon
        self._grace_s = grace_s
        self._told = told
        self._interrupt = interrupt
        self._now = now
        self._asked = 0  #: how often it was asked to end
        self._until = 0.0

    def ask(self) -> None:
        """End the daemon. The second call also ends its agents; the third ends at once."""
        self._asked += 1
        if self._asked == 1:
            self._begin()
        elif self._asked == 2:
            self._until = self._now() + ENDING_S
            self._told("ending-agents", ENDING_S)
            self._interrupt()
            self._daemon.end_agents()

    def hand_over(self) -> None:
        """End for a newer daemon: like the first `ask`, however often it is called."""
        if not self.begun:
            self._asked = 1
            self._begin()

    def _begin(self) -> None:
        grace_s = self._grace_s()
        self._until = self._now() + grace_s
        self._daemon.drain()
        self._told("draining", grace_s)

    @property
    def begun(self) -> bool:
        return self._asked > 0

    @property
    def at_once(self) -> bool:
        """Whether not even the current step is waited for."""
        return self._asked > 2

    @property
    def left_s(self) -> float | None:
        """The time that is left; None before a shutdown."""
        return max(0.0, self._until - self._now()) if self.begun else None

    @property
    def over(self) -> bool:
        """Whether the process may end; agents that still run survive under their shims."""
        return self.begun and (self.at_once or self._daemon.at_rest or self._now() >= self._until)

    @property
    def refusal(self) -> str:
        """The refusal of new work; "" before a shutdown."""
        left = self.left_s
        if left is None:
            return ""
        return f"the daemon is shutting down and starts nothing new; try again in {in_words(left + 1)}"
