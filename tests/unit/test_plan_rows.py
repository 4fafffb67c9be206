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
        pytest.param("Done", DONE, id="D1-word"),
        pytest.param("✅", DONE, id="D1-glyph"),
        pytest.param("[x]", DONE, id="D1-box"),
        pytest.param("[X] landed", DONE, id="D1-capital-box"),
        pytest.param("✅ Done (`4a6075d`)", DONE, id="D1-hash"),
        pytest.param("⬚", TODO, id="D2-U+2B1A"),
        pytest.param("⬜", TODO, id="D2-U+2B1C"),
        pytest.param("", TODO, id="D2-empty"),
        pytest.param("⬜ Ready", TODO, id="D4-ready"),
        pytest.param("Blocked", BLOCKED, id="D4-blocked"),
        pytest.param("In Progress", BUSY, id="D4-in-progress"),
        pytest.param("🟡", BUSY, id="D5"),
        pytest.param("⏳", BUSY, id="hourglass"),
        pytest.param("⏳ Pending", TODO, id="hourglass-pending"),
        pytest.param("🟡 Not started", TODO, id="yellow-not-started"),
        pytest.param("not in progress", TODO, id="not-in-progress"),
        pytest.param("⚙️ building", BUSY, id="gear"),
        pytest.param("🔴 not done", BLOCKED, id="red"),
        pytest.param("⬚ (blocked)", BLOCKED, id="E8"),
        pytest.param("⬚ almost done", TODO, id="glyph-before-word"),
        pytest.param("not done", TODO, id="not-done"),
        pytest.param("undone", TODO, id="whole-word"),
        pytest.param("**DONE**", DONE, id="bold"),
        pytest.param("Not started", TODO, id="not-started"),
        pytest.param("Complete", DONE, id="complete"),
        pytest.param("**Completed** 2026-01-31", DONE, id="completed"),
        pytest.param("Finished", DONE, id="finished"),
        pytest.param("✔ shipped in v1.2", DONE, id="shipped"),
        pytest.param("Merged (#12)", DONE, id="merged"),
        pytest.param("waits until #12 is merged", TODO, id="until-merged"),
        pytest.param("incomplete", TODO, id="incomplete"),
        pytest.param("not complete", TODO, id="not-complete"),
        pytest.param("not yet done", TODO, id="not-yet"),
        pytest.param("80% done", TODO, id="percent"),
        pytest.param("Partially complete", Status.IN_PROGRESS, id="partially"),
        pytest.param("In progress (2a ✅)", Status.IN_PROGRESS, id="word-before-glyph"),
        pytest.param("⬚ complete", TODO, id="glyph-before-complete"),
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
        ("`4a6075d` + `02e0f6b`", "02e0f6b"),
        ("4A:4a6075d 4B:02e0f6b", "02e0f6b"),
        ("(squash)", ""),
        ("defaced effaced", ""),
        ("`deadbeef`", "deadbeef"),
        ("", ""),
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
