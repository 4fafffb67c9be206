"""The time that a lost process can have run, by the journal."""

from datetime import UTC, datetime, timedelta

import pytest

from runplan.domain.run.events import DispatchStarted
from runplan.domain.run.kinds import Role
from runplan.domain.times import iso
from runplan.engine.steps.outcome import longest_run_s

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
