"""What may be removed at once, what is parked first, what stays."""

from __future__ import annotations

import pytest

from runplan.git.removal import Keep, OnTarget, ParkFirst, Remains, Remove, safe_to_remove


@pytest.mark.parametrize("held", [OnTarget.REACHABLE, OnTarget.TREE, OnTarget.PATCH])
def test_content_on_the_target_may_go(held: OnTarget) -> None:
    assert safe_to_remove(Remains(on_target=held)) == Remove()


def test_content_that_is_nowhere_else_is_parked_first() -> None:
    assert safe_to_remove(Remains(on_target=OnTarget.NO)) == ParkFirst()


@pytest.mark.parametrize("held", [OnTarget.NO, OnTarget.TREE])
def test_what_is_in_use_stays(held: OnTarget) -> None:
    assert safe_to_remove(Remains(on_target=held, used_by="/checkout")) == Keep(why="in use by /checkout")
