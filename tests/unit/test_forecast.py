"""What the phases of a start will take, by what others took."""

from runplan.engine.report.summary import PhaseSpending, forecast_phases


def test_a_forecast_is_the_median_and_nine_tenths_of_landed_phases() -> None:
    landed = [PhaseSpending(seconds=60.0 * n, test_seconds=30, usd=n / 10) for n in range(1, 11)]
    assert forecast_phases(2, landed) == "13m to 21m, $1.20 to $2.00 (p50 to p90 of 10 landed phases here)"
    assert forecast_phases(1, [PhaseSpending(seconds=5)]) == "5s to 5s (p50 to p90 of 1 landed phase here)"
    assert forecast_phases(3, []) == "no history yet: two agents and up to two fix cycles a phase"
