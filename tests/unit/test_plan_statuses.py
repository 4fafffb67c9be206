"""Statuses in the words of the author: where they stand, and how they are written back."""

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.reading import list_done
from runplan.domain.plan.tracker import NoPhase, add_tracker, choose_phase, set_status


def read(text: str) -> Plan:
    return parse_plan(text.encode(), path="plans/p.md")


def remarks(plan: Plan) -> list[str]:
    return [f"{remark.line}: {remark.text}" for remark in plan.remarks]


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
    ("automated", "manual", "status"),
    [("x", "x", Status.DONE), ("x", " ", Status.BLOCKED), (" ", "x", Status.TODO), (" ", " ", Status.TODO)],
)
def test_a_phase_with_only_its_manual_part_open_waits_for_a_person(automated: str, manual: str, status: Status) -> None:
    parts = (
        f"#### Automated Verification:\n- [{automated}] tests pass\n#### Manual Verification:\n- [{manual}] it fits\n"
    )
    plan = read(f"## Phase 1: A\n### Success Criteria:\n{parts}")
    assert plan.phases[0].status is status
    if status is Status.BLOCKED:
        assert remarks(plan)[0].startswith("4: phase 1 is implemented and waits for a person: open manual criteria: 1;")
        assert remarks(plan)[0].endswith("; to have it worked again: runplan start plans/p.md 1")
        assert choose_phase(plan, wanted="1") == plan.phases[0]
        choice = choose_phase(plan, wanted=None)
        assert isinstance(choice, NoPhase)
        assert choice.detail.startswith("phase 1 is implemented and waits for a person")


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("| Phase | Status |\n|---|---|\n| 1 — A | ✅ Done |\n| 2 — B | ⬚ | after 1 is done |\n", {"1": 3}),
        ("# Done\n\n- ✅ Phase 1: A\n- [x] Phase 2 — B\n- [ ] Phase 3 — C\n- Phase 4: not done\n", {"1": 3, "2": 4}),
        ("## Phase 1 — A\n\n**Status:** Done (4a6075d)\n\n## Phase 2b — B ✅\n\n## Phase 3 — C\n", {"1": 3, "2b": 5}),
        ("**Phase 1**: done\n\nThen phase 2 is done, too.\n```\n- [x] Phase 3: C\n```\n", {"1": 1}),
    ],
)
def test_the_done_phases_of_a_document_about_progress_are_read(text: str, done: dict[str, int]) -> None:
    assert list_done(text.encode(), path="p.md") == done


def test_fix_writes_done_where_the_plan_says_so() -> None:
    fixed = add_tracker(b"# T\nStatus: done\n## Phase 1: A\ntext\n", path="p.md").decode()
    assert "| 1 — A | ✅ Done | | |" in fixed


def errors(plan: Plan) -> list[str]:
    return [f"{remark.line}: {remark.text}" for remark in plan.remarks if remark.is_error]


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


def test_a_sign_at_the_end_of_a_heading_is_its_status() -> None:
    text = "# P\n## Why\n- pasting works ✅\n## Plan\n### Étape 1 : Parse ⬜\nHow.\n### Étape 2 : Write ⬜\nHow.\n"
    plan = read(text)
    assert [(phase.id, phase.status) for phase in plan.phases] == [("1", "todo"), ("2", "todo")]
    done = set_status(text.encode(), path="plans/p.md", phase="1", status=Status.DONE).decode()
    assert done == text.replace("Parse ⬜", "Parse ✅")
    assert [phase.status for phase in read(done).phases] == ["done", "todo"]


def test_a_later_chapter_has_the_boxes_of_the_phases() -> None:
    told = "# P\n## Needs\n### Phase 1: Parse\n1. a\n### Phase 2: Write\n1. b\n2. c\n"
    text = f"{told}## Record\n### Phase 1: Parse\n- [x] a\n### Phase 2: Write\n- [ ] b\n- [ ] c\n"
    plan = read(text)
    assert ([phase.status for phase in plan.phases], errors(plan)) == (["done", "todo"], [])
    done = set_status(text.encode(), path="plans/p.md", phase="2", status=Status.DONE).decode()
    assert done == text.replace("[ ]", "[x]")
    more = read(text.replace("- [ ] c", "- [ ] sort c\n  - [x] and d\n- [ ]* maybe e"))
    assert [item.text for item in more.phases[1].items] == ["b", "c", "sort c", "and d"], (
        "as they are ticked by a landing"
    )
    assert not more.remarks
    bare = read("# P\n## Needs\n### Phase 1: Parse\nHow.\n## Record\n### Phase 1: Parse\n- [ ] a\n")
    assert [item.text for item in bare.phases[0].items] == ["a"]
    with pytest.raises(PlanUnreadable, match="two phases are called '1'"):
        read(f"{told}## Record\n### Phase 1: Parse\n- [x] a\n")


def test_a_phase_without_a_status_before_done_ones_asks() -> None:
    plan = "## Phase 1: A\n- a\n## Phase 2: B\n- [{}] b\n## Phase 3: C\n- [ ] c\n"
    assert [error.partition(",")[0] for error in errors(read(plan.format("x")))] == ["1: no status of phase 1"]
    assert errors(read(plan.format(" "))) == []
    bare = b"# P\n## Phase 1: A\n- a\n## Phase 2: B\n- b\n"
    landed = set_status(bare, path="plans/p.md", phase="2", status=Status.DONE, commit="4a6075d")
    assert errors(read(landed.decode())) == [], "a landing of the second phase does not make the plan doubtful"


@pytest.mark.parametrize(("title", "count"), [("QA checklist", 1), ("Release Checklist", 1), ("Build checklist", 0)])
def test_checks_that_a_person_goes_through_ask(title: str, count: int) -> None:
    assert len(errors(read(f"# {title}\n## Pages\n- [ ] they show\n## Keys\n- [ ] they work\n"))) == count
    plan = parse_plan(b"## Pages\n- [ ] a\n## Keys\n- [ ] b\n", path=f"docs/{title.lower().replace(' ', '_')}.md")
    assert len(errors(plan)) == count
