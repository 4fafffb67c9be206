"""The daemon finds its repositories again after a restart."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from runplan.daemon.repositories import FILE, Known, Repositories
from runplan.errors import Unreachable


def a_repository(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return path


def add(state: Path, *roots: Path) -> Repositories:
    known = Repositories(state)
    for root in roots:
        known.add(common=root / ".git", root=root)
    return known


def test_added_repositories_are_found_by_another_process_in_order(tmp_path: Path) -> None:
    one, two = a_repository(tmp_path / "one"), a_repository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    add(tmp_path / "state", one, two, one)
    found, gone = Repositories(tmp_path / "state").recall()
    assert found == [Known(common=str(root / ".git"), root=str(root)) for root in (one, two)]
    assert gone == []


def test_a_checkout_that_moved_is_known_by_its_common_directory(tmp_path: Path) -> None:
    root = a_repository(tmp_path / "one")
    known = add(tmp_path / "state", root)
    known.add(common=root / ".git", root=tmp_path / "elsewhere")
    assert [one.root for one in known.all()] == [str(tmp_path / "elsewhere")]


def test_a_repository_that_is_gone_is_dropped(tmp_path: Path) -> None:
    stays, goes = a_repository(tmp_path / "stays"), a_repository(tmp_path / "goes")
    known = add(tmp_path / "state", stays, goes)
    (goes / ".git").rename(tmp_path / "away")
    found, gone = known.recall()
    assert ([one.root for one in found], [one.root for one in gone]) == ([str(stays)], [str(goes)])
    assert known.recall() == (found, [])


@pytest.mark.parametrize("text", ["", "{", "null", '[{"common": "x"}]', "\0\0\0", '["x"]'])
def test_a_damaged_list_is_an_error_that_says_what_helps(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(Unreachable, match=r"repositories\.json cannot be read: .*; remove it"):
        Repositories(tmp_path).recall()


def _add_ten(state: Path, name: str) -> None:
    for number in range(10):
        add(state, a_repository(state.parent / f"{name}{number}"))


def test_processes_that_add_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add_ten, args=(tmp_path / "state", name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(Repositories(tmp_path / "state").recall()[0]) == 30
