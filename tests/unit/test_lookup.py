"""A word means one plan: by its path, its name, or a part of it that no other has."""

from __future__ import annotations

import pytest

from runplan.errors import NotFound
from runplan.names import find_plan

PLANS = ("plans/Q2.md", "plans/deep/X.md", "plans/later.md")
GONE = ("plans/P2.md", "plans/X.md", "plans/late.md")


@pytest.mark.parametrize(
    ("word", "plan"),
    [
        ("plans/Q2.md", "plans/Q2.md"),
        ("q2", "plans/Q2.md"),
        ("plans/P2.md", "plans/P2.md"),
        ("p2", "plans/P2.md"),
        ("P2.md", "plans/P2.md"),
        ("X", "plans/deep/X.md"),
        ("plans/X.md", "plans/X.md"),
        ("late", "plans/later.md"),
        ("plans/late.md", "plans/late.md"),
    ],
)
def test_a_deleted_plan_is_found_when_no_other_matches(word: str, plan: str) -> None:
    assert find_plan(word, PLANS, place="plans", gone=GONE) == plan


def test_an_unknown_plan_name_lists_the_existing_plans() -> None:
    with pytest.raises(NotFound, match=r"there are: plans/Q2.md, plans/deep/X.md, plans/later.md$"):
        find_plan("zzz", PLANS, place="plans", gone=GONE)
