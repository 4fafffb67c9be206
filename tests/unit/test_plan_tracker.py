"""Writing a status back changes the cell, line or box that is meant, and no other byte."""

from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Status, parse_plan
from runplan.domain.plan.tracker import add_tracker, set_completed, set_status
from tests.support.builders import a_plan, tracker

PLANS = Path(__file__).parent.parent / "plans/basics"


def done(text: str, phase: str = "1", commit: str = "abc1234") -> str:
    return set_status(text.encode(), path="p.md", phase=phase, status=Status.DONE, commit=commit).decode()


def todo(text: str, phase: str = "1") -> str:
    return set_status(text.encode(), path="p.md", phase=phase, status=Status.TODO).decode()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| 1 — One | ⬚ | | |", "| 1 — One | ✅ Done | `abc1234` | |"),
        ("|1 — One|⬚|||", "|1 — One|✅ Done| `abc1234` ||"),
        ("| 1 — One |   |   | note |", "| 1 — One | ✅ Done | `abc1234` | note |"),
        ("| 1 — a \\| b | ⬜ Ready  | (later) | | | x |  ", "| 1 — a \\| b | ✅ Done  | `abc1234` | | | x |  "),
        ("  | 1 | 🟡 | `0000000` |", "  | 1 | ✅ Done | `abc1234` |"),
        ("1 | ⬚ | | end", "1 | ✅ Done | `abc1234` | end"),
        ("| 1 | ⬚ |", "| 1 | ✅ Done (`abc1234`) |"),
        ("| 1 | ✅ | |", "| 1 | ✅ Done | `abc1234` |"),
    ],
)
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_a_row_is_marked_done(row: str, expected: str, eol: str) -> None:
    text = ("\ufeff" + tracker(row) + "## Phase 1 — One  \n\rlone \r return\n\nno end").replace("\n", eol)
    assert done(text) == text.replace(row, expected)


def test_a_tracker_without_a_commit_column_gets_the_hash_in_the_status_cell() -> None:
    text = tracker("| 1 — One | ⬚ | text |", header="| Phase | Status | Description |") + "## Phase 1\n"
    assert done(text) == text.replace("| ⬚ |", "| ✅ Done (`abc1234`) |")
    assert parse_plan(done(text).encode(), path="p.md").phases[0].commit == "abc1234"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("**Status:** ⬚ Not started", "**Status:** ✅ Done (abc1234)"),
        ("**Status:**", "**Status:** ✅ Done (abc1234)"),
        ("- **Status**: todo  ", "- **Status**: ✅ Done (abc1234)  "),
        ("Status: **open**", "Status: ✅ Done (abc1234)"),
        ("**Status:** ⬚ | **Owner:** Kim", "**Status:** ✅ Done (abc1234) | **Owner:** Kim"),
    ],
)
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_a_status_line_is_marked_done(line: str, expected: str, eol: str) -> None:
    text = f"# T\n\n## Phase 1 — One\n\n{line}\n\n## Phase 2 — Two\n\n**Status:** ⬚\n".replace("\n", eol)
    assert done(text) == text.replace(line, expected, 1)


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["\n\nText\n", "\n", ""])
def test_a_section_without_a_status_line_gets_one_below_its_heading(eol: str, end: str) -> None:
    text = ("## Phase 1\n**Status:** ⬚\n## Phase 2 — Two" + end).replace("\n", eol)
    added = f"## Phase 2 — Two{eol}**Status:** ✅ Done (abc1234)"
    assert done(text, "2") == text.replace("## Phase 2 — Two", added)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- [ ] Phase 1 — One", "- [x] Phase 1 — One"),
        ("* [ ] Phase 1 — One  ", "* [x] Phase 1 — One  "),
        ("- [ ] Phase 1 — One (0000000, note)", "- [x] Phase 1 — One (0000000, note)"),
        ("1. [-] Phase 1 — f(x)", "1. [x] Phase 1 — f(x)"),
    ],
)
@pytest.mark.parametrize("eol", ["\n", "\r\n", ""])
def test_a_box_is_ticked(line: str, expected: str, eol: str) -> None:
    assert done(line + eol) == expected + eol


