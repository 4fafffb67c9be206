"""The description of a pull request, and the commit status."""

import pytest
from msgspec.structs import replace

from runplan.adapters.forge.protocol import CheckState
from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import TrialJudged
from runplan.domain.run.dispatch import Artifact, Remarks
from runplan.engine.landing.description import (
    BEGIN,
    DRAFT,
    END,
    FOOTER,
    LONGEST_BODY,
    REVIEWING,
    PhaseProgress,
    PlanProgress,
    body_of,
    choose_template,
    describe_change,
    fill_template,
    status_of,
)
from runplan.engine.report.summary import describe_plan, find_goal
from tests.support.builders import a_plan
from tests.unit.test_summary import BASE, GATE, LEASED, ROBOT, records

URL = "https://github.test/acme/app/blob/runplan/x/pr/reports/plan-x.md"
TEXT = a_plan({"1": "✅ Done", "2": "⬚"})
PLAN = parse_plan(TEXT, path="plans/X.md")
SHOWN = describe_plan(PLAN, TEXT, lambda *_, **_plan: [], "")
HOW = REVIEWING.format("phase by phase; each has its own commits, and the evidence")


def body(before: str = "", plan: PlanProgress = SHOWN, *, marks: str = "") -> str:
    return body_of(before, plan, report=URL, fixes=(7,), marks=marks)


def test_the_description_links_the_report_lists_the_phases_and_closes_the_issues() -> None:
    text = body()
    assert text.startswith(f"{BEGIN}\n{HOW}\n\n**1 of 2 phases** of `plans/X.md` · [report]({URL})\n")
    assert "- [x] 1" in text
    assert "- [ ] 2" in text
    assert text.endswith(f"\n\n{FOOTER}\n{END}\n\nFixes #7")


def test_the_description_says_what_changed_why_and_what_is_uncertain() -> None:
    plan = replace(SHOWN, goal="Be quick.", changes=("Made it fast. See @bob. More.",), doubts=("phase 1: no tests",))
    lines = ["**What changed:** Made it fast. See @\u200bbob.", "**Why:** Be quick.", HOW]
    assert describe_change(plan) == [
        *(text for line in lines for text in (line, "")),
        *("**Uncertain:**", "", "- phase 1: no tests", ""),
    ]
    several = replace(plan, changes=("First.", "Made it fast. More.", "Tested it"))
    assert describe_change(several)[0] == "**What changed:** Made it fast. Tested it."
    assert REVIEWING.format("the evidence") in describe_change(replace(plan, phases=plan.phases[:1]))


TEMPLATE = """## Summary

<!-- What is it? -->

## Tests

- [ ] Tests pass
- [ ] I signed the agreement

### Testing

## Screenshots
"""


def test_the_clear_parts_of_a_template_are_filled_below_the_block() -> None:
    plan = replace(SHOWN, goal="Be quick.", is_tested=True)
    text = body_of("", plan, report=URL, fixes=(), template=TEMPLATE)
    assert text.startswith(BEGIN)
    filled = text.partition(END)[2]
    assert "## Summary\n\nBe quick.\n" in filled
    assert "## Tests\n\n- [x] Tests pass\n- [ ] I signed the agreement\n" in filled
    assert "### Testing\n\nThe tests passed" in filled
    assert filled.endswith("## Screenshots\n")
    assert body_of(text, plan, report=URL, fixes=(), template=TEMPLATE) == text, "it is filled once"
    untested = fill_template(TEMPLATE, replace(plan, is_tested=False))
    assert ("[x]" in untested, "The tests passed" in untested) == (False, False)


def test_lines_of_files_are_links_and_repairs_are_listed() -> None:
    phase = PhaseProgress(line="1 p", items=("do it — a.py:3; b.py:4; `a.py:3`; x::y",), is_done=True)
    plan = replace(SHOWN, phases=(phase,), repairs=("Handle the review: abc1234",))
    text = body_of("", plan, report=URL, fixes=(), link=lambda path, line: f"/{path}#L{line}" if path == "a.py" else "")
    assert "do it — [a.py:3](/a.py#L3); b.py:4; `a.py:3`; x::y" in text
    assert "\n\n**Changed afterwards:**\n\n- Handle the review: abc1234\n" in text


def test_only_the_marked_block_is_replaced() -> None:
    text = body(f"Above\n{BEGIN}{DRAFT}\nold\n{END}\nBelow")
    assert text.startswith("Above\n")
    assert text.endswith("\nBelow")
    assert "old" not in text
    assert body(text) == text
    assert DRAFT not in text
    assert DRAFT in body(text, marks=DRAFT)


def test_a_block_whose_end_a_person_deleted_takes_no_other_text_along() -> None:
    text = body(f"Above\n{BEGIN}\nold\n\nNotes")
    assert body(text) == text
    assert text.startswith(f"Above\n{BEGIN}\nold\n\nNotes\n\n{BEGIN}\n")


