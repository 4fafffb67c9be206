"""Only the commits that an attempt made may land, and a refusal names the others."""

import pytest

from runplan.domain.gitfacts import Identity, is_agent
from runplan.engine.steps.work import describe_off_base

BRANCH = "refs/heads/runplan/x/1"
BASE = "b" * 40


def test_commits_of_the_attempt_on_its_base_may_land_and_others_are_named() -> None:
    kept = "nothing landed, and the work is kept on runplan/x/1"
    assert describe_off_base((), branch=BRANCH, base=BASE) == ""
    left = describe_off_base(None, branch=BRANCH, base=BASE)
    assert left.startswith(f"the branch runplan/x/1 no longer contains its base {BASE[:12]}: it was reset")
    brought = describe_off_base([("0" * 40, "Theirs"), ("1" * 40, "Too")], branch=BRANCH, base=BASE)
    assert brought.endswith(f"did not make: {'0' * 12} Theirs, {'1' * 12} Too; {kept}")


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
    assert is_agent(Identity(name="runplan agent", email=email), "r1") is own
