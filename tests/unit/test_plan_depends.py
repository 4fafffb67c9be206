"""Dependencies are read from prose with care: hard, soft, negative, ranges, other plans."""

import re
import time

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Phase, parse_plan
from tests.support.builders import a_plan, waiting


def last(text: bytes) -> Phase:
    return parse_plan(text, path="p.md").phases[-1]


ALL = ("1", "2", "3", "3a", "4", "5")


#: The Dependencies of phase 9, which follows phases 1, 2, 3, 3a, 4 and 5, and what it waits for; `~` is a soft one.
PROSE = """
None.
None — first phase.
None.⏎⏎Phase 1 is already there.
None. Phase 1 establishes what Phases 2-4 use.
Phase 3a. => 3a
Phases 1–5 => 1 2 3 3a 4 5
Phases 1-5. => 1 2 3 3a 4 5
Phases 2 to 4 => 2 3 3a 4
Phase 1 through Phase 3 => 1 2 3
Phases 1, 2, and 4 => 1 2 4
Phase 1, Phase 2. => 1 2
- Phase 1 (schema)⏎- Phase 2: the writer => 1 2
Phases 1 and 2 must both be complete => 1 2
Phase 2 (process-only, see Phase 4). => 2
**Phase 2** and `Phase 3` => 2
Phase 1 must be landed⏎before this one starts. => 1
Do not start before Phase 1 lands. => 1
Cannot begin until Phase 1 is done. => 1
Phase 3's parser (see Phase 5). => 3
Phase 1 and a test file must exist. => 1
Phase 3a.2 must be in place. => 3a
phase 1 => 1
Both Phase 1 and Phase 2 => 1 2
All previous phases => 1 2 3 3a 4 5
All of the above. => 1 2 3 3a 4 5
Everything above => 1 2 3 3a 4 5
Everything before this. => 1 2 3 3a 4 5
Needs all phases before this one. => 1 2 3 3a 4 5
All other phases => 1 2 3 3a 4 5
The previous phase => 5
1, 2 => 1 2
- 1⏎- 3a (the reader)⏎- 4: the writer => 1 3a 4
1–3 => 1 2 3
2. => 2
Requires `1` and [2](#phase-2) => 1 2
Phases 1, 2, 3 — the parser, no need for docs => 1 2 3
Phases 1, 2, 3 — these can be run in parallel => 1 2 3
Phase 1 — schema, Phase 2 — writer => 1 2
Phases: 1, 2 => 1 2
None besides Phase 1. => 1
No dependencies other than Phase 2 => 2
Independent of Phase 1 and Phase 2.
Phase 1 (parsed state). Feeds Phase 3 (rendering). => 1
Phase 2 is independent of Phase 3.
Phase 1; independent of Phase 2 => 1
Does NOT require Phase 1 or Phase 3.
Phase 4 is not a prerequisite.
This phase doesn't depend on Phase 2.
Phases 1-3 can run in any order.
Must land before Phase 4. Blocks Phase 5.
Phase 9 runs after Phase 4. => 4
Independent of all previous phases.
Phase 4 — not required
Phase 1 must be complete. Phase 2 SHOULD be complete. => 1 ~2
Phase 3. Phase 1 and Phase 2 are recommended but not strictly required. => 3 ~1 ~2
Phase 1 is required, Phase 2 is optional. => 1 ~2
Ideally Phase 2 first; Phase 2 must be there. => 2
Phase 1. Each Phase-2 batch adds an entry. => 1
Each phase file is read. Phase 1. => 1
Each phase must be complete. => 1 2 3 3a 4 5
Phase 1, 2.5 hours of review. => 1
Phase 2 with Python 3.11 and v1.2 of the API. => 2
No hard dependency on Phase 4. Soft: Phase 3. => ~3
Phase 1 (schema), Phase 2 (optional), Phase 3 => 1 3 ~2
Phases 1 and 2 [soft]; Phase 3 => 3 ~1 ~2
Phase 2 (polling) -- **soft dependency**. The CI part depends on 2. => ~2
Phase 1; each step is independently testable => 1
Parallelize with Phase 3; Phase 2 first => 2
Phase 1, parallelizable with Phases 2 and 3 => 1
Phase 1 と並列
Starts after Phase 1 - may integrate with Phase 2 but is testable => 1
Starts after the base (Phase 1) - May integrate with Phase 2 => ~2
May start after Phase 1. => 1
"""


def waits_for(phase: Phase) -> str:
    return " ".join([*phase.depends, *(f"~{id_}" for id_ in phase.soft)])


@pytest.mark.parametrize("row", PROSE.strip().splitlines())
def test_prose_waits_only_for_the_phases_that_it_demands(row: str) -> None:
    prose, _, expected = row.replace("⏎", "\n").partition(" => ")
    assert waits_for(last(waiting(prose))) == expected


