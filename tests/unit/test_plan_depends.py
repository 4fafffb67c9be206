"""Dependencies are read from prose with care: hard, soft, negative, ranges, other plans."""

import re
import time
from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Phase, parse_plan
from tests.support.builders import a_plan, waiting


def last(text: bytes) -> Phase:
    return parse_plan(text, path="p.md").phases[-1]


ALL = ("1", "2", "3", "3a", "4", "5")


DATA = (Path(__file__).parents[1] / "plans/dependencies.txt").read_text(encoding="utf-8")
PROSE, LINES = (section.strip().splitlines()[1:] for section in DATA.split("\n\n"))


def waits_for(phase: Phase) -> str:
    return " ".join([*phase.depends, *(f"~{id_}" for id_ in phase.soft)])


@pytest.mark.parametrize("row", PROSE)
def test_prose_waits_only_for_the_phases_that_it_demands(row: str) -> None:
    prose, _, expected = row.replace("⏎", "\n").partition(" => ")
    assert waits_for(last(waiting(prose))) == expected


@pytest.mark.parametrize(
    "prose",
    [
        *("TBD", "Whatever the team decides first", "Step 1", "- Phase 1\n- the usual", "Cleanup branch merged."),
        *("CREATE_WORKTREE Phase 3 complete.", "Phase 1 of UNIFY_NAMES must land.", "`plans/OTHER.md` Phase 77 landed"),
        *("- Phase 1\n- Issue #12 is decided", "Phase 1, 2.5 hours of review."),
        "Phase 1. The Phase 3.5 script exists.",
    ],
)
def test_a_sentence_that_names_no_phase_of_the_plan_is_a_warning(prose: str) -> None:
    (remark,) = parse_plan(waiting(prose), path="p.md").remarks
    number = re.search(r"\d\.5", prose)
    sentence = number[0] if number else prose.rpartition("- ")[2].rstrip(".")
    assert remark.text == (
        f"phase 9 does not wait for this, it names no phase: {sentence}; "
        "if it should, name the phases in a line 'Depends: …'"
    )


@pytest.mark.parametrize("line", ["### Dependencies\n\nPhase 3.5", "Depends: 3.5"])
def test_phase_3_5_is_not_phase_3(line: str) -> None:
    cells = {"3": "✅", "3.5": "⬚", "4": "⬚"}
    assert last(a_plan(cells, {"4": line})).depends == ("3.5",)
    with pytest.raises(PlanUnreadable, match=r"phase 4 depends on phase 3\.5, which is not among 3, 4;"):
        parse_plan(a_plan({"3": "✅", "4": "⬚"}, {"4": line}), path="p.md")


@pytest.mark.parametrize(
    ("line", "depends"),
    [
        ("- **US2 (Phase 3)**: Depends on Phase 1 (the form) + US1 (its text)", ("1", "2")),
        ("- Phase 2 (US1) must complete before Phase 3 (US2) - it sends", ("1", "2")),
        ("- Phase 2 must complete before any other", ("1",)),
        ("3. **US2** (Mail) → Depends on US1 - it sends", ("1", "2")),
        ("- **User Story 2 (P2)**: Can start after Phase 1, but requires US1 to be there", ("1", "2")),
        ("- **US2**: Depends on T002 (the list)", ("1", "2")),
        ("- **US2**: Independent of US1; should follow US1", ("1",)),
        ("- **US2**: does not depend on US1", ("1",)),
        ("- Or in the order of priority (US2 → US1)", ("1",)),
    ],
)
def test_spec_kit_lists_the_dependencies_of_stories_in_a_section(line: str, depends: tuple[str, ...]) -> None:
    text = "## Phase 1: Setup\n- [ ] T001 a\n## Phase 2: User Story 1 - A\n- [ ] T002 b\n"
    text += f"## Phase 3: User Story 2 - B\n- [ ] T003 c\n## Dependencies & Execution Order\n{line}\n"
    assert parse_plan(text.encode(), path="p.md").phases[2].depends == depends


def test_a_list_of_letters_is_read() -> None:
    phase = last(waiting("All of A, B, C must land before Phase F starts. A test is added.", own="F", others="A B C D"))
    assert phase.depends == ("A", "B", "C")


def test_a_phase_number_stands_for_its_parts() -> None:
    assert last(waiting("Phase 1 must be complete.", others="1A 1B 2")).depends == ("1A", "1B")


def test_ranges_follow_the_tracker() -> None:
    assert last(waiting("Phases 2–4", others="3 2 P1.A 4 1")).depends == ("2", "P1.A", "4")


@pytest.mark.parametrize("row", LINES)
def test_a_line_of_its_own_wins_over_prose_and_names_what_it_leaves_out(row: str) -> None:
    line, expected, unread = (part.strip() for part in f"{row} => => ".split("=>")[:3])
    prose = f"{line}\n### Dependencies\n\nPhase 5.\n"
    plan = parse_plan(a_plan(dict.fromkeys([*ALL, "9"], "⬚"), {"9": prose}), path="p.md")
    assert waits_for(plan.phases[-1]) == expected
    begins = f"phase 9 does not wait for this, it names no phase: {unread};"
    assert [remark.text.startswith(begins) for remark in plan.remarks] == [True] * bool(unread)


def test_a_label_in_prose_adds_to_what_the_prose_says() -> None:
    body = "**Dependencies:** Phase 1, Phase 2.\nand Phase 5.\n"
    assert last(a_plan(dict.fromkeys([*ALL, "9"], "⬚"), {"9": body})).depends == ("1", "2", "5")


@pytest.mark.parametrize(
    "body",
    [
        "Depends on: 0 (done), 1",
        "### Dependencies\n\nPhase 1. Phase 0 (LANDED in March). No part of Phase 0 blocks it.\n",
        "### Dependencies\n\nPhase 0 has already landed, and Phase 1.\n",
    ],
)
def test_an_unknown_phase_that_has_landed_is_a_remark(body: str) -> None:
    plan = parse_plan(a_plan({"1": "⬚", "2": "⬚"}, {"2": body}), path="p.md")
    assert plan.phases[1].depends == ("1",)
    (remark,) = plan.remarks
    assert remark.text.startswith("phase 2 does not wait for phase 0, which the plan does not have; its text says")


@pytest.mark.parametrize(
    "text",
    [pytest.param("Depends: " + "1, " * 1100, marks=pytest.mark.rest), "### Dependencies\n\n" + "Phase 1 " * 400],
    ids=["a line", "a section"],
)
def test_dependencies_of_endless_length_are_refused(text: str) -> None:
    cells = {str(number): "⬚" for number in range(1, 35)}
    with pytest.raises(PlanUnreadable, match=r"the dependencies of the phases have over 100,000 characters"):
        parse_plan(a_plan(cells, dict.fromkeys(list(cells)[1:], text)), path="p.md")


def test_phases_that_wait_for_all_others_are_read_in_half_a_second() -> None:
    cells = {str(number): "⬚" for number in range(1, 121)}
    text = a_plan(cells, dict.fromkeys(cells, "### Dependencies\n\n" + "all previous phases, " * 20))
    began = time.process_time()
    assert len(last(text).depends) == 119
    assert time.process_time() - began < 0.5
