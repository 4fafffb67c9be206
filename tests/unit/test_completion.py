"""A plan waits for its parent's verification."""

import pytest

from runplan.domain.times import FIRST_PARENT_S, delay_s


@pytest.mark.parametrize(("attempts", "wait"), [(0, 10), (1, 20), (2, 40), (3, 60), (10, 60)])
def test_a_plan_waits_longer_with_each_attempt(attempts: int, wait: int) -> None:
    """G16"""
    assert delay_s(attempts + 1, first_s=FIRST_PARENT_S) == wait * 60
