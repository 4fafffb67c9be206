"""A fixed part of the matrix: every point once, ways of landing and modes in turn. All of it: `make chaos`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.listing import Listed, listed
from tests.chaos.matrix import Bench, Cell, sample
from tests.chaos.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AGAIN = "the code passes other points than the list tells; if that is meant: make chaos-points"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("chaos"), os.environ.get("PYTEST_XDIST_WORKER", "here"))
    yield made
    made.close()


def test_the_list_of_points_is_the_list_of_points_passed(bench: Bench) -> None:
    """A new durable write or outside effect cannot be forgotten: it is found where it is passed."""
    assert settled(bench.list_points()) == settled(listed()), AGAIN


def settled(points: Sequence[Listed]) -> list[Listed]:
    """Without those that are numbered by chance: for a command that has ended at once nobody waits."""
    return [one for one in points if one.name != "Dispatches.wait.after"]


def test_every_way_of_landing_is_killed_in() -> None:
    assert {one.way for one in listed()} == {way.name for way in WAYS}


@pytest.mark.parametrize("cell", sample(listed()), ids=str)
def test_whoever_is_killed_the_work_lands_once(bench: Bench, cell: Cell) -> None:
    result = bench.run(cell)
    assert result.ok, "\n".join(result.found.wrong)
    assert result.kills >= 1
