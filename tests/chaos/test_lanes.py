"""A part of what `make chaos` tries with phases side by side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.lanes import cells, too_few
from tests.chaos.listing import Listed
from tests.chaos.matrix import Bench, Cell, Result
from tests.chaos.proofs import Found
from tests.chaos.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = 24


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("lanes"), f"{os.environ.get('PYTEST_XDIST_WORKER', 'here')}l")
    yield made
    made.close()


@pytest.mark.parametrize("way", [way.name for way in WAYS])
def test_side_by_side_too_the_work_lands_once_whoever_is_killed(bench: Bench, way: str) -> None:
    results = [bench.run(cell) for cell in cells(bench, way)[::PARTS]]

    assert [f"{result.cell}: {result.found.wrong}" for result in results if not result.ok] == []
    assert too_few(results) == ""


@pytest.mark.parametrize(("killed", "told"), [(4, ""), (3, ""), (2, "in 2 of 4 nobody was killed")])
def test_cells_in_which_nobody_was_killed_prove_nothing(killed: int, told: str) -> None:
    at = Listed(scene="beside", way="direct", start=1, point="land.staged#1")
    cell = Cell(at=at, mode="daemon")
    results = [Result(cell=cell, kills=int(number < killed), found=Found()) for number in range(4)]

    assert too_few(results) == told
