"""The audit of a plan whose phases are done, and the wait for a parent's verification."""

import pytest

from runplan.checks.verdict import audit, parent_wait
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
    assert audit(parse(PLAN, path="plans/a.md"), report, report_path="reports/plan-a.md") == [
        "phase 2: no completion mark",
        "reports/plan-a.md:2: The docs are deferred.",
        "reports/plan-a.md:4: Tests: skipped",
        "reports/plan-a.md:5: This is future work.",
    ]


@pytest.mark.parametrize(("attempts", "wait"), [(0, 10), (1, 20), (2, 40), (3, 60), (10, 60)])
def test_a_plan_waits_longer_with_each_attempt(attempts: int, wait: int) -> None:
    """G16"""
    assert parent_wait(attempts) == wait
