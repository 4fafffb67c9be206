"""Dependencies are read from prose with care: hard, soft, negative, ranges, other plans."""

import time

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Phase, parse_plan
from tests.support.builders import a_plan, waiting


def last(text: bytes) -> Phase:
    return parse_plan(text, path="p.md").phases[-1]


ALL = ("1", "2", "3", "3a", "4", "5")


@pytest.mark.parametrize(
    ("prose", "hard"),
    [
        pytest.param("None.", (), id="D31"),
        pytest.param("None — first phase.", (), id="D31-dash"),
        pytest.param("None.\n\nPhase 1 is already there.", (), id="none-then-paragraph"),
        pytest.param("None. Phase 1 establishes what Phases 2-4 use.", (), id="none-then-prose"),
        pytest.param("Phase 3a.", ("3a",), id="D32-one"),
        pytest.param("Phases 1, 2, 3a.", ("1", "2", "3a"), id="D32-list"),
        pytest.param("Phases 1–5", ALL, id="D32-range"),
        pytest.param("Phases 1-5.", ALL, id="D32-hyphen"),
        pytest.param("Phases 2 to 4", ("2", "3", "3a", "4"), id="range-in-words"),
        pytest.param("Phase 1 through Phase 3", ("1", "2", "3"), id="range-of-phases"),
        pytest.param("Phases 1, 2, and 4", ("1", "2", "4"), id="and"),
        pytest.param("Phase 1, Phase 2.", ("1", "2"), id="repeated-word"),
        pytest.param("- Phase 1 (schema)\n- Phase 2: the writer\n", ("1", "2"), id="bullets"),
        pytest.param("Phases 1 and 2 must both be complete", ("1", "2"), id="both"),
        pytest.param("Phase 2 (process-only, see Phase 4).", ("2",), id="aside"),
        pytest.param("**Phase 2** and `Phase 3`", ("2",), id="emphasis-and-code"),
        pytest.param("Phase 1 must be landed\nbefore this one starts.", ("1",), id="wrapped"),
        pytest.param("Do not start before Phase 1 lands.", ("1",), id="not-before"),
        pytest.param("Cannot begin until Phase 1 is done.", ("1",), id="until"),
        pytest.param("Phase 3's parser (see Phase 5).", ("3",), id="possessive"),
        pytest.param("Phase 1 and a test file must exist.", ("1",), id="words-are-no-ids"),
        pytest.param("Phase 3a.2 must be in place.", ("3a",), id="item-of-a-phase"),
        pytest.param("phase 1", ("1",), id="lower-case"),
        pytest.param("Both Phase 1 and Phase 2", ("1", "2"), id="both-phases"),
        pytest.param("All previous phases", ALL, id="all-previous"),
        pytest.param("All prior phases must be complete.", ALL, id="all-prior"),
        pytest.param("All of the above.", ALL, id="all-above"),
        pytest.param("Everything above", ALL, id="everything-above"),
        pytest.param("Everything before this.", ALL, id="everything-before"),
        pytest.param("Needs all phases before this one.", ALL, id="all-before"),
        pytest.param("All other phases", ALL, id="all-others"),
        pytest.param("The previous phase", ("5",), id="previous"),
        pytest.param("1, 2", ("1", "2"), id="bare"),
        pytest.param("- 1\n- 3a (the reader)\n- 4: the writer", ("1", "3a", "4"), id="bare-bullets"),
        pytest.param("1–3", ("1", "2", "3"), id="bare-range"),
        pytest.param("2.", ("2",), id="bare-number"),
        pytest.param("Requires `1` and [2](#phase-2)", ("1", "2"), id="bare-after-verb"),
        pytest.param("Phases 1, 2, 3 — the parser, no need for docs", ("1", "2", "3"), id="explained"),
        pytest.param("Phases 1, 2, 3 — these can be run in parallel", ("1", "2", "3"), id="explained-parallel"),
        pytest.param("Phase 1 — schema, Phase 2 — writer", ("1", "2"), id="each-explained"),
        pytest.param("Phases: 1, 2", ("1", "2"), id="colon"),
        pytest.param("None besides Phase 1.", ("1",), id="none-besides"),
        pytest.param("No dependencies other than Phase 2", ("2",), id="none-other-than"),
    ],
)
def test_a_named_phase_is_a_hard_dependency(prose: str, hard: tuple[str, ...]) -> None:
    phase = last(waiting(prose))
    assert (phase.depends, phase.soft) == (hard, ())


