"""What may be removed at once, what is parked first, what stays."""

from __future__ import annotations

import pytest

from runplan.core.removal import Keep, OnTarget, ParkFirst, Remains, Remove, safe_to_remove


@pytest.mark.parametrize("held", [OnTarget.REACHABLE, OnTarget.TREE, OnTarget.PATCH])
def test_content_on_the_target_may_go(held: OnTarget) -> None:
    assert safe_to_remove(Remains(on_target=held)) == Remove()


@pytest.mark.parametrize(
    "remains",
    [
        pytest.param(Remains(on_target=OnTarget.NO), id="commits"),
        pytest.param(Remains(on_target=OnTarget.REACHABLE, uncommitted=True), id="J5"),
    ],
)
def test_content_that_is_nowhere_else_is_parked_first(remains: Remains) -> None:
    assert safe_to_remove(remains) == ParkFirst()


@pytest.mark.parametrize(
    ("remains", "why"),
    [
        (Remains(on_target=OnTarget.NO, used_by="/checkout"), "in use by /checkout"),
        (Remains(on_target=OnTarget.TREE, inside=(7, 8)), "process 7 works in it"),
        (Remains(on_target=OnTarget.TREE, nested="inner/"), "it holds another git repository: inner/"),
    ],
)
def test_what_is_in_use_or_cannot_be_kept_aside_stays(remains: Remains, why: str) -> None:
    assert safe_to_remove(remains) == Keep(why=why)
