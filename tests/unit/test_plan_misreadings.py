"""Plans that were misread without a word: each has a rule, and what the rule leaves out is named with its line."""

import re

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.reading import list_done
from runplan.domain.plan.tracker import NoPhase, add_tracker, choose_phase, set_status
from tests.support.builders import a_plan, waiting


def read(text: str) -> Plan:
    return parse_plan(text.encode(), path="plans/p.md")


def items(text: str) -> list[str]:
    return [f"{item.id} {item.text}" for item in read(f"## Phase 1 — A\n**Status:** ⬚\n{text}").phases[0].items]


def remarks(plan: Plan) -> list[str]:
    return [f"{remark.line}: {remark.text}" for remark in plan.remarks]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "### Work Items\n- [ ] a\n\n  **Rule:**\n  - why\n\n- [ ] b\n\n   **Note:**\n   text\n- [ ] c\n",
            "W1 a, W2 b, W3 c",
        ),
        ("### Work Items\n- a\n\n  **Rule:**\n  text\n- b\n", "W1 a, W2 b"),
        ("### Acceptance Criteria\n- [ ] a\n\n**By hand:**\n\n- [ ] b\n", "C1 a, C2 b"),
        ("### Work Items\n- [ ] a\n#### Docs\n- [ ] b\n", "W1 a, W2 b"),
        ("### Tasks\n- a\n### Design\n**Step C algorithm**:\n1. read\n2. split\n", "W1 a"),
        ("### Step-by-step guide\n1. read\n", "P A"),
        ("**Build the writer**\n\n1. open\n2. close\n\n**Risks:**\n1. slow\n", "W1 open, W2 close"),
        ("1. open\n   - how\n2. close\n### Notes\n1. why\n", "W1 open, W2 close"),
        ("### Work Items\n**WI 1a.1** a\n- how\n\n**WI 1a.n** b\n", "W1 **WI 1a.1** a, W2 **WI 1a.n** b"),
        ("**Steps:**\n1. a\n", "W1 a"),
        (
            "Why.\n\n- **T1.1 — A.** text\n- **T1.2 — B.** text\n- note\n",
            "W1 **T1.1 — A.** text, W2 **T1.2 — B.** text",
        ),
        ("### Task list\n- a\n", "W1 a"),
        (
            "**Success Criteria:**\n1. fast\n2. safe\n\n**Plans:** 2 plans\nPlans:\n- [ ] 01-01\n- [ ] 01-02\n",
            "W1 01-01, W2 01-02, C1 fast, C2 safe",
        ),
        (
            "- [ ] a\n- [ ] ~gone~ <!-- no -->\n- [ ] ~~gone~~\n- [ ] ~~gone~~ (see #4)\n- [ ] ~~old~~ new\n",
            "W1 a, W2 ~~old~~ new",
        ),
    ],
)
def test_items_are_what_the_author_lists(body: str, expected: str) -> None:
    assert ", ".join(items(body)) == expected


def test_struck_boxes_are_no_work_and_are_named() -> None:
    plan = read("## Phase 1: A\n- [x] a\n- [ ] ~~b~~\n## Phase 2: B\n- [ ] c\n- [x] ~~d~~\n")
    assert [phase.status for phase in plan.phases] == [Status.DONE, Status.TODO]
    assert remarks(plan) == ["3: struck-through boxes of phase 1 are no work items and stay open (1)"]


# --- statuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "status", "warnings"),
    [
        ("COMPLETED", Status.DONE, 0),
        ("done", Status.DONE, 0),
        ("NOT STARTED", Status.TODO, 0),
        ("NOT_STARTED", Status.TODO, 0),
        ("✅ Completed 2026-01-02", Status.DONE, 0),
        ("In Progress - 60%", Status.IN_PROGRESS, 1),
        ("BLOCKED", Status.BLOCKED, 0),
        ("IN PROGRESS", Status.IN_PROGRESS, 1),
        ("PARTIAL", Status.IN_PROGRESS, 1),
        ("DEFERRED", Status.BLOCKED, 0),
    ],
)
def test_brackets_after_a_heading_are_its_status(word: str, status: Status, warnings: int) -> None:
    text = f"## Phase 1: A [{word}]\n\ntext\n\n## Phase 2: B [NOT STARTED]\n\n- [ ] b\n"
    plan = read(text)
    assert (plan.phases[0].title, plan.phases[0].status, len(plan.remarks)) == ("A", status, warnings)


@pytest.mark.parametrize(
    ("heading", "status", "written"),
    [
        ("Phase 1: A **[BLOCKED]**", Status.BLOCKED, "Phase 1: A **[COMPLETED]**"),
        ("[BLOCKED] Phase 1: A", Status.BLOCKED, "[COMPLETED] Phase 1: A"),
        ("Phase 1: A (blocked)", Status.BLOCKED, "Phase 1: A (COMPLETED)"),
        ("Phase 1: A — BLOCKED", Status.BLOCKED, "Phase 1: A — COMPLETED"),
        ("✅ Phase 1: A", Status.DONE, "✅ Phase 1: A"),
        ("✔️ Phase 1: A", Status.DONE, "✔️ Phase 1: A"),
    ],
)
def test_a_status_may_stand_before_or_behind_a_heading(heading: str, status: Status, written: str) -> None:
    text = f"## {heading}\n\ntext\n\n## Phase 2: B\n\n- [ ] b\n"
    phase = read(text).phases[0]
    assert (phase.id, phase.title, phase.status) == ("1", "A", status)
    done = set_status(text.encode(), path="p.md", phase="1", status=Status.DONE)
    assert done.decode().splitlines()[0] == f"## {written}"
    assert read(done.decode()).phases[0].status is Status.DONE


def test_brackets_are_where_the_status_is_written() -> None:
    text = b"### Phase 1: A [NOT STARTED]\n\n- [ ] a\n\n### Phase 2: B `[IN PROGRESS]`\n"
    done = set_status(text, path="p.md", phase="1", status=Status.DONE, commit="abc1234")
    assert done == text.replace(b"NOT STARTED", b"COMPLETED").replace(b"[ ]", b"[x]")
    assert set_status(done, path="p.md", phase="1", status=Status.TODO) == text
    marked = b"## Phase 1: A [\xe2\x9c\x85 DONE 2026-01-02]\n- [x] a\n## Phase 2: B [DONE]\n"
    undone = set_status(marked, path="p.md", phase="1", status=Status.TODO)
    assert undone == b"## Phase 1: A [NOT STARTED]\n- [ ] a\n## Phase 2: B [DONE]\n"
    assert b"B `[COMPLETED]`" in set_status(text, path="p.md", phase="2", status=Status.DONE, commit="abc1234")


