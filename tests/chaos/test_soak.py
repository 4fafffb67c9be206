"""A short soak of each runner: kills at random moments, and in the end what an undisturbed run gives.

A long one: `make chaos SOAK=200`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.soak import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("runner", "kills", "seed"), [("foreground", 8, 11)])
def test_plans_killed_at_random_moments_end_as_if_nothing_had_happened(
    tmp_path: Path, runner: str, kills: int, seed: int
) -> None:
    account = soak(tmp_path, kills=kills, seed=seed, runner=runner)
    assert not account.wrong, f"seed {seed}: " + "\n".join(account.wrong)
    assert account.kills.total() == kills
    assert (account.lost, account.doubled) == (0, 0)
