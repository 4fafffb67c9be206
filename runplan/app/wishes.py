"""That something be stopped: answered before long, whatever step the desk is at, and done in the end.

A desk takes one step after the other, and one that asks a silent remote takes its time. What cannot be done before long
is noted beside the journal, by another thread: the desk does it after that step, or the next daemon does.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from runplan.core.errors import RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.app.desk import Desk
    from runplan.app.station import Opened
    from runplan.core.rows import Wish

LATE_S = 3.0  #: a person waits so long


class Leaving(Unreachable):
    """The daemon ends; nothing more is done at its desks."""


class Beside(Protocol):
    """What can be done for a repository beside its desk; may be called from any thread."""

    def note(self, root: str, wish: Wish) -> None:
        """Have it done by whoever opens a desk there next."""
        ...

    def end_agents(self, root: str) -> None:
        """End every process of the daemon's runs; whoever goes on with them sees that they have ended."""
        ...


class Noted(Protocol):
    """What is noted, for the thread of the desk."""

    def all(self) -> list[Wish]: ...

    def drop(self, wish: Wish) -> None: ...


class Wished:
    """What people want stopped in one repository."""

    def __init__(
        self,
        root: str,
        order: Callable[[Callable[[Desk, Opened], list[str]]], Future[list[str]]],
        *,
        beside: Beside,
        stop: Callable[[str, str, Desk, Opened], list[str]],
    ) -> None:
        """`stop` stops one plan, for somebody, and tells what that was."""
        self._root = root
        self._order = order
        self._beside = beside
        self._stop = stop

    def insist(self, wish: Wish) -> Future[list[str]]:
        """Have it done at the desk; what was stopped, or that it is as soon as it can be."""
        asked = _Asked(wish, lambda: self._beside.note(self._root, wish))

        def do(desk: Desk, opened: Opened) -> list[str]:
            asked.begin()
            told = self._grant(wish, desk, opened)
            if asked.noted:
                opened.wishes.drop(wish)
            return told

        return asked.follow(self._order(do))

    def grant_noted(self, desk: Desk, opened: Opened) -> None:
        """Do what was wanted while nobody could; a run in other hands is stopped when it is in ours."""
        foreign = {started.plan for started in opened.left()} - {*desk.plans}
        for wish in opened.wishes.all():
            self._grant(wish, desk, opened)
            if not (wish.plan in foreign or (foreign and not wish.plan)):
                opened.wishes.drop(wish)

    def _grant(self, wish: Wish, desk: Desk, opened: Opened) -> list[str]:
        plans = [wish.plan] if wish.plan else sorted({*desk.plans, *(row.plan for row in opened.schedules.all())})
        return [line for plan in plans for line in self._stop(plan, wish.by, desk, opened)]


class _Asked:
    """One wish on its way to the desk: it is begun there, or noted, and never noted after it was begun."""

    def __init__(self, wish: Wish, note: Callable[[], None]) -> None:
        self._wish = wish
        self._note = note
        self._lock = threading.Lock()
        self._begun = False
        self.noted = False
        self._answer: Future[list[str]] = Future()
        self._timer = threading.Timer(LATE_S, self._late)
        self._timer.daemon = True

    def begin(self) -> None:
        """The desk is at it now."""
        with self._lock:
            self._begun = True

    def follow(self, order: Future[list[str]]) -> Future[list[str]]:
        """Wait for the desk, but not for long."""
        self._timer.start()
        order.add_done_callback(self._settled)
        return self._answer

    def _settled(self, order: Future[list[str]]) -> None:
        self._timer.cancel()
        error = order.exception()
        if isinstance(error, Leaving):
            self._late()
            return
        with self._lock:
            if self._answer.done():
                return
            if error is not None:
                self._answer.set_exception(error)
            else:
                self._answer.set_result(order.result())

    def _late(self) -> None:
        with self._lock:
            if self._begun or self._answer.done():
                return
            try:
                self._note()
            except (RunplanError, OSError) as error:
                told = f"the daemon is at a step that takes long, and this could not be noted for later: {error}"
                self._answer.set_exception(Unreachable(told))
                return
            self.noted = True
            what = f"{self._wish.plan} is" if self._wish.plan else "everything here is"
            self._answer.set_result(
                [f"{what} stopped as soon as the step that is being taken is over: git or a remote takes long"]
            )
