"""How the daemon lives and ends: a look at the clock each minute, and a drain in two steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from runplan.core.spans import in_words

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


#: What ending agents may take: each is asked, forced and swept up after, all at the same time.
ENDING_S = 30.0


class Drained(Protocol):
    """What is to come to rest."""

    @property
    def at_rest(self) -> bool: ...

    def drain(self) -> None: ...

    def end_agents(self) -> None: ...


class Drain:
    """The way to the end; only the main thread calls it."""

    def __init__(
        self,
        daemon: Drained,
        *,
        grace_s: Callable[[], float],
        told: Callable[[str, float], None],
        interrupt: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`told` hears of each step, `draining` and `ending-agents`, and how many seconds it takes at most.

        `interrupt` ends what remotes are asked: agents are ended after the step that waits for one.
        """
        self._daemon = daemon
        self._grace_s = grace_s
        self._told = told
        self._interrupt = interrupt
        self._now = now
        self._words = 0  #: how often it was asked to end
        self._until = 0.0

    def ask(self) -> None:
        """Somebody wants the daemon to end; whoever says it twice wants its agents to end, three times: at once."""
        self._words += 1
        if self._words == 1:
            self._begin()
        elif self._words == 2:
            self._until = self._now() + ENDING_S
            self._told("ending-agents", ENDING_S)
            self._interrupt()
            self._daemon.end_agents()

    def hand_over(self) -> None:
        """Another daemon is to take over: the same as the first word, however often it is said."""
        if not self.begun:
            self._words = 1
            self._begin()

    def _begin(self) -> None:
        grace_s = self._grace_s()
        self._until = self._now() + grace_s
        self._daemon.drain()
        self._told("draining", grace_s)

    @property
    def begun(self) -> bool:
        return self._words > 0

    @property
    def at_once(self) -> bool:
        """Whether nothing is waited for any more, not even the step that is being taken."""
        return self._words > 2

    @property
    def left_s(self) -> float | None:
        """The time that is left; None while nobody wants it to end."""
        return max(0.0, self._until - self._now()) if self.begun else None

    @property
    def over(self) -> bool:
        """Whether it is time to let go: of nothing, or of agents that live on under their shims."""
        return self.begun and (self.at_once or self._daemon.at_rest or self._now() >= self._until)

    @property
    def refusal(self) -> str:
        """What whoever asks for something new is told; "" while it is begun."""
        left = self.left_s
        if left is None:
            return ""
        return f"the daemon is shutting down and starts nothing new; try again in {in_words(left + 1)}"
