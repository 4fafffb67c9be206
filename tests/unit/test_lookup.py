"""A word means one plan: by its path, its name, or a part of it that no other has."""

import pytest

from runplan.domain.errors import NotFound
from runplan.domain.names import find_plan

PLANS = ("plans/Q2.md", "plans/deep/X.md", "plans/later.md")
GONE = ("plans/P2.md", "plans/X.md", "plans/late.md")


@pytest.mark.parametrize(
    ("word", "plan"),
    [
        *((word, "plans/Q2.md") for word in ("plans/Q2.md", "q2")),
        *((word, "plans/P2.md") for word in ("plans/P2.md", "p2", "P2.md")),
        *(("X", "plans/deep/X.md"), ("plans/X.md", "plans/X.md")),
        *(("late", "plans/later.md"), ("plans/late.md", "plans/late.md")),
    ],
)
def test_a_deleted_plan_is_found_when_no_other_matches(word: str, plan: str) -> None:
    assert find_plan(word, PLANS, place="plans", gone=GONE) == plan


SPECS = ("plans/LOGIN.md", "specs/001-login/tasks.md", ".kiro/specs/search/tasks.md", "openspec/changes/fax/tasks.md")


@pytest.mark.parametrize(
    ("word", "plan"),
    [
        ("001-login", "specs/001-login/tasks.md"),
        ("login", "plans/LOGIN.md"),
        ("001", "specs/001-login/tasks.md"),
        ("Search", ".kiro/specs/search/tasks.md"),
        ("changes/fax", "openspec/changes/fax/tasks.md"),
    ],
)
def test_a_spec_folder_is_found_by_its_name(word: str, plan: str) -> None:
    assert find_plan(word, SPECS, place="plans") == plan


def test_an_unknown_plan_name_lists_the_existing_plans() -> None:
    with pytest.raises(NotFound, match=r"there are: plans/Q2.md, plans/deep/X.md, plans/later.md$"):
        find_plan("zzz", PLANS, place="plans", gone=GONE)
