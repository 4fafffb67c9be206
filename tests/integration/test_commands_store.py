"""The queue of commands: executed in order, answered once, and the answer is kept for a caller who asks late."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runplan.run.requests import Answer
from runplan.run.rows import Command
from runplan.store.sqlite import KEPT, Store

NOW = "2026-03-01T12:00:00Z"
PLAN = "plans/X.md"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as store:
        yield store


def add(store: Store, verb: str = "stop", plan: str = PLAN) -> int:
    command = Command(plan=plan, verb=verb, arguments={"n": [1, "\udcff"]}, by="a person", at=NOW)
    return store.add_command(command)


def test_a_command_is_answered_once_and_leaves_the_queue(store: Store) -> None:
    first, second = add(store), add(store)
    assert store.get_answer(first) is None
    store.answer_command(first, Answer(lines=("it ends",)))
    store.answer_command(first, Answer(error="too late", exit=2))
    assert store.get_answer(first) == Answer(lines=("it ends",))
    assert [one.seq for one in store.list_queued_commands()] == [second]


def test_old_answers_are_forgotten_and_a_queued_command_never_is(store: Store) -> None:
    waits, old = add(store), add(store)
    store.answer_command(old, Answer(run="r1"))
    for _ in range(KEPT - 1):
        store.answer_command(add(store), Answer())
    assert store.get_answer(old) == Answer(run="r1")
    newest = add(store)
    assert store.get_answer(old) is None
    assert [one.seq for one in store.list_queued_commands()] == [waits, newest]
