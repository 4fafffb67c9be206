"""A sample of the kill matrix, of its points that fail, of random plans and of random kills. `make chaos` runs more."""

from pathlib import Path

import pytest

from tests.chaos.matrix import Bench, Cell, World, cells, fault_cells, sample
from tests.chaos.plans import compare
from tests.chaos.soak import soak
from tests.chaos.trial import Kill

SAMPLE = [
    (World(runner="foreground", scene="two", way="cherry-pick"), 2),
    (World(runner="foreground", scene="checked", way="direct"), 1),
    (World(runner="foreground", scene="tried", way="cherry-pick"), 1),
    (World(runner="daemon", scene="two", way="cherry-pick"), 1),
    (World(runner="daemon", scene="failing", way="pr"), 1),
    (World(runner="foreground", scene="squashed", way="pr"), 2),
    (World(runner="foreground", scene="stacked", way="pr"), 2),
    (World(runner="daemon", scene="stacked", way="pr"), 1),
    (World(runner="foreground", scene="plan", way="cherry-pick"), 1),
    (World(runner="daemon", scene="plan", way="direct"), 1),
    (World(runner="foreground", scene="nested", way="cherry-pick"), 1),
    (World(runner="daemon", scene="nested", way="cherry-pick"), 1),
    (World(runner="daemon", scene="asking", way="cherry-pick"), 1),
    (World(runner="daemon", scene="queue", way="cherry-pick"), 3),
    (World(runner="foreground", scene="ahead", way="cherry-pick"), 1),
    (World(runner="daemon", scene="dropped", way="cherry-pick"), 1),
]
#: With the fault, and whether it lasts.
FAULTS = [
    (World(runner="foreground", scene="two", way="cherry-pick"), "eio", False),
    (World(runner="foreground", scene="two", way="direct"), "git128", False),
    (World(runner="daemon", scene="two", way="cherry-pick"), "enospc", True),
    (World(runner="daemon", scene="failing", way="pr"), "emfile", False),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("chaos"), "here")


@pytest.mark.parametrize(("world", "count"), SAMPLE, ids=lambda value: str(value))
def test_after_a_kill_every_phase_lands_once(bench: Bench, world: World, count: int) -> None:
    chosen = sample(cells(bench.undisturbed(world)), count, seed=3)
    results = [bench.run(cell) for cell in chosen]

    assert [f"{result.cell}: {result.found.wrong}" for result in results if not result.ok] == []
    assert sum(result.kills for result in results) > 0


def test_words_of_a_person_are_recorded_once_when_the_daemon_dies_before_its_answer(bench: Bench) -> None:
    kill = Kill("runner", point="after commit Told at begin in owner.record")
    result = bench.run(Cell(World(runner="daemon", scene="told", way="cherry-pick"), kill))

    assert (result.found.wrong, result.kills) == ([], 1)


@pytest.mark.parametrize(("world", "fault", "lasting"), FAULTS, ids=lambda value: str(value))
def test_after_a_fault_every_phase_lands_once(bench: Bench, world: World, fault: str, lasting: bool) -> None:
    chosen = sample(fault_cells(bench.undisturbed(world), fault, lasting=lasting), 2, seed=5)
    results = [bench.run(cell) for cell in chosen]

    assert [f"{result.cell}: {result.found.wrong}" for result in results if not result.ok] == []
    assert sum(result.kills for result in results) > 0


@pytest.mark.parametrize("seed", [3, 6])
def test_a_plan_lands_with_phases_ahead_as_without(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed=seed) == []


def test_plans_killed_at_random_moments_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    account = soak(tmp_path, kills=4, seed=11, runner="foreground")
    assert account.wrong == []
    assert (account.kills.total(), account.lost, account.doubled) == (4, 0, 0)
