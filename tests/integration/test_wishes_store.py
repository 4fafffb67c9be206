"""What people want while nobody can do it: kept until it is done, the last word of a plan, and a stop above all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.store.sqlite import Store
from runplan.adapters.store.wishes import TABLE, Wishes
from runplan.core.rows import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as made:
        yield made


def wish(what: str, plan: str = "plans/X.md") -> Wish:
    return Wish(plan=plan, by="a test", what=what)


def noted(store: Store, *wanted: Wish) -> list[tuple[str, str]]:
    for one in wanted:
        Wishes(store).note(one)
    return sorted((one.plan, one.what) for one in Wishes(store).all())


def test_a_journal_has_none_until_somebody_notes_one(store: Store) -> None:
    assert Wishes(store).all() == []
    Wishes(store).drop(wish("stop"))
    assert store.query("SELECT name FROM sqlite_master WHERE name='wishes'") == []


def test_the_last_word_of_a_plan_holds(store: Store) -> None:
    assert noted(store, wish("pause"), wish("resume"), wish("pause", "Y")) == [("Y", "pause"), ("plans/X.md", "resume")]


def test_a_stop_is_not_taken_back(store: Store) -> None:
    assert noted(store, wish("pause"), wish("stop"), wish("resume")) == [("plans/X.md", "stop")]


def test_a_stop_of_all_holds_for_each(store: Store) -> None:
    assert noted(store, wish("pause"), wish("stop", "Y"), wish("stop", ""), wish("pause")) == [("", "stop")]


def test_what_has_come_since_is_not_dropped_with_what_was_done(store: Store) -> None:
    noted(store, wish("pause"), wish("resume"))
    Wishes(store).drop(wish("pause"))
    assert noted(store) == [("plans/X.md", "resume")]
    Wishes(store).drop(wish("resume"))
    assert noted(store) == []


@pytest.mark.parametrize("first", ["dropped", "noted"])
def test_those_of_a_version_that_knew_stops_only_are_read(tmp_path: Path, store: Store, first: str) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as older, older:
        older.execute(TABLE)
        older.execute("INSERT INTO wishes VALUES ('plans/X.md', 'a test')")
    assert Wishes(store).all() == [wish("stop")]
    if first == "dropped":
        Wishes(store).drop(wish("stop"))
        assert noted(store) == []
    else:
        assert noted(store, wish("pause", "Y")) == [("Y", "pause"), ("plans/X.md", "stop")]
