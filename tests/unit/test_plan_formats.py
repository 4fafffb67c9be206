"""Plans as found in the wild: every format and every trap is understood, or refused with what is missing."""

from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_status

PLANS = Path(__file__).parent.parent / "plans"


def read(name: str) -> Plan:
    return parse_plan((PLANS / name).read_bytes(), path=f"plans/{name}")


def statuses(plan: Plan) -> dict[str, str]:
    return {phase.id: phase.status.value for phase in plan.phases}


def refusal(name: str) -> str:
    with pytest.raises(PlanUnreadable) as caught:
        read(name)
    return str(caught.value)


def test_front_matter_gives_title_status_and_issues() -> None:
    plan = read("basics/tracker.md")
    assert (plan.title, plan.status, plan.complete) == ("Search index rebuild", "active", False)
    assert plan.issues == (42, 57)


def test_a_landing_mode_is_a_remark() -> None:
    landing, *_ = read("basics/tracker.md").remarks
    assert (landing.line, landing.landing, landing.is_error) == (11, "pr", False)
    assert landing.text.endswith("to use it, add the word: runplan start plans/basics/tracker.md pr")


def test_a_section_ends_at_the_next_heading_of_its_level_and_not_inside_a_fence() -> None:
    reader = read("basics/tracker.md").phase("3")
    assert reader is not None
    assert "## Phase 9 — An example that is no phase" in reader.text
    assert "Non-Goals" not in reader.text


def test_a_box_with_a_sign_of_its_own_is_todo_and_remarked() -> None:
    """S18: a capital X is a tick; an unknown sign is never done."""
    plan = parse_plan(b"# Plan: X\n\n- [X] a\n- [-] b\n- [ ] c\n", path="plans/x.md")
    assert [phase.status for phase in plan.phases] == ["done", "todo", "todo"]
    (remark,) = plan.remarks
    assert (remark.line, remark.text) == (4, "the status of phase b is unknown; it counts as todo")


def test_an_indented_fence_that_is_never_closed_hides_nothing() -> None:
    """D28"""
    text = (PLANS / "basics/nested-fences.md").read_bytes().replace(b"  ```\n\n## Phase 3", b"\n## Phase 3")
    assert len(parse_plan(text, path="p.md").phases) == 4


@pytest.mark.parametrize(
    ("fenced", "ids"),
    [
        ("~~~\n## Phase 8 — x\n~~~\n", ["1", "2"]),
        ("~~~\n```\n## Phase 8 — x\n~~~\n", ["1", "2"]),
        ("```markdown\n```sh\nls\n```\n## Phase 8 — x\n```\n", ["1", "2"]),
        ("````\n```\n## Phase 8 — x\n```\n## Phase 9 — x\n````\n", ["1", "2"]),
    ],
    ids=["tildes", "backticks in tildes", "nested", "four backticks"],
)
def test_a_heading_in_a_fence_is_no_phase(fenced: str, ids: list[str]) -> None:
    text = f"## Phase 1 — A\n- [ ] a\n{fenced}## Phase 2 — B\n- [ ] b\n"
    plan = parse_plan(text.encode(), path="p.md")
    assert [phase.id for phase in plan.phases] == ids
    assert plan.remarks == ()


def test_phases_may_be_headings_of_level_one() -> None:
    text = b"# Phase 1: Draw\n\n## Notes\n\n- [x] a\n\n# Phase 2: Paint\n\n- [ ] b\n\n# Notes\n\nText.\n"
    plan = parse_plan(text, path="plans/HOUSE.md")
    assert [(phase.id, phase.title, str(phase.status)) for phase in plan.phases] == [
        ("1", "Draw", "done"),
        ("2", "Paint", "todo"),
    ]
    assert "Notes" not in plan.phases[1].text
    assert plan.title == "HOUSE"


def test_one_heading_of_level_one_is_the_title() -> None:
    plan = parse_plan(b"# Phase 2: Search\n\n### Task 1: A\n\n### Task 2: B\n", path="p.md")
    assert (plan.read_as, [phase.id for phase in plan.phases]) == ("Task headings", ["1", "2"])
    assert plan.title == "Phase 2: Search"


@pytest.mark.parametrize(
    ("text", "read_as", "ids"),
    [
        ("## Early\n- [x] 1. a\n  - [x] 1.1 b\n## Phase 2: Late\n- [ ] 2. c\n", "Kiro tasks", ["1", "2"]),
        ("### Phase A — Core\n#### M1: a\n- [x] b\n#### M2: c\n- [ ] d\n", "numbered headings", ["M1", "M2"]),
        ("## Steps\n### Story 1: a\n### User Story 2: b\n", "Story headings", ["1", "2"]),
    ],
)
def test_a_lone_phase_section_may_be_a_chapter_of_another_plan(text: str, read_as: str, ids: list[str]) -> None:
    plan = parse_plan(text.encode(), path="p.md")
    assert (plan.read_as, [phase.id for phase in plan.phases]) == (read_as, ids)


def test_an_indented_status_line_is_of_its_entry() -> None:
    plan = parse_plan(b"## Phase 1 - A\n- [x] a\n  - **Status**: see below\n## Phase 2 - B\n- [ ] b\n", path="p.md")
    assert statuses(plan) == {"1": "done", "2": "todo"}
    assert plan.remarks == ()


def test_the_status_lines_of_sub_sections_are_theirs() -> None:
    parts = "### 1.1 Lexer\n**Status:** Done\n- [x] a\n### 1.2 Parser\n**Status:** Open\n- [ ] b\n"
    plan = parse_plan(f"## Phase 1 - A\n{parts}## Phase 2 - B\n- [ ] b\n".encode(), path="p.md")
    assert statuses(plan) == {"1": "todo", "2": "todo"}
    one = f"## Phase 1 - A\n{parts}".encode()
    assert set_status(one, path="p.md", phase="1", status=Status.DONE) == one.replace(b"[ ]", b"[x]")


def test_a_plain_status_counts_only_above_the_first_sub_heading() -> None:
    text = "## Phase 1 — A\n**Status:** ⬚\n## Phase 2 — B\n\n### Report\n\nStatus: done\n"
    assert statuses(parse_plan(text.encode(), path="p.md")) == {"1": "todo", "2": "todo"}


def test_a_narrative_is_refused_with_what_is_missing() -> None:
    said = refusal("narrative.md")
    assert said.startswith("plans/narrative.md:1: no phases found")
    assert "Progress Tracker" in said
    assert said.endswith("; write phases, or have agents write them: runplan plan --file plans/narrative.md")
    with pytest.raises(PlanUnreadable, match=r"runplan plan --file 'plans/a b\.md'"):
        parse_plan(b"Text", path="plans/a b.md")


def test_a_phase_only_inside_a_fence_is_no_phase() -> None:
    """D26"""
    assert "no phases found" in refusal("only-in-fence.md")


def test_all_four_statuses_have_their_contract_words() -> None:
    assert [status.value for status in Status] == ["todo", "in-progress", "blocked", "done"]
