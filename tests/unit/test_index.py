"""The index of the reports lists every plan that has landed something, and changes that wait for a person."""

from datetime import date, timedelta

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from runplan.engine.report.text import BEGIN, END, PlanRow, update_index

DAY = date(2026, 11, 15)
X = PlanRow(plan="plans/X.md", title="Parser", report="plan-x.md", is_done=False)
Y = PlanRow(plan="plans/Y.md", title="Writer", report="plan-y.md", is_done=True)


def test_the_index_of_two_plans_and_a_change_that_waits() -> None:
    first = update_index(None, Y, today=DAY, waiting=())
    waiting = [("plans/Z.md", "3", "sign-off"), ("plans/A.md", "", "approval"), ("plans/B.md", "1", "question")]
    assert update_index(first, X, today=DAY, waiting=waiting) == (
        "# Plan Reports\n\n"
        "<!-- runplan: index -->\n\n"
        "## Waits for a person\n\n"
        "- `plans/A.md`, the proposed plan, approval: `runplan diff plans/A.md`\n"
        "- `plans/B.md`, phase 1, question: `runplan inbox`\n"
        "- `plans/Z.md`, phase 3, sign-off: `runplan diff plans/Z.md 3`\n\n"
        "## Plans\n\n"
        "| Plan | Status | Last landing | Report |\n"
        "|---|---|---|---|\n"
        "| Parser (`plans/X.md`) | active | 2026-11-15 | [plan-x.md](plan-x.md) |\n"
        "| Writer (`plans/Y.md`) | done | 2026-11-15 | [plan-y.md](plan-y.md) |\n\n"
        "<!-- runplan: end of index -->\n"
    )


@pytest.mark.parametrize(("days", "status"), [(7, "active"), (8, "stale")])
def test_an_unfinished_plan_is_stale_after_seven_days_without_a_landing(days: int, status: str) -> None:
    first = update_index(None, X, today=DAY, waiting=())
    later = update_index(first, Y, today=DAY + timedelta(days=days), waiting=())
    assert f"| Parser (`plans/X.md`) | {status} | 2026-11-15 |" in later
    assert "| active | 2026-12-01 |" in update_index(later, X, today=date(2026, 12, 1), waiting=())


def test_a_plan_has_one_row_and_an_answered_wait_none() -> None:
    waiting = update_index(None, X, today=DAY, waiting=[("plans/Y.md", "1", "approval")])
    done = update_index(waiting, replace(X, is_done=True), today=DAY, waiting=())
    assert done.count("plan-x.md](plan-x.md)") == 1
    assert "| done |" in done
    assert "sign-off" not in done
    assert update_index(done, replace(X, is_done=True), today=DAY, waiting=()) == done


@pytest.mark.parametrize("text", ["", "# Mine", "# Mine\n\nIntro.\n", f"# Mine\n{BEGIN}\nno end\n", f"{END}\n"])
def test_text_outside_of_the_marks_stays(text: str) -> None:
    once = update_index(text, X, today=DAY, waiting=())
    assert once.startswith(text)
    edited = f"{once}\nBelow.\n"
    assert update_index(edited, X, today=DAY, waiting=()) == edited


@given(st.text(alphabet="|\\` []()<>!-ab\n\r", max_size=30))
def test_no_title_forges_a_row(title: str) -> None:
    row = replace(X, title=f"{title}| done | 2026-01-01 | [plan-y.md](plan-y.md) |{title}\n{END}")
    once = update_index(None, row, today=DAY, waiting=())
    again = update_index(once, Y, today=DAY, waiting=())
    table = [line for line in again.splitlines() if line.startswith("| ")]
    assert len(table) == 3
    assert again.count(END) == 1
    assert update_index(again, Y, today=DAY, waiting=()) == again
