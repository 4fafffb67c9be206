"""Numbers in a plan that do not fit: a small difference is corrected with the landing, a large one fails the phase."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, verify, work

CRITERIA = """
### Acceptance Criteria

- No number here
- 1.txt has 340-380 lines
- At most 50 files
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = a_project(tmp_path, "1")
    project.plan(a_plan("1") + CRITERIA)
    return project


def says(actual: str) -> str:
    return f"say = 'PLAN-TEXT-DRIFT: phase=1 bullet=1 field=lines plan=340-380 actual={actual}'"


@pytest.mark.promise
def test_a_small_difference_is_corrected_with_an_audit_comment_in_the_bookkeeping_commit(project: Project) -> None:
    project.agent(work() + verify(says(actual="343 lines"), "pass_all = true"))
    project.start("1", "auto").exits(0)
    plan = project.show("main:plans/X.md")
    assert "- 1.txt has 325-361 lines <!-- Auto-corrected 20" in plan
    assert ": was 340-380, arithmetic says 343 -->\n" in plan
    assert plan.endswith("- At most 50 files")
    assert project.show("main~1:plans/X.md") == project.show("main~2:plans/X.md"), "the code commit leaves it alone"
    assert "criterion 1: corrected from 340-380 to 325-361" in project.show("main:reports/plan-x.md")


@pytest.mark.promise
def test_a_large_difference_fails_the_phase(project: Project) -> None:
    project.agent(work(says(actual="277")))
    project.start("1", "auto").ends(1, "runplan: failed: drift")
    assert project.landed() == []
    assert "criterion" in project.runplan("report", "X").out


@pytest.mark.promise
@pytest.mark.parametrize(
    ("body", "says_why"),
    [
        (
            "### Design & Constraints\n\nThe file has 417 - 94 = 500 lines.\n",
            "417 - 94 is 323, and the phase states 500",
        ),
        ("### Dependencies\n\nNone. Drafted before the code existed.\n", "says 'Drafted before'"),
    ],
    ids=["arithmetic", "staleness"],
)
def test_a_contradictory_or_stale_text_is_refused_before_any_work(project: Project, body: str, says_why: str) -> None:
    project.plan(a_plan("1") + "\n" + body)
    ran = project.start("1", "auto")
    assert ran.last == "runplan: failed: drift", ran.err
    assert says_why in ran.err
    assert project.dispatched() == []