@pytest.mark.parametrize(
    ("prose", "hard"),
    [
        pytest.param("Independent of Phase 1 and Phase 2.", (), id="D34"),
        pytest.param("Phase 1 (parsed state). Feeds Phase 3 (rendering).", ("1",), id="D35"),
        pytest.param("Phase 2 is independent of Phase 3.", (), id="subject-independent"),
        pytest.param("Phase 1; independent of Phase 2", ("1",), id="then-independent"),
        pytest.param("Does NOT require Phase 1 or Phase 3.", (), id="not-required"),
        pytest.param("Phase 4 is not a prerequisite.", (), id="no-prerequisite"),
        pytest.param("This phase doesn't depend on Phase 2.", (), id="doesn't"),
        pytest.param("Phases 1-3 can run in any order.", (), id="any-order"),
        pytest.param("Must land before Phase 4. Blocks Phase 5.", (), id="onward"),
        pytest.param("Phase 9 runs after Phase 4.", ("4",), id="own-after"),
        pytest.param("Phase 9 depends on Phase 1.", ("1",), id="own-depends"),
        pytest.param("Independent of all previous phases.", (), id="independent-of-all"),
        pytest.param("Phase 4 — not required", (), id="explained-not"),
    ],
)
def test_negated_and_later_phases_are_no_dependencies(prose: str, hard: tuple[str, ...]) -> None:
    phase = last(waiting(prose))
    assert (phase.depends, phase.soft) == (hard, ())


@pytest.mark.parametrize(
    ("prose", "hard", "soft"),
    [
        ("Phase 1 must be complete. Phase 2 SHOULD be complete.", ("1",), ("2",)),
        ("Phase 3. Phase 1 and Phase 2 are recommended but not strictly required.", ("3",), ("1", "2")),
        ("Phase 4 (polling) -- **soft dependency**.", (), ("4",)),
        ("Phase 1 is required, Phase 2 is optional.", ("1",), ("2",)),
        ("Ideally Phase 2 first; Phase 2 must be there.", ("2",), ()),
    ],
)
def test_recommended_phases_are_soft_dependencies(prose: str, hard: tuple[str, ...], soft: tuple[str, ...]) -> None:
    phase = last(waiting(prose))
    assert (phase.depends, phase.soft) == (hard, soft)


@pytest.mark.parametrize(
    "prose",
    [
        *("TBD", "Whatever the team decides first", "Step 1", "- Phase 1\n- the usual", "Cleanup branch merged."),
        *("CREATE_WORKTREE Phase 3 complete.", "Phase 1 of UNIFY_NAMES must land.", "`plans/OTHER.md` Phase 77 landed"),
        "- Phase 1\n- Issue #12 is decided",
    ],
)
def test_a_sentence_that_names_no_phase_of_the_plan_is_a_warning(prose: str) -> None:
    (remark,) = parse_plan(waiting(prose), path="p.md").remarks
    sentence = prose.rpartition("- ")[2].rstrip(".")
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


@pytest.mark.parametrize(
    ("line", "hard"),
    [
        ("Depends: 1, 3a", ("1", "3a")),
        ("Depends: none", ()),
        ("Depends: —", ()),
        ("**Depends:** 1-3.", ("1", "2", "3")),
        ("**Depends on**: Phase 1 and phase 2", ("1", "2")),
        ("- Depends: `4` (the reader)", ("4",)),
        ("Depends on: 3A", ("3a",)),
        ("Depends: all previous phases", ALL),
        ("Depends: all of the above", ALL),
        ("Depends: all", ALL),
        ("**Dependencies:** Phase 1, Phase 2.", ("1", "2", "5")),
    ],
)
def test_a_line_of_its_own_wins_over_prose(line: str, hard: tuple[str, ...]) -> None:
    prose = "### Dependencies\n\nPhase 5.\n" if "Depends" in line else "and Phase 5.\n"
    text = a_plan(dict.fromkeys([*ALL, "9"], "⬚"), {"9": f"{line}\n{prose}"})
    assert last(text).depends == hard


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
