"""Numbers of a plan that agents measured differently: vectors H."""

import pytest

from runplan.domain.checks.drift import (
    Drift,
    Tokens,
    correct_section,
    corrected_text,
    drift_percent,
    find_contradictions,
    judge_drifts,
    read_tokens,
)

MARK = "PLAN-TEXT-DRIFT:"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "phase=1 bullet=3 field=skill-line-count plan=340-380 actual=277",
            Drift("1", 3, "skill-line-count", "340-380", 277),
            id="H1",
        ),
        pytest.param(
            "phase=4A bullet=2 field=test-count plan=at most 50 actual=60",
            Drift("4A", 2, "test-count", "at most 50", 60),
            id="H2",
        ),
        pytest.param("phase=3b-i bullet=1 field=a plan=5 actual=6", Drift("3b-i", 1, "a", "5", 6), id="H4"),
        pytest.param("phase=2 bullet=1 field=files plan=50 actual=60 files", Drift("2", 1, "files", "50", 60), id="H5"),
        pytest.param("phase=2 bullet=1 field=f plan=5 actual=-6\r", Drift("2", 1, "f", "5", -6), id="H7"),
        pytest.param("phase=P1.A bullet=1 field=f plan=5 actual=+6x", Drift("P1.A", 1, "f", "5", 6), id="id"),
        pytest.param(f"phase=1 bullet=1 field=f plan=5 actual={10**40}", Drift("1", 1, "f", "5", 10**40), id="big"),
    ],
)
def test_a_drift_is_read_from_its_line(line: str, expected: Drift) -> None:
    assert read_tokens(f"Done.\n> {MARK} {line}\nMore.") == read_tokens(f"{MARK} {line}") == Tokens((expected,))


@pytest.mark.parametrize(
    "fields",
    [
        "bullet=1 phase=1 field=f plan=5 actual=6",
        "phase=abc bullet=1 field=f plan=5 actual=6",
        "phase=1 bullet=0 field=f plan=5 actual=6",
        "phase=1 bullet=1 field=a:b plan=5 actual=6",
        "phase=1 bullet=1 field=f plan=5 actual=ten",
        "phase=1 bullet=1 field=f plan=5",
        "phase=1 bullet=1 field=f plan=5 actual=" + "9" * 1001,
    ],
)
def test_a_malformed_line_is_kept_apart_from_the_good_ones(fields: str) -> None:
    tokens = read_tokens(f"{MARK} {fields}\n{MARK} phase=1 bullet=1 field=f plan=5 actual=6")
    assert tokens == Tokens((Drift("1", 1, "f", "5", 6),), (fields[:200],))


SHARES = """
340-380×277→24 · 340–380×360→0 · 100-200×150→0 · ≤50×40→0 · <=50×60→20 · at most 50×60→20 · ≥35×50→0 · >=35×20→43 ·
at least 35×20→43 · ~357×277→23 · approximately 100×90→10 · expected 100×110→10 · 100×90→10 · exactly 5×5→0 ·
exactly 5×6→999 · 100×200→100 · 50-70×101→69 · 0-10×5→0 · 340-380×345→5 · 100-101×100→0 · ≥35×35→0 · at least 3×2→34 ·
expected 3×4→34 · 100×277 lines→177 · 100×-5→105 · exactly -3×-3→0 ·  100 ×90→10 · 1-1×1→0
"""


@pytest.mark.parametrize("row", [" ".join(row.split("\n")).strip() for row in SHARES.split(" ·")])
def test_drift_is_a_share_of_the_stated_number_rounded_up(row: str) -> None:
    stated, _, rest = row.partition("×")
    actual, _, expected = rest.partition("→")
    (drift,) = read_tokens(f"{MARK} phase=1 bullet=1 field=f plan={stated} actual={actual}").drifts
    assert drift_percent(drift.stated, drift.actual) == int(expected)


@pytest.mark.parametrize(
    "stated",
    [
        *("roughly 400-600", "(40 + 12)", "10-5", "≤0", "-5-5", "~357 lines", "≤ 50", ">= 35", "At most 50", "≈100"),
        *("100+", "1,000", "N-M", "", "0"),
    ],
)
def test_other_texts_are_no_numbers(stated: str) -> None:
    assert drift_percent(stated, 5) is None


def judged(*drifts: Drift, corrected: tuple[tuple[str, int], ...] = ()) -> str:
    found = judge_drifts(Tokens(()), Tokens(drifts), corrected)
    if found.abort or not found.corrections:
        return "abort" if found.abort else "skip" if found.lines else "nothing"
    return "note" if found.lines else "correct"


@pytest.mark.parametrize(
    ("stated", "actual", "action"),
    [
        ("100", 100, "nothing"),
        ("100", 101, "correct"),
        ("100", 110, "correct"),
        ("100", 111, "note"),
        ("100", 120, "note"),
        ("100", 121, "abort"),
        ("exactly 5", 6, "abort"),
        ("about a hundred", 5, "skip"),
    ],
)
def test_the_share_decides(stated: str, actual: int, action: str) -> None:
    assert judged(Drift("1", 1, "f", stated, actual)) == action


def test_the_same_bullet_twice_in_a_run_aborts() -> None:
    once = Drift("1", 1, "f", "100", 101)
    assert judged(once, Drift("1", 1, "g", "100", 101)) == "abort"
    assert judged(once, corrected=(("1", 1),)) == "abort"
    assert judged(once, corrected=(("1", 2), ("1a", 1))) == "correct"
    decision = judge_drifts(Tokens(()), Tokens((once,)), [("1", 1)])
    assert decision.corrections == ()
    assert "corrected before in this run" in decision.abort


