"""How a shim ends an agent, and which activity of silent processes counts as work."""

from __future__ import annotations

import itertools
import signal
from signal import SIGINT, SIGKILL, SIGTERM

import pytest

from runplan.processes import KILLED_S
from runplan.run.dispatch import Ending, Launch
from runplan.supervise.shim import Activity, escalation

LAUNCH = Launch(id="r1.1", argv=("true",), cwd="/", env={}, stdin="", reader="", wall_s=1.0, silence_s=0.0)


@pytest.mark.parametrize(
    ("ending", "asked", "expected"),
    [
        (Ending.CONTEXT, SIGTERM, [(SIGINT, 10.0), (SIGTERM, 10.0), (SIGKILL, KILLED_S), (SIGKILL, KILLED_S)]),
        (Ending.CONTEXT, SIGINT, [(SIGINT, 10.0), (SIGTERM, 10.0), (SIGKILL, KILLED_S), (SIGKILL, KILLED_S)]),
        *(
            (ending, asked, [(asked, 5.0), *[(SIGKILL, KILLED_S)] * 3])
            for ending in (Ending.TIMEOUT, Ending.SILENT, Ending.BUDGET, Ending.ENDED)
            for asked in (SIGTERM, SIGINT)
        ),
    ],
)
def test_the_escalation_steps_of_each_request(
    ending: Ending, asked: signal.Signals, expected: list[tuple[signal.Signals, float]]
) -> None:
    steps = itertools.islice(escalation(ending, LAUNCH, asked), 4)
    assert [(step.signal, step.seconds) for step in steps] == expected


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
    earlier = Activity(at=100.0, cpu_s=3.0, moved=7_000_000)
    later = Activity(at=100.0 + seconds, cpu_s=3.0 + cpu_s, moved=7_000_000 + moved)

    assert later.is_work_since(earlier) is works
