"""A few random plans, worked with and without phases ahead. More: `python -m tests.chaos plans --count 100`."""

from pathlib import Path

import pytest

from tests.chaos.plans import compare


@pytest.mark.parametrize("seed", [3, 6])
def test_a_plan_lands_with_phases_ahead_as_without(tmp_path: Path, seed: int) -> None:
    assert compare(tmp_path, seed=seed) == []