def test_a_word_before_the_colon_and_a_word_beside_a_mark_are_read() -> None:
    blocked = (
        b"## Phase A \xe2\x80\x94 Parse\n\n- [ ] a\n\n## Phase B \xe2\x80\x94 BLOCKED: full rendering\n\n- [ ] b\n"
    )
    assert [phase.status for phase in parse_plan(blocked, path="p.md").phases] == [Status.TODO, Status.BLOCKED]
    confirmed = "### Task 1: Jitter ✅ CONFIRMED\n\n- a\n\n### Task 2: Leak ✅\n\n- b\n".encode()
    assert [phase.status for phase in parse_plan(confirmed, path="p.md").phases] == [Status.TODO, Status.DONE]


def test_other_brackets_after_a_heading_are_part_of_its_title() -> None:
    plan = read("## Phase 1: A [US1]\n- [ ] a\n## Phase 2: B [MVP]\n- [ ] b\n")
    assert [phase.title for phase in plan.phases] == ["A [US1]", "B [MVP]"]


@pytest.mark.parametrize(
    ("word", "status", "done", "undone"),
    [
        ("done", Status.DONE, "done", "todo"),
        ("COMPLETED", Status.DONE, "COMPLETED", "TODO"),
        ("WIP", Status.IN_PROGRESS, "DONE", "TODO"),
        ("inprogress", Status.IN_PROGRESS, "done", "todo"),
        ("todo", Status.TODO, "done", "todo"),
        ("Not Started", Status.TODO, "done", "Not Started"),
        ("blocked", Status.BLOCKED, "done", "todo"),
        ("skipped", Status.BLOCKED, "done", "todo"),
    ],
)
def test_a_word_in_the_place_of_a_box_is_a_status(word: str, status: Status, done: str, undone: str) -> None:
    for text in ("- [{}] a\n- [todo] b\n", "## Phase 1: A\n1. [done] a\n2. [{}] b\n## Phase 2: B\n1. [todo] c\n"):
        plan = read(text.format(word))
        assert plan.phases[0].status is status
        for new, written in ((Status.DONE, done), (Status.TODO, undone)):
            changed = set_status(text.format(word).encode(), path="p.md", phase=plan.phases[0].id, status=new).decode()
            assert changed.replace("1. [todo] a", "1. [done] a") == text.format(written)


@pytest.mark.parametrize(
    ("text", "line"), [("- [done] a\n- b\n- [todo] c\n", 2), ("1. a\n\n## B\n2. [done] b\n## C\n3. [done] c\n", 1)]
)
def test_an_entry_without_the_word_in_brackets_that_others_have_asks(text: str, line: int) -> None:
    assert [(remark.line, remark.is_error) for remark in read(text).remarks] == [(line, True)]


def test_notes_beside_a_word_in_brackets_and_links_are_no_boxes() -> None:
    plan = read("- [done] open\n- [todo] close\n## Notes\n- c\n- [planned](x.md) d\n")
    assert [(phase.title, phase.status) for phase in plan.phases] == [("open", Status.DONE), ("close", Status.TODO)]
    assert not plan.remarks


VERIFIED = (
    "### Success Criteria:\n#### Automated Verification:\n- [{}] tests pass\n"
    "#### Manual Verification:\n- [{}] it looks right\n"
)


@pytest.mark.parametrize(
    ("automated", "manual", "status"),
    [("x", "x", Status.DONE), ("x", " ", Status.BLOCKED), (" ", "x", Status.TODO), (" ", " ", Status.TODO)],
)
def test_a_phase_with_only_its_manual_part_open_waits_for_a_person(automated: str, manual: str, status: Status) -> None:
    plan = read(f"## Phase 1: A\n{VERIFIED.format(automated, manual)}")
    assert plan.phases[0].status is status
    if status is Status.BLOCKED:
        assert remarks(plan)[0].startswith("4: phase 1 is implemented and waits for a person: open manual criteria: 1;")
        assert remarks(plan)[0].endswith("; to have it worked again: runplan start plans/p.md 1")
        assert choose_phase(plan, wanted="1") == plan.phases[0]
        choice = choose_phase(plan, wanted=None)
        assert isinstance(choice, NoPhase)
        assert choice.detail.startswith("phase 1 is implemented and waits for a person")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "## Phase 1: A ✅\n- [x] a\n- [ ] b\n## Phase 2: B\n- [ ] c\n",
            "3: phase 1 counts as done, but has open boxes (1); correct one of the two",
        ),
        ("## Phase 1: A\n**Status:** Done\n- [ ] b\n", "3: phase 1 counts as done, but has open boxes (1)"),
        ("## Phase 1: A\n**Status:** ✅ Done (abc1234)\n- [ ] b\n", ""),
        ("- [x] Wash\n  - [ ] rinse\n", "2: phase 1 counts as done, but has open boxes (1)"),
        (
            "# T\n**Status:** ✅ Complete\n## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [x] b\n",
            "2: the plan says here that it is done, but not done: 1",
        ),
        (
            "## Phase 1: A\n- [x] T001 a\n### Test Cases\n- [ ] b\n## Phase 2: B\n- [ ] T002 c\n",
            "4: phase 1 counts as done, but has open boxes (1)",
        ),
        ("## Phase 1: A\n- **Status**: [NOT STARTED]\n", ""),
        ("# T\n**Status:** Draft\n## Phase 1: A\n- [ ] a\n", ""),
    ],
)
def test_statuses_that_disagree_are_named(text: str, expected: str) -> None:
    assert "; ".join(remarks(read(text))) == expected


