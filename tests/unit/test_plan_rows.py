"""The status vocabulary and the ids of tracker rows."""

import pytest

from runplan.domain.plan.marks import Status, read_commit, read_mark, read_name
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.tracker import set_status
from tests.support.builders import a_plan, tracker

TODO, BUSY, BLOCKED, DONE = Status.TODO, Status.IN_PROGRESS, Status.BLOCKED, Status.DONE


@pytest.mark.parametrize(
    ("cell", "status"),
    [
        *((cell, DONE) for cell in ("Done", "✅", "[x]", "[X] landed", "✅ Done (`4a6075d`)", "**DONE**", "Complete")),
        *((cell, DONE) for cell in ("**Completed** 2026-01-31", "Finished", "✔ shipped in v1.2", "Merged (#12)")),
        *((cell, TODO) for cell in ("⬚", "⬜", "", "⬜ Ready", "⏳ Pending", "🟡 Not started", "not in progress")),
        *((cell, TODO) for cell in ("⬚ almost done", "not done", "undone", "Not started", "incomplete")),
        *((cell, TODO) for cell in ("waits until #12 is merged", "not yet done", "80% done", "not complete")),
        ("⬚ complete", TODO),
        *((cell, BLOCKED) for cell in ("Blocked", "🔴 not done", "⬚ (blocked)")),
        *((cell, BUSY) for cell in ("In Progress", "🟡", "⏳", "⚙️ building")),
        *((cell, Status.IN_PROGRESS) for cell in ("Partially complete", "In progress (2a ✅)")),
    ],
)
def test_a_status_cell_is_read(cell: str, status: Status) -> None:
    assert read_mark(cell).status is status


@pytest.mark.parametrize(
    ("cell", "known"),
    [("⬚", True), ("Ready", True), ("—", True), ("Incomplete", True), ("80% done", False), ("📋 Pending", True)],
)
def test_an_unknown_word_is_todo_and_said_so(cell: str, known: bool) -> None:
    assert read_mark(cell).known is known
    remarks = parse_plan(a_plan({"1": cell}), path="p.md").remarks
    assert [remark.text for remark in remarks] == (
        [] if known else ["the status of phase 1 is unknown; it counts as todo"]
    )


@pytest.mark.parametrize(
    ("cell", "id_", "title"),
    [
        pytest.param("3b-i -- Worktree Unification", "3b-i", "Worktree Unification", id="D13"),
        pytest.param("P1.A — Rest", "P1.A", "Rest", id="D14-dotted"),
        pytest.param("A -- First", "A", "First", id="D14-letter"),
        pytest.param("1a    ", "1a", "", id="D14-blanks"),
        pytest.param("1: Setup", "1", "Setup", id="D14-colon"),
        pytest.param("**4b: Mechanical**", "4b", "Mechanical", id="D14-bold"),
        pytest.param("1. Fixture", "1", "Fixture", id="D14-dot"),
        pytest.param("1A – En dash", "1A", "En dash", id="en-dash"),
        pytest.param("2 - Hyphen", "2", "Hyphen", id="hyphen"),
        pytest.param("1-Setup", "1", "Setup", id="hyphen-without-blanks"),
        pytest.param("1.5 — Half", "1.5", "Half", id="decimal"),
        pytest.param("Phase 7 — Named", "7", "Named", id="with-the-word"),
        pytest.param("**3**: Bold id", "3", "Bold id", id="bold-id"),
        pytest.param("[2 — Linked](#phase-2)", "2", "Linked", id="link"),
        pytest.param("`6` — Code", "6", "Code", id="code"),
        pytest.param("4 Blank only", "4", "Blank only", id="blank"),
    ],
)
def test_a_phase_cell_begins_with_an_id(cell: str, id_: str, title: str) -> None:
    name = read_name(cell)
    assert name is not None
    assert (name.id, name.title) == (id_, title)


@pytest.mark.parametrize("cell", ["", "Setup", "A thing", "Total: 5", "— none", "Setup — first", "Phase one"])
def test_a_word_is_no_id(cell: str) -> None:
    assert read_name(cell) is None


@pytest.mark.parametrize(
    ("cell", "commit"),
    [
        ("`4a6075d`", "4a6075d"),
        *((cell, "02e0f6b") for cell in ("`4a6075d` + `02e0f6b`", "4A:4a6075d 4B:02e0f6b")),
        *((cell, "") for cell in ("(squash)", "defaced effaced", "")),
        ("`deadbeef`", "deadbeef"),
    ],
)
def test_a_commit_cell_gives_its_last_hash(cell: str, commit: str) -> None:
    assert read_commit(cell) == commit


def test_a_row_with_seven_cells_gives_its_first_three() -> None:
    """D17"""
    text = tracker("| 1 — One | ✅ | `4a6075d` | | | note |") + "## Phase 1 — One\n"
    (phase,) = parse_plan(text.encode(), path="p.md").phases
    assert (phase.id, phase.status, phase.commit) == ("1", DONE, "4a6075d")


def test_a_tracker_may_number_its_rows_in_a_column_of_their_own() -> None:
    text = "| # | Phase | Status |\n|--|--|--|\n| 1 | Draw the plan | ✅ |\n\n## Phase 1\n"
    (phase,) = parse_plan(text.encode(), path="p.md").phases
    assert (phase.id, phase.title, phase.status) == ("1", "Draw the plan", DONE)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("| Status | Phase |", "| ✅ | 1 — One |"),
        ("| Status | # | Title |", "| ✅ | 1 | Two birds |"),
        ("| Status | Name |", "| ✅ | 1 — One |"),
        ("| Status | Phases | Commit |", "| ✅ | 1 — One | |"),
        ("| Commit | Status | ID |", "| | ✅ | 1 |"),
        ("| Title | ID | Status |", "| 7 birds | 1 | ✅ |"),
        ("| # | Phase | Status |", "| 1 | 3 small fixes | ✅ |"),
        ("Status | Phase", "✅ | 1 — One"),
    ],
)
def test_a_tracker_may_have_its_columns_in_any_order(header: str, row: str) -> None:
    text = f"## Progress Tracker\n\n{header}\n{'|--' * (len(header.strip('|').split('|')))}|\n{row}\n\n## Phase 1\n"
    (phase,) = parse_plan(text.encode(), path="p.md").phases
    assert (phase.id, phase.status) == ("1", DONE)
    opened = set_status(text.encode(), path="p.md", phase="1", status=TODO)
    assert opened.decode() == text.replace("✅", "⬚")


@pytest.mark.parametrize("front", ["", "---\nstatus: active\n---\n", "---\ntitle: T\n---\n"])
def test_a_plan_whose_phases_are_all_done_is_complete(front: str) -> None:
    assert parse_plan(a_plan({"1": "✅", "2": "Merged"}, front=front), path="p.md").complete
    assert not parse_plan(a_plan({"1": "✅", "2": "⬚"}, front=front), path="p.md").complete


def test_a_complete_plan_with_many_open_boxes_is_complete() -> None:
    """D22"""
    text = a_plan({"1": "✅"}, {"1": "- [ ] box\n" * 120}, front="---\nstatus: complete\n---\n")
    plan = parse_plan(text, path="p.md")
    assert plan.complete
    assert plan.remarks == ()
