"""Plans as found in the wild: every format and every trap is understood, or refused with what is missing."""

from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_status
from tests.support.readings import load_readings

PLANS = Path(__file__).parent.parent / "plans"


def read(name: str) -> Plan:
    return parse_plan((PLANS / name).read_bytes(), path=f"plans/{name}")


def test_a_tracker_plan_has_title_issues_landing_and_sections() -> None:
    plan = read("basics/tracker.md")
    assert (plan.title, plan.status, plan.complete) == ("Search index rebuild", "active", False)
    assert plan.issues == (42, 57)
    landing, *_ = plan.remarks
    assert (landing.line, landing.landing, landing.is_error) == (11, "pr", False)
    assert landing.text.endswith("to use it, add the word: runplan start plans/basics/tracker.md pr")
    reader = plan.phase("3")
    assert reader is not None
    assert "## Phase 9 — An example that is no phase" in reader.text, "a section does not end inside a fence"
    assert "Non-Goals" not in reader.text


def test_an_indented_fence_that_is_never_closed_hides_nothing() -> None:
    """D28"""
    text = (PLANS / "basics/nested-fences.md").read_bytes().replace(b"  ```\n\n## Phase 3", b"\n## Phase 3")
    assert len(parse_plan(text, path="p.md").phases) == 4


def test_phases_may_be_headings_of_level_one() -> None:
    text = b"# Phase 1: Draw\n\n## Notes\n\n- [x] a\n\n# Phase 2: Paint\n\n- [ ] b\n\n# Notes\n\nText.\n"
    plan = parse_plan(text, path="plans/HOUSE.md")
    assert [(phase.title, str(phase.status)) for phase in plan.phases] == [("Draw", "done"), ("Paint", "todo")]
    assert "Notes" not in plan.phases[1].text
    assert plan.title == "HOUSE"


def test_one_heading_of_level_one_is_the_title() -> None:
    plan = parse_plan(b"# Phase 2: Search\n\n### Task 1: A\n\n### Task 2: B\n", path="p.md")
    assert (plan.read_as, [phase.id for phase in plan.phases]) == ("Task headings", ["1", "2"])
    assert plan.title == "Phase 2: Search"


def test_the_status_lines_of_sub_sections_are_theirs() -> None:
    one = b"## Phase 1 - A\n### 1.1 Lexer\n**Status:** Done\n- [x] a\n### 1.2 Parser\n**Status:** Open\n- [ ] b\n"
    assert set_status(one, path="p.md", phase="1", status=Status.DONE) == one.replace(b"[ ]", b"[x]")


def test_a_narrative_is_refused_with_what_is_missing() -> None:
    with pytest.raises(PlanUnreadable, match=r"^plans/narrative.md:1: no phases found.* Progress Tracker") as refused:
        read("narrative.md")
    said = str(refused.value)
    assert said.endswith("; write phases, or have agents write them: runplan plan --file plans/narrative.md")
    with pytest.raises(PlanUnreadable, match=r"runplan plan --file 'plans/a b\.md'"):
        parse_plan(b"Text", path="plans/a b.md")


def test_a_phase_only_inside_a_fence_is_no_phase() -> None:
    """D26"""
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read("only-in-fence.md")


# --- plain lists -----------------------------------------------------------------------------------------

NOW = "## M1 — Now\n- a\n\n## M2 — Next\n- b\n- c\n"
MILESTONES = "## M1 — A\n- a\n## M2 — B\n- b\n"
STEPS = "## Implementation Order\n1. a\n2. b\n3. c\n"


def described(plan: Plan) -> str:
    """Each phase with its number of items; a done one has a plus."""
    rows = ((phase, sum(item.id != "P" for item in phase.items)) for phase in plan.phases)
    return " ".join(f"{phase.id}:{count}{'+' * (phase.status == 'done')}" for phase, count in rows)


@pytest.mark.parametrize(("text", "expected"), load_readings("plain.txt"))
def test_plain_lists_are_items(text: str, expected: str) -> None:
    plan = parse_plan(text.encode(), path="p.md")
    assert (f"{plan.read_as}: {described(plan)}", plan.refusals(strict=False)) == (expected, ())
    has_done = "+" in expected
    assert has_done or any("count as todo" in remark.text for remark in plan.remarks)


@pytest.mark.parametrize("text", [NOW, "## v0.1\n- a\n## v0.2\n- b\n", MILESTONES, "# Tool\n" + STEPS])
def test_a_plain_plan_is_read_in_the_same_way_until_all_is_done(text: str) -> None:
    plan = parse_plan(text.encode(), path="p.md")
    marked = text.encode()
    for phase in plan.phases:
        marked = set_status(marked, path="p.md", phase=phase.id, status=Status.DONE, commit="abc1234")
        after = parse_plan(marked, path="p.md")
        assert (after.read_as, [p.title for p in after.phases]) == (plan.read_as, [p.title for p in plan.phases])
    assert after.complete


def test_brackets_without_a_blank_are_an_empty_box() -> None:
    text = b"- [] watch\n- [x] parse\n- [](x.md) no box\n"
    assert described(parse_plan(text, path="p.md")) == "1:0 2:0+"
    done = set_status(text, path="p.md", phase="1", status=Status.DONE)
    assert done.startswith(b"- [x] watch\n")
    assert set_status(done, path="p.md", phase="1", status=Status.TODO).startswith(b"- [ ] watch\n")


def test_criteria_are_phases_only_where_the_front_matter_says_so() -> None:
    criteria = "## Acceptance Criteria\n- [x] fast\n- [ ] safe\n  - [ ] signed\n"
    with pytest.raises(PlanUnreadable, match="to make the boxes phases, write format: checklist into the front matter"):
        parse_plan(criteria.encode(), path="p.md")
    assert described(parse_plan(f"---\nformat: checklist\n---\n{criteria}".encode(), path="p.md")) == "1:0+ 2:1"
