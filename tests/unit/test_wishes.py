"""What is wanted of a desk that is busy while nothing can be written: a stop is kept, and nothing goes before it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from runplan.app import wishes
from runplan.app.wishes import Wished
from runplan.core.errors import Unreachable
from runplan.core.rows import Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.core.errors import RunplanError

STOP = Wish(plan="plans/X.md", by="a test")
FULL = "the disk is full, then start again"


@dataclass
class Repository:
    """A desk, what is noted beside it, and its disk."""

    full: bool = True
    noted: list[Wish] = field(default_factory=list)
    granted: list[Wish] = field(default_factory=list)
    plans: tuple[str, ...] = ()

    def note(self, *told: Any) -> Any:
        if self.full:
            raise Unreachable(FULL)
        self.noted.append(told[-1])

    def end_agents(self, _root: str, plan: str = "") -> list[str]:
        return [plan]

    def all(self) -> list[Wish]:
        return list(self.noted)

    def drop(self, wish: Wish) -> None:
        self.noted.remove(wish)

    def left(self) -> list[Any]:
        return []

    @property
    def wishes(self) -> Repository:
        return self

    def grant(self, wish: Wish, *_: object) -> list[str]:
        if self.full:
            raise Unreachable(FULL)
        self.granted.append(wish)
        return ["done"]

    def failed(self, _wish: Wish, _error: RunplanError) -> None: ...


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wishes, "LATE_S", 0.01)


def wished(at: Repository, orders: list[Callable[[Any, Any], list[str]]]) -> Wished:
    def order(do: Callable[[Any, Any], list[str]]) -> Future[list[str]]:
        orders.append(do)
        return Future()

    return Wished("/r", order, beside=at, granting=at)


def test_a_stop_that_cannot_be_noted_is_kept_until_it_can_be() -> None:
    at, orders = Repository(), cast("list[Callable[[Any, Any], list[str]]]", [])
    wanted = wished(at, orders)
    told = str(wanted.insist(STOP).exception(timeout=30))
    assert told == (
        "the agent at work on plans/X.md was ended; that plans/X.md be stopped could not be recorded, "
        "which this daemon does as soon as it can: the disk is full"
    )
    with pytest.raises(Unreachable):
        wanted.grant_noted(cast("Any", at), cast("Any", at))
    assert wanted.keeps
    at.full = False
    orders[0](at, at)
    wanted.grant_noted(cast("Any", at), cast("Any", at))
    assert (wanted.keeps, at.noted, at.granted) == (False, [], [STOP])


def test_a_stop_that_is_noted_and_cannot_be_granted_stays_noted() -> None:
    at = Repository(noted=[STOP])
    with pytest.raises(Unreachable):
        wished(at, []).grant_noted(cast("Any", at), cast("Any", at))
    assert at.noted == [STOP]


def test_a_pause_that_cannot_be_noted_is_refused_and_not_kept() -> None:
    at, orders = Repository(), cast("list[Callable[[Any, Any], list[str]]]", [])
    wanted = wished(at, orders)
    told = wanted.insist(Wish(plan="plans/X.md", by="a test", what="pause")).exception(timeout=30)
    assert "could not be noted for later: the disk is full" in str(told)
    assert not wanted.keeps
