"""A shim wakes the runner once when its agent's context fills, and reports its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.agents.context import READING, Reading, reading_of
from runplan.run.dispatch import Ending, Running
from tests.support.dispatching import Stage, stage, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOLD = 'runplan:tell {"context":%s,"window":200000}'
WAITS = "while test ! -e go; do sleep 0.005; done"
WATCHED = {"reader": "script", "arm_at": 50, "hand_over_at": 60}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def tells(*tokens: int, before: str = "") -> str:
    return f"{before}\n" + "\n".join(f"echo '{TOLD % count}'" for count in tokens)


def reading(on: Stage, dispatch: str) -> Reading | None:
    return reading_of(on.dispatches.read(dispatch, READING))


def test_a_filling_context_wakes_the_runner_and_the_agent_continues(on: Stage) -> None:
    dispatch = on.sh(f"echo half of it\n{tells(20_000, 104_000)}\n{WAITS}", **WATCHED)
    on.dispatches.wait([dispatch], timeout_s=None)
    assert on.dispatches.standing(dispatch) == Running()
    assert reading(on, dispatch) == Reading(percent=52, estimated=False, message="half of it\n")
    (on.path / "go").touch()
    outcome = on.outcome(dispatch)
    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)
    assert not (on.dispatches.directory(dispatch) / "wakeup").exists(), "no pipe is left for others to hang on"


def test_a_filling_context_wakes_the_runner_once(on: Stage) -> None:
    dispatch = on.sh(f"{tells(104_000, 110_000)}\n{WAITS}\n{tells(112_000, 118_000)}", **WATCHED)
    on.dispatches.wait([dispatch], timeout_s=None)
    first = reading(on, dispatch)
    (on.path / "go").touch()
    assert on.outcome(dispatch).ending is Ending.EXITED, "the second wait ends with the agent"
    assert reading(on, dispatch) == first


@pytest.mark.parametrize(
    ("tokens", "watched"),
    [
        pytest.param(98_000, WATCHED, id="too little"),
        pytest.param(104_000, {**WATCHED, "arm_at": 0}, id="nobody asked"),
        pytest.param(130_000, WATCHED, id="handed over at once"),
    ],
)
def test_no_reading_is_written_without_a_handover_to_prepare(
    on: Stage, tokens: int, watched: dict[str, object]
) -> None:
    full = tokens == 130_000
    outcome = on.outcome(dispatch := on.sh(f"{tells(tokens)}\nsleep {30 if full else 0.02}", **watched))
    assert outcome.ending is (Ending.CONTEXT if full else Ending.EXITED)
    assert reading(on, dispatch) is None


def test_a_wakeup_before_the_wait_is_seen_at_once(tmp_path: Path) -> None:
    with stage(tmp_path) as first:
        dispatch = first.sh(f"{tells(104_000)}\n{WAITS}", **WATCHED)
        until(lambda: reading(first, dispatch))
        with stage(tmp_path) as second:
            second.dispatches.wait([dispatch], timeout_s=None)
            assert second.dispatches.standing(dispatch) == Running()
            (tmp_path / "go").touch()
            second.dispatches.wait([dispatch], timeout_s=None)
            assert second.dispatches.standing(dispatch) != Running(), "once reported, it is its end that is waited for"
