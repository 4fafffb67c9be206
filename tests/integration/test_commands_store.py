"""The queue of commands: executed in order, answered once, and the answer is kept for a caller who asks late."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runplan.run.requests import Answer
from runplan.store.sqlite import Store
from runplan.store.tables import KEPT, Commands

NOW = "2026-03-01T12:00:00Z"
PLAN = "plans/X.md"


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with closing(Store(tmp_path)) as store:
        yield store.commands


def add(commands: Commands, verb: str = "stop", plan: str = PLAN) -> int:
    return commands.add(plan, verb, {"n": [1, "\udcff"]}, by="a person", at=NOW)


def test_a_command_is_answered_once_and_leaves_the_queue(commands: Commands) -> None:
    first, second = add(commands), add(commands)
    assert commands.answer(first) is None
    commands.finish(first, Answer(lines=("it ends",)))
    commands.finish(first, Answer(error="too late", exit=2))
    assert commands.answer(first) == Answer(lines=("it ends",))
    assert [one.seq for one in commands.queued()] == [second]


def test_old_answers_are_forgotten_and_a_queued_command_never_is(commands: Commands) -> None:
    waits, old = add(commands), add(commands)
    commands.finish(old, Answer(run="r1"))
    for _ in range(KEPT - 1):
        commands.finish(add(commands), Answer())
    assert commands.answer(old) == Answer(run="r1")
    newest = add(commands)
    assert commands.answer(old) is None
    assert [one.seq for one in commands.queued()] == [waits, newest]
