"""The time that a lost process can have run, and how long a recorded wait lasts, by the journal."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from runplan.domain.run.events import DispatchStarted, Paused
from runplan.domain.run.kinds import Role, WaitKind
from runplan.domain.run.state import RunState
from runplan.domain.times import iso
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.outcome import longest_run_s, sleep

THEN = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def begun(*, seconds: float = 60.0, at: str = iso(THEN)) -> DispatchStarted:
    return DispatchStarted(id="d", role=Role.IMPLEMENT, agent="robot", cycle=1, seconds=seconds, at=at)


@pytest.mark.parametrize(
    ("started", "later_s", "ran"),
    [(begun(), 45, 45), (begun(), 3600, 60), (begun(), -3600, 0), (begun(seconds=0.0), 3600, 3600)],
    ids=["within", "seen late", "clock put back", "no limit"],
)
def test_a_lost_process_ran_no_longer_than_its_limit(started: DispatchStarted, later_s: float, ran: float) -> None:
    assert longest_run_s(started, THEN + timedelta(seconds=later_s)) == ran


@pytest.mark.parametrize(
    ("left", "is_over"),
    [
        (timedelta(seconds=-1), True),
        (timedelta(), True),
        (timedelta(seconds=1), False),
        (timedelta(days=8), False),
        (timedelta(days=1000), True),
    ],
    ids=["late", "now", "soon", "the longest limit", "by a clock that was years ahead"],
)
def test_a_wait_ends_at_its_time_and_no_wait_lasts_for_years(left: timedelta, *, is_over: bool) -> None:
    state = RunState(pause=Paused(kind=WaitKind.LIMIT, until=iso(THEN + left)))
    context = cast("RunContext", SimpleNamespace(clock=SimpleNamespace(now=lambda: THEN)))
    assert bool(list(sleep(state, context))) is is_over
