"""Repeated calls of a forge, with a clock and a sleep of the test."""

from runplan.adapters.forge.retry import LONGEST_S, Calls, limit_call
from runplan.domain.errors import RateLimited


def test_a_pause_that_is_over_by_the_clock_is_not_slept() -> None:
    moments = iter((100.0, 100.0, 100.0, 200.0, 200.0, 200.0, 200.0))  # the clock jumps after the refusal
    answers = iter((True, False))
    slept: list[float] = []

    def call() -> str:
        if next(answers):
            raise OSError
        return "done"

    calls = Calls(
        (OSError,),
        lambda action, _, now: RateLimited(f"cannot {action}", until=now + 1.0),
        sleep=slept.append,
        now=lambda: next(moments),
    )
    assert calls.attempt("read it", call) == "done"
    assert slept == [0.0]


def test_a_clock_that_is_years_behind_makes_no_limit_of_years() -> None:
    """A forge names the moment at which its limit ends."""
    assert limit_call("read it", 3600.0, 100.0).until == 3700.0
    assert limit_call("read it", 1e9, 100.0).until == 100.0 + LONGEST_S
