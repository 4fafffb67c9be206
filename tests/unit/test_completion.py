"""The audit of a plan whose phases are done, and the wait for a parent's verification."""

from __future__ import annotations

import pytest

from runplan.checks.completion import ParentGate, Remark, audit, parent_gate
from runplan.plan.model import parse

PLAN = b"""\
# Plan: A

## Progress Tracker

| Phase | Status | Commit |
|---|---|---|
| 1 \xe2\x80\x94 One | \xe2\x9c\x85 Done | `abc1234` |
| 2 \xe2\x80\x94 Two | \xe2\xac\x9a | |

## Phase 1 \xe2\x80\x94 One

## Phase 2 \xe2\x80\x94 Two
"""


def test_the_audit_names_open_rows_and_lines_that_admit_a_gap() -> None:
    report = "All fine.\nThe docs are deferred.\nNothing deferred here.\nTests: skipped\nThis is future work.\n"
    report += "12 passed, 0 failed, 2 skipped\n`grep -rn TODO src` finds none; see docs/deferred.md and TODO.md\n"
    assert audit(parse(PLAN, path="plans/a.md"), report, report_path="reports/plan-a.md") == (
        Remark("phase 2", "no completion mark"),
        Remark("reports/plan-a.md:2", "The docs are deferred."),
        Remark("reports/plan-a.md:4", "Tests: skipped"),
        Remark("reports/plan-a.md:5", "This is future work."),
    )


@pytest.mark.parametrize(
    ("attempts", "attempt", "wait"),
    [(0, 1, 10), (1, 2, 20), (2, 3, 40), (3, 4, 60), (10, 11, 60)],
    ids=lambda value: f"G16-{value}",
)
def test_a_plan_waits_longer_with_each_attempt(attempts: int, attempt: int, wait: int) -> None:
    gate = parent_gate(is_complete=False, is_required=True, is_fulfilled=False, attempts=attempts)
    assert gate == ParentGate(attempt, wait)


@pytest.mark.parametrize(
    ("is_complete", "is_required", "is_fulfilled"),
    [
        pytest.param(False, True, True, id="G17"),
        pytest.param(True, True, False, id="G19"),
        pytest.param(False, False, False, id="not asked for"),
    ],
)
def test_a_plan_goes_on_when_nothing_is_awaited(is_complete: bool, is_required: bool, is_fulfilled: bool) -> None:
    gate = parent_gate(is_complete=is_complete, is_required=is_required, is_fulfilled=is_fulfilled, attempts=3)
    assert gate == ParentGate()
