"""Does at a desk what is due by itself, with nobody waiting for it: what fails is told, and tried again later."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from runplan.core.errors import RunplanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from datetime import datetime
    from typing import Any, TypeAlias

    from runplan import ports
    from runplan.app.desk import Desk
    from runplan.app.station import Opened
    from runplan.app.surroundings import Timers

    Order: TypeAlias = Callable[[Desk, Opened], None]

FIRST_S = 2.0  #: after the first failure; each further one doubles it
LONGEST_S = 3600.0


class Unasked:
    """May be called from any thread."""

    def __init__(
        self,
        order: Callable[[Order], Future[Any]],
        *,
        timers: Timers,
        clock: ports.Clock,
        begins: Callable[[], bool],
        troubled: Callable[[str, str, str], None],
    ) -> None:
        """`troubled` hears of each failure: plan, error, and when it is tried again."""
        self._order = order
        self._timers = timers
        self._clock = clock
        self._begins = begins
        self._troubled = troubled
        self._failed: dict[str, tuple[int, datetime]] = {}  #: how often in a row, and when it is tried again
        self._ordered: set[str] = set()  #: what is to be done at the desk and was not begun yet

    def do(self, key: str, order: Order, *, plan: str = "") -> None:
        """Let it be done, until it has been; while nothing is begun any more it is left to the next daemon."""
        if not self._begins() or self.is_ordered(key):
            return
        self._ordered.add(key)

        def begin(desk: Desk, opened: Opened) -> None:
            self._ordered.discard(key)
            order(desk, opened)

        self._order(begin).add_done_callback(lambda done: self._done(key, order, plan, done.exception()))

    def is_ordered(self, key: str) -> bool:
        """Whether it will be done anyway, as soon as the desk comes to it."""
        return key in self._ordered

    def earliest(self, key: str, moment: datetime) -> datetime:
        """When to do it that is due at a moment: not before it is to be tried again."""
        _, again = self._failed.get(key, (0, moment))
        return max(again, moment)

    def _done(self, key: str, order: Order, plan: str, error: BaseException | None) -> None:
        self._ordered.discard(key)
        if error is None or not self._begins():
            self._failed.pop(key, None)
            return
        failures = self._failed.get(key, (0, None))[0] + 1
        wait_s = min(FIRST_S * 2 ** min(failures - 1, 30), LONGEST_S)
        again = self._clock.now() + timedelta(seconds=wait_s)
        self._failed[key] = (failures, again)
        self._timers.at(key, again, lambda: self.do(key, order, plan=plan))
        told = str(error) if isinstance(error, RunplanError) else f"unexpected {type(error).__name__}: {error}"
        self._troubled(plan, told, again.isoformat())
