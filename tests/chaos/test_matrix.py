"""A fixed part of the matrix: of each scene some cells, spread evenly. All of it: `make chaos`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.matrix import Bench, Cell, Result, World, sample, too_few
from tests.chaos.proofs import Found
from tests.chaos.scenes import SCENES
from tests.chaos.trial import Kill
from tests.chaos.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

CELLS = {"foreground": 5, "daemon": 1}  #: of each scene
WORLDS = [
    World(runner=runner, scene=scene.name, way=WAYS[(number + turn) % len(WAYS)].name)
    for turn, runner in enumerate(CELLS)
    for number, scene in enumerate(SCENES)
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("chaos"), os.environ.get("PYTEST_XDIST_WORKER", "here"))
    yield made
    made.close()


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_whoever_is_killed_the_work_lands_once(bench: Bench, world: World) -> None:
    chosen = sample(bench.undisturbed(world), CELLS[world.runner], seed=3)
    results = [bench.run(cell) for cell in chosen]

    assert [f"{result.cell}: {result.found.wrong}" for result in results if not result.ok] == []
    assert sum(result.kills for result in results) > 0


@pytest.mark.parametrize(("killed", "told"), [(4, ""), (3, ""), (2, "in 2 of 4 nobody was killed")])
def test_cells_in_which_nobody_was_killed_prove_nothing(killed: int, told: str) -> None:
    cell = Cell(World(runner="daemon", scene="two", way="direct"), Kill("runner", effect=7))
    results = [Result(cell=cell, kills=int(number < killed), found=Found()) for number in range(4)]

    assert too_few(results) == told