@pytest.mark.parametrize(
    "text",
    [
        "| Phase | Status | Commit |\n|---|---|---|\n| 1 | ⬚ | |\n\n## Phase 1\n",
        "| Phase | Status | Commit | Notes |\n|---|---|---|---|\n| 1 — One | ⬚ | | left | \n\n## Phase 1 — One\n",
        *("- [ ] Phase 1 — One\n- [ ] Phase 2 — Two\n", "- [ ] Phase 1 — One \n- [ ] Phase 2 — Two\n"),
        *("- [ ] Phase 1 — One (see below)\n- [ ] Phase 2 — Two\n", "## Phase 1 — One\n\n**Status:** ⬚\n"),
    ],
)
def test_done_and_todo_again_restores_the_bytes(text: str) -> None:
    assert todo(done(text)) == text
    assert todo(done(done(text), commit="fedcba9")) == text


@pytest.mark.parametrize(
    ("text", "done", "open_"),
    [
        (tracker("| 1 | ✅ Done | |") + "## Phase 1\n", "✅ Done", "⬚"),
        ("## Phase 1\n**Status:** ✅ Done\n", "✅ Done", "⬚"),
        ("- [x] Phase 1 — a\n", "[x]", "[ ]"),
    ],
)
def test_a_phase_goes_back_to_todo(text: str, done: str, open_: str) -> None:
    assert todo(text) == text.replace(done, open_)


@pytest.mark.parametrize("name", ["tracker.md", "sections.md", "checklist.md"])
def test_setting_the_current_status_changes_nothing(name: str) -> None:
    raw = (PLANS / name).read_bytes()
    for phase in parse_plan(raw, path=name).phases:
        if phase.status in (Status.DONE, Status.TODO):
            assert set_status(raw, path=name, phase=phase.id, status=phase.status, commit=phase.commit) == raw


def test_an_unknown_phase_is_refused_with_those_there_are() -> None:
    with pytest.raises(PlanUnreadable, match="there is no phase 9; the phases are 1, 2"):
        set_status(a_plan({"1": "⬚", "2": "⬚"}), path="p.md", phase="9", status=Status.DONE)


# --- adding a tracker -----------------------------------------------------------------------------------


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("name", "before"), [("bare-sections.md", b"## Phase 1"), ("phases-under-heading.md", b"## Phases")]
)
def test_a_tracker_is_added_above_the_phases(name: str, before: bytes, eol: bytes) -> None:
    raw = b"\xef\xbb\xbf" + (PLANS / name).read_bytes().replace(b"\n", eol)
    fixed = add_tracker(raw, path=name)
    above, below = raw[: raw.index(before)], raw[raw.index(before) :]
    assert fixed.startswith(above + b"## Progress Tracker" + eol + eol + b"| Phase |")
    assert fixed.endswith(b"| | |" + eol + eol + below)
    assert fixed.count(b"\n") == fixed.count(eol)
    plan = parse_plan(fixed, path=name)
    assert plan.format == "tracker"
    assert [(phase.id, phase.status) for phase in plan.phases] == [("1", Status.TODO), ("2", Status.TODO)]


def test_a_new_tracker_of_a_complete_plan_is_all_done() -> None:
    fixed = add_tracker(b"---\nstatus: complete\n---\n## Phase 1\n## Phase 2\n", path="p.md")
    assert all(phase.status is Status.DONE for phase in parse_plan(fixed, path="p.md").phases)


@pytest.mark.parametrize("said", ["Complete", "completed", "done", "Shipped"])
def test_a_plan_that_says_complete_in_other_words_is_opened_again_by_an_undo(said: str) -> None:
    raw = f"---\nstatus: {said}\n---\n## Phase 1\n**Status:** Done\n".encode()
    assert parse_plan(set_completed(raw, path="p.md", completed=None), path="p.md").status == "active"


def test_the_boxes_below_a_box_of_a_checklist_are_ticked_with_it() -> None:
    text = "* [ ] One\r\n    * [ ] a\r\n    * [x] b\r\n* [ ] Two\r\n  - [ ] c\r\n"
    assert done(text) == text.replace("[ ] One", "[x] One").replace("[ ] a", "[x] a")


@pytest.mark.parametrize("name", ["tracker.md", "sections.md", "checklist.md", "nested-fences.md"])
def test_a_plan_that_has_statuses_gets_no_tracker(name: str) -> None:
    raw = (PLANS / name).read_bytes()
    assert add_tracker(raw, path=name) == raw


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Only prose\n", "no phases found"),
        ("## Phase 1 — A\n\n## Phase 1 — B\n", "two phases are called '1'"),
        (tracker("| 1 | ⬚ | |") + "## Phase 2\n", "lists the phases 1;"),
    ],
)
def test_a_plan_that_a_tracker_cannot_fix_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanUnreadable, match=said):
        add_tracker(text.encode(), path="p.md")