# --- phases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "titles", "left_out"),
    [
        (
            "## Setup\n- [ ] a\n## Build\n- [ ] b\n## Success Metrics\n- [ ] 10 ms\n",
            "Setup, Build",
            "6: boxes under 'Success Metrics' belong to no phase and are left out (1)",
        ),
        (
            "## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n## Success Metrics\n### Phase 1: A\n10 ms\n",
            "A, B",
            "6: sections 'Phase <number>' are no phases",
        ),
        (
            "## Success Metrics\n### Phase 1: Fast\n10 ms\n## Work\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n",
            "A, B",
            "2: sections 'Phase <number>' are no phases",
        ),
        ("## 1. A\n- [ ] a\n## 2. B\n- [ ] b\n## 3. Success Metrics\n10 ms\n", "A, B", ""),
        ("## v1.0\n- [x] a\n## v1.1\n### Core\n- [ ] b\n### Docs\n- [ ] c\n", "v1.0, v1.1", ""),
        ("## Work\n### 1. A\n- [ ] a\n### 2. B\n- [ ] b\n## Dates\n### Q1 2026\n- [ ] a\n", "1. A, 2. B, Q1 2026", ""),
        ("## Phase 1: A\n### Changes\n#### 1. B\n#### 2. C\n" + VERIFIED.format(" ", " "), "A", ""),
        ("## Success Criteria\nfast\n### Task 1: A\n- [ ] a\n### Task 2: B\n- [ ] b\n", "A, B", ""),
        ("## Server\n### Disk\n- [ ] a\n### Net\n- [ ] b\n", "Disk, Net", ""),
        (
            "## Completed\n- [x] old\n## Server\n- [ ] a\n## Client\n- [ ] b\n",
            "Server, Client",
            "2: boxes under 'Completed' belong to no phase and are left out (1)",
        ),
        (
            "## Phase 1: A\n- [x] a\n## Phase 2: B\n- [ ] b\n## Completed\n- [x] Phase 1: A\n",
            "A, B",
            "6: boxes under 'Completed' belong to no phase and are left out (1)",
        ),
        (
            "## A\n- [ ] a\n## B\n- [ ] b\n**Exit criteria**:\n- [ ] c\n## Quality Checklist\n### Before\n- [ ] d\n",
            "A, B",
            "9: boxes under 'Before'",
        ),
        (
            "## A\n- [ ] Phase 2 check\n- [ ] b\n## B\n- [x] Phase 3: c\n- [x] Phase 3: d\n- [x] e\n- [x] f\n- [x] g\n",
            "A, B",
            "",
        ),
        ("## 1. A\n- [ ] a\n## 2. B\n- [ ] b\n## 3. Recommended Implementation Order\n1. A\n", "A, B", ""),
    ],
)
def test_lists_beside_the_work_are_no_phases(text: str, titles: str, left_out: str) -> None:
    plan = read(text)
    assert ", ".join(phase.title for phase in plan.phases) == titles
    assert "; ".join(remarks(plan)).startswith(left_out)
    assert bool(plan.remarks) == bool(left_out)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("**Progress:** [here](./PROGRESS.md)", "PROGRESS.md"),
        ("Tracker: [x](notes/x.md)", "x.md"),
        ("See [progress](docs/search-progress.md) for status.", "search-progress.md"),
        ("See `plans/X_PROGRESS_AND_NEXT_STEPS.md`.", "X_PROGRESS_AND_NEXT_STEPS.md"),
        ("Read [it](../X-next-steps.md) first", "X-next-steps.md"),
        ("Companion: X_PROGRESS_AND_NEXT_STEPS.md, by hand", "X_PROGRESS_AND_NEXT_STEPS.md"),
        ("`p.md` and docs/tracking/NAMES.md", ""),
        ("**Status:** as in SKILL.md, which is old", ""),
        ("```\nPROGRESS.md\n```", ""),
    ],
)
def test_a_document_about_progress_is_named(line: str, name: str) -> None:
    said = remarks(read(f"# T\n\n{line}\n\n## Phase 1: A\n- [ ] write STATUS.md\n"))
    begins = f"3: the plan names {name} for its progress, which runplan does not keep up to date; "
    assert [text.startswith(begins) for text in said] == [True] * bool(name)


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n| 2 — B | ⬚ | after 1 is done |\n", {"1": 3}),
        ("# Done\n\n- ✅ Phase 1: A\n- [x] Phase 2 — B\n- [ ] Phase 3 — C\n- Phase 4: not done\n", {"1": 3, "2": 4}),
        (
            "## Phase 1 — A\n\n**Status:** Completed (4a6075d)\n\n## Phase 2b — B ✅\n\n## Phase 3 — C\n",
            {"1": 3, "2b": 5},
        ),
        ("**Phase 1**: done\n\nThen phase 2 is done, too.\n```\n- [x] Phase 3: C\n```\n", {"1": 1}),
    ],
)
def test_the_done_phases_of_a_document_about_progress_are_read(text: str, done: dict[str, int]) -> None:
    assert list_done(text.encode(), path="p.md") == done


# --- dependencies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prose", "hard", "soft"),
    [
        pytest.param("Phase 1. Each Phase-2 batch adds an entry.", "1", "", id="adjective"),
        pytest.param("Each phase file is read. Phase 1.", "1", "", id="each-with-a-noun"),
        pytest.param("Each phase must be complete.", "1 2 3 4", "", id="each-phase"),
        pytest.param("Phase 1, 2.5 hours of review.", "1", "", id="decimal"),
        pytest.param("Phase 2 with Python 3.11 and v1.2 of the API.", "2", "", id="version"),
        pytest.param("No hard dependency on Phase 4. Soft: Phase 3.", "", "3", id="no-hard"),
        pytest.param("Phase 1 (schema), Phase 2 (optional), Phase 3", "1 3", "2", id="behind-an-id"),
        pytest.param("Phases 1 and 2 [soft]; Phase 3", "3", "1 2", id="behind-ids"),
        pytest.param("Phase 2 (polling) -- **soft dependency**. The CI part depends on 2.", "", "2", id="soft-stays"),
        pytest.param("Phase 1; each step is independently testable", "1", "", id="independently"),
        pytest.param("Parallelize with Phase 3; Phase 2 first", "2", "", id="parallelize"),
        pytest.param("Phase 1, parallelizable with Phases 2 and 3", "1", "", id="parallelizable"),
        pytest.param("Phase 1 と並列", "", "", id="Japanese"),
        pytest.param("Starts after Phase 1 - may integrate with Phase 2 but is testable", "1", "", id="may-explained"),
        pytest.param("Starts after the base (Phase 1) - May integrate with Phase 2", "", "2", id="may"),
        pytest.param("May start after Phase 1.", "1", "", id="may-start"),
    ],
)
def test_prose_waits_only_for_what_it_demands(prose: str, hard: str, soft: str) -> None:
    phase = parse_plan(waiting(prose, others="1 2 3 4"), path="p.md").phases[-1]
    assert (" ".join(phase.depends), " ".join(phase.soft)) == (hard, soft)


