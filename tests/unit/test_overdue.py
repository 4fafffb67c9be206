"""A runner keeps the time of what it started, too: by the journal at first, then by a clock that does not jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.run.dispatch import LATE_S, left_s, ran_s
from runplan.run.events import DispatchStarted
from runplan.supervise.dispatches import Dispatches
from runplan.times import iso

if TYPE_CHECKING:
    from pathlib import Path

THEN = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def begun(*, seconds: float = 60.0, at: str = iso(THEN)) -> DispatchStarted:
    return DispatchStarted(id="d", role="implement", agent="robot", cycle=1, seconds=seconds, at=at)


@pytest.mark.parametrize(
    ("started", "later_s", "left"),
    [
        (begun(), 0, 60 + LATE_S),
        (begun(), 45, 15 + LATE_S),
        (begun(), 3600, LATE_S),
        (begun(), -3600, 60 + LATE_S),
        (begun(at=""), 3600, 60 + LATE_S),
        (begun(seconds=0.0), 3600, None),
    ],
    ids=["just begun", "under way", "too late", "clock put back", "of an earlier version", "no limit"],
)
def test_what_is_left_counts_from_its_start_in_the_journal(
    started: DispatchStarted, later_s: float, left: float | None
) -> None:
    assert left_s(started, THEN + timedelta(seconds=later_s)) == left


@pytest.mark.parametrize(
    ("started", "later_s", "ran"),
    [
        (begun(), 45, 45),
        (begun(), 3600, 60),
        (begun(), -3600, 0),
        (begun(seconds=0.0), 3600, 3600),
        (begun(at=""), 3600, 0),
    ],
    ids=["within", "seen late", "clock put back", "no limit", "of an earlier version"],
)
def test_one_of_which_nobody_tells_ran_as_long_as_it_may_at_the_most(
    started: DispatchStarted, later_s: float, ran: float
) -> None:
    assert ran_s(started, THEN + timedelta(seconds=later_s)) == ran


class Ticking:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_answer_sets_the_time_and_the_clock_on_the_wall_moves_it_no_more(tmp_path: Path) -> None:
    clock = Ticking()
    dispatches = Dispatches(tmp_path, now=clock)

    assert not dispatches.overdue("d", left_s=70.0)
    assert not dispatches.overdue("d", left_s=-3600.0), "a machine that slept used up nobody's time"
    clock.now += 69.9
    assert not dispatches.overdue("d", left_s=70.0)
    clock.now += 0.2
    assert dispatches.overdue("d", left_s=70.0)


def test_one_that_is_taken_up_too_late_is_overdue_at_once_and_each_has_its_own_time(tmp_path: Path) -> None:
    dispatches = Dispatches(tmp_path, now=Ticking())

    assert dispatches.overdue("late", left_s=-1.0)
    assert not dispatches.overdue("early", left_s=1.0)
    assert not dispatches.overdue("free", left_s=None)
