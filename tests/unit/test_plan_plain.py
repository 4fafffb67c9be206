"""Plans without boxes: plain lists are read where the text is plainly a plan, and refused where work may be done."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_status

NOW = "## M1 — Now\n- a\n\n## M2 — Next\n- b\n- c\n"
MILESTONES = "## M1 — A\n- a\n## M2 — B\n- b\n"
STEPS = "## Implementation Order\n1. a\n2. b\n3. c\n"
NUMBERS = "## 1. Parser\n- a\n## 2. Printer\n- b\n## 3. Linter\n- c\n"


def read(text: str) -> Plan:
    return parse_plan(text.encode(), path="p.md")


def described(plan: Plan) -> str:
    """Each phase with its number of items; a done one has a plus."""
    rows = ((phase, sum(item.id != "P" for item in phase.items)) for phase in plan.phases)
    return " ".join(f"{phase.id}:{count}{'+' * (phase.status == 'done')}" for phase, count in rows)


@pytest.mark.parametrize(
    ("text", "read_as", "expected"),
    [
        ("## v0.1 (MVP)\n- a\n## v0.2\n- b\n", "numbered headings", "v0.1:1 v0.2:1"),
        ("## Version 1.1 — A\n### 1. x\n### 2. y\n- c\n## Version 1.2 — B\n- b\n", "Version headings", "1.1:2 1.2:1"),
        ("## P1\n### Parse\n- why\n- how\n### Print\n- why\n## P2\n- c\n", "numbered headings", "P1:2 P2:1"),
        ("## v1\n### Goal\n- a\n### Work\n- b\n- c\n## v2\n### Goal\n- d\n", "numbered headings", "v1:3 v2:1"),
        (MILESTONES + "## Later\n- c\n", "numbered headings", "M1:1 M2:1"),
        ("## ✅ M1 — A\n- ✅ a\n## M2 — B\n- b\n", "numbered headings", "M1:1+ M2:1"),
        ("## 1. Why\n- x\n## 2. M0：A\n- a\n## 3. M1：B\n- b\n", "numbered headings", "M0:1 M1:1"),
        ("### M1（月1）A\n- a\n### M2（月2）B\n- b\n", "numbered headings", "M1:1 M2:1"),
        ("## Adım 1: A\n- a\n## Adım 2: B\n1. b\n2. c\n", "Adım headings", "1:1 2:2"),
        ("## Faz 0 — A\n1. a\n## Faz 1 — B\nb\n", "phase sections", "0:1 1:0"),
        ("### **1단계: A**\na\n### **2단계: B**\nb\n", "phase sections", "1:0 2:0"),
        ("## Giai đoạn 1 — A ✅\n## Giai đoạn 2 — B\n", "phase sections", "1:0+ 2:0"),
        ("# Tool\n## Scope\n- x\n" + STEPS, "numbered list", "1:0 2:0 3:0"),
        (
            "## 9. Risks\n- x\n## 10. Execution Plan (Milestones)\n1. ✅ a\n2. b\n3. c\n",
            "numbered list",
            "1:0+ 2:0 3:0",
        ),
        ("# Improvement Plan\n" + NUMBERS + "## Sequencing\n1. x\n", "numbered headings", "1:1 2:1 3:1"),
        ("# Tool backlog\n## 1. Parser\n- a\n## 2. Printer\n- b\n", "numbered headings", "1:1 2:1"),
        ("## v1.0 — A\n### X\n- ✅ a\n- ✅ b\n## v1.1 — B\n- b\n", "numbered headings", "v1.0:2+ v1.1:1"),
        ("## M1 — A ✅\n- a\n## M2 — B\n- b\n## Rules\n1. mark it by ✅\n", "numbered headings", "M1:1+ M2:1"),
        ("# Plan: A\n\n1. a\n2. b\n3. c\n", "numbered list", "1:0 2:0 3:0"),
        ("## A\n**Implementation Tasks:**\n1. a\n2. b\n3. c\n\n**Notes:**\n- d\n", "numbered list", "1:0 2:0 3:0"),
        ("**Phase 1 — A**\n- a\n\n**Phase 2 — B**\n- b\n", "phase sections", "1:0 2:0"),
    ],
)
def test_plain_lists_are_items(text: str, read_as: str, expected: str) -> None:
    plan = read(text)
    assert (plan.read_as, described(plan), plan.refusals(strict=False)) == (read_as, expected, ())
    has_done = "+" in expected
    assert has_done or any("count as todo" in remark.text for remark in plan.remarks)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"# T\n\nAll of this is implemented.\n\n{NOW}", id="the preface says done"),
        pytest.param(NOW.replace("- a", "Already in the release:\n- a"), id="the prose of a group says done"),
        pytest.param(f"{NOW}\n| Step | Result |\n|--|--|\n| x | Done |\n", id="a cell says done"),
        pytest.param(NOW.replace("- b", "- b ✅"), id="an entry has a sign"),
        pytest.param(NOW.replace("- b", "- ~~b~~"), id="an entry is struck"),
        pytest.param(f"{NOW}## M3\n## Milestone plan\n- d\n", id="another heading has a list"),
        pytest.param(NOW.replace("- a", "a"), id="a group without a list"),
        pytest.param("## Risiko 1: A\n- a\n## Risiko 2: B\n- b\n", id="a word that counts no work"),
        pytest.param("## Del 1: A\n- a\n## Del 2: B\n- b\n## Notes\n- c\n", id="a list beside an unknown word"),
        pytest.param("## M1 — A\n- a\n## M2 — B\n- b\n## M2+ — C\n- c\n", id="a milestone that does not count"),
        pytest.param("## v1.1 — A\n- a\n## v1.0 — B\n- b\n", id="versions that fall"),
        pytest.param("# Viewer Contract\n" + NUMBERS, id="the chapters of a document"),
        pytest.param("# Plan\n" + NUMBERS.replace("Parser", "Purpose"), id="the chapters of a plan"),
        pytest.param(STEPS + "## Detailed Steps\n1. x\n2. y\n3. z\n", id="two lists"),
        pytest.param(STEPS.replace("Order", "Steps") + "## v2.0: B\n- x\n## v3.0: C\n- y\n", id="beside versions"),
        pytest.param(STEPS.replace("Implementation Order", "Next Steps"), id="the next steps of a report"),
        pytest.param(STEPS.replace("2. b", "- b"), id="a list of both kinds"),
        pytest.param("## M1 — A ✅\n- a\n## M2 — B\n- b\n- c ✅\n", id="a sign in an open version"),
        pytest.param("## M1 — A ✅\n- a\n## M2 — B\n- b\n## Log\n- M2 ✅\n", id="a sign beside the name of a version"),
        pytest.param(
            "## Tasks\n### #3 Split\n#### 1. A\ntext\n#### 2. B\ntext\n", id="the parts of one of several tasks"
        ),
        pytest.param("# Planets\n1. a\n2. b\n3. c\n", id="the title of no plan"),
        pytest.param("# Plan\n1. a\n2. b\n3. c\n- d\n", id="a plan with another list"),
        pytest.param(
            "## A\n**Implementation Tasks:**\n1. a\n2. b\n3. c\n## B\n- d\n", id="a label in one of two lists"
        ),
        pytest.param("**Milestone 1 — A**\n- a ✅\n\n**Milestone 2 — B**\n- b\n", id="a sign below a bold line"),
        pytest.param(
            "**Milestone 1 — A**\n- a\n\n**Milestone 2 — B**\n- b\n## More\n- c\n", id="a list below no bold line"
        ),
        pytest.param("## Acceptance Criteria\n- [ ] a\n- [ ] b\n", id="criteria alone"),
    ],
)
def test_what_may_be_no_open_work_is_refused(text: str) -> None:
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read(text)


@pytest.mark.parametrize("text", [NOW, "## v0.1\n- a\n## v0.2\n- b\n", MILESTONES, "# Tool\n" + STEPS])
def test_a_plain_plan_is_read_in_the_same_way_until_all_is_done(text: str) -> None:
    plan = read(text)
    marked = text.encode()
    for phase in plan.phases:
        marked = set_status(marked, path="p.md", phase=phase.id, status=Status.DONE, commit="abc1234")
        after = parse_plan(marked, path="p.md")
        assert (after.read_as, [p.title for p in after.phases]) == (plan.read_as, [p.title for p in plan.phases])
    assert after.complete


def test_brackets_without_a_blank_are_an_empty_box() -> None:
    text = b"- [] watch\n- [x] parse\n- [](x.md) no box\n"
    assert described(read(text.decode())) == "1:0 2:0+"
    done = set_status(text, path="p.md", phase="1", status=Status.DONE)
    assert done.startswith(b"- [x] watch\n")
    assert set_status(done, path="p.md", phase="1", status=Status.TODO).startswith(b"- [ ] watch\n")


def test_a_finished_plan_with_notes_asks_unless_it_says_complete() -> None:
    plan = read(text := "## Tasks\n- [x] a\n## Tests\n- [x] b\n## Changes\n### 1. A\n- x\n### 2. B\n- y\n")
    assert plan.complete
    assert plan.refusals(strict=False)
    assert not read(f"---\nstatus: complete\n---\n{text}").refusals(strict=False)


def test_an_order_with_signs_makes_phases_without_statuses_doubtful() -> None:
    phases = "## Phase 1 — A\na\n## Phase 2 — B\nb\n"
    assert [r.is_error for r in read(phases + "## Implementation Order\n1. ✅ Login\n2. Docs\n").remarks] == [True]
    assert not read(phases + "## Success Criteria\n- ✅ Fast\n").refusals(strict=False)


def test_criteria_are_phases_only_where_the_front_matter_says_so() -> None:
    criteria = "## Acceptance Criteria\n- [x] fast\n- [ ] safe\n  - [ ] signed\n"
    with pytest.raises(PlanUnreadable, match="to make the boxes phases, write format: checklist into the front matter"):
        read(criteria)
    assert described(read(f"---\nformat: checklist\n---\n{criteria}")) == "1:0+ 2:1"
