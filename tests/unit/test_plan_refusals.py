"""A plan that cannot be worked is refused with the file, the line and the remedy."""

import pytest

from runplan.errors import PlanUnreadable
from runplan.plan.model import parse
from tests.support.builders import a_plan, tracker


def refusal(text: bytes | str) -> str:
    with pytest.raises(PlanUnreadable) as caught:
        parse(text.encode() if isinstance(text, str) else text, path="plans/x.md")
    return str(caught.value)


def test_a_huge_file_is_refused_by_its_size_before_it_is_read() -> None:
    assert refusal(b"\0" * (50 * 1024 * 1024)) == (
        "plans/x.md:1: the file has 50.0 MB and 0 lines, and a plan at most 5 MB and 20,000 lines; is it a plan?"
    )


def test_a_binary_file_is_refused() -> None:
    assert refusal(b"# Plan\n\x7fELF\0\0").startswith("plans/x.md:2: this is no UTF-8 text")


def test_text_that_is_not_utf8_is_refused_with_its_line() -> None:
    assert refusal(b"\xef\xbb\xbf# Plan\n\nna\xefve\n").startswith("plans/x.md:3: this is no UTF-8 text")


@pytest.mark.parametrize("text", ["", "\n", "---\n", "---\nstatus: active\n---\n", "# Title\n\nProse.\n", "\ufeff"])
def test_a_file_without_phases_is_refused(text: str) -> None:
    assert refusal(text).startswith("plans/x.md:1: no phases found")


def test_an_open_fence_that_hides_the_phases_is_named() -> None:
    assert "the fence opened on line 3 is never closed" in refusal("# T\n\n```\n\n## Phase 1 — A\n")


def test_a_tracker_without_rows_is_refused() -> None:
    assert refusal(tracker()).startswith("plans/x.md:3: the tracker lists no phase")


def test_two_rows_of_one_id_are_refused_with_both_lines() -> None:
    assert refusal(tracker("| 1 | ⬚ | |", "| 2 | ⬚ | |", "| 1 | ⬚ | |") + "## Phase 1\n\n## Phase 2\n") == (
        "plans/x.md:7: two phases are called '1', the first on line 5; rename one"
    )


@pytest.mark.parametrize("status", ["", "**Status:** ⬚\n"])
def test_two_headings_of_one_id_are_refused_with_both_lines(status: str) -> None:
    said = refusal(f"## Phase 1 — A\n{status}\n## Phase 1 — B\n")
    assert said.endswith("two phases are called '1', the first on line 1; rename one")


def test_ids_that_differ_only_in_case_are_duplicates() -> None:
    assert "two phases are called '1A'" in refusal("## Phase 1a — A\n**Status:** ⬚\n## Phase 1A — B\n")


def test_two_items_of_one_id_are_refused() -> None:
    assert "two phases are called '1'" in refusal("- [ ] Phase 1 — a\n- [ ] Phase 1 — b\n")


def test_tracker_and_headings_that_disagree_are_shown_both() -> None:
    said = refusal(tracker("| 1 | ⬚ | |", "| 2 | ⬚ | |") + "## Phase 1 — A\n\n## Phase 3 — C\n")
    assert said == (
        "plans/x.md:5: the tracker lists the phases 1, 2; the '## Phase' headings are 1, 3; make them agree"
    )


def test_a_tracker_without_sections_is_a_disagreement() -> None:
    assert "headings are none" in refusal(tracker("| 1 | ⬚ | |"))


def test_a_checklist_that_disagrees_with_the_sections_is_refused() -> None:
    said = refusal("- [ ] Phase 1 — a\n\n## Phase 1 — A\n\n## Phase 2 — B\n")
    assert "the checklist lists the phases 1; the '## Phase' headings are 1, 2" in said


def test_a_row_without_a_status_cell_is_refused() -> None:
    assert refusal(tracker("| 1 |") + "## Phase 1\n").startswith("plans/x.md:5: the row of phase 1 has no Status cell")


def test_a_dependency_cycle_is_refused_and_named() -> None:
    cells = dict.fromkeys("1234", "⬚")
    said = refusal(a_plan(cells, {"2": "Depends: 4", "3": "Depends: 2", "4": "Depends: 1, 3"}))
    assert said.startswith("plans/x.md:")
    assert "the phases wait for each other: 4 → 3 → 2 → 4;" in said


def test_a_phase_that_waits_for_itself_is_refused() -> None:
    assert "wait for each other: 1 → 1;" in refusal(a_plan({"1": "⬚"}, {"1": "Depends: 1"}))


def test_a_cycle_through_a_done_phase_is_accepted() -> None:
    plan = parse(a_plan({"1": "✅", "2": "⬚"}, {"1": "Depends: 2", "2": "Depends: 1"}), path="p.md")
    assert [phase.depends for phase in plan.phases] == [("2",), ("1",)]


@pytest.mark.parametrize("body", ["Depends: 1, 8", "Depends on: phase 8", "### Dependencies\n\nPhase 8."])
def test_a_dependency_on_an_unknown_phase_is_refused(body: str) -> None:
    said = refusal(a_plan({"1": "⬚", "2": "⬚"}, {"2": body}))
    assert "phase 2 depends on phase 8, which is not among 1, 2;" in said


def test_an_unknown_dependency_of_a_done_phase_is_a_remark() -> None:
    plan = parse(a_plan({"1": "✅"}, {"1": "Depends: 8"}), path="p.md")
    assert [remark.text for remark in plan.remarks] == ["phase 1 depends on phase 8, which the plan does not have"]


@pytest.mark.parametrize("name", ["X.md", "CANARY1.md"])
def test_executable_false_is_refused_for_any_file_name(name: str) -> None:
    with pytest.raises(PlanUnreadable, match=f"{name}:2: the plan says executable: false"):
        parse(a_plan({"1": "⬚"}, front="---\nexecutable: false\n---\n"), path=name)


@pytest.mark.parametrize(
    "entry", ["status: |\n  active", "status: >-\n  active", "status:\n  - active", "completed:\n  at: noon"]
)
def test_front_matter_that_could_not_be_set_at_the_end_is_refused_at_the_beginning(entry: str) -> None:
    said = refusal(a_plan({"1": "⬚"}, front=f"---\n{entry}\n---\n"))
    key = entry.partition(":")[0]
    assert said.startswith(f"plans/x.md:2: {key} has a block as its value, which runplan cannot change")
