"""The door to one repository opens again, whatever went wrong behind it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from runplan.app.holding import Voice
from runplan.app.station import Station
from runplan.core.errors import NotFound, RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
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

    def __init__(self, first: Exception) -> None:
        self._first: Exception | None = first
        self.closings: list[tuple[datetime | None, RunplanError | None]] = []
        nobody: Any = Nobody()
        self.station = Station(
            self._open,
            Voice(tell=nobody.tell, warn=nobody.warn),
            turns=nobody,
            listener=nobody,
            begun=lambda _desk, _opened: None,
            closed=lambda wake, trouble: self.closings.append((wake, trouble)),
            rested=lambda: None,
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
        door.station.stop()
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
        door.station.stop()


def test_after_the_stop_an_order_is_refused_and_not_forgotten() -> None:
    door = Door(NotFound("once"))
    with contextlib.suppress(NotFound):
        door.station.order(lambda _desk, _opened: 0).result(WITHIN_S)
    door.station.stop()
    with pytest.raises(RunplanError, match="the daemon is stopping; ask again"):
        door.station.order(lambda _desk, _opened: 1).result(1)
