"""How long is waited for a provider."""

from __future__ import annotations

from hypothesis import given, strategies as st

from runplan.times import FIRST_BUSY_S, JITTER_S, MARGIN_S, busy_ends, jitter, limit_ends

NOW = 1_800_000_000.0


@given(st.floats(-1e6, 1e6), st.integers(1, 100), st.text(max_size=20))
def test_a_limit_is_waited_out_with_a_margin_and_never_ends_in_the_past(offset: float, times: int, seed: str) -> None:
    resets = NOW + offset
    until = limit_ends(resets, now=NOW, times=times, seed=seed)
    assert max(resets, NOW) + MARGIN_S <= until <= max(resets, NOW) + MARGIN_S + JITTER_S


def test_a_limit_whose_end_nobody_names_is_waited_for_longer_each_time_up_to_an_hour() -> None:
    waits = [limit_ends(None, now=NOW, times=times, seed="x") - NOW for times in range(1, 12)]
    assert waits == sorted(waits)
    assert 300 <= waits[0] <= 300 + JITTER_S
    assert waits[-1] <= 3600.0 + JITTER_S


def test_a_busy_provider_is_waited_for_twice_as_long_each_time() -> None:
    waits = [busy_ends(now=NOW, times=times, seed="x") - NOW for times in range(1, 6)]
    assert waits == sorted(waits)
    assert FIRST_BUSY_S <= waits[0] <= 2 * FIRST_BUSY_S
    assert waits[4] >= 16 * FIRST_BUSY_S


def test_jitter_is_the_same_for_the_same_seed_and_spread_over_others() -> None:
    assert jitter("run.1") == jitter("run.1")
    assert len({round(jitter(f"run.{number}")) for number in range(50)}) > 25