@pytest.mark.parametrize(
    ("line", "hard", "soft", "unread"),
    [
        ("1, 2 [soft]", "1", "2", ""),
        ("1 (schema, 3 tables), 2", "1 2", "", ""),
        ("[Phase 1, Phase 2]", "1 2", "", ""),
        ("Phase 1 [done]", "1", "", ""),
        ("(none)", "", "", ""),
        ("[none]", "", "", ""),
        ("soft: 4", "", "4", ""),
        ("Phase 1 → Phase 2", "1 2", "", ""),
        ("Phase 1 with the parser of Phase 2", "1 2", "", ""),
        ("`src/x.py`", "", "", "`src/x.py`"),
        ("1; can run in parallel with Phases 2 and 3", "1", "", ""),
        ("1. See Phase 3 for the reason", "1", "", "See Phase 3 for the reason"),
        ("1 and the API key", "1", "", "the API key"),
        ("Phase 2; Phase 9 docs depend on Phase 1 only", "2 1", "", ""),
        ("v3.3 complete", "", "", "v3.3 complete"),
    ],
)
def test_a_line_of_dependencies_may_say_more_than_ids(line: str, hard: str, soft: str, unread: str) -> None:
    text = a_plan(dict.fromkeys("12349", "⬚"), {"9": f"Depends on: {line}"})
    plan = parse_plan(text, path="p.md")
    phase = plan.phases[-1]
    assert (" ".join(phase.depends), " ".join(phase.soft)) == (hard, soft)
    begins = f"phase 9 does not wait for this, it names no phase: {unread};"
    assert [remark.text.startswith(begins) for remark in plan.remarks] == [True] * bool(unread)


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
    ("prose", "number"),
    [("Phase 1, 2.5 hours of review.", "2.5"), ("Phase 1. The Phase 3.5 script must exist.", "3.5")],
)
def test_a_number_in_prose_is_no_phase_and_is_named(prose: str, number: str) -> None:
    plan = parse_plan(waiting(prose, others="1 2"), path="p.md")
    assert plan.phases[-1].depends == ("1",)
    (remark,) = plan.remarks
    assert remark.text.startswith(f"phase 9 does not wait for this, it names no phase: {number};")


def test_boxes_below_a_label_with_a_value_are_no_dependencies() -> None:
    plan = read("## Phase 1: A\n- [ ] a\n## Phase 2: B\n**Dependencies:** Phase 1\n- [ ] b\n")
    assert (plan.phases[1].depends, remarks(plan)) == (("1",), [])


def test_the_column_of_dependencies_of_a_tracker_is_read() -> None:
    rows = "| 0 | A | - | ⬚ |\n| 1 | B | 0 | ⬚ |\n| 2A | C | Phase 1 | ⬚ |\n| 3 | D | 0, 2A | ⬚ |\n"
    table = f"| Phase | Name | Depends On | Status |\n|---|---|---|---|\n{rows}"
    plan = read(table + "".join(f"## Phase {id_}: T\n" for id_ in ("0", "1", "2A", "3")))
    assert [phase.depends for phase in plan.phases] == [(), ("0",), ("1",), ("0", "2A")]


def test_a_comment_of_a_script_is_no_heading_of_dependencies() -> None:
    plan = read("## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n\n# Dependencies of the shell\n\nsee Phase 1\n")
    assert (plan.phases[1].depends, remarks(plan)) == ((), [])


# --- plans as they come ------------------------------------------------------------------------------------


def phases(plan: Plan) -> str:
    return ", ".join(f"{phase.id} {phase.status}" for phase in plan.phases)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## Phase 1: A ✅\n## Phase 2: B\n- [ ] b\n### Phase 2.1: C\n- [ ] c\n### Phase 2a: D\n", "1 done, 2 todo"),
        ("## Phase 1: A\n### Phase 1: x\n### Phase 3: y\n- [x] a\n## Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Phase 1 Overview\ntext\n## Work\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Phase 1: A ✅\n**Status:** runs every day\n## Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Phase 1：A\n**Status**：Done\n## Phase 2：B\n**Status：** Blocked\n", "1 done, 2 blocked"),
        ("## Phase 1: A\n**状态：** ✅ 已完成\n- [ ] a\n## Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Week 1–2: A\n- [x] a\n## Weeks 3-4: B\n- [ ] b\n", "1-2 done, 3-4 todo"),
        ("## Étape 1 : A\n- [x] a\n## Étape 2 : B\n- [ ] b\n", "1 done, 2 todo"),
        ("## 阶段1：A ✅\n## 阶段2：B\n- [ ] b\n", "1 done, 2 todo"),
        ("### 🔴 **CRITICAL - Phase 1: A** (1 week)\n- [x] a\n### LOW - Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Phase 1: A\n- [x] T1: a\n## Phase 2: B\n- [ ] T2: b\n  - Depends: T1\n", "1 done, 2 todo"),
        ("## Legend\n- [ ] open\n## Group 1: A\n- [x] a\n## Group 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("**Phase 1: A** (soon)\n- [x] a\n\n**Phase 2 — B**\n\n**Tasks:**\n- [ ] b\n## Notes\n- c\n", "1 done, 2 todo"),
        ("**Phase 1: A**\n- [x] a\n**Phase 2: B** is prose\n", "a done"),
        (
            "**Phase 1: A**\n- [x] a\n**Phase 2: B**\n- b\n### Task 1: C\n- [x] c\n### Task 2: D\n- [ ] d\n",
            "1 done, 2 todo",
        ),
    ],
)
def test_headings_of_many_kinds_are_phases(text: str, expected: str) -> None:
    plan = read(text)
    assert (phases(plan), plan.refusals(strict=False)) == (expected, ())


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("(COMPLETED - Feb 2026)", Status.DONE),
        ("(Done - PR 12)", Status.DONE),
        ("(done, see PR #12)", Status.DONE),
        ("(Completed Feb 2026)", Status.DONE),
        ("(Implemented)", Status.DONE),
        ("✅ shipped", Status.DONE),
        ("(done, except the docs)", Status.IN_PROGRESS),
        ("(Complete - 80%)", Status.IN_PROGRESS),
        ("(complete rewrite)", Status.TODO),
        ("(done in two weeks)", Status.TODO),
        ("（已完成）", Status.DONE),
        ("(En Progreso)", Status.IN_PROGRESS),
        ("(Pendiente)", Status.TODO),
        ("(shipped in this change)", Status.DONE),
        ("**[ABGESCHLOSSEN]**", Status.DONE),
        ("✅ COMPLETED (needs a revision)\n**Status:** works in parts", Status.IN_PROGRESS),
        ("🚧 IN PROGRESS", Status.IN_PROGRESS),
        ("(active)", Status.IN_PROGRESS),
        ("🔄", Status.IN_PROGRESS),
    ],
)
def test_a_heading_may_end_in_what_is_known_of_its_status(end: str, status: Status) -> None:
    assert read(f"## Phase 1: A {end}\ntext\n## Phase 2: B\n- [ ] b\n").phases[0].status is status


