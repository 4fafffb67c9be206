"""A plan waits for its parent's verification."""

import pytest

from runplan.domain.checks.verdict import parent_wait


@pytest.mark.parametrize(("attempts", "wait"), [(0, 10), (1, 20), (2, 40), (3, 60), (10, 60)])
def test_a_plan_waits_longer_with_each_attempt(attempts: int, wait: int) -> None:
    """G16"""
    assert parent_wait(attempts) == wait
