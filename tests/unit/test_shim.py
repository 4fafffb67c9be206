"""The activity of silent processes that counts as work."""

import pytest

from runplan.adapters.supervise.shim import ProcessActivity

HALF_AN_HOUR = 1800.0


@pytest.mark.parametrize(
    ("seconds", "cpu_s", "moved", "works"),
    [
        pytest.param(HALF_AN_HOUR, 0.0, 0, False, id="nothing"),
        pytest.param(HALF_AN_HOUR, 100.0, 0, True, id="a twentieth of a processor"),
        pytest.param(HALF_AN_HOUR, 54.0, 0, False, id="an agent that waits for its provider"),
        pytest.param(HALF_AN_HOUR, 0.0, 5_000 * 1800, False, id="sleep in a loop"),
        pytest.param(HALF_AN_HOUR, 0.0, 15_000 * 1800, False, id="ls in a loop"),
        pytest.param(HALF_AN_HOUR, 0.0, 50_000 * 1800, False, id="curl in a loop"),
        pytest.param(HALF_AN_HOUR, 0.0, 125_000 * 1800, True, id="a slow download"),
        pytest.param(HALF_AN_HOUR, 0.0, 20_000_000 * 1800, True, id="a copy"),
        pytest.param(HALF_AN_HOUR, 5.0, -4_000_000, False, id="a child that went away with its account"),
        pytest.param(0.1, 0.0, 50_000, False, id="one program started in a short time"),
        pytest.param(0.1, 0.019, 0, False, id="some ticks in a short time"),
    ],
)
def test_work_is_distinguished_from_polling(seconds: float, cpu_s: float, moved: int, works: bool) -> None:
    earlier = ProcessActivity(at=100.0, cpu_s=3.0, moved=7_000_000)
    later = ProcessActivity(at=100.0 + seconds, cpu_s=3.0 + cpu_s, moved=7_000_000 + moved)
    assert later.is_work_since(earlier) is works