@pytest.mark.parametrize(
    "prose",
    [
        *("TBD", "Whatever the team decides first", "Step 1", "- Phase 1\n- the usual", "Cleanup branch merged."),
        *("CREATE_WORKTREE Phase 3 complete.", "Phase 1 of UNIFY_NAMES must land.", "`plans/OTHER.md` Phase 77 landed"),
        *(
            "- Phase 1\n- Issue #12 is decided",
            "Phase 1, 2.5 hours of review.",
            "Phase 1. The Phase 3.5 script exists.",
        ),
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


def test_every_depends_line_of_a_phase_counts() -> None:
    text = "# P\n## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n## Phase 3: C\n"
    text += "### Task 3.1\n- [ ] c\n**Depends on:** Phase 1\n"
    text += "### Task 3.2\n- [ ] d\n**Depends on:** Phase 2\n**Depends on:** Phase 3, Phase 4\n## Phase 4: D\n- [ ] e\n"
    plan = parse_plan(text.encode(), path="plans/x.md")
    assert [phase.depends for phase in plan.phases] == [(), (), ("1", "2"), ()]


def test_the_first_phase_has_no_previous_ones() -> None:
    text = a_plan({"1": "⬚", "2": "⬚"}, {"1": "Depends: all previous phases"})
    assert [phase.depends for phase in parse_plan(text, path="p.md").phases] == [(), ()]


@pytest.mark.parametrize("line", ["### Dependencies\n\nPhase 3.5", "Depends: 3.5"])
def test_phase_3_5_is_not_phase_3(line: str) -> None:
    cells = {"3": "✅", "3.5": "⬚", "4": "⬚"}
    assert last(a_plan(cells, {"4": line})).depends == ("3.5",)
    with pytest.raises(PlanUnreadable, match=r"phase 4 depends on phase 3\.5, which is not among 3, 4;"):
        parse_plan(a_plan({"3": "✅", "4": "⬚"}, {"4": line}), path="p.md")


def test_a_phase_may_depend_on_an_id_with_the_same_prefix() -> None:
    assert last(a_plan({"3.5": "⬚", "3": "⬚"}, {"3": "### Dependencies\n\nAfter Phase 3.5."})).depends == ("3.5",)


@pytest.mark.parametrize(
    ("title", "depends", "warnings"),
    [("B (depends on Stage 1)", ("1",), 0), ("B (after lunch)", (), 0), ("B (depends on T3.3)", (), 1)],
)
def test_a_title_may_say_what_its_phase_depends_on(title: str, depends: tuple[str, ...], warnings: int) -> None:
    plan = parse_plan(f"## Stage 1: A\n- [ ] a\n## Stage 2: {title}\n- [ ] b\n".encode(), path="p.md")
    assert (plan.phases[1].depends, len(plan.remarks)) == (depends, warnings)


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


def test_a_list_below_a_label_is_read() -> None:
    for gap in ("", "\n"):
        text = a_plan({"1": "⬚", "2": "⬚", "3": "⬚"}, {"3": f"**Dependencies:**\n{gap}* Phase 1\n* 2\n"})
        assert last(text).depends == ("1", "2")


@pytest.mark.parametrize("prose", ["Requires US1 (the form)", "After User Story 1", "depends on T002"])
def test_a_phase_of_spec_kit_may_name_stories_and_tasks(prose: str) -> None:
    text = "## Phase 1: Setup\n- [ ] T001 a\n## Phase 2: User Story 1 - A\n- [ ] T002 b\n"
    text += f"## Phase 3: User Story 2 - B\n\n**Dependencies**: {prose}\n\n- [ ] T003 c\n"
    plan = parse_plan(text.encode(), path="p.md")
    assert sorted(plan.phases[2].depends) == ["1", "2"]
    assert plan.remarks == ()


def test_the_next_label_of_a_list_is_no_dependency() -> None:
    text = a_plan({"1": "⬚", "2": "⬚", "3": "⬚"}, {"2": "- **Dependencies:** Phase 1\n- **Note:** see Phase 3\n"})
    assert parse_plan(text, path="p.md").phases[1].depends == ("1",)


def test_a_list_of_letters_is_read() -> None:
    phase = last(waiting("All of A, B, C must land before Phase F starts. A test is added.", own="F", others="A B C D"))
    assert phase.depends == ("A", "B", "C")


def test_a_phase_number_stands_for_its_parts() -> None:
    assert last(waiting("Phase 1 must be complete.", others="1A 1B 2")).depends == ("1A", "1B")


def test_ranges_follow_the_tracker() -> None:
    assert last(waiting("Phases 2–4", others="3 2 P1.A 4 1")).depends == ("2", "P1.A", "4")


#: A line of a phase, what the phase waits for, and the part of the line that names no phase.
LINES = """
Depends: 1, 3a => 1 3a
Depends: none
Depends: —
**Depends:** 1-3. => 1 2 3
**Depends on**: Phase 1 and phase 2 => 1 2
- Depends: `4` (the reader) => 4
Depends on: 3A => 3a
Depends: all previous phases => 1 2 3 3a 4 5
Depends: all of the above => 1 2 3 3a 4 5
Depends: all => 1 2 3 3a 4 5
Depends on: 1, 2 [soft] => 1 ~2
Depends on: 1 (schema, 3 tables), 2 => 1 2
Depends on: [Phase 1, Phase 2] => 1 2
Depends on: Phase 1 [done] => 1
Depends on: (none)
Depends on: [none]
Depends on: soft: 4 => ~4
Depends on: Phase 1 → Phase 2 => 1 2
Depends on: Phase 1 with the parser of Phase 2 => 1 2
Depends on: `src/x.py` => => `src/x.py`
Depends on: 1; can run in parallel with Phases 2 and 3 => 1
Depends on: 1. See Phase 3 for the reason => 1 => See Phase 3 for the reason
Depends on: 1 and the API key => 1 => the API key
Depends on: Phase 2; Phase 9 docs depend on Phase 1 only => 2 1
Depends on: v3.3 complete => => v3.3 complete
"""


@pytest.mark.parametrize("row", LINES.strip().splitlines())
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


def test_a_fenced_line_says_nothing() -> None:
    assert last(a_plan({"1": "⬚", "2": "⬚"}, {"2": "```\nDepends: 1\n```"})).depends == ()


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
