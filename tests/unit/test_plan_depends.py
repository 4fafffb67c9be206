"""Dependencies are read from prose with care: hard, soft, negative, ranges, other plans."""

from __future__ import annotations

import pytest

from runplan.core.plan import Phase, parse
from tests.support.plantext import a_plan, waiting


def last(text: bytes) -> Phase:
    return parse(text, path="p.md").phases[-1]


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
    ],
)
def test_what_is_named_is_waited_for(prose: str, hard: tuple[str, ...]) -> None:
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
        pytest.param("Phase 5 reads this state file and must not change.", (), id="the-other-waits"),
        pytest.param("Phase 4 must come AFTER Phase 9.", (), id="after-own"),
        pytest.param("Phase 9 runs after Phase 4.", ("4",), id="own-after"),
        pytest.param("Phase 9 depends on Phase 1.", ("1",), id="own-depends"),
    ],
)
def test_negatives_and_onward_mentions_are_not(prose: str, hard: tuple[str, ...]) -> None:
    phase = last(waiting(prose))
    assert (phase.depends, phase.soft, phase.outside) == (hard, (), ())


@pytest.mark.parametrize(
    ("prose", "hard", "soft"),
    [
        ("Phase 1 must be complete. Phase 2 SHOULD be complete.", ("1",), ("2",)),
        ("Phase 3. Phase 1 and Phase 2 are recommended but not strictly required.", ("3",), ("1", "2")),
        ("Phase 1, Phase 2 (optional).", ("1",), ("2",)),
        ("Phase 4 (polling) -- **soft dependency**.", (), ("4",)),
        ("Phase 1 is required, Phase 2 is optional.", ("1",), ("2",)),
        ("Ideally Phase 2 first; Phase 2 must be there.", ("2",), ()),
    ],
)
def test_wishes_are_soft(prose: str, hard: tuple[str, ...], soft: tuple[str, ...]) -> None:
    phase = last(waiting(prose))
    assert (phase.depends, phase.soft) == (hard, soft)


@pytest.mark.parametrize(
    ("prose", "outside"),
    [
        ("Cleanup branch merged.", ("Cleanup branch merged",)),
        ("CREATE_WORKTREE Phase 3 complete.", ("CREATE_WORKTREE Phase 3 complete",)),
        ("Phase 1 of UNIFY_NAMES must land.", ("Phase 1 of UNIFY_NAMES must land",)),
        ("- Phase 1\n- `scripts/port.sh`\n- Issue #12 is decided", ("Issue #12 is decided",)),
        ("`plans/OTHER.md` Phase 77 landed", ("`plans/OTHER.md` Phase 77 landed",)),
    ],
)
def test_what_is_no_phase_of_the_plan_is_listed(prose: str, outside: tuple[str, ...]) -> None:
    assert last(waiting(prose)).outside == outside


def test_a_list_of_letters_is_read() -> None:
    phase = last(waiting("All of A, B, C must land before Phase F starts. A test is added.", own="F", others="A B C D"))
    assert phase.depends == ("A", "B", "C")


def test_a_phase_number_stands_for_its_parts() -> None:
    assert last(waiting("Phase 1 must be complete.", others="1A 1B 2")).depends == ("1A", "1B")


def test_a_landed_phase_that_left_the_plan_is_not_missed() -> None:
    assert last(waiting("Phase 7 (LANDED — schema). Phase 1.")).depends == ("1",)


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
        ("**Dependencies:** Phase 1, Phase 2.", ("1", "2", "5")),
    ],
)
def test_a_line_of_its_own_wins_over_prose(line: str, hard: tuple[str, ...]) -> None:
    prose = "### Dependencies\n\nPhase 5.\n" if "Depends" in line else "and Phase 5.\n"
    text = a_plan(dict.fromkeys([*ALL, "9"], "⬚"), {"9": f"{line}\n{prose}"})
    assert last(text).depends == hard


def test_a_fenced_line_says_nothing() -> None:
    assert last(a_plan({"1": "⬚", "2": "⬚"}, {"2": "```\nDepends: 1\n```"})).depends == ()
