"""One repository in the daemon: opens a desk when there is something to do, and closes it when nothing runs.

Whatever is asked of a repository is an order: it is done in the thread of its desk and answered through a future. A
timer, an order or a free turn opens the desk again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Protocol

from runplan.app.desk import Desk
from runplan.app.runner import always
from runplan.app.wishes import Leaving
from runplan.core.errors import RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from runplan import ports
    from runplan.app.desk import Listener, OpenRooms, Turns
    from runplan.app.holding import Voice
    from runplan.app.scheduling import Schedules
    from runplan.app.wishes import Noted
    from runplan.core.events import RunStarted

STOPPING = "the daemon is stopping; ask again"
AT_ONCE_S = 3.0  #: a desk that is not at a step which takes long has begun an order by then
UNBEGUN = "the run before it has not ended, so it was not begun; see: runplan status, and ask again"


class Opened(Protocol):
    """A repository that is open for work in the thread that opened it."""

    @property
    def rooms(self) -> OpenRooms: ...

    @property
    def dispatches(self) -> ports.Dispatches: ...

    @property
    def clock(self) -> ports.Clock: ...

    @property
    def schedules(self) -> Schedules: ...

    @property
    def wishes(self) -> Noted: ...

    def left(self) -> list[RunStarted]:
        """The runs of the daemon that have not ended."""
        ...

    def complete(self, plan: str) -> bool:
        """Whether nothing is left to do in the plan, as its target has it."""
        ...

    def timing(self) -> tuple[str, str]:
        """The zone schedules are in, and what becomes of slots that nobody was there for, as it is set now."""
        ...

    def missing(self, started: RunStarted) -> tuple[str, ...]:
        """The names of variables that its agents had and nobody knows any more."""
        ...


class Station:
    """The door to one repository; may be called from any thread."""

    def __init__(
        self,
        open_up: Callable[[int], AbstractContextManager[Opened]],
        voice: Voice,
        *,
        turns: Turns,
        listener: Listener,
        begun: Callable[[Desk, Opened], None],
        heed: Callable[[Desk, Opened], None],
        closed: Callable[[datetime | None, RunplanError | None], None],
        rested: Callable[[], None],
        end_beside: Callable[[], None],
        begins: Callable[[], bool] = always,
    ) -> None:
        """`open_up` is given a descriptor whose bytes interrupt a wait; `begun` is called in every new desk,
        and `heed` before each step that is taken there.

        `rested` is called when the desk has been closed and nobody has asked for it again; `end_beside` ends every
        process where the desk cannot. As soon as `begins` does not hold any more, nothing new is begun.
        """
        self._open_up = open_up
        self._voice = voice
        self._turns = turns
        self._listener = listener
        self._begun = begun
        self._heed = heed
        self._closed = closed
        self._rested = rested
        self._end_beside = end_beside
        self._begins = begins
        self._lock = threading.Lock()
        self._orders: deque[tuple[Callable[[Desk, Opened], Any], Future[Any]]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    def order(self, do: Callable[[Desk, Opened], Any]) -> Future[Any]:
        """Let something be done at the desk; the future tells what came of it."""
        future: Future[Any] = Future()
        with self._lock:
            if self._stopping:
                future.set_exception(Leaving(STOPPING))
                return future
            self._orders.append((do, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
                self._thread.start()
            self._poke()
        return future

    def look(self) -> None:
        """Something may be due; it is not begun any more while we drain."""
        if self.begins() or not self.at_rest:
            self.order(lambda _desk, _opened: None)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being done here."""
        return self._thread is None

    def begins(self) -> bool:
        """Whether anything new may be begun here; else the desk is closed when the last process has ended."""
        return self._begins() and not self._stopping

    def wake(self) -> None:
        """Let a desk that waits see what has changed."""
        with self._lock:
            self._poke()

    def end_agents(self) -> None:
        """End every process, if there is any: at the desk, or beside one that is at a step which takes long."""
        if not self.at_rest:
            order = self.order(_end_agents)
            threading.Thread(target=self._end_agents, args=(order,), name="ending", daemon=True).start()

    def _end_agents(self, order: Future[None]) -> None:
        wait([order], AT_ONCE_S)
        if order.cancel():  # it was not begun, and will not be
            self._end_beside()
            self.order(_end_agents)  # if it comes to that before we end, it is recorded

    def let_go(self) -> None:
        """Take no further step; what runs lives on under its shims."""
        with self._lock:
            self._stopping = True
        self._poke()

    def stop(self, within_s: float) -> bool:
        """Wait until no step is being taken any more; False when that takes longer."""
        self.let_go()
        thread = self._thread
        if thread is not None:
            thread.join(within_s)
            if thread.is_alive():
                self._give_up(Leaving(STOPPING))
                return False
        with self._lock:  # nobody is just about to write there
            os.close(self._wake_r)
            os.close(self._wake_w)
        return True

    def _poke(self) -> None:
        try:
            os.write(self._wake_w, b".")
        except (BlockingIOError, OSError):
            return  # it is awake already, or gone

    # --- in the desk's thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            wake: datetime | None = None
            trouble: RunplanError | None = None
            try:
                with self._open_up(self._wake_r) as opened, self._desk(opened) as desk:
                    self._begun(desk, opened)
                    wake = self._turn_by_turn(desk, opened)
            except RunplanError as error:
                trouble = error
            except Exception as error:  # noqa: BLE001 - else nobody would ever open this repository again
                trouble = Unreachable(f"unexpected {type(error).__name__}: {error}")
            if trouble is not None:
                self._give_up(trouble)
            self._closed(wake, trouble)
            with self._lock:  # orders that came while it was being closed open it again
                if not self._orders or self._stopping:
                    self._thread = None
                    break
        self._give_up(Leaving(STOPPING))
        self._rested()

    @contextlib.contextmanager
    def _desk(self, opened: Opened) -> Iterator[Desk]:
        desk = Desk(
            opened.rooms,
            self._voice,
            turns=self._turns,
            listener=self._listener,
            begins=self.begins,
        )
        try:
            yield desk
        finally:
            desk.close(Unreachable(UNBEGUN))

    def _turn_by_turn(self, desk: Desk, opened: Opened) -> datetime | None:
        while True:
            self._carry_out(desk, opened)
            running, wake = desk.turn(lambda: self._carry_out(desk, opened))
            if self._is_over(running):
                return wake
            left = (wake - opened.clock.now()).total_seconds() if wake else None
            opened.dispatches.wait(running, timeout_s=None if left is None else max(0.0, left))
            self._clear()

    def _carry_out(self, desk: Desk, opened: Opened) -> None:
        while True:
            with self._lock:
                if not self._orders:
                    break
                do, future = self._orders.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                settle(future, do(desk, opened))
            except Exception as error:  # noqa: BLE001 - whoever gave the order is told
                future.set_exception(error)
        self._heed(desk, opened)

    def _is_over(self, running: list[str]) -> bool:
        with self._lock:
            return self._stopping or not (running or self._orders)

    def _give_up(self, trouble: RunplanError) -> None:
        """Nothing more is done here for now: whoever still waits for an answer gets one."""
        with self._lock:
            left, self._orders = list(self._orders), deque()
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(trouble)

    def _clear(self) -> None:
        try:
            while os.read(self._wake_r, 4096):
                pass
        except BlockingIOError:
            return


def _end_agents(desk: Desk, _: Opened) -> None:
    desk.end_agents()


def settle(future: Future[Any], answer: Any) -> None:
    """Tell the answer, or as soon as there is one."""
    if not isinstance(answer, Future):
        future.set_result(answer)
        return

    def told(later: Future[Any]) -> None:
        error = later.exception()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(later.result())

    answer.add_done_callback(told)
