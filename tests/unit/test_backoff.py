"""How often a claim that somebody else holds is looked at again, and when that is said."""

from __future__ import annotations

import pytest

from runplan.core.backoff import delay, told


@pytest.mark.parametrize(
    ("before", "minutes", "said"),
    [
        pytest.param(0, 1, True, id="G1"),
        pytest.param(8, 1, False, id="ninth"),
        pytest.param(9, 10, True, id="G2-G7"),
        pytest.param(14, 10, False, id="fifteenth"),
        pytest.param(15, 30, True, id="sixteenth"),
        pytest.param(24, 30, False, id="twenty-fifth"),
        pytest.param(25, 60, True, id="G4"),
        pytest.param(30, 60, False, id="G5"),
        pytest.param(10_000, 60, False, id="for-ever"),
    ],
)
def test_the_next_look_is_later_the_more_were_in_vain(before: int, minutes: int, said: bool) -> None:
    """Whatever the pace was before: it follows from the count alone (G7)."""
    n = before + 1
    assert (delay(n), told(n)) == (minutes, said)


def test_a_person_hears_four_times_of_it() -> None:
    assert [n for n in range(200) if told(n)] == [1, 10, 16, 26]


def test_looks_never_become_more_frequent() -> None:
    waits = [delay(n) for n in range(200)]
    assert waits == sorted(waits)
