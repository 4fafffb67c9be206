"""The keepers of all repositories of one user, and the turns they share."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.app.keeper import Keeper
from runplan.app.runner import always

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from runplan import ports
    from runplan.app.station import Opened
    from runplan.app.surroundings import Audience, Closed, Timers
    from runplan.app.wishes import Beside
    from runplan.core.turns import Key, Turns


class SharedTurns:
    """Who may be at work on this host; whoever leaves lets the next ones know."""

    def __init__(self, turns: Turns, free: Callable[[str], None]) -> None:
        """`free` is called with the root of a repository in which somebody's turn has come."""
        self._turns = turns
        self._free = free
        self._lock = threading.Lock()
        self._uncounted: set[str] = set()  #: repositories whose adopted runs are not known yet

    def expect(self, roots: Iterable[str]) -> None:
        """Give no turn until the adopted runs of these repositories are counted."""
        with self._lock:
            self._uncounted.update(roots)

    def counted(self, root: str) -> None:
        """The adopted runs of the repository are counted, or it cannot be opened for now."""
        with self._lock:
            if root not in self._uncounted:
                return
            self._uncounted.discard(root)
        self._let_in()

    def enter(self, key: Key) -> None:
        """Count a run whose process is running already."""
        with self._lock:
            self._turns = self._turns.enter(key)

    def ask(self, key: Key) -> bool:
        with self._lock:
            if self._uncounted and key not in self._turns.working:
                self._turns = self._turns.wait(key)
                return False
            self._turns, granted = self._turns.ask(key)
        return granted

    def leave(self, key: Key) -> None:
        with self._lock:
            self._turns = self._turns.leave(key)
        self._let_in()

    def _let_in(self) -> None:
        with self._lock:
            roots = set() if self._uncounted else {root for root, _ in self._turns.due()}
        for root in roots:
            self._free(root)

    def resize(self, *, host: int, repository: int) -> None:
        """So many may be at work from now on; nobody who is has to leave."""
        with self._lock:
            self._turns = replace(self._turns, host=host, repository=repository)
        self._let_in()

    @property
    def now(self) -> Turns:
        return self._turns


class Daemon:
    """May be called from any thread."""

    def __init__(
        self,
        open_up: Callable[[str, int], AbstractContextManager[Opened]],
        *,
        timers: Timers,
        clock: ports.Clock,
        audience: Audience,
        turns: Turns,
        rested: Callable[[], None],
        beside: Beside,
        begins: Callable[[], bool] = always,
    ) -> None:
        """`rested` is called, in any thread, whenever nothing is being done any more in one of the repositories.

        As soon as `begins` does not hold any more, nothing new is begun anywhere; what is past its process goes on,
        and what runs may end.
        """
        self._open_up = open_up
        self._rested = rested
        self._beside = beside
        self._begins = begins
        self._timers = timers
        self._clock = clock
        self._audience = audience
        self.turns = SharedTurns(turns, self._look)
        self._lock = threading.Lock()
        self._keepers: dict[str, Keeper] = {}

    def keeper(self, root: str) -> Keeper:
        """Who looks after the repository, from now on."""
        with self._lock:
            keeper = self._keepers.get(root)
            if keeper is None:
                keeper = self._keepers[root] = Keeper(
                    root,
                    lambda wakeup: self._open_up(root, wakeup),
                    timers=self._timers,
                    clock=self._clock,
                    audience=self._audience,
                    turns=self.turns,
                    rested=self._rested,
                    beside=self._beside,
                    begins=self._begins,
                )
        return keeper

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being done anywhere."""
        return all(keeper.at_rest for keeper in self._all())

    def drain(self) -> None:
        """Nothing new is begun any more: let everybody see that who waits for something."""
        for keeper in self._all():
            keeper.wake()

    def look_again(self) -> None:
        """The machine was asleep, or its clock was set: let everybody see by the clock on the wall what is due."""
        self._timers.look_again()
        for keeper in self._all():
            keeper.wake()

    def remind(self) -> None:
        """Somebody may want what could not be recorded; it is tried again."""
        for keeper in self._all():
            keeper.remind()

    def end_agents(self) -> None:
        """End every process; that is recorded, and the next daemon starts the same ones again."""
        for keeper in self._all():
            keeper.end_agents()

    def _all(self) -> list[Keeper]:
        with self._lock:
            return list(self._keepers.values())

    def _look(self, root: str) -> None:
        """Somebody's turn has come there; while everything is being closed, nothing is opened for that."""
        with self._lock:
            keeper = self._keepers.get(root)
        if keeper is not None:
            keeper.look()

    @property
    def closed(self) -> tuple[Closed, ...]:
        """The repositories in which nothing can be done for now."""
        return tuple(keeper.trouble for keeper in self._all() if keeper.trouble is not None)

    @property
    def roots(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._keepers)

    def take_over(self, roots: Iterable[str]) -> None:
        """After a restart: go on with what is unfinished in these repositories, and arm their schedules."""
        roots = list(roots)
        known = self.roots
        self.turns.expect(root for root in roots if root not in known)
        for root in roots:
            self.keeper(root).look()

    def close(self, within_s: float) -> bool:
        """Take no further step anywhere; agents live on under their shims. False when a step takes longer."""
        keepers = self._all()
        for keeper in keepers:
            keeper.let_go()
        deadline = time.monotonic() + within_s
        closed = {keeper.root for keeper in keepers if keeper.close(max(0.0, deadline - time.monotonic()))}
        with self._lock:
            self._keepers = {root: keeper for root, keeper in self._keepers.items() if root not in closed}
        return len(closed) == len(keepers)