OPEN = "## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"# T\nCompleted:\n- Phase 1: A\n{OPEN}", 3),
        (f"# T\n### Done ✅\n\n- **Phase 2**: B\n{OPEN}", 4),
        (f"# T\n- [x] Phase 1: A\n{OPEN}", 2),
        (f"# T\n- ✅ Phase 1: A\n{OPEN}", 2),
        (f"# T\n**Current status:** Phases 1–2 are complete\n{OPEN}", 2),
        (f"{OPEN}\n**PHASE 2 COMPLETED: 2026-03-12**\n", 6),
        ("# T\n**Status:** implemented, see the README\n## Stage 1: A\ntext\n## Stage 2: B\ntext\n", 2),
        ("## Phase 1: A ✅\n## Ideas\n### Phase 2: B\ntext\n", 3),
        ("## Phase 1: A ✅\n## Phase 2 readiness\ntext\n", 2),
        (f"# T\n```\nPhase 1 ─── A ███ ✅\n```\n{OPEN}", 3),
        ("## Phase 1: A\ntext\n## Phase 2: B\ntext\n## State\n### Phase 1\n- [x] a\n### Phase 2\n- [ ] b\n", 1),
        ("# T\n**Status:** Complete, but B remains\n## Phase 1: A\n- [x] a\n## Phase 2: B\n## Phase 3: C\n", 2),
        ("## Phase 1: A\n| Id | Status |\n|--|--|\n| T1 | [x] |\n| T2 | [ ] |\n## Phase 2: B\nb\n", 1),
        ("# T\n## What was implemented\n### 1. A\n- a\n### 2. B\n- b\n", 3),
        ("## Phase 1: A\n1. [x] a\n2. b\n## Phase 2: B\n- [ ] c\n", 3),
        (f"## Phases\n| Phase | Status |\n|--|--|\n| 1 | 📋 Pending |\n| 2 | ⬚ |\n{OPEN.replace(': A', ': A ✅')}", 4),
        (f"# T\n> **Historical document.** It led to the first version.\n{OPEN}", 2),
    ],
)
def test_a_plan_that_says_done_and_todo_of_a_phase_asks(text: str, line: int) -> None:
    assert [remark.line for remark in read(text).refusals(strict=False)] == [line]


@pytest.mark.parametrize(
    "text",
    [
        f"# T\nOpen:\n- Phase 1: A\n\nCompleted:\n- the design\n\nNext:\n- Phase 2: B\n{OPEN}",
        f"# T\n- [ ] Phase 1: A ends when all is done\n- Week 1: Phase 1 complete\n{OPEN}",
        f"# T\n**Status:** starts after phase 1 of the other plan\n{OPEN}\nPhase 2 is complete when b holds.\n",
        f"# T\n- ✅ Phase 1: A (partially)\n- Phase 2: B (complete, 1-2 days)\n{OPEN}",
    ],
)
def test_a_sentence_about_a_phase_is_no_status(text: str) -> None:
    assert read(text).refusals(strict=False) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- [x] Phase 1\n- [ ] Phase 2: B\n## Phase 1: A\ntext\n## Phase 2: B\ntext\n", "1 done, 2 todo"),
        ("- [x] Fase 1\n- [ ] Fase 2: B\n## Fase 1: A\ntext\n## Fase 2: B\ntext\n", "1 done, 2 todo"),
        ("- [x] 1. A\n- [ ] 2. B\n## Phase 1: A\ntext\n## Phase 2: B\ntext\n", "1 done, 2 todo"),
        (
            "## Milestone 1: A\ntext\n## Milestone 2: B\n## Progress\n- [x] Milestone 1\n- [ ] Milestone 2\n",
            "1 done, 2 todo",
        ),
        ("### Task 1: A\ntext\n### Task 2: B\n## Status\n- [x] 1. A\n- [ ] 2. B\n", "1 done, 2 todo"),
        ("## Phase 1: A\n## Phase 2: B\n## Acceptance Criteria\n- [x] 1. fast\n- [x] 2. safe\n", "1 todo, 2 todo"),
        ("## Phase 1: A\n## Phase 2: B\n## Notes\n- [x] 1. A\n", "1 todo, 2 todo"),
        ("- [x] 1. A\n- [x] 2. B\n## Phase 1: A\n- [x] a\n## Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
    ],
)
def test_a_list_of_boxes_that_names_the_phases_is_their_status(text: str, expected: str) -> None:
    assert ", ".join(f"{phase.id} {phase.status}" for phase in read(text).phases) == expected


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ("### ✅ A1 — a\n### A2 — b\n### ~~A3~~ — c\n### A4 — d\n", Status.TODO, "W1 A2 — b, W2 A4 — d"),
        ("### ✅ The reader\n- x\n### The writer\n- y\n### Risks\n- z\n", Status.TODO, "W1 The writer"),
        ("### 1.1 a ✅\n- [ ] x\n### 1.2 b\n- [x] y\n", Status.DONE, "W1 x, W2 y"),
        ("### 1.1 a ✅\n- [ ] x\n### 1.2 b\n- [ ] y\n", Status.TODO, "W1 x, W2 y"),
        ("### 1.1 a ✅\n- [x] x\n### 1.2 b\ntext\n", Status.TODO, "W1 x, W2 1.2 b"),
        ("### 1.1 a ✅\n- [x] x\n### Notes\ntext\n", Status.DONE, "W1 x"),
        ("### 1.1 a\n- [x] x\n### 1.2 b\ntext\n", Status.DONE, "W1 x, W2 1.2 b"),
    ],
)
def test_sub_headings_that_say_done_are_done_parts(body: str, status: Status, expected: str) -> None:
    plan = read(f"## Phase 1: A\n{body}## Phase 2: B ✅\ntext\n")
    assert not any(remark.is_error for remark in plan.remarks)
    assert plan.phases[0].status is status
    assert ", ".join(f"{item.id} {item.text}" for item in plan.phases[0].items) == expected