def test_the_text_of_a_plan_has_no_effect_and_does_not_end_the_block() -> None:
    evil = PhaseProgress(line=f"1 `{END}` @bob", items=("fixes #9",), is_done=True)
    plan = replace(SHOWN, goal=f"{DRAFT} Closes #8", phases=(evil,))
    text = body(plan=plan)
    assert (text.count(END), text.count(DRAFT), body(text, plan)) == (1, 0, text)
    assert [word for word in ("@bob", "#9", "#8") if word in text] == []


def test_a_long_description_loses_the_items_of_the_first_phases_and_never_the_template() -> None:
    phases = tuple(PhaseProgress(line=f"{n} p", items=("x" * 300,) * 50, is_done=n < 4) for n in range(6))
    text = body("T" * 20_000, replace(SHOWN, phases=phases))
    assert len(text) <= LONGEST_BODY
    assert text.startswith("T" * 20_000)
    assert "- [x] 0 p (50 items: see the report)" in text
    assert text.count("x" * 300) == 50 * 2
    many = replace(SHOWN, phases=tuple(PhaseProgress(line="y" * 300, items=(), is_done=False) for _ in range(999)))
    cut = body("T" * 20_000, many)
    assert body("T" * LONGEST_BODY) == "T" * LONGEST_BODY, "no room for the block"
    assert (len(cut) <= LONGEST_BODY, "- …\n" in cut, cut.endswith("Fixes #7")) == (True, True, True)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("README.md", "docs"), ""),
        (("docs/Pull_Request_Template.md", "PULL_REQUEST_TEMPLATE.md"), "PULL_REQUEST_TEMPLATE.md"),
        (("pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md"), ".github/PULL_REQUEST_TEMPLATE.md"),
        ((".github/PULL_REQUEST_TEMPLATE/only.md",), ".github/PULL_REQUEST_TEMPLATE/only.md"),
        ((".github/PULL_REQUEST_TEMPLATE/a.md", ".github/PULL_REQUEST_TEMPLATE/b.md"), ""),
    ],
)
def test_the_template_is_the_one_that_github_uses(paths: tuple[str, ...], expected: str) -> None:
    assert choose_template(paths) == expected


def test_the_status_counts_the_items_of_done_phases() -> None:
    done = parse_plan(a_plan({"1": "✅ Done", "2": "✅ Done"}), path="plans/X.md")
    assert status_of(PLAN) == (CheckState.PENDING, "1 of 2 items proven")
    assert status_of(done) == (CheckState.PASSED, "2 of 2 items proven")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# X\n\n**Status:** open\n\nMake it\nfast.\n\nMore.\n\n## Phase 1\n", "Make it fast."),
        ("# X\n\nText.\n\n## Goal\n\n```\ncode\n```\n\n- list\n\nBe quick.\n", "Be quick."),
        ("# X\n\n**Goal:** Be quick.\n", "Be quick."),
        ("# X\n\n| a |\n|---|\n\n## Phase 1\n\nDo it.\n", ""),
        ("- [ ] a\n", ""),
        ("# Y\n\nA phase.\n", ""),
    ],
)
def test_the_goal_is_the_paragraph_below_its_heading_or_the_title(text: str, expected: str) -> None:
    assert find_goal(text.encode(), replace(PLAN, title="X")) == expected


def test_a_phase_is_shown_with_evidence_tests_and_cost_before_its_landing_is_recorded() -> None:
    verdict = e.VerdictGiven(tree="t", patch="p", passed=True, items=(("P", True, "test_a"),), agent="robot")
    said = Remarks(errors=("it is slow",), memory=("use make",))
    taken = e.WorkTaken(head="h", tree="t", commits=1, remarks=said, summary="Made it fast.")
    chosen = e.RepairChosen(tip="t", title="Handle the review")
    repairs = records(chosen, e.Landed(id="1", phase="", tip="t", code="abc1234567"))
    shot = Artifact(path="trial-01-a.png", summary="a <b>")
    trial = TrialJudged(tree="t", patch="p", agent="robot", dispatch="d", files=(shot,), summary="Used it.")
    proofs = records(LEASED, BASE, ROBOT, taken, GATE, verdict, trial)
    shown = describe_plan(PLAN, TEXT, lambda *kinds, **_: repairs if e.RepairChosen in kinds else proofs, "")
    doubts = ("phase 1: Problem: it is slow",)
    assert (shown.changes, shown.doubts, shown.is_tested) == (("Made it fast.",), doubts, True)
    tried = ("Trial by robot: passed; Used it.", "File: trial-01-a.png: a &lt;b>")
    assert shown.phases[0].remarks == (*tried, "To remember: use make")
    assert shown.repairs == ("Handle the review: abc1234",)
    assert shown.phases[0].line == "1 Title 1 · tests: 10 passed, 0 failed → 12 passed, 0 failed · cost: $0.50"
    assert shown.phases[0].items[0].endswith(" — test_a")
    assert shown.phases[1].line == "2 Title 2"
