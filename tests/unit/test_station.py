"""The door to one repository opens again, whatever went wrong behind it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from runplan.app import station as stations
from runplan.app.holding import Voice
from runplan.app.station import Station
from runplan.app.wishes import Leaving
from runplan.core.errors import NotFound, RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from datetime import datetime

WITHIN_S = 20


class Opened:
    """A repository in which nothing is to be done."""

    rooms = dispatches = clock = schedules = None


class Nobody:
    """Listens to nothing, and lets everybody have a turn."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: True


class Door:
    """A station whose repository cannot be opened the first time."""

    def __init__(self, first: Exception | None) -> None:
        self._first = first
        self.ended_beside = threading.Event()
        self.closings: list[tuple[datetime | None, RunplanError | None]] = []
        nobody: Any = Nobody()
        self.station = Station(
            self._open,
            Voice(tell=nobody.tell, warn=nobody.warn),
            turns=nobody,
            listener=nobody,
            begun=lambda _desk, _opened: None,
            heed=lambda _desk, _opened: None,
            closed=lambda wake, trouble: self.closings.append((wake, trouble)),
            rested=lambda: None,
            end_beside=self.ended_beside.set,
        )

    def _open(self, _wakeup: int) -> AbstractContextManager[Any]:
        @contextlib.contextmanager
        def opened() -> Iterator[Any]:
            if self._first is not None:
                error, self._first = self._first, None
                raise error
            yield Opened()

        return opened()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotFound("no repository"), NotFound),
        (OSError("disk on fire"), Unreachable),
        (RecursionError("deep"), Unreachable),
    ],
    ids=["expected", "disk", "defect"],
)
def test_a_repository_that_could_not_be_opened_is_opened_for_the_next_order(
    error: Exception, told: type[RunplanError]
) -> None:
    door = Door(error)
    try:
        with pytest.raises(told, match=str(error)):
            door.station.order(lambda _desk, _opened: 1).result(WITHIN_S)
        assert door.station.order(lambda _desk, _opened: 2).result(WITHIN_S) == 2
    finally:
        door.station.stop(WITHIN_S)
    assert [type(trouble) for _, trouble in door.closings] == [told, type(None)]


def test_an_order_that_goes_wrong_tells_whoever_gave_it_and_no_other() -> None:
    door = Door(NotFound("once"))
    with contextlib.suppress(NotFound):
        door.station.order(lambda _desk, _opened: 0).result(WITHIN_S)
    try:
        wrong = door.station.order(lambda _desk, _opened: 1 // 0)
        right = door.station.order(lambda _desk, _opened: 3)
        assert right.result(WITHIN_S) == 3
        with pytest.raises(ZeroDivisionError):
            wrong.result(WITHIN_S)
    finally:
        door.station.stop(WITHIN_S)


def test_after_the_stop_an_order_is_refused_and_not_forgotten() -> None:
    door = Door(NotFound("once"))
    with contextlib.suppress(NotFound):
        door.station.order(lambda _desk, _opened: 0).result(WITHIN_S)
    door.station.stop(WITHIN_S)
    with pytest.raises(RunplanError, match="the daemon is stopping; ask again"):
        door.station.order(lambda _desk, _opened: 1).result(1)


def a_long_step(door: Door) -> tuple[Future[bool], threading.Event]:
    """The desk is at it until it is told that it is over."""
    at_it, over = threading.Event(), threading.Event()

    def take(_desk: object, _opened: object) -> bool:
        at_it.set()
        return over.wait(WITHIN_S)

    step = door.station.order(take)
    assert at_it.wait(WITHIN_S)
    return step, over


def test_a_step_that_takes_long_holds_up_neither_the_end_of_agents_nor_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stations, "AT_ONCE_S", 0.05)
    door = Door(None)
    step, over = a_long_step(door)
    try:
        door.station.end_agents()
        assert door.ended_beside.wait(WITHIN_S), "not by the desk, which is busy"
        left = door.station.order(lambda _desk, _opened: 1)
        assert door.station.stop(0.05) is False
        with pytest.raises(Leaving, match="the daemon is stopping; ask again"):
            left.result(WITHIN_S)
    finally:
        over.set()
    assert step.result(WITHIN_S) is True
    assert door.station.stop(WITHIN_S) is True


def test_a_desk_that_is_free_ends_agents_itself() -> None:
    door = Door(None)
    _, over = a_long_step(door)
    door.station.end_agents()
    over.set()
    assert door.station.order(lambda _desk, _opened: 2).result(WITHIN_S) == 2
    assert door.station.stop(WITHIN_S)
    assert not door.ended_beside.is_set()