DONE = "## Phase 1: A ✅\ntext\n## Phase 2: B ✅\ntext\n"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("## Remaining Work\n- the docs\n", "'Remaining Work'"),
        ("## 🔧 Rework\n### 1. Reader\ntext\n", "'🔧 Rework'"),
        ("## Outstanding\n- [x] c\n- [ ] d\n", "under 'Outstanding'"),
        ("## Polish\n- [ ] d\n", "under 'Polish'"),
        ("## Sprint 2\n- [ ] c\n", "under 'Sprint 2'"),
        ("## Tracker\n| Phase | Status |\n|--|--|\n| 1 | Done |\n| 2 | Done |\n## Rework\n- c\n", "'Rework'"),
        ("## Known gaps\n- None\n- ✅ c\n", ""),
        ("## Remaining Work\n- [x] c\n", ""),
        ("## Remaining Work (done)\n- c\n", ""),
        ("## Future ideas\n- [ ] c\n", ""),
        ("## Success Criteria\n- [ ] c\n", ""),
        ("## Open questions\n- c\n", ""),
    ],
)
def test_a_plan_of_done_phases_asks_about_sections_that_may_be_open(rest: str, said: str) -> None:
    assert not any(remark.is_error for remark in read(f"---\nstatus: complete\n---\n{DONE}{rest}").remarks)
    errors = [remark for remark in read(DONE + rest).remarks if remark.is_error]
    assert [said in remark.text and remark.line > 4 for remark in errors] == [True] * bool(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OPEN + "## Clean-up\n- [ ] c\n", "boxes under 'Clean-up'"),
        (
            "## Phase 1: A\n- a\n## Phase 2: B\n- b\n## Dates\n### Week 1\n- [ ] b\n### Week 2\n- [ ] c\n",
            "boxes under 'Week 1'",
        ),
        ("## 3. Base (Phase 0)\n- a\n## 4. Phase 1: B\n- b\n", "the section '3. Base (Phase 0)'"),
        ("### M1: A\n- [ ] a\n### M2: B\n- [ ] b\n## Next: M3\n- c\n", "the section 'Next: M3'"),
        (OPEN + "## Later\n### Phase 3: C\n- [ ] c\n", "the section 'Phase 3: C'"),
        (OPEN + "### Phase 3: C\n- [ ] c\n", "the section 'Phase 3: C'"),
        ("### M1 · A\n- [ ] a\n### M2 · B\n- b\n### M3 · C\n- c\n", "the section 'M2 · B'"),
        ("## Docs\n- [ ] a\n## Gaps\n| # | Gap | Work state |\n|--|--|--|\n| 2 | b | ⬜ |\n", "the row of 2"),
        ("## First cut\n- a\n## Phase 2: B\n- b\n## Phase 3: C\n- c\n", "the section 'First cut'"),
        ("## Overview\n- a\n## Phase 2: B\n- b\n## Phase 3: C\n- c\n", ""),
        (f"> Historical record of what shipped: the changelog\n{OPEN}", ""),
        (
            "".join(f"## Feature {n}\n- a\n- b\n" for n in (1, 2, 3)) + "## Phase A: X\n- 1\n## Phase B: Y\n- 2\n",
            "the sections 'Feature <number>'",
        ),
        ("PHASE 1: A\n  a\nPHASE 2: B\n  b\n## Targets\n- [ ] c\n- [ ] d\n", "the line 'PHASE 1: A'"),
        ("## Chores\n- [ ] a\n- [ ] b\n## 1. A\n- c\n## 2. B\n- d\n", "the section '1. A'"),
        (OPEN + "## Rest\n| Id | Task | Status |\n|--|--|--|\n| T7 | c | open |\n| T8 | d | todo |\n", "the row of T8"),
        (
            "## Lot 1: A\n- [ ] a\n## Lot 2: B\n- [ ] b\n## Now\n| Lot | State |\n|--|--|\n| 1 | Done |\n",
            "the row of 1",
        ),
        (OPEN + "## State\n| # | Risk | State |\n|--|--|--|\n| 1 | A | Done |\n", ""),
        (OPEN + "## Test plan\n### By hand\n- [ ] c\n## Later\n- [ ] d\n## Prerequisites\n- [ ] e\n", ""),
        (OPEN + "## Gates\n### Phase 1 gate\n- [ ] c\n## Order\n- [ ] Phase 1 first\n- [x] d\n", ""),
        (OPEN + "## Notes on Phase 2b and Phase 2.1\n- c\n", ""),
        ("## Tracker\n| Phase | Status |\n|--|--|\n| 1 | ⬚ |\n## Phase 1\n- a\n## Chores\n- [ ] b\n", ""),
    ],
)
def test_work_beside_the_phases_makes_a_plan_ambiguous(text: str, said: str) -> None:
    plan = read(text)
    errors = [remark.text for remark in plan.refusals(strict=False)]
    assert [said in error and error.endswith("runplan plan --file plans/p.md") for error in errors] == [True] * bool(
        said
    )
    if said:
        choice = re.search(r"write (format: [^`]+?) into", errors[0])
        assert choice, "a line of the front matter settles it"
        settled = read(f"---\n{choice[1]}\n---\n{text}")
        assert (phases(settled), settled.refusals(strict=False)) == (phases(plan), ())


@pytest.mark.parametrize(
    ("section", "is_refused"),
    [
        ("## Phase 1: A ✅\n- [x] a\n- [ ] b\n", True),
        ("## Phase 1: A\n**Status:** done\n- [x] a\n- [ ] b\n", True),
        ("## Phase 1: A\n**Status:** ✅ Done (abc1234)\n- [x] a\n- [ ] b\n", False),
        ("## Phase 1: A ✅\n- [ ] a\n- [ ] b\n", False),
        ("## Phase 1: A ✅\n- [x] a\n    - [ ] b\n", False),
    ],
    ids=["heading", "status line", "landed by runplan", "boxes are not kept", "nested"],
)
def test_done_beside_boxes_of_both_kinds_is_refused(section: str, is_refused: bool) -> None:
    plan = read(f"{section}## Phase 2: B\n- [ ] c\n")
    assert bool(plan.refusals(strict=False)) is is_refused


