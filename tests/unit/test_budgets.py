"""Costs: the usage of an agent that reports tokens, dollars or neither, and what is left."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from runplan.agents.budgets import Cost, GivenOut, Left, UsedUp, left, metered
from runplan.agents.invocation import unwatched
from runplan.run.dispatch import Tally, Usage
from runplan.settings.schema import AgentTable
from tests.support.samples import outcome_of

PRICE = {"usd_in": 2.0, "usd_out": 10.0}
COMMAND = {"type": "item.completed", "item": {"type": "command_execution", "command": "x" * 40_000}}


def test_reported_dollars_override_the_price() -> None:
    reported = Usage(input_tokens=1_000_000, usd=0.5)
    assert metered(Tally(usage=reported), prompt=0, **PRICE) == reported


def test_tokens_without_dollars_are_priced() -> None:
    reported = Usage(input_tokens=1_000_000, output_tokens=100_000)
    assert metered(Tally(usage=reported), prompt=0, **PRICE).usd == pytest.approx(3.0)


def test_cached_tokens_cost_a_tenth() -> None:
    reported = Usage(input_tokens=1_000_000, cached_tokens=900_000)
    assert metered(Tally(usage=reported), prompt=0, **PRICE).usd == pytest.approx(0.38)


@pytest.mark.parametrize(
    "last",
    [[], [{"type": "turn.failed", "error": {"message": "You've hit your usage limit."}}]],
    ids=["ended", "failed"],
)
def test_an_agent_without_a_report_has_used_at_least_its_output(last: list[dict[str, Any]]) -> None:
    tally = outcome_of("codex", [json.dumps(event).encode() for event in [COMMAND, *last]]).tally
    assert metered(tally, prompt=4_000, **PRICE) == Usage(input_tokens=11_000, usd=0.022)


def test_reported_usage_overrides_an_estimate() -> None:
    done = {"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 1}}
    tally = outcome_of("codex", [json.dumps(event).encode() for event in (COMMAND, done)]).tally
    assert metered(tally, prompt=4_000, usd_in=0.0, usd_out=0.0) == Usage(input_tokens=7, output_tokens=1)


@pytest.mark.parametrize(
    ("table", "is_unwatched"),
    [
        (AgentTable(name="codex", kind="codex"), True),
        (AgentTable(name="g", kind="gemini"), True),
        (AgentTable(name="qwen", kind="qwen"), True),
        (AgentTable(name="codex", kind="codex", usd_per_mtok_in=1.25, usd_per_mtok_out=10.0), False),
        (AgentTable(name="claude", kind="claude"), False),
        (AgentTable(name="aider", kind="aider"), False),
        (AgentTable(name="own", kind="command", argv=("x",)), False),
    ],
)
def test_agents_without_price_and_reported_dollars_are_unwatched(table: AgentTable, is_unwatched: bool) -> None:
    assert unwatched(table) is is_unwatched


# --- what is left ---------------------------------------------------------------------------------------


SCOPES = ("dispatch", "phase", "plan", "day")


def test_without_a_budget_nothing_is_limited() -> None:
    assert left({scope: Cost() for scope in SCOPES}, {"day": Cost(tokens=10**9, usd=1e6)}) == Left()


def test_the_smallest_remaining_budget_decides() -> None:
    budgets = {"dispatch": Cost(tokens=500), "phase": Cost(tokens=1000, usd=5.0), "day": Cost(usd=8.0)}
    spent = {"phase": Cost(tokens=700, usd=1.0), "day": Cost(usd=7.5)}
    assert left(budgets, spent) == Left(tokens=300, usd=0.5, bounds=("limits.phase_tokens", "limits.day_usd", ""))


def test_the_budget_of_running_agents_is_reserved() -> None:
    """The sum of what is spent and given out never goes over; what is only given out is waited for."""
    budgets = {"day": Cost(tokens=1000)}
    spent = {"day": Cost(tokens=300)}
    assert left(budgets, spent, {"day": Cost(tokens=600)}) == Left(tokens=100, bounds=("limits.day_tokens", "", ""))
    assert left(budgets, spent, {"day": Cost(tokens=700)}) == GivenOut(
        "the rest of the day's budget, which running agents may use: 1000 of 1000 tokens (limits.day_tokens)",
    )
    assert isinstance(left(budgets, {"day": Cost(tokens=1000)}, {"day": Cost(tokens=1)}), UsedUp)


@pytest.mark.parametrize(
    ("budget", "used", "why"),
    [
        (Cost(tokens=10), Cost(tokens=10), "the plan's budget is used up: 10 of 10 tokens (limits.plan_tokens)"),
        (Cost(usd=1.0), Cost(usd=1.25), "the plan's budget is used up: $1.25 of $1.00 (limits.plan_usd)"),
        (Cost(seconds=600), Cost(seconds=660), "the plan's budget is used up: 11m of 10m (limits.plan_wall)"),
        (Cost(seconds=3), Cost(seconds=5.2), "the plan's budget is used up: 5s of 3s (limits.plan_wall)"),
    ],
)
def test_a_budget_that_is_used_up_is_named_with_its_scope(budget: Cost, used: Cost, why: str) -> None:
    assert left({"phase": Cost(), "plan": budget}, {"plan": used}) == UsedUp(why)


COSTS = st.builds(Cost, tokens=st.integers(0, 1000), usd=st.floats(0, 10), seconds=st.floats(0, 1000))
BUDGETS = st.builds(Cost, tokens=st.integers(0, 1000), usd=st.floats(0, 10), seconds=st.floats(0, 1000))


@given(st.dictionaries(st.sampled_from(SCOPES), BUDGETS), st.dictionaries(st.sampled_from(SCOPES), COSTS), COSTS)
def test_spending_never_leaves_more(budgets: dict[str, Cost], spent: dict[str, Cost], more: Cost) -> None:
    before = left(budgets, spent)
    after = left(budgets, {scope: spent.get(scope, Cost()).plus(more) for scope in SCOPES})
    if isinstance(before, UsedUp):
        assert isinstance(after, UsedUp)
    elif isinstance(before, Left) and isinstance(after, Left):
        assert after.tokens <= before.tokens
        assert after.usd <= before.usd
