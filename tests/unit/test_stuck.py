"""The answer to "is it stuck?" states known facts, and never says fine without evidence."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from runplan.report.views import answer
from runplan.run.rows import PlanFacts, RunRow
from runplan.times import iso

NOW = datetime(2026, 2, 10, 12, 0, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def asked(**known: Any) -> dict[str, str]:
    """The answer for a run with these known facts."""
    facts: dict[str, Any] = {"phase": "2", "step": "implement", "since": ago(4), "waiting_for": None, **known}
    is_alive = facts.pop("carried", True)
    for name, moment in facts.items():
        facts[name] = iso(moment) if isinstance(moment, datetime) else moment
    run = RunRow(id="r", plan="p", started="", state="running", landing="direct", **facts)
    return answer(run, PlanFacts(run=run, owner="1:2:3", alive=is_alive), now=NOW, zone=UTC)


def running(minutes: float, quiet: float, **known: Any) -> dict[str, str]:
    return asked(since=ago(minutes), dispatched=ago(minutes), output=ago(quiet), **known)


@pytest.mark.parametrize(
    ("found", "level", "sentence"),
    [
        pytest.param(
            running(4, 0.5),
            "fine",
            "Running: phase 2, implement for 4m, agent running 4m, last output 30s ago",
            id="at-work",
        ),
        pytest.param(
            running(29, 10),
            "slow",
            "Slow: phase 2, implement for 29m, agent running 29m, last output 10m ago",
            id="quiet",
        ),
        pytest.param(
            running(29, 20),
            "look",
            "Needs attention: phase 2, implement for 29m, agent running 29m, last output 20m ago",
            id="silent",
        ),
        pytest.param(
            running(30, 0.5),
            "slow",
            "Slow: phase 2, implement for 30m, agent running 30m, last output 30s ago",
            id="half-an-hour",
        ),
        pytest.param(
            running(45, 2),
            "slow",
            "Slow: phase 2, implement for 45m, agent running 45m, last output 2m ago",
            id="long-but-speaks",
        ),
        pytest.param(
            running(4, 0.5, retries=1),
            "fine",
            "Running: phase 2, implement for 4m, agent running 4m, last output 30s ago, 1 retry",
            id="one-retry",
        ),
        pytest.param(
            running(4, 0.5, retries=2),
            "slow",
            "Slow: phase 2, implement for 4m, agent running 4m, last output 30s ago, 2 retries",
            id="two-retries",
        ),
        pytest.param(
            running(40, 0.5, retries=2),
            "look",
            "Needs attention: phase 2, implement for 40m, agent running 40m, last output 30s ago, 2 retries",
            id="long-with-retries",
        ),
        pytest.param(
            asked(dispatched=ago(3)),
            "fine",
            "Running: phase 2, implement for 4m, agent running 3m, no output yet",
            id="just-started",
        ),
        pytest.param(
            asked(since=ago(20), dispatched=ago(16)),
            "look",
            "Needs attention: phase 2, implement for 20m, agent running 16m, no output yet",
            id="never-said-a-word",
        ),
        pytest.param(asked(step="gate"), "fine", "Running: phase 2, gate for 4m", id="no-agent"),
        pytest.param(
            asked(step="gate", since=ago(31)), "look", "Needs attention: phase 2, gate for 31m", id="long-without-agent"
        ),
        pytest.param(asked(phase=None, step=None), "fine", "Running: between phases for 4m", id="between-phases"),
        pytest.param(
            asked(carried=False),
            "look",
            "Needs attention: phase 2, implement for 4m, interrupted; no process is working on it",
            id="interrupted",
        ),
        pytest.param(
            asked(waiting_for="approval"),
            "look",
            "Needs attention: phase 2, implement, waiting 4m for approval",
            id="approval",
        ),
        pytest.param(
            asked(waiting_for="limit", about="claude usage limit", wake=ago(-10)),
            "fine",
            "Waiting: phase 2, implement, waiting 4m: claude usage limit, resets 12:10 UTC (10m)",
            id="limit",
        ),
        pytest.param(
            asked(since=ago(200), waiting_for="limit", about="claude usage limit", wake=ago(-10)),
            "slow",
            "Slow: phase 2, implement, waiting 3h 20m: claude usage limit, resets 12:10 UTC (10m)",
            id="long-limit",
        ),
        pytest.param(
            asked(waiting_for="limit", wake=ago(6)),
            "look",
            "Needs attention: phase 2, implement, waiting 4m for limit, should have continued 6m ago",
            id="overslept",
        ),
        pytest.param(
            asked(waiting_for="claim", about="a claim of 4711"),
            "fine",
            "Waiting: phase 2, implement, waiting 4m: a claim of 4711",
            id="foreign-claim",
        ),
        pytest.param(
            asked(waiting_for="paused", about="paused by a person"),
            "look",
            "Needs attention: phase 2, implement, paused for 4m by a person",
            id="paused",
        ),
        pytest.param(
            running(4, 0.5, asked="pause"),
            "fine",
            "Pausing: phase 2, implement for 4m, agent running 4m, last output 30s ago",
            id="pausing",
        ),
        pytest.param(asked(asked="stop"), "fine", "Stopping: phase 2, implement for 4m", id="stopping"),
        pytest.param(
            asked(asked="stop", since=ago(31)),
            "look",
            "Needs attention: phase 2, implement for 31m, a stop was requested",
            id="stopping-long",
        ),
        pytest.param(
            running(-5, -5),
            "fine",
            "Running: phase 2, implement for 0s, agent running 0s, last output 0s ago",
            id="clock-set-back",
        ),
    ],
)
def test_the_answer_has_a_level_and_the_known_facts(found: dict[str, str], level: str, sentence: str) -> None:
    assert found == {"level": level, "sentence": sentence}


MINUTES = st.integers(0, 300).map(ago)


FACTS = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(["1", None]),
        "step": st.sampled_from(["implement", "verify", None]),
        "since": MINUTES,
        "began": st.none() | MINUTES,
        "carried": st.booleans(),
        "dispatched": st.none() | MINUTES,
        "output": st.none() | MINUTES,
        "retries": st.integers(0, 4),
        "asked": st.sampled_from([None, "stop", "pause"]),
        "waiting_for": st.sampled_from([None, "limit", "approval", "claim", "paused"]),
        "wake": st.none() | st.integers(-60, 60).map(ago),
    }
)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(FACTS)
def test_half_an_hour_or_two_retries_are_never_called_fine(facts: dict[str, Any]) -> None:
    found = asked(**facts)
    long = any(facts[name] is not None and facts[name] < ago(30) for name in ("since", "began", "dispatched"))
    needs_person = facts["waiting_for"] in ("approval", "paused")
    if long or facts["retries"] >= 2 or needs_person or not facts["carried"]:
        assert found["level"] != "fine"
    is_fine = found["sentence"].startswith(("Running: ", "Waiting: ", "Stopping: ", "Pausing: "))
    assert is_fine == (found["level"] == "fine")