def test_the_verifier_measures_again_and_its_number_counts() -> None:
    decision = judge_drifts(Tokens((Drift("1", 1, "f", "100", 150),)), Tokens((Drift("1", 1, "f", "100", 115),)))
    assert decision.corrections == (("1", 1, "100", 115),)
    assert decision.lines == ("phase 1, criterion 1, f: the plan states 100, measured are 115 (15 % apart)",)


def test_two_numbers_over_ten_per_cent_recommend_a_revision() -> None:
    far = [Drift("1", bullet, "f", "100", 115) for bullet in (1, 2)]
    advice = "several numbers are off by more than 10 %; revise the plan"
    assert judge_drifts(Tokens(tuple(far)), Tokens(())).lines[-1] == advice
    assert advice not in judge_drifts(Tokens(tuple(far[:1])), Tokens(())).lines


def test_the_report_says_which_number_was_missed_and_which_line_was_not_understood() -> None:
    missed = judge_drifts(Tokens((Drift("1", 1, "f", "exactly 5", 6),), ("x",)), Tokens((), ("y",)))
    assert missed.abort == "phase 1, criterion 1, f: the plan states exactly 5, measured are 6 (another number)"
    assert missed.lines == (f"not understood: {MARK} x", f"not understood: {MARK} y")


SECTION = """\
## Phase 3b — Split

### Work Items

- 1 file

### Acceptance Criteria

- All tests pass.
- [ ] Skill is approximately 357 lines (target band 340-380)
- At most 3570 files.

```
- 100 of a fence
```

1. The count is 100.

### Dependencies

- Phase 1
"""


def fixed(stated: str, bullet: int, phase: str = "3b") -> str:
    section, why = correct_section(SECTION, Drift(phase, bullet, "f", stated, 277), date="2026-01-02")
    assert why == "" or section == SECTION
    return why or section


def test_a_correction_replaces_the_number_and_leaves_a_comment() -> None:
    """H20"""
    line = "- [ ] Skill is approximately 357 lines (target band 340-380)\n"
    comment = "<!-- Auto-corrected 2026-01-02: was approximately 357, arithmetic says 277 -->"
    expected = SECTION.replace(line, f"- [ ] Skill is 277 lines (target band 340-380) {comment}\n")
    assert fixed("approximately 357", 1) == expected


def test_a_second_correction_leaves_a_second_comment() -> None:
    """H23"""
    first, _ = correct_section(SECTION, Drift("3b", 3, "f", "100", 120), date="2026-01-02")
    second, _ = correct_section(first, Drift("3b", 3, "f", "120", 150), date="2026-01-03")
    assert "1. The count is 150. <!-- Auto-corrected 2026-01-02: was 100" in second
    assert second.count("<!-- Auto-corrected") == 2


@pytest.mark.parametrize(
    ("stated", "bullet", "phase", "why"),
    [
        pytest.param("1", 9, "3b", "has 3 criteria with a number, not 9", id="no such bullet"),
        pytest.param("358", 1, "3b", "does not contain '358'", id="absent"),
        pytest.param("357", 2, "3b", "does not contain '357'", id="part of a longer number"),
    ],
)
def test_a_correction_without_its_place_changes_nothing(stated: str, bullet: int, phase: str, why: str) -> None:
    assert why in fixed(stated, bullet, phase)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("340-380", "263-291"), ("at most 50", "at most 277"), ("≥35", "≥277"), ("~357", "277"), ("357", "277")],
)
def test_the_new_text_keeps_the_form_of_the_old_one(stated: str, expected: str) -> None:
    assert corrected_text(stated, 277) == expected


PHASE = "## Phase 1 — A\n\n### Design & Constraints\n\n{design}\n\n### Acceptance Criteria\n\n- {criterion}\n"


@pytest.mark.parametrize(
    ("design", "criterion", "expected"),
    [
        ("The file has 417 - 94 - 60 + 15 lines then.", "The file has 270-286 lines.", ()),
        ("417 - 94 - 60 + 15 lines", "The file has 340-380 lines.", (("417 - 94 - 60 + 15", 278, "340-380", 23),)),
        ("417 - 94 - 60 + 15 lines", "at most 250 lines", (("417 - 94 - 60 + 15", 278, "at most 250", 12),)),
        ("417 - 94 = 320", "It works.", (("417 - 94", 323, "320", 1),)),
        ("Lines moved: lines 10-20 (12 lines)", "It works.", (("lines 10-20", 11, "12", 9),)),
        ("417 - 94 lines", "300 lines in a, 20 lines in b", ()),
        ("417 - 94 lines", "300 files", ()),
        ("on 2026-01-02, see lines 10-20", "300 lines", ()),
    ],
)
def test_sums_that_contradict_a_criterion_are_found_before_any_work(
    design: str, criterion: str, expected: tuple[tuple[str, int, str, int], ...]
) -> None:
    found, _ = find_contradictions(PHASE.format(design=design, criterion=criterion))
    assert found == [(off, f"{text} is {sum_}, and the phase states {said}") for text, sum_, said, off in expected]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Phase 1. Drafted before phase 1 landed.", "Drafted before"),
        ("Phase 1; may need refresh.", "may need refresh"),
        ("Phase 1. Based on phase 1's design, not actual code.", "Based on phase 1's design, not actual code"),
        ("Phase 1.", ""),
    ],
)
def test_dependencies_may_say_that_a_phase_is_stale(text: str, phrase: str) -> None:
    section = f"## Phase 2 — B\n\ndrafted before\n\n### Dependencies\n\n{text}\n\n### Next\n"
    assert find_contradictions(section) == ([], phrase)
