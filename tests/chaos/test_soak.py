"""A short soak: kills at random moments, then the result of an undisturbed run.

Long ones: `make chaos SOAK=200`.
"""

from pathlib import Path

from tests.chaos.soak import soak

SEED = 11


def test_plans_killed_at_random_moments_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    account = soak(tmp_path, kills=4, seed=SEED, runner="foreground")
    assert not account.wrong, f"seed {SEED}: " + "\n".join(account.wrong)
    assert account.kills.total() == 4
    assert (account.lost, account.doubled) == (0, 0)