def test_fields_on_one_line_are_read() -> None:
    fields = "**Priority: High** | **Dependencies: Phase 1** | **Blocks: the release**"
    assert read(f"{OPEN}## Phase 3: C\n{fields}\n- c\n").phases[2].depends == ("1",)


def test_a_sub_task_of_a_task_without_a_box_is_refused() -> None:
    plan = read("- [x] 1. A\n  - [x] 1.1 a\n- [ ]-2. B\n  - [ ] 2.1 b\n- [ ] 3. C\n")
    assert [remark.line for remark in plan.refusals(strict=False)] == [1]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (
            "## Sprint 2: B\n- b\n## Sprint 3: C\n- c\n",
            "5: sections 'Sprint <number>' are no phases and are left out (2)",
        ),
        ("## Lot 1: A\n## Lot 2: B ✅\n", "5: sections 'Lot <number>' are no phases and are left out (1)"),
        ("### Step 1: a\n### Step 2: b\n", ""),
        ("## Option 1: A\n## Option 2: B\n", ""),
        ("## Remaining Work\n- b\n", ""),
    ],
)
def test_headings_that_count_with_another_word_are_named(rest: str, expected: str) -> None:
    assert ", ".join(remarks(read(f"## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n{rest}"))) == expected


def test_a_word_that_counts_is_ambiguous_unless_every_section_has_items() -> None:
    with pytest.raises(
        PlanUnreadable, match=r"p.md:3: other sections 'Bloque <number>' have boxes or a status, this one"
    ):
        read("## Bloque 1: A\n- [ ] a\n## Bloque 2: B\ntext\n")
    with pytest.raises(PlanUnreadable, match="no phases found"):
        read("## Schritt 1: A\nText\n## Schritt 2: B\nText\n")


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("## ✅ Detailed tasks\n### Phase 1: A\ntext\n### Phase 2: B\ntext\n", "1 todo, 2 todo", 2),
        ("## Completed work\n### Phase 1: A\ntext\n## Next\n### Phase 2: B\n- [ ] b\n", "1 todo, 2 todo", 2),
        ("# Plan (complete)\n## Phase 1: A\ntext\n## Phase 2: B\n- [ ] b\n", "1 todo, 2 todo", 2),
        ("## Phase 1: A\ntext\n## Phase 2: B ✅\n", "1 todo, 2 done", 1),
        ("## Phase 1: A\n- ✅ a\n## Phase 2: B\n- ✅ b\n", "1 todo, 2 todo", 1),
        ("## Phase 1: A\n### ✅ A1\n## Phase 2: B\n### ✅ B1\n## State\n**Status:** Ready\n", "1 done, 2 done", 6),
        (
            "### 1.1 A\n- [x] a\n### 1.2 B\n- [ ] b\n### Later\n- [ ] c\n## Completed\n| Task |\n|--|\n| 1.2 B |\n",
            "1 done, 2 todo, 3 todo",
            10,
        ),
        ("# T\nStatus: done. See below.\n## Phase 1: A\ntext\n", "1 todo", 2),
        ("# T\n**Estado:** Implementado (v3)\n## A\n- [ ] a\n## B\n- [ ] b\n", "A todo, B todo", 2),
        ("## Ready\n- [x] a\n## Next\n### 1. B\n- b\n### 2. C\n- c\n## Later\n- [ ] d\n", "1 done, 2 todo", 4),
    ],
)
def test_a_plan_that_may_be_done_is_refused(text: str, expected: str, line: int) -> None:
    plan = read(text)
    assert (phases(plan), [remark.line for remark in plan.refusals(strict=False)]) == (expected, [line])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "## Phase 1: A\n### ✅ A1\n### ~~A2~~\n## Phase 2: B\n### ✅ B1\n### B2\n**Status:** Done\n",
            "1 done, 2 todo",
        ),
        (
            "## Done\n- [x] a\n## Pending\n- [ ] None\n## Blocked\n- [ ] N/A - see a\n- [ ] -\n- [ ] None of b\n",
            "1 done, 2 todo",
        ),
        ("## 二、Phase 0：A\n- [x] a\n## 三、Phase 1：B\n- [ ] b\n", "0 done, 1 todo"),
        ("## 38.1 Phase 1: A\n- [x] a\n## IV. Phase 2: B\n- [ ] b\n", "1 done, 2 todo"),
        ("## Stufe 1: A ✅\n## ⏳ Stufe 2: B\ntext\n", "1 done, 2 todo"),
        ("### 第1阶段：A\ntext\n### 第2阶段：B\ntext\n", "1 todo, 2 todo"),
        ("### 第一阶段：A\n- [x] a\n### 阶段十二：B\n- [ ] b\n### 第二十阶段\n- [x] c\n", "1 done, 12 todo, 20 done"),
        ("## ✅ SEMANA 1-2: A (Completado)\n## ⏳ Semana 3: B (Pendiente)\n", "1-2 done, 3 todo"),
        ("## Phase 1: A\n- Estado: Completado\n## Phase 2: B\n- Estado: Implementado parcialmente\n", "1 done, 2 todo"),
        ("# T\n**Estado**: 95% completado ✅\n## Semana 1: A\n- a\n## Semana 2: B\n- b\n", "1 todo, 2 todo"),
        ("## Phase 1: A\n- [x] a\n  - [ ] b\n## Phase 2: B\n- [ ] c\n  - [x] d\n", "1 done, 2 todo"),
        ("## 1. A\n| ID | Task |\n|--|--|\n| T001 | a |\n## 2. B\n| ID | Task |\n| T002 | b |\n", "1 todo, 2 todo"),
        ("## Fase 1A — A (concluída)\n## **Fase 2**: B\ntext\n", "1A done, 2 todo"),
        ("## Phase 1 (May): A\ntext\n## Phase 2 (June): B\ntext\n", "1 todo, 2 todo"),
        ("## Phase 1: A\n### Status\n**Completed**\n### Work\na\n## Phase 2: B\n### Status\nOpen\n", "1 done, 2 todo"),
        ("## 🚧 Phase 1: A\n- [ ] a\n## ⬜ Phase 2: B\n- [ ] b\n", "1 in-progress, 2 todo"),
        ("## Phase A (now): A\ntext\n## Phase B（later）：B\ntext\n", "A todo, B todo"),
        ("## M0 - A\n- Status: Completed\n## M1 - B\n- Status: Deferred (to v2)\n", "M0 done, M1 blocked"),
    ],
)
def test_statuses_and_names_that_stand_elsewhere_are_read(text: str, expected: str) -> None:
    plan = read(text)
    assert (phases(plan), plan.refusals(strict=False)) == (expected, ())


