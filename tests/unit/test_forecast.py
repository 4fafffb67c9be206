"""What the phases of a start will take, by what others took."""

from runplan.engine.report.summary import Outlook, PhaseRecord, PhaseSpending, forecast_phases


def landed(seconds: float, *, usd: float = 0.0, agent: str = "claude", items: int = 1, fixes: int = 0) -> PhaseRecord:
    roles = (("implement", agent), ("verify", "codex"), *([("fix", agent), ("verify", "codex")] * fixes))
    evidence = tuple((f"W{n}", True, "") for n in range(items))
    spent = PhaseSpending(seconds=seconds, test_seconds=30, usd=usd)
    return PhaseRecord(id="1", run=f"r{seconds}", spent=spent, dispatched=roles, evidence=evidence)


def test_a_forecast_is_the_median_and_nine_tenths_of_landed_phases() -> None:
    history = [landed(60.0 * n, usd=n / 10, fixes=n > 9) for n in range(1, 11)]
    assert forecast_phases([Outlook(), Outlook()], history) == (
        "4 to 8 dispatches (implement 2, verify 2 to 4, fix 0 to 2), 13m to 21m, $1.20 to $2.00 "
        "(p50 to p90 of 10 landed phases of 10 runs here)"
    )
    alone = [PhaseRecord(id="1", run="r1", spent=PhaseSpending(seconds=5))]
    assert forecast_phases([Outlook()], alone) == "5s (p50 to p90 of 1 landed phase of 1 run here)"
    assert forecast_phases([Outlook()], []) == "no history yet: two agents and up to two fix cycles a phase"


def test_phases_of_the_same_agent_and_size_count_if_there_are_enough() -> None:
    others = [landed(5970, agent="codex")] * 5
    large = [landed(570, items=7)] * 3
    small = [landed(60)] * 2
    history = [*others, *large, *small]
    assert ", 10m (p50" in forecast_phases([Outlook("claude", 9)], history)
    assert ", 10m (p50" in forecast_phases([Outlook("claude", 1)], history), "two small ones are too few"
    assert ", 1h 40m (p50" in forecast_phases([Outlook("codex", 1)], history)
    assert ", 1h 40m (p50" in forecast_phases([Outlook("gemini", 1)], history)
