"""Plans as people write them: each rule with the smallest plan that was answered wrongly without it."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_status


def read(text: str) -> Plan:
    return parse_plan(text.encode(), path="plans/p.md")


def outline(plan: Plan) -> str:
    """Each phase with its status, what it waits for and the number of its work items."""
    rows = []
    for phase in plan.phases:
        count = sum(item.id.startswith("W") for item in phase.items)
        rows.append(" ".join([phase.id, phase.status, *(f"<{id_}" for id_ in phase.depends), f"W{count}"]))
    return ", ".join(rows)


def errors(plan: Plan) -> list[str]:
    return [f"{remark.line}: {remark.text}" for remark in plan.remarks if remark.is_error]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# P\n## 🧥 EPIC A — Shop\n### HU-7.1 · Add\n- a\n## 🎨 EPIC B — Cart\n### HU-7.2 · Pay\n- b\n", "A W1, B W1"),
        ("# P\n## TASK-001: Parse\n- [ ] a\n## TASK-002: Write\n- [ ] b\n", "001 W1, 002 W1"),
        ("# P\n## 1. Scope\nWhy.\n## 2. Parts\n### AUTH-PR-1 — A\n- a\n### AUTH-PR-2 — B\n- b\n", "1 W1, 2 W1"),
        ("# P\n## Phase 1 — A\n### T-01 Parse\nHow.\n### T-02 Write\nHow.\n## Phase 2 — B\nHow.\n", "1 W2, 2 W0"),
        ("## Phase 1 — A\n| Task | Size |\n|---|---|\n| **1.1** Parse | S |\n| **1.2** Write | M |\n", "1 W2"),
    ],
)
def test_ids_of_work_are_read(text: str, expected: str) -> None:
    assert outline(read(text)).replace(" todo", "") == expected


def test_the_word_behind_an_id_is_its_status() -> None:
    done = "## M1: DONE — Parse\n- a\n## M2: COMPLETE 2025-10-02 - Write\n- b\n## M3: **Done** Lint\n- c\n"
    plan = read(f"# P\n{done}## M4: COMPLETE REWRITE\n- [ ] d\n## M5: Sort\n- [ ] e\n")
    assert [phase.status for phase in plan.phases] == ["done", "done", "done", "todo", "todo"]


@pytest.mark.parametrize("title", ["COMPLETE the parser", "Add the state: DONE flag", "**Complete** the parser"])
def test_a_title_that_asks_to_complete_something_is_not_done(title: str) -> None:
    plan = read(f"# P\n## Phase 1: DONE in 4a6075d — Parse\n- a\n## Phase 2: {title}\n- b\n")
    assert [phase.status for phase in plan.phases] == ["done", "todo"]


def test_a_phase_waits_for_what_the_parts_of_others_are_in() -> None:
    first = "## Phase 1 — A\n### M-1.1 — Parse\nHow.\n### M-1.2 — Sort\n**Depends on:** M-1.1 (the parser)\n"
    plan = read(f"{first}## Phase 2 — B\n### M-2.1 — Write\n**Depends on:** M-1.2\n")
    assert outline(plan) == "1 todo W2, 2 todo <1 W1"


def test_a_task_waits_for_what_blocks_it() -> None:
    boxes = "- [ ] 1. Parse\n  - **Blocks**: Tasks 2\n  - **Blocked By**: None\n- [ ] 3. Sort\n"
    plan = read(f"# P\n{boxes}- [ ] 2. Write\n  - **Blocked By**: Tasks 1, 3 (their types)\n")
    assert outline(plan) == "1 todo W0, 3 todo W0, 2 todo <1 <3 W0"
    tasks = "### Task 1: A\n**Dependencies:** Phase 2 (the parser)\n### Task 2: B\n**Dependencies**: Task 1, Phase 2\n"
    assert outline(read(f"# Phase 3\n{tasks}")) == "1 todo W0, 2 todo <1 W0"


def test_an_open_box_whose_text_says_done_asks() -> None:
    plan = read("## Phase 1 — A\n- [ ] **Parse** ✅ DONE (2026-02-27)\n- [ ] Show ✅ beside the name\n")
    assert errors(plan) == ["2: open boxes of phase 1 say done in their texts (1); correct one of the two"]


@pytest.mark.parametrize(
    ("label", "count"), [("**Completed in this repository:**", 1), ("**Done when:**", 0), ("**Shipped so far**", 1)]
)
def test_a_label_says_done_of_the_phases_below_it(label: str, count: int) -> None:
    plan = read(f"# P\n{label}\n\n- Phase 1: the parser\n\n## Phase 1 — A\n1. a\n## Phase 2 — B\n1. b\n")
    assert len(errors(plan)) == count


def test_open_boxes_of_a_backlog_leave_no_plan_complete() -> None:
    backlog = "## Backlog\n- [ ] sort\n"
    assert errors(read(f"## Phase 1 — A\n- [x] a\n## Phase 2 — B\n- [x] b\n{backlog}"))
    assert not errors(read(f"## Phase 1 — A\n- [x] a\n## Phase 2 — B\n- [ ] b\n{backlog}"))


def test_a_table_lists_the_sections_that_have_its_ids() -> None:
    sections = "## Milestone 1: A\n- [x] a\n## Milestone 2: B\n- [ ] b\n**Dependencies**: Requires Milestone 1\n"
    rows = "| Phase | Progress |\n|---|---|\n| Phase 1: A | ██ 100% |\n| Phase 2: B | ░░ 0% |\n"
    plan = read(f"# P\n{sections}# Rollout\n## Phase 1: Beta\nNobody knows.\n# Progress\n{rows}")
    assert (outline(plan), errors(plan)) == ("1 done W1, 2 todo <1 W1", [])


@pytest.mark.parametrize("value", [" First version implementada.", "\n\n- Started. The parser is there."])
def test_a_status_in_other_words_asks(value: str) -> None:
    plan = read(f"## Phase 1 — A\nStatus:{value}\n## Phase 2 — B\nStatus: queued\n")
    asked = "phase 1 has a status that may mean done or begun; write its status into a line **Status:** below its"
    assert errors(plan) == [f"2: {asked} heading"]


def test_a_plan_that_is_set_aside_asks() -> None:
    plan = read("# P\n**Status:** superseded by the new one\n## Phase 1 — A\n- [ ] a\n")
    assert errors(plan) == ["2: the plan says here that it is set aside, but not done: 1"]
    plan = parse_plan(b"## Phase 1: A\n- [ ] a\n", path="plans/completed/p.md")
    assert errors(plan) == ["1: the plan is in a folder completed, but not done: 1; to have it worked, move it"]


@pytest.mark.parametrize("status", ["**Status:** Draft", "> Status: Proposed (awaiting review)", "Status: draft v2"])
def test_a_plan_that_calls_itself_a_draft_is_not_worked(status: str) -> None:
    phases = "## Phase 1 — A\n**Status:** todo\n- [ ] a\n"
    assert read(f"# P\n{status}\n{phases}").status in ("draft", "proposed")
    assert read(f"---\nstatus: active\n---\n# P\n{status}\n{phases}").status == "active"
    assert read(f"# P\n{phases}\n## Notes\n{status}\n").status == "active"


@pytest.mark.parametrize(
    ("title", "part"),
    [("Spike results", "text"), ("Migration", "### Findings\n- slow"), ("Q", "**What was done:**\n- a")],
)
def test_a_document_that_tells_what_was_done_asks(title: str, part: str) -> None:
    text = f"# {title}\n## Phase 1: A\n{part}\n## Phase 2: B\n{part}\n"
    assert [error.partition(",")[0] for error in errors(read(text))] == ["2: no status of phase 1"]
    assert errors(read(text.replace(title, "Results plan").replace(part, "- a"))) == []


def test_an_open_fence_that_hides_phases_asks() -> None:
    hidden = "## Phase 1 — A\n- [ ] a\n```py\nx = 1\n## Phase {} — B\n- [ ] b\n"
    assert errors(read(hidden.format(2))) == [
        "3: this fence is never closed; the text after it is ignored and has phases"
    ]
    assert not errors(read(hidden.format(1)))


def test_a_part_that_says_done_over_boxes_of_both_kinds_is_open() -> None:
    part = "## Phase 1 — A\n### 1.1 Parse ✅\n- [x] a\n- [ ] b\n### 1.2 Sort ✅\n- [x] c\n"
    assert [phase.status for phase in read(f"{part}## Phase 2 — B\n- [ ] d\n").phases] == ["todo", "todo"]


def test_a_sign_at_the_end_of_a_heading_is_its_status() -> None:
    text = "# P\n## Why\n- pasting works ✅\n## Plan\n### Étape 1 : Parse ⬜\nHow.\n### Étape 2 : Write ⬜\nHow.\n"
    plan = read(text)
    assert [(phase.id, phase.status) for phase in plan.phases] == [("1", "todo"), ("2", "todo")]
    done = set_status(text.encode(), path="plans/p.md", phase="1", status=Status.DONE).decode()
    assert done == text.replace("Parse ⬜", "Parse ✅")
    assert [phase.status for phase in read(done).phases] == ["done", "todo"]


def test_criteria_in_other_languages_are_no_work() -> None:
    for label in ("Critérios de aceite", "Critères", "Критерии", "验收标准"):
        with pytest.raises(PlanUnreadable, match="no phases found"):
            read(f"# P\n## Body\nHow.\n**{label}:**\n- [ ] it shows\n- [ ] it scrolls\n")


def test_the_boxes_of_a_review_are_no_work() -> None:
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read("## REVIEW — P3-T2 Parser\n### Verdict\n- [x] Approve\n- [ ] Block\n### Issues\nNone.\n")


def test_statuses_of_which_none_is_known_ask() -> None:
    text = "## Phase 1 — A\n**Status:** Exploring\n## Phase 2 — B\n**Status:** {}\n"
    knows_none = "runplan knows none of the statuses of the phases; write todo, in progress, blocked or done there"
    assert errors(read(text.format("Researching"))) == [f"2: {knows_none}"]
    assert errors(read(text.format("todo"))) == []


def test_a_table_may_list_phases_of_the_past() -> None:
    table = "# P\n| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n"
    sections = "\n## Phase 2 — B\n1. b\n## Phase 3 — C\n1. c\n"
    assert outline(read(table + sections)) == "2 todo W1, 3 todo W1"
    table += "| 2 — B | ✅ |\n| 3 — C | ⬚ |\n"
    assert outline(read(table + sections)) == "1 done W0, 2 done W1, 3 todo W1"
    with pytest.raises(PlanUnreadable, match="make them agree"):
        read(f"{table}| 4 — D | ⬚ |\n{sections}")


def test_a_range_of_milestones_is_one_phase() -> None:
    plan = read("# P\n## M1 — A\n- [x] a\n## M2-M4\n- [ ] b\n## M5–M6: C\n- [ ] c\n")
    assert outline(plan) == "M1 done W1, M2-M4 todo W1, M5-M6 todo W1"


def test_statuses_in_japanese_are_read() -> None:
    plan = read("## Phase 1: A (完了)\n1. a\n## Phase 2: B (部分実装)\n1. b\n## Phase 3: C (未実装)\n1. c\n")
    assert [phase.status for phase in plan.phases] == ["done", "in-progress", "todo"]


def test_steps_of_a_verification_are_no_phases() -> None:
    steps = "### 1. Server\n- ping it\n### 2. Client\n- open it\n"
    assert outline(read(f"# Release\n## Implementation steps\n{steps}")) == "1 todo W0, 2 todo W0"
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read(f"# Release\n## Verification steps\n{steps}")


def test_a_line_about_the_status_of_one_phase_counts() -> None:
    plan = "# P\n## Plan\n**M0 status:** {}. It builds.\n### M0 — Base\n- a\n### M1 — Parse\n- b\n"
    assert errors(read(plan.format("Complete"))) == [
        "3: here the plan says done of step M0, whose status is todo; correct one of them"
    ]
    assert errors(read(plan.format("Completing"))) == []


def test_a_table_of_other_projects_has_no_phases() -> None:
    plan = "## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Projects\n| Project | Status |\n|---|---|\n| {} | Active |\n"
    assert errors(read(plan.format("X2Y"))) == []
    assert len(errors(read(plan.format("X2")))) == 1


def test_signs_that_adorn_open_boxes_ask() -> None:
    asked = "4: phase 2 counts as done, but has open boxes (1); correct one of the two"
    assert errors(read("## Phase 1: A\n- [ ] a\n## Phase 2: B ✅\n- [ ] b\n")) == []
    assert errors(read("## ✅ Phase 1: A\n- [x] a\n## ✅ Phase 2: B\n- [ ] b\n")) == [asked]
    parts = "## Phase 1: A\n- [x] a\n## Phase 2: B\n### ✅ Parse{}\n- [ ] b\n{}## Phase 3: C\n- [ ] c\n"
    assert errors(read(parts.format("", ""))) == [asked.replace("4:", "5:")]
    assert errors(read(parts.format(" (done)", ""))) == []
    assert errors(read(parts.format("", "### Sort\n- [x] d\n"))) == []


def test_the_design_of_a_feature_of_spec_kit_is_no_plan() -> None:
    design = "# Implementation Plan: Login\n## Technical Context\nGo.\n## Constitution Check\n- [x] small\n"
    with pytest.raises(PlanUnreadable, match="this is the design of a feature of spec-kit"):
        read(f"{design}## Phase 0: Research\nHow?\n## Phase 1: Design\n- [ ] draw\n")


@pytest.mark.parametrize(("title", "count"), [("Migration Guide", 1), ("指南", 1), ("Guide plan", 0), ("Moving", 0)])
def test_the_steps_of_a_guide_ask(title: str, count: int) -> None:
    plan = read(f"# {title}\n## Migration steps\n### Step 1: Parse\nHow.\n### Step 2: Write\nHow.\n")
    assert len(errors(plan)) == count


def test_ways_to_do_something_are_no_phases() -> None:
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read("# P\n## 迁移步骤\n### 方法 1：Parse\n1. a\n### 方法 2：Write\nb\n")


def test_a_range_of_stories_has_no_dependencies_of_the_first() -> None:
    stories = "## Phase 2: User Story 1 - A\n- [ ] T002 b\n## Phase 3: User Story 2 - B\n- [ ] T003 c\n"
    waits = "## Dependencies\n- **User Stories (Phase 2+)**: Depend on Phase 1; US2 requires the base\n"
    plan = read(f"## Phase 1: Setup\n- [ ] T001 a\n{stories}{waits}- US2: After US1\n")
    assert outline(plan) == "1 todo W1, 2 todo <1 W1, 3 todo <1 <2 W1"


def test_a_section_without_a_number_beside_numbered_ones_asks() -> None:
    plan = (
        "# P\n## Proposed Changes\n### {}\n- mount them\n### 1. Parser\n- a\n### 2. Writer\n- b\n## Verification\n- c\n"
    )
    assert errors(read(plan.format("Core routes")))[0].startswith("3: this may be work, and belongs to no phase")
    assert errors(read(plan.format("Overview"))) == []


def test_a_later_chapter_has_the_boxes_of_the_phases() -> None:
    told = "# P\n## Needs\n### Phase 1: Parse\n1. a\n### Phase 2: Write\n1. b\n2. c\n"
    text = f"{told}## Record\n### Phase 1: Parse\n- [x] a\n### Phase 2: Write\n- [ ] b\n- [ ] c\n"
    plan = read(text)
    assert (outline(plan), errors(plan)) == ("1 done W1, 2 todo W2", [])
    done = set_status(text.encode(), path="plans/p.md", phase="2", status=Status.DONE).decode()
    assert done == text.replace("[ ]", "[x]")
    more = read(text.replace("- [ ] c", "- [ ] sort c\n  - [x] and d\n- [ ]* maybe e"))
    assert [item.text for item in more.phases[1].items] == ["b", "c", "sort c", "and d"], (
        "as they are ticked by a landing"
    )
    assert not more.remarks
    bare = read("# P\n## Needs\n### Phase 1: Parse\nHow.\n## Record\n### Phase 1: Parse\n- [ ] a\n")
    assert outline(bare) == "1 todo W1"
    with pytest.raises(PlanUnreadable, match="two phases are called '1'"):
        read(f"{told}## Record\n### Phase 1: Parse\n- [x] a\n")


def test_the_open_parts_of_a_report_are_no_phases() -> None:
    parts = (
        "## Results\n### 1. Parser (12 tests) ✅\n- fast\n### 2. Writer (3 tests) ✅\n- slow\n### 3. Page ⬜\n- soon\n"
    )
    for title in ("Test report", "테스트 보고서", "测试报告"):
        assert [error.partition(",")[0] for error in errors(read(f"# {title}\n{parts}"))] == ["7: no status of step 3"]
    assert errors(read(f"# Plan\n{parts}")) == []


def test_a_box_behind_a_number_with_a_dot_is_a_box() -> None:
    plan = read("# P\n1. [x] Parse it\n1.1 [ ] Try it live\n2. [ ] Sort it\n")
    told = ", ".join(f"{phase.title} {phase.status}" for phase in plan.phases)
    assert told == "Parse it done, Try it live todo, Sort it todo"


def test_tables_of_open_rows_beside_boxes_ask() -> None:
    table = "## Build\n| Today | Wanted | Status |\n|---|---|---|\n| old | new | {0} |\n| slow | fast | {0} |\n"
    boxes = "## Else\n- [ ] a\n- [ ] b\n"
    assert errors(read(table.format("⬜ todo") + boxes))[0].startswith("2: this may be work, and belongs to no phase")
    assert errors(read(table.format("✅") + boxes)) == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("- **Phase 1 已完成：** the parser", 1),
        ("- Phase 1 complete: the parser", 1),
        ("- Phase 1: Complete the parser", 0),
        ("- Phase 1 complete except the docs", 0),
    ],
)
def test_a_line_that_goes_on_with_done_counts(line: str, count: int) -> None:
    plan = f"# P\n## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n## Now\n{line}\n"
    assert len(errors(read(plan))) == count


def test_a_section_with_an_open_status_beside_phases_asks() -> None:
    plan = "# P\n## Phase 1: A\n- [ ] a\n## Cache\nStatus: {}\nHow.\n"
    assert errors(read(plan.format("not started")))[0].startswith("4: this may be work, and belongs to no phase")
    assert errors(read(plan.format("shipped"))) == []
    assert errors(read(plan.format("not started").replace("Cache", "Overview"))) == []


def test_steps_in_an_order_are_work() -> None:
    steps = "## Build Order\n### Step 1: Base\nHow.\n### Step 2: Parser\nHow.\n"
    assert outline(read(f"# Reader\n{steps}")) == "1 todo W0, 2 todo W0"


def test_a_blank_more_nests_no_box() -> None:
    text = "# P\n## 1. Base\n- [x] 1.1 Parse\n - [ ] 1.2 Sort\n   - [ ] by name\n## 2. Page\n- [ ] 2.1 Show\n"
    assert [phase.status for phase in read(text).phases] == ["todo", "todo"]
    assert len(read("- [x] Parse it\n - [ ] Sort it\n").phases) == 2
    assert outline(read("- [x] Parse it\n  - [ ] Sort it\n- [ ] Show it\n")) == "1 done W1, 2 todo W0"


def test_a_note_that_retains_the_document_asks() -> None:
    note = "> **Note:** the old one is gone. This document is {} as context\n"
    plan = f"# P\n{note}## Phase 1: A\n1. a\n## Phase 2: B\n1. b\n"
    assert errors(read(plan.format("retained"))) == ["2: the plan says here that it is set aside, but not done: 1, 2"]
    assert errors(read(plan.format("retained").replace(" as", "\n> as")))[0].startswith("2: the plan says here that")
    assert errors(read(plan.format("meant"))) == []


def test_a_tracker_lists_sections_that_count_with_another_word() -> None:
    rows = "| # | Fix | Status |\n|---|---|---|\n| 1 | Lock it | ☑ |\n| 2 | Close it | ☐ |\n"
    sections = "## Soon\n### Fix 1: Lock it\nHow.\n## Later on\n### Fix 2: Close it\n- [ ] tested\n"
    plan = read(f"# P\n## Progress Tracker\n{rows}{sections}")
    assert (outline(plan), errors(plan)) == ("1 done W0, 2 todo W1", [])


def test_the_boxes_of_a_last_verification_are_no_phase() -> None:
    plan = "## Task 1: A\n- [ ] a\n## Task 2: B\n- [ ] b\n## 最终{}\n- [ ] all tests\n"
    assert errors(read(plan.format("验证"))) == []
    assert len(errors(read(plan.format("清理")))) == 1


def test_an_open_box_beside_ticked_ones_below_a_ticked_box_is_open() -> None:
    text = "# P\n## v1\n- [x] Lists\n  - [x] show\n  - [ ] sort\n## v2\n- [x] Pages\n  - [ ] print\n"
    assert [phase.status for phase in read(text).phases] == ["todo", "done"]


def test_a_phase_without_a_status_before_done_ones_asks() -> None:
    plan = "## Phase 1: A\n- a\n## Phase 2: B\n- [{}] b\n## Phase 3: C\n- [ ] c\n"
    assert [error.partition(",")[0] for error in errors(read(plan.format("x")))] == ["1: no status of phase 1"]
    assert errors(read(plan.format(" "))) == []
    bare = b"# P\n## Phase 1: A\n- a\n## Phase 2: B\n- b\n"
    landed = set_status(bare, path="plans/p.md", phase="2", status=Status.DONE, commit="4a6075d")
    assert errors(read(landed.decode())) == [], "a landing of the second phase does not make the plan doubtful"


def test_phases_that_repeat_in_tasks_are_their_parts() -> None:
    parts = "#### Phase 1: Red\n- [ ] fail\n#### Phase 2: Green\n- [ ] pass\n"
    assert outline(read(f"# P\n## Task 1: Parse\n{parts}## Task 2: Sort\n{parts}")) == "1 todo W2, 2 todo W2"


@pytest.mark.parametrize(("title", "count"), [("QA checklist", 1), ("Release Checklist", 1), ("Build checklist", 0)])
def test_checks_that_a_person_goes_through_ask(title: str, count: int) -> None:
    assert len(errors(read(f"# {title}\n## Pages\n- [ ] they show\n## Keys\n- [ ] they work\n"))) == count
    plan = parse_plan(b"## Pages\n- [ ] a\n## Keys\n- [ ] b\n", path=f"docs/{title.lower().replace(' ', '_')}.md")
    assert len(errors(plan)) == count


BARE = "## Phase 1: A\n- a\n## Phase 2: B\n- b\n"
OVERVIEW = "| No. | State |\n|--|--|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"# P\n{OVERVIEW}| 1.1.0 | Done |\n| 1.2.x | 计划中 |\n## 1.1.0：A\n- a\n## 1.2.x：B\n- b\n",
            "1.1.0 done, 1.2.x todo",
        ),
        (
            f"# P\n{OVERVIEW}| V0 | ✅ |\n| V1 | ⏳ 計劃中 |\n## 🗓 V0 Milestone\n- [ ] a\n## V1 Milestone\n- [ ] b\n",
            "V0 done, V1 todo",
        ),
        (
            f"# P\n{OVERVIEW}| 1. A | 🔄 |\n| 2. B | ⬜ |\n## Fase 1: A\n- [x] a\n## Fase 2: B\n- [ ] b\n",
            "1 in-progress, 2 todo",
        ),
        (
            "# P\n| # | Fact |\n|--|--|\n| 1 | ✅ |\n| 2 | ✅ |\n## Fase 1: A\n- [ ] a\n## Fase 2: B\n- [ ] b\n",
            "1 todo, 2 todo",
        ),
        (
            "# Plan\n## Parts\n### 1. X\n- x\n### 2. Y\n- y\n### 3. Z\n- z\n## Plan\n### V1: A\n- a\n### V2: B\n- b\n",
            "V1 todo, V2 todo",
        ),
        ("# P\n## M1: A\n| Task |\n|--|\n| a |\n## M2: B\n| Task |\n|--|\n| b |\n", "M1 todo, M2 todo"),
        ("# P\n## Salve A ✅\n- a\n## Salve B — B\n- b\n", "A done, B todo"),
        ("# P\n## 步骤\n### 第一步：A\n- a\n### 第二步：B\n- b\n", "1 todo, 2 todo"),
        ("# P\n## Solution\n### Step 1: A\nHow.\n### Step 2: B\nHow.\n", "1 todo, 2 todo"),
        ("# P\n## Phase A — X\n### M1: a\n- [x] a\n## Phase B — Y\n- [ ] b\n\nDepends: M1\n", "A done, B todo <A"),
        ("---\nstatus: planned\n---\n## Phase 1: A\n- [ ] a\n", "1 todo"),
        (
            "# P\n## F1 Search — ✅\n- a\n## F2 Timeline — ⬜\n- b\n## F3 Chat 🟡\n- c\n",
            "F1 done, F2 todo, F3 in-progress",
        ),
        ("# P\n## Q1 2026\n- [ ] a\n## Q2 2026\n- [ ] b\n", "1 todo, 2 todo"),
        ("<!--\n## Phase 9: Example, complete\n-->\n## Phase 1: A\n- [ ] a\n", "1 todo"),
        ("## Phase 1: A\n- [✅] a\n## Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
    ],
)
def test_statuses_and_counts_are_read_as_they_come(text: str, expected: str) -> None:
    assert outline(read(text)).replace(" W1", "").replace(" W0", "") == expected
    assert errors(read(text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BARE.replace("## Phase 2", "## Help desk\n- c\n## Phase 2"), 3),
        (BARE + "## Found in phase 1\n### 1. 🔲 Types\nWhy.\n", 6),
        (BARE.replace("- b", "- ✅ b\n- c"), 3),
        (BARE + "## Status (2026-08-21)\n| Phase | Shipped |\n|--|--|\n| 1 | a |\n| 2 | b |\n", 1),
        (BARE + "### Estado\nEntregue: a. Pendente da fase 2: b\n", 1),
        (BARE + "## Now\n1. ✅ a\n2. 🔄 b\n", 1),
        (BARE + "- c\n" * 6 + "## UI\n" + "".join(f"### Tuần {n} — U\n- u\n" for n in (1, 2, 3)), 12),
        ("# P\n**Status:** v0.1 implemented\n" + BARE, 2),
        ("## X\n### 1. a\n- a\n### 2. b\n- b\n## Y\n### 3. c\n- c\n## Work\n" + BARE.replace("##", "###"), 2),
    ],
)
def test_work_and_statuses_beside_phases_without_a_status_ask(text: str, line: int) -> None:
    assert [error.partition(":")[0] for error in errors(read(text))] == [str(line)]


@pytest.mark.parametrize(
    "text",
    [
        "# P\n### Sprint 1: A\n- [ ] a\n### Sprint 2: B\n- [ ] b\n## Details\n### SPRINT 1: A\nHow.\n",
        "# P\n## The flow\n#### Stage 1: Enter\n- a\n#### Stage 2: Pay\n- b\n",
        "# P\n## Option A ✅\n- a\n## Option C\n- c\n",
        "# P\n## 2. Constitution Check\n## Technical Context\n## Phase 0: Research\n- a\n## Phase 1: Design\n- b\n",
    ],
)
def test_headings_that_repeat_or_count_something_else_are_refused(text: str) -> None:
    with pytest.raises(PlanUnreadable):
        read(text)
