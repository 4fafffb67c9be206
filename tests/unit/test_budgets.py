"""Costs: the usage of an agent that reports tokens, dollars or neither, and what is left."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from runplan.adapters.agents.budgets import (
    LATE_S,
    Cost,
    GivenOut,
    Left,
    UsedUp,
    is_estimate,
    meter_usage,
    remaining_budget,
    sum_usage,
)
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.invocation import require_agent
from runplan.adapters.supervise.output import EventCollector
from runplan.domain.errors import RefusedEarly
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending, Tally, Usage
from runplan.domain.run.kinds import Role
from runplan.domain.run.recorded import Recorded
from runplan.domain.settings.schema import AgentsSettings, AgentTable
from tests.support.samples import lines, outcome, outcome_of

PRICE = {"usd_in": 2.0, "usd_out": 10.0}
COMMAND = {"type": "item.completed", "item": {"type": "command_execution", "command": "x" * 40_000}}


@pytest.mark.parametrize(
    ("reported", "usd"),
    [
        pytest.param(Usage(input_tokens=1_000_000, usd=0.5), 0.5, id="reported dollars override the price"),
        pytest.param(Usage(input_tokens=1_000_000, output_tokens=100_000), 3.0, id="tokens are priced"),
        pytest.param(Usage(input_tokens=1_000_000, cached_tokens=900_000), 0.38, id="cached ones cost a tenth"),
    ],
)
def test_tokens_without_dollars_are_priced(reported: Usage, usd: float) -> None:
    assert meter_usage(Tally(usage=reported), prompt=0, **PRICE).usd == pytest.approx(usd)


@pytest.mark.parametrize(
    "last",
    [[], [{"type": "turn.failed", "error": {"message": "You've hit your usage limit."}}]],
    ids=["ended", "failed"],
)
def test_an_agent_without_a_report_has_used_at_least_its_output(last: list[dict[str, Any]]) -> None:
    tally = outcome_of("codex", [json.dumps(event).encode() for event in [COMMAND, *last]]).tally
    used = meter_usage(tally, prompt=4_000, **PRICE)
    assert is_estimate(tally)
    # The prompt, then the prompt, which is cached now, and the conversation.
    assert (used.input_tokens, used.cached_tokens) == (12_000, 1_000)
    assert used.usd == pytest.approx(0.0222)


@pytest.mark.parametrize("name", ["codex", "gemini"])
def test_an_estimate_is_near_to_what_the_program_reports_at_its_end(name: str) -> None:
    whole = outcome(f"{name}/success.jsonl").tally
    cut = outcome_of(name, lines(f"{name}/success.jsonl")[:-1]).tally
    guess = meter_usage(cut, prompt=agent_of(name).overhead + len("Please do phase 1."), usd_in=0, usd_out=0)
    assert guess.input_tokens == pytest.approx(whole.usage.input_tokens, rel=0.1)
    assert not is_estimate(whole)


def test_the_lines_that_mini_prints_show_how_much_it_has_sent() -> None:
    """It prints the prompt, and before each answer of its model a line with the number of the step."""
    step = b"mini-swe-agent (step %d, $0.00):"
    tally = outcome_of("mini", [b"p" * 40_000, step % 1, b"o" * 4_000, step % 2]).tally
    assert meter_usage(tally, prompt=0, usd_in=0, usd_out=0).input_tokens == pytest.approx(10_000 + 11_000, rel=0.01)


def test_files_that_gemini_reads_and_writes_fill_its_context(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 8_000)
    part = {"file_path": "big.txt", "start_line": 1, "end_line": 101}
    used = [("read_file", {"file_path": "big.txt"}), ("read_file", part)]
    used += [("write_file", {"file_path": "new.txt", "content": "y" * 4_000}), ("read_file", {"file_path": "gone"})]
    events = EventCollector(agent_of("gemini").read_line, cwd=str(tmp_path))
    for name, parameters in used:
        events.read_line(json.dumps({"type": "tool_use", "tool_name": name, "parameters": parameters}).encode())
    assert events.tally.context == pytest.approx(2_000 + 1_000 + 1_000, rel=0.05)


def test_reported_usage_overrides_an_estimate() -> None:
    done = {"type": "turn.completed", "usage": {"input_tokens": 7, "output_tokens": 1}}
    tally = outcome_of("codex", [json.dumps(event).encode() for event in (COMMAND, done)]).tally
    assert meter_usage(tally, prompt=4_000, usd_in=0.0, usd_out=0.0) == Usage(input_tokens=7, output_tokens=1)


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
def test_agents_without_price_and_dollars_are_unwatched(table: AgentTable, is_unwatched: bool, tmp_path: Path) -> None:
    with pytest.raises(RefusedEarly) as refused:  # none of the programs is installed here
        require_agent(AgentsSettings(), table, "implementer", root=tmp_path, caller={"PATH": ""}, in_dollars=True)
    assert ("reports no dollars" in str(refused.value)) is is_unwatched


# --- what is left ---------------------------------------------------------------------------------------


SCOPES = ("dispatch", "phase", "plan", "day", "month")


def test_without_a_budget_nothing_is_limited() -> None:
    assert remaining_budget({scope: Cost() for scope in SCOPES}, {"day": Cost(tokens=10**9, usd=1e6)}) == Left()


def test_the_smallest_remaining_budget_decides() -> None:
    budgets = {"dispatch": Cost(tokens=500), "phase": Cost(tokens=1000, usd=5.0), "day": Cost(usd=8.0)}
    spent = {"phase": Cost(tokens=700, usd=1.0), "day": Cost(usd=7.5)}
    assert remaining_budget(budgets, spent) == Left(
        tokens=300,
        usd=0.5,
        bounds=("limits.phase_tokens", "limits.day_usd", ""),
        near=("$7.50 of $8.00 (limits.day_usd)",),
    )


@pytest.mark.parametrize(("used", "near"), [(7.99, False), (8.0, True), (9.99, True)])
def test_a_limit_of_which_four_fifths_are_used_is_near(used: float, *, near: bool) -> None:
    left = remaining_budget({"month": Cost(usd=10.0)}, {"month": Cost(usd=used)}, {"month": Cost(usd=0.001)})
    assert isinstance(left, Left)
    assert left.near == ((f"${used:.2f} of $10.00 (limits.month_usd)",) if near else ())


def test_what_agents_have_used_and_what_running_ones_may_use_is_summed() -> None:
    at, now = "2026-11-18T10:00:00Z", datetime(2026, 11, 18, 10, 1, tzinfo=UTC)
    limits: dict[str, Any] = {"role": Role.EXPLORE, "agent": "a", "cycle": 0, "tokens": 100, "usd": 2, "seconds": 60}
    starts = [
        e.DispatchStarted(id="r1.1", **limits),
        e.DispatchStarted(id="r2.1", beside=("r2.1-2", "r2.1-3"), **limits),
        e.DispatchStarted(id="r3.1", **limits),
    ]
    end = e.DispatchEnded(id="r3.1", role=Role.EXPLORE, agent="a", ending=Ending.EXITED, code=0)
    end = replace(end, input_tokens=30, output_tokens=10)
    started = [Recorded(seq=seq, run="r", at=at, event=event) for seq, event in enumerate(starts)]
    earlier = Recorded(seq=9, run="r", at="2026-11-17", event=replace(end, id="r0.1"))
    ended = [Recorded(seq=9, run="r", at=at, event=end), earlier]
    spent, given_out = sum_usage(started, ended, prefix="r1.", now=now, since="2026-11-18")
    assert (spent.tokens, given_out) == (40, Cost(tokens=300, usd=6.0, seconds=180.0))
    late = now + timedelta(seconds=1 + LATE_S)
    assert sum_usage(started, ended, prefix="", now=late) == (Cost(tokens=80), Cost())


def test_what_a_clock_recorded_years_ahead_is_no_use_of_today() -> None:
    end = e.DispatchEnded(id="r1.1", role=Role.FIX, agent="a", ending=Ending.EXITED, code=0, output_tokens=10)
    times = ("2026-11-18T10:00:00Z", "2026-11-18T10:01:00Z", "2029-11-18T10:00:00Z")
    ended = [Recorded(seq=seq, run="r", at=at, event=end) for seq, at in enumerate(times)]
    now = datetime(2026, 11, 18, 10, tzinfo=UTC)
    begun = e.DispatchStarted(id="r2.1", role=Role.FIX, agent="a", cycle=1, tokens=100, seconds=60.0)
    started = [Recorded(seq=9, run="r2", at=times[2], event=begun)]
    used = sum_usage(started, ended, prefix="", now=now, since="2026-11-18", until="2026-11-19")
    assert used == (Cost(tokens=20), Cost())


def test_the_budget_of_running_agents_is_reserved() -> None:
    """The sum of what is spent and given out never goes over; what is only given out is waited for."""
    budgets = {"day": Cost(tokens=1000)}
    spent = {"day": Cost(tokens=300)}
    assert remaining_budget(budgets, spent, {"day": Cost(tokens=600)}) == Left(
        tokens=100, bounds=("limits.day_tokens", "", "")
    )
    assert remaining_budget(budgets, spent, {"day": Cost(tokens=700)}) == GivenOut(
        "the rest of the day's budget, which running agents may use: 1000 of 1000 tokens (limits.day_tokens)"
    )
    assert isinstance(remaining_budget(budgets, {"day": Cost(tokens=1000)}, {"day": Cost(tokens=1)}), UsedUp)


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
    assert remaining_budget({"phase": Cost(), "plan": budget}, {"plan": used}) == UsedUp(why)


COSTS = st.builds(Cost, tokens=st.integers(0, 1000), usd=st.floats(0, 10), seconds=st.floats(0, 1000))


@given(st.dictionaries(st.sampled_from(SCOPES), COSTS), st.dictionaries(st.sampled_from(SCOPES), COSTS), COSTS)
def test_spending_never_leaves_more(budgets: dict[str, Cost], spent: dict[str, Cost], more: Cost) -> None:
    before = remaining_budget(budgets, spent)
    after = remaining_budget(budgets, {scope: spent.get(scope, Cost()).plus(more) for scope in SCOPES})
    if isinstance(before, UsedUp):
        assert isinstance(after, UsedUp)
    elif isinstance(before, Left) and isinstance(after, Left):
        assert after.tokens <= before.tokens
        assert after.usd <= before.usd
