"""Only the commits that an attempt made may land, and a refusal names the others."""

from __future__ import annotations

import pytest

from runplan.checks.lineage import Foreign, Lineage, is_own, off_base
from runplan.gitfacts import Identity

BRANCH = "refs/heads/runplan/x/1"
BASE = "b" * 40


def refusal_text(found: Lineage) -> str:
    return off_base(found, branch=BRANCH, base=BASE)


def brought(number: int) -> Lineage:
    commits = [Foreign(f"{n:040x}", f"Theirs {n}") for n in range(number)]
    return Lineage(on_base=True, foreign=tuple(commits))


def test_a_line_of_its_own_commits_may_land() -> None:
    assert refusal_text(Lineage(on_base=True)) == ""


def test_a_branch_that_left_its_base_may_not() -> None:
    assert refusal_text(Lineage(on_base=False)).startswith(
        f"the branch runplan/x/1 no longer contains its base {BASE[:12]}: it"
    )


def test_a_foreign_commit_is_named() -> None:
    assert f"a commit that this attempt did not make: {'0' * 12} Theirs 0;" in refusal_text(brought(1))
    assert "Theirs 2 and 2 more; nothing landed, and the work is kept on runplan/x/1" in refusal_text(brought(5))


@pytest.mark.parametrize(
    ("email", "own"),
    [
        ("agent+r1.3@runplan.invalid", True),
        ("agent+r1_2.3@runplan.invalid", False),  # another lane
        ("agent+r12.3@runplan.invalid", False),
        ("agent@runplan.invalid", False),
        ("agent+r1.3@example.org", False),
    ],
)
def test_an_attempt_knows_its_commits_by_the_dispatch_that_made_them(email: str, own: bool) -> None:
    assert is_own(Identity(name="runplan agent", email=email), "r1") is own
