"""A dispatch whose shim dies, and the time that it may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan import processes
from runplan.run.dispatch import Ending, NeverStarted, Running
from tests.support.dispatching import Stage, gone, pid_in, stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def test_a_started_dispatch_without_records_is_lost(on: Stage) -> None:
    launch = on.launch("true")
    dispatch = on.sh(f"rm -rf '{on.dispatches.directory(launch.id)}'; exit 1", id=launch.id)

    assert on.outcome(dispatch).ending is Ending.LOST
    with stage(on.path) as other:
        assert other.dispatches.standing(dispatch) == NeverStarted()


def test_processes_left_by_a_killed_shim_are_ended(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runplan.supervise.dispatches.FORCED_S", 0.05)
    dispatch = on.sh("trap '' TERM; setsid sleep 30 & echo $! >child; while :; do kill -STOP $PPID; done")
    child = pid_in(on.path / "child")

    on.dispatches.end([dispatch], grace_s=0.05)

    assert on.dispatches.standing(dispatch) != Running()
    assert gone(child)
    assert processes.marked(dispatch) == []
