"""The answer to "is it stuck?" states known facts, and never says fine without evidence."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from runplan.app.views.status import Stuck, assess_progress
from runplan.domain.run.kinds import RunStatus
from runplan.domain.run.rows import PlanFacts, RunRow
from runplan.domain.times import iso

NOW = datetime(2026, 2, 10, 12, 0, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def asked(**known: Any) -> Stuck:
    """The answer for a run with these known facts."""
    facts: dict[str, Any] = {"phase": "2", "step": "implement", "since": ago(4), "waiting_for": None, **known}
    is_alive = facts.pop("carried", True)
    owner, in_fleet = facts.pop("owner", "1:2:3"), facts.pop("in_fleet", False)
    for name, moment in facts.items():
        facts[name] = iso(moment) if isinstance(moment, datetime) else moment
    run = RunRow(id="r", plan="p", started="", state=RunStatus.RUNNING, landing="direct", **facts)
    return assess_progress(run, PlanFacts(run=run, owner=owner, alive=is_alive, in_fleet=in_fleet), now=NOW, zone=UTC)


def running(minutes: float, quiet: float, **known: Any) -> Stuck:
    return asked(
        **{"agent": "claude", "since": ago(minutes), "dispatched": ago(minutes), "output": ago(quiet), **known}
    )


#: The level that an answer has by its first word; "fine" by any other.
LEVELS = {"Slow": "slow", "Needs attention": "look"}
AT = "phase 2, implement"
WORKS = f"{AT} for 4m, agent running 4m, last output 30s ago"
ANSWERS = {
    "at work": (running(4, 0.5), f"Running: {WORKS}"),
    "quiet": (running(29, 10), f"Slow: {AT} for 29m, agent running 29m, last output 10m ago"),
    "silent": (running(29, 20), f"Needs attention: {AT} for 29m, agent running 29m, last output 20m ago"),
    "half an hour": (running(30, 0.5), f"Slow: {AT} for 30m, agent running 30m, last output 30s ago"),
    "two retries": (running(4, 0.5, retries=2), f"Slow: {WORKS}, 2 retries"),
    "long with retries": (
        running(40, 0.5, retries=2),
        f"Needs attention: {AT} for 40m, agent running 40m, last output 30s ago, 2 retries",
    ),
    "started": (asked(agent="claude", dispatched=ago(3)), f"Running: {AT} for 4m, agent running 3m, no output yet"),
    "never said a word": (
        asked(agent="claude", since=ago(20), dispatched=ago(16)),
        f"Needs attention: {AT} for 20m, agent running 16m, no output yet",
    ),
    "checks": (
        running(4, 0.5, agent=None, step="gate", gates=("tests", "lint")),
        "Running: phase 2, gate tests, lint for 4m, last output 30s ago",
    ),
    "no agent": (asked(step="gate"), "Running: phase 2, gate for 4m"),
    "long without agent": (asked(step="gate", since=ago(31)), "Needs attention: phase 2, gate for 31m"),
    "between phases": (asked(phase=None, step=None), "Running: between phases for 4m"),
    "interrupted": (asked(carried=False), f"Needs attention: {AT} for 4m, interrupted; no process is working on it"),
    "its turn in a fleet": (
        asked(carried=False, owner="", in_fleet=True, waiting_for="slot", about="its turn"),
        f"Waiting: {AT}, waiting 4m: its turn",
    ),
    "handed over in a fleet": (
        running(4, 4, carried=False, owner="", in_fleet=True),
        f"Waiting: {AT} for 4m, no host has it in hand; the next free one continues it",
    ),
    "dead host": (
        running(4, 4, carried=False, owner="alpha/1:2:3", in_fleet=True),
        f"Needs attention: {AT} for 4m, its host alpha is dead; another one continues it",
    ),
    "approval": (asked(waiting_for="approval"), f"Needs attention: {AT}, waiting 4m for approval"),
    "limit": (
        asked(waiting_for="limit", about="claude usage limit", wake=ago(-10)),
        f"Waiting: {AT}, waiting 4m: claude usage limit, resets 12:10 UTC (10m)",
    ),
    "long limit": (
        asked(since=ago(200), waiting_for="limit", about="claude usage limit", wake=ago(-10)),
        f"Slow: {AT}, waiting 3h 20m: claude usage limit, resets 12:10 UTC (10m)",
    ),
    "overslept": (
        asked(waiting_for="limit", wake=ago(6)),
        f"Needs attention: {AT}, waiting 4m for limit, should have continued 6m ago",
    ),
    "claim": (asked(waiting_for="claim", about="a claim of 4711"), f"Waiting: {AT}, waiting 4m: a claim of 4711"),
    "long paused": (
        asked(since=ago(300), retries=3, waiting_for="paused", about="paused by a person"),
        f"Paused: {AT}, for 5h by a person, 3 retries",
    ),
    "pausing": (running(4, 0.5, asked="pause"), f"Pausing: {WORKS}"),
    "stopping": (asked(asked="stop"), f"Stopping: {AT} for 4m"),
    "stopping long": (asked(asked="stop", since=ago(31)), f"Needs attention: {AT} for 31m, a stop was requested"),
    "clock set back": (running(-5, -5), f"Running: {AT} for 0s, agent running 0s, last output 0s ago"),
}


@pytest.mark.parametrize(("found", "sentence"), ANSWERS.values(), ids=list(ANSWERS))
def test_the_answer_has_a_level_and_the_known_facts(found: Stuck, sentence: str) -> None:
    assert (found.level, found.sentence) == (LEVELS.get(sentence.partition(":")[0], "fine"), sentence)


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


@given(FACTS)
def test_half_an_hour_or_two_retries_are_never_called_fine(facts: dict[str, Any]) -> None:
    found = asked(**facts)
    long = any(facts[name] is not None and facts[name] < ago(30) for name in ("since", "began", "dispatched"))
    is_old = long or facts["retries"] >= 2 or facts["waiting_for"] == "approval" or not facts["carried"]
    if is_old and facts["waiting_for"] != "paused":
        assert found.level != "fine"
    is_fine = found.sentence.startswith(("Running: ", "Waiting: ", "Paused: ", "Stopping: ", "Pausing: "))
    assert is_fine == (found.level == "fine")
