"""How an agent is brought to its end, step by step."""

from __future__ import annotations

import itertools
import signal
from signal import SIGINT, SIGKILL, SIGTERM

import pytest

from runplan.processes import KILLED_S
from runplan.run.dispatch import Ending, Launch
from runplan.supervise.shim import escalation

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
def test_the_steps_of_each_way_down(
    ending: Ending, asked: signal.Signals, expected: list[tuple[signal.Signals, float]]
) -> None:
    steps = itertools.islice(escalation(ending, LAUNCH, asked), 4)
    assert [(step.signal, step.seconds) for step in steps] == expected
