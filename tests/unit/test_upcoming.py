"""When a schedule fires next, for those who only ask."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from runplan.core.due import what_is_due
from runplan.core.rows import ScheduleRow
from runplan.core.times import iso
from runplan.core.upcoming import is_due, spelled, upcoming

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_row(spec: str, **more: str) -> ScheduleRow:
    made = "2026-01-01T09:30:00Z"
    told = {"zone": "UTC", "misfire": "run-once", "errand": "{}", "anchor": made, "made": made, **more}
    return ScheduleRow(plan="plans/x.md", spec=spec, **told)


def test_an_interval_is_counted_from_its_anchor() -> None:
    assert upcoming(a_row("4h"), NOW) == datetime(2026, 1, 1, 13, 30, tzinfo=UTC)


def test_a_slot_that_was_answered_is_not_told_again() -> None:
    slot = datetime(2026, 1, 1, 13, 30, tzinfo=UTC)
    answered = a_row("4h", last=json.dumps([iso(slot), iso(slot)]))
    assert upcoming(answered, NOW) == datetime(2026, 1, 1, 17, 30, tzinfo=UTC)
    otherwise_called = a_row("4h", last=json.dumps([iso(slot), "0"]))
    assert upcoming(otherwise_called, NOW) == datetime(2026, 1, 1, 17, 30, tzinfo=UTC)


@pytest.mark.parametrize("spec", ["4h", "day at 9am", "weekday at 14:15", "monday at 8", "*/7 3-5 * * *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_it_is_the_slot_that_the_daemon_waits_for(spec: str, zone: str) -> None:
    row = a_row(spec, zone=zone)
    assert upcoming(row, NOW) == what_is_due(row, NOW).next.at


@pytest.mark.parametrize("row", [a_row("full moon"), a_row("4h", zone="Moon/Far_Side"), a_row("4h", zone="../etc")])
def test_what_cannot_be_told_here_is_not_guessed(row: ScheduleRow) -> None:
    assert upcoming(row, NOW) is None


def test_a_record_of_another_form_does_no_harm() -> None:
    assert upcoming(a_row("4h", last="1"), NOW) == upcoming(a_row("4h"), NOW)


def test_it_is_spelled_as_people_say_it() -> None:
    assert [spelled(a_row(spec)) for spec in ("4h", "day at 09:00", "full moon")] == [
        "every 4h",
        "every day at 9am",
        "every full moon",
    ]


@pytest.mark.parametrize(
    ("more", "hours", "fires"),
    [
        ({}, 3.9, False),
        ({}, 4.5, True),
        ({"misfire": "skip"}, 4.5, False),
        ({"misfire": "skip"}, 4.05, True),
        ({"paused": "phase 1 failed"}, 4.5, False),
        ({"last": json.dumps(["2026-01-01T13:30:00Z", "2026-01-01T13:30:00Z"])}, 4.5, False),
        ({"last": json.dumps("of a newer version")}, 4.5, False),
        ({"zone": "Nowhere/Land"}, 4.5, False),
    ],
)
def test_a_slot_that_has_come_and_that_nobody_has_answered_is_due(
    more: dict[str, str], hours: float, fires: bool
) -> None:
    now = datetime(2026, 1, 1, 9, 30, tzinfo=UTC) + timedelta(hours=hours)
    assert is_due(a_row("4h", **more), now) is fires
