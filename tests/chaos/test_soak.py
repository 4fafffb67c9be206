"""A short soak: kills at random moments, and in the end what an undisturbed run gives.

A long one: `make chaos SOAK=200`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.soak import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", [11])
def test_a_plan_killed_at_random_moments_ends_as_if_nothing_had_happened(tmp_path: Path, seed: int) -> None:
    account = soak(tmp_path, kills=12, seed=seed)
    assert not account.wrong, f"seed {seed}: " + "\n".join(account.wrong)
    assert account.kills.total() == 12
    assert (account.lost, account.doubled) == (0, 0)
