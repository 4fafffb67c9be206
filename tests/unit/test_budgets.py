"""What an agent may still use."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from runplan.agents.budgets import Budget, Cost, GivenOut, Left, UsedUp, left

SCOPES = ("dispatch", "phase", "plan", "day")


def test_without_a_budget_nothing_is_limited() -> None:
    assert left({scope: Budget() for scope in SCOPES}, {"day": Cost(tokens=10**9, usd=1e6)}) == Left()


def test_the_tightest_scope_decides() -> None:
    budgets = {"dispatch": Budget(tokens=500), "phase": Budget(tokens=1000, usd=5.0), "day": Budget(usd=8.0)}
    spent = {"phase": Cost(tokens=700, usd=1.0), "day": Cost(usd=7.5)}
    assert left(budgets, spent) == Left(tokens=300, usd=0.5, bounds=("limits.phase_tokens", "limits.day_usd", ""))


def test_what_agents_at_work_may_use_is_not_given_twice() -> None:
    """The sum of what is spent and given out never goes over; what is only given out is waited for."""
    budgets = {"day": Budget(tokens=1000)}
    spent = {"day": Cost(tokens=300)}
    assert left(budgets, spent, {"day": Cost(tokens=600)}) == Left(tokens=100, bounds=("limits.day_tokens", "", ""))
    assert left(budgets, spent, {"day": Cost(tokens=700)}) == GivenOut(
        scope="day",
        why="the rest of the day's budget, which running agents may use: 1000 of 1000 tokens (limits.day_tokens)",
    )
    assert isinstance(left(budgets, {"day": Cost(tokens=1000)}, {"day": Cost(tokens=1)}), UsedUp)


@pytest.mark.parametrize(
    ("budget", "used", "why"),
    [
        (Budget(tokens=10), Cost(tokens=10), "the plan's budget is used up: 10 of 10 tokens (limits.plan_tokens)"),
        (Budget(usd=1.0), Cost(usd=1.25), "the plan's budget is used up: $1.25 of $1.00 (limits.plan_usd)"),
        (Budget(seconds=600), Cost(seconds=660), "the plan's budget is used up: 11m of 10m (limits.plan_wall)"),
        (Budget(seconds=3), Cost(seconds=5.2), "the plan's budget is used up: 5s of 3s (limits.plan_wall)"),
    ],
)
def test_a_budget_that_is_used_up_is_named_with_its_scope(budget: Budget, used: Cost, why: str) -> None:
    assert left({"phase": Budget(), "plan": budget}, {"plan": used}) == UsedUp(scope="plan", why=why)


COSTS = st.builds(Cost, tokens=st.integers(0, 1000), usd=st.floats(0, 10), seconds=st.floats(0, 1000))
BUDGETS = st.builds(Budget, tokens=st.integers(0, 1000), usd=st.floats(0, 10), seconds=st.floats(0, 1000))


@given(st.dictionaries(st.sampled_from(SCOPES), BUDGETS), st.dictionaries(st.sampled_from(SCOPES), COSTS), COSTS)
def test_spending_never_leaves_more(budgets: dict[str, Budget], spent: dict[str, Cost], more: Cost) -> None:
    before = left(budgets, spent)
    after = left(budgets, {scope: spent.get(scope, Cost()).plus(more) for scope in SCOPES})
    if isinstance(before, UsedUp):
        assert isinstance(after, UsedUp)
    elif isinstance(before, Left) and isinstance(after, Left):
        assert after.tokens <= before.tokens
        assert after.usd <= before.usd