def test_fix_writes_done_where_the_plan_says_so() -> None:
    fixed = add_tracker(b"# T\nStatus: done\n## Phase 1: A\ntext\n", path="p.md").decode()
    assert "| 1 — A | ✅ Done | | |" in fixed


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("### 1.1 a\ntext\n### 1.2 b\n- [ ] x\n### 1.3 c ✅\n", "W1 1.1 a, W2 x"),
        ("### 1.1 a\n- [ ] x\n### 1.2 b\n- plain\n### ~~1.3~~ c\n### 1.4 Risks\n- z\n", "W1 x, W2 1.2 b"),
        ("### 1.1 a\n- [ ] x\n### Notes\ntext\n", "W1 x"),
        ("### 1.1 a\ntext\n- [ ] x\n#### 1.1.1 b\ntext\n", "W1 x"),
    ],
)
def test_counted_sub_headings_without_boxes_are_items_beside_boxes(body: str, expected: str) -> None:
    assert ", ".join(items(body)) == expected


@pytest.mark.parametrize(
    ("first", "expected", "error"),
    [
        ("## Phase 1: A\n- ~~a~~ b\n- c\n", Status.TODO, ""),
        ("## Phase 1: A\n- [ ] ~~a~~\n- [ ] b\n", Status.TODO, ""),
        ("## Phase 1: A [FAIT]\n- a\n", Status.DONE, ""),
        ("## Phase 1: A [À FAIRE]\n- a\n", Status.TODO, ""),
        ("## Phase 1: A [VALMIS]\n- a\n", Status.TODO, "phase 1 ends with [VALMIS], which is no status"),
        ("## Phase 1: A [VALMIS]\n- [ ] a\n", Status.TODO, ""),
        ("## Phase 1: A [HIGH]\n- a\n", Status.TODO, ""),
        ("## Phase 1: A [docs]\n- a\n", Status.TODO, ""),
        ("## Phase 1: [PHASE_NAME]\n- a\n", Status.TODO, "the title of phase 1 is a placeholder"),
        ("## Phase 1: {{title}} [TODO]\n- a\n", Status.TODO, "the title of phase 1 is a placeholder"),
        ("## Phase 1: [Reader](reader.md)\n- a\n", Status.TODO, ""),
    ],
)
def test_struck_entries_strange_brackets_and_placeholders(first: str, expected: Status, error: str) -> None:
    plan = read(f"{first}## Phase 2: B\n- b\n")
    assert plan.phases[0].status is expected
    errors = [remark.text for remark in plan.remarks if remark.is_error]
    assert [text.startswith(error) for text in errors] == [True] * bool(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## Phase 5 Overview\ntext\n## Task 5.1: A\na\n## Task 5.2: B\nb\n## Phase 5 Gates\nc\n", "5.1 5.2"),
        ("## Phase 6.1.1: A\n- [ ] a\n## Phase 6.1.2: B\n- [ ] b\n## ✅ Phase 6.1 checklist\ntext\n", "6.1.1 6.1.2"),
        ("## Phase 1 Setup\n- [ ] a\n## Phase 1.5: B\n- [ ] b\n", "1 1.5"),
        ("## Step 1: A\na\n## Step 2: B\nb\n## Checklist\n- [ ] Step 1–2: fast\n", "1 2"),
        ("## Fase 1: A\na\n## Fase 2: B\nb\n## Métricas de Éxito\n- [ ] rápido\n", "1 2"),
        ("## 任务清单\n### 1. 架构\n#### A\n- a\n### 2. B\n#### C\n- b\n", "1 2"),
        ("# SECTION 1: A\n# SECTION 2: B\n## Phase 1: A\n- [ ] a\n## Phase 2: B\n- [ ] b\n# SECTION 3: C\n", "1 2"),
        (
            "## Phase 1: A ✅\n## Phase 2: B\n- [ ] b\n## Order\n| Phase | State |\n|--|--|\n| 2 | ⬚ |\n| 2 | ⬚ |\n",
            "1 2",
        ),
        ("### Task 1: A\na\n### Task 2: B\nb\n## Checklist\n### Phase 3 Completion\n- [ ] c\n", "1 2"),
        ("## Step 1: A\na\n## Step 2: B\nb\n## Done criteria\n- [ ] Step 2 printed it\n- [ ] fast\n", "1 2"),
        ("## Parts\n### 1. User\n**Status:** Done\n## Work\n### Phase 1: A\n- [ ] a\n### Phase 2: B\n- [ ] b\n", "1 2"),
    ],
)
def test_chapters_and_criteria_that_name_a_phase_are_none(text: str, expected: str) -> None:
    plan = read(text)
    assert (" ".join(phase.id for phase in plan.phases), plan.refusals(strict=False)) == (expected, ())
    assert not any("the plan says here that it is done" in remark.text for remark in plan.remarks)


TWICE = "## List\n### Phase 1: A\n- [x] a\n### Phase 2: B\n- [ ] b\n"


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("## Strategy\n### Phase 1: A\ntext\n- x\n", "1 done, 2 todo"),
        ("## Strategy\n### Phase 1: A\n- [ ] x\n", "two phases are called '1'"),
        ("## Strategy\n### Phase 1: A\ntext\n### Phase 3: C\ntext\n", "two phases are called '1'"),
        ("### Phase 1: A\ntext\n", "two phases are called '1'"),
    ],
)
def test_a_chapter_that_describes_the_phases_once_more_is_left_out_with_a_word(rest: str, expected: str) -> None:
    if expected.startswith("two"):
        with pytest.raises(PlanUnreadable, match=expected):
            read(TWICE + rest)
        return
    plan = read(TWICE + rest)
    assert ", ".join(f"{phase.id} {phase.status}" for phase in plan.phases) == expected
    assert remarks(plan) == ["7: sections 'Phase <number>' are no phases and are left out (1)"]
