"""What agents have used: sums by day, plan, agent and role over all repositories."""

from datetime import date
from pathlib import Path

from runplan.app.views.reports import DAYS, MOST_PLANS, read_costs, sum_costs
from runplan.domain.run.rows import UsageTotal

TODAY = date(2026, 3, 2)


def total(plan: str = "plans/X.md", *, day: str = "2026-03-01", agent: str = "a", usd: float = 1.0) -> UsageTotal:
    return UsageTotal(day, plan, agent, "implement", 1, 100, usd, unpriced=not usd, estimated=False)


def test_costs_are_summed_by_day_plan_agent_and_role() -> None:
    pairs = [("/r", total()), ("/r", total(day="2026-03-02", agent="b", usd=3.0)), ("/s", total(usd=0.0))]
    costs = sum_costs(pairs, today=TODAY)
    assert (costs.total.count, costs.total.token_words, costs.total.cost) == (3, "300", "≥ $4.00")
    assert costs.total.unpriced is True, "it holds for the sum, and is no number"
    assert len(costs.days) == DAYS
    days = [(usage.name[-5:], usage.cost) for usage in costs.days[-3:]]
    assert days == [("02-28", "-"), ("03-01", "≥ $1.00"), ("03-02", "$3.00")]
    assert [(usage.repository, usage.usd) for usage in costs.plans] == [("/r", 4.0), ("/s", 0.0)]
    assert [(usage.name, usage.usd) for usage in costs.agents] == [("b", 3.0), ("a", 1.0)]
    assert [(usage.name, usage.tokens) for usage in costs.roles] == [("implement", 300)]


def test_many_plans_have_their_last_ones_summed() -> None:
    pairs = [("/r", total(f"plans/{number}.md", usd=100 - number)) for number in range(MOST_PLANS + 3)]
    costs = sum_costs(pairs, today=TODAY)
    assert len(costs.plans) == MOST_PLANS + 1
    assert (costs.plans[-1].name, costs.plans[-1].count) == ("", 3)


def test_an_unreadable_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no journal" * 1000)
    costs = read_costs({"/r": tmp_path, "/s": tmp_path / "none"}, today=TODAY)
    assert [line.partition(":")[0] for line in costs.unreadable] == ["/r"]
    assert costs.total.count == 0
