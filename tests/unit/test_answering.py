"""Whoever follows a run hears of that run, and is let go when it is over, whatever becomes of others."""

from __future__ import annotations

import json
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from runplan.core.control import Request, told_line
from runplan.core.errors import Unreachable
from runplan.core.events import Woke
from runplan.core.run import RunState
from runplan.wiring.answering import BEGINNING, Answering
from tests.support.documents import fences, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT, PLAN = "/repo", "plans/x.md"


class House:
    """The main thread, a daemon whose runs go on, and a clock that nobody asks."""

    def __init__(self) -> None:
        self.refusal = ""
        self.looks: list[bool] = []
        self.goes_on: Future[bool] = Future()

    def post(self, task: Callable[[], None]) -> None:
        task()

    def reload(self, *, anew: bool) -> None:
        self.looks.append(anew)

    def answering(self) -> Answering:
        house: Any = self
        daemon: Any = House.Daemon(self)
        return Answering(daemon, house, environments=house, clock=house)

    class Daemon:
        def __init__(self, house: House) -> None:
            self._house = house
            self.roots = (ROOT,)

        def keeper(self, root: str) -> Any:
            assert root == ROOT
            return self

        def goes_on(self, _plan: str, _run: str) -> Future[bool]:
            return self._house.goes_on


class Caller:
    gone = False

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lines: list[bytes] = []
        self.answers: list[Mapping[str, Any]] = []

    def tell(self, event: Mapping[str, Any]) -> None:
        self.heard.append(event["type"])
        self.lines.append(told_line(event))

    def answer(self, fields: Mapping[str, Any]) -> None:
        self.answers.append(fields)

    def refuse(self, refusal: Any) -> None:
        raise AssertionError(refusal)


def following(answering: Answering, run: str) -> Caller:
    caller = Caller()
    fields = {"root": ROOT, "plan": PLAN, "run": run}
    assert answering.take(Request(verb="follow", fields=fields), caller) is None
    return caller


def test_a_follower_is_told_what_the_page_of_the_protocol_shows() -> None:
    shown = [line for fence in fences(read("docs/daemon.md")) for line in fence.text.splitlines()]
    (stated,) = [line for line in shown if line.startswith('{"event":')]
    answering = House().answering()
    caller = following(answering, "r1")
    answering.told(ROOT, PLAN, "r1", Woke(kind="limit"))
    assert [json.loads(line) for line in caller.lines] == [json.loads(stated)]


def test_a_follower_hears_of_its_own_run_only() -> None:
    answering = House().answering()
    mine, any_run = following(answering, "r2"), following(answering, "")
    answering.told(ROOT, PLAN, "r1", Woke(kind="limit"))
    answering.over(ROOT, PLAN, "r1", RunState())
    assert (mine.heard, mine.answers) == ([], [])
    assert (any_run.heard, len(any_run.answers)) == (["Woke"], 1)
    answering.told(ROOT, PLAN, "r2", Woke(kind="limit"))
    answering.over(ROOT, "plans/y.md", "r2", None)
    assert (mine.heard, mine.answers) == (["Woke"], [])
    answering.over(ROOT, PLAN, "r2", None)
    assert mine.answers == [{"run": "r2", "outcome": "waiting"}]


def test_who_comes_too_late_is_let_go_alone() -> None:
    house = House()
    answering = house.answering()
    late = following(answering, "r1")
    early, house.goes_on = house.goes_on, Future()
    other = following(answering, "r2")
    early.set_result(False)
    assert (late.answers, other.answers) == ([{"outcome": "waiting"}], [])


@pytest.mark.parametrize("verb", BEGINNING)
def test_whatever_would_begin_something_is_refused_while_it_drains(verb: str) -> None:
    house = House()
    house.refusal = "the daemon is draining"
    with pytest.raises(Unreachable, match="the daemon is draining"):
        house.answering().take(Request(verb=verb, fields={"root": ROOT, "plan": PLAN}), Caller())


def test_with_every_question_the_settings_are_looked_at() -> None:
    house = House()
    answering = house.answering()
    assert answering.take(Request(verb="reload", fields={}), Caller()) == {}
    following(answering, "")
    assert house.looks == [True, False]
