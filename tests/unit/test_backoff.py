"""When a failed try is repeated, and how often a claim that another process holds is looked at again."""

from __future__ import annotations

import pytest

from runplan.times import delay_s, is_announced, look_s


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
    assert (look_s(n), is_announced(n)) == (60 * minutes, said)


def test_a_person_hears_four_times_of_it() -> None:
    assert [n for n in range(200) if is_announced(n)] == [1, 10, 16, 26]


def test_looks_never_become_more_frequent() -> None:
    waits = [look_s(n) for n in range(200)]
    assert waits == sorted(waits)


def test_a_retry_waits_twice_as_long_each_time_up_to_an_hour() -> None:
    assert [delay_s(n) for n in (0, 1, 2, 3, 6, 7, 10_000)] == [60, 60, 120, 240, 1920, 3600, 3600]
    assert [delay_s(n, first_s=2, longest_s=50, factor=5) for n in (1, 2, 3)] == [2, 10, 50]
