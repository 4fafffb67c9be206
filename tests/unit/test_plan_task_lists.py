"""Plans of other tools whose statuses are words: JSON task lists, Backlog.md tasks, Cursor todos, GSD roadmaps.

A status is written in the tool's own word, and no other byte changes.
"""

import contextlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from runplan.domain.errors import PlanUnreadable
from runplan.domain.names import join_files, split_files
from runplan.domain.plan.formats.tasks_json import locate_values
from runplan.domain.plan.model import Plan, Status, parse_plan
from runplan.domain.plan.tracker import set_completed, set_status
from runplan.engine.loop.context import task_folder

LISTS = Path(__file__).parent.parent / "plans" / "task-lists"

TASK_1 = b"""---
id: TASK-1
title: Shelves
status: To Do
assignee: []
labels: []
dependencies: []
---

## Description

Books have a place.
Touches: src/**

## Acceptance Criteria
<!-- AC:BEGIN -->
- [ ] #1 A shelf holds 40 books
- [x] #2 It has a label
<!-- AC:END -->
"""
TASK_10 = b"""---
id: TASK-10
title: 'Search: titles'
status: 'In Progress'
labels:
  - ux
dependencies:
  - task-1
  - task-9
---
no newline at the end"""
TASK_2 = b"---\r\nid: task-2\r\ntitle: Fax\r\nstatus: Done\r\nlabels: []\r\ndependencies: [task-1]\r\n---\r\n"
FOLDER = {
    "backlog/tasks/task-10 - Search.md": TASK_10,
    "backlog/tasks/task-1 - Shelves.md": TASK_1,
    "backlog/tasks/readme.md": b"# Tasks\n",
    "backlog/tasks/task-2 - Fax.md": TASK_2,
}


def file(name: str) -> bytes:
    return (LISTS / name).read_bytes()


def described(plan: Plan) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(phase.id, phase.title, str(phase.status), phase.depends) for phase in plan.phases]


def items(plan: Plan, id_: str) -> list[str]:
    phase = plan.phase(id_)
    assert phase is not None
    return [f"{item.id} {item.text}" for item in phase.items]


def set_to(raw: bytes, path: str, phase: str, status: Status) -> bytes:
    return set_status(raw, path=path, phase=phase, status=status, commit="4a6075d" if status is Status.DONE else "")


# --- JSON -------------------------------------------------------------------------------------------------


def test_a_task_list_has_a_phase_for_each_task_and_an_item_for_each_subtask() -> None:
    plan = parse_plan(file("tasks.json"), path="tasks.json")
    assert (plan.format, plan.read_as, plan.title, plan.complete) == ("json", "JSON task list", "tasks.json", False)
    assert described(plan) == [
        ("1", 'Schema "v2" — Bücher', "done", ()),
        ("2", "Search", "todo", ("1",)),
        ("3", "Cloud", "blocked", ("2",)),
        ("4", "Fax", "done", ("3",)),
        ("5", "Manual", "blocked", ("2", "4")),
    ]
    assert items(plan, "1") == ["W1 1 Migration", "C1 The migration runs twice"]
    assert items(plan, "2") == ["W1 1 Index ü", "W2 2 Ranking"]
    assert items(plan, "3") == ["P Cloud"]
    assert [(phase.line, phase.allows) for phase in plan.phases[:2]] == [(12, ("Makefile",)), (19, ())]


def test_tasks_may_be_numbered_from_zero() -> None:
    tasks = b'[{"id": 0, "title": "A", "status": "pending"}, {"id": 1, "title": "A", "status": "pending"}]'
    assert [phase.id for phase in parse_plan(tasks, path="t.json").phases] == ["0", "1"]


def test_the_text_of_a_task_is_readable_and_does_not_change_with_its_status() -> None:
    raw = file("tasks.json")
    phase = parse_plan(raw, path="tasks.json").phase("1")
    minified = json.dumps(json.loads(raw), separators=(",", ":")).encode()
    assert phase is not None
    assert phase.text == (
        '## Task 1: Schema "v2" — Bücher\n\n- [x] 1 Migration\n\n'
        "### Acceptance Criteria\n\n- The migration runs twice\n\n"
        "### Description\n\nTables for books.\n\n### Details\n\nUse SQLite.\nAllows: Makefile\n\n### Priority\n\nhigh\n"
    )
    assert parse_plan(minified, path="tasks.json").phase("1").text == phase.text  # type: ignore[union-attr]
    todo = parse_plan(raw.replace(b'"status": "done",\n', b'"status": "pending",\n'), path="tasks.json").phase("1")
    assert todo is not None
    assert (todo.status, todo.text) == (Status.TODO, phase.text)


def test_tasks_that_are_not_worked_are_named() -> None:
    remarks = parse_plan(file("tasks.json"), path="tasks.json").remarks
    assert [f"{remark.line}: {remark.text}" for remark in remarks] == [
        "25: task 3 has the status 'deferred' and is not worked, nor is what waits for it",
        "26: task 4 has the status 'cancelled' and is not worked; nothing waits for it",
        "27: task 5 has the status 'review' and is not worked, nor is what waits for it",
    ]


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "as written": lambda raw: raw,
    "CRLF": lambda raw: raw.replace(b"\n", b"\r\n"),
    "with a byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "minified": lambda raw: json.dumps(json.loads(raw), separators=(",", ":")).encode(),
    "minified, not ASCII": lambda raw: json.dumps(json.loads(raw), ensure_ascii=False).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_status_of_a_task_changes_its_own_values_and_no_other_byte(form: str) -> None:
    raw = FORMS[form](file("tasks.json").replace(b'"in-progress"', b'"pending"'))
    done = set_to(raw, "tasks.json", "2", Status.DONE)
    before, after = json.loads(raw.decode("utf-8-sig")), json.loads(done.decode("utf-8-sig"))
    task = before["master"]["tasks"][1]
    task["status"] = "done"
    for subtask in task["subtasks"]:
        subtask["status"] = "done"
    assert after == before
    assert len(raw) - len(done) == 3 * len("pending") - 3 * len("done")
    assert set_to(done, "tasks.json", "2", Status.DONE) == done
    assert set_to(done, "tasks.json", "2", Status.TODO) == raw


def test_stories_are_worked_by_priority_and_in_order_unless_they_name_dependencies() -> None:
    raw = file("prd.json")
    plan = parse_plan(raw, path="prd.json")
    assert (plan.read_as, plan.title) == ("JSON user stories", "Library")
    assert described(plan) == [
        ("US-001", "Add a book", "done", ()),
        ("US-002", "Lend a book", "todo", ("US-001",)),
        ("US-003", "Return it", "todo", ("US-001",)),
    ]
    assert items(plan, "US-002") == ["C1 A book is lent once", "C2 Typecheck passes"]
    done = set_to(raw, "prd.json", "US-002", Status.DONE)
    assert done == raw.replace(b'"passes": false, "notes"', b'"passes": true, "notes"')
    assert set_to(done, "prd.json", "US-002", Status.TODO) == raw


def test_the_words_of_the_list_are_written() -> None:
    raw = b'[{"title": "a", "status": "Completed"}, {"name": "b", "status": "todo"}, {"name": "c", "status": "todo"}]'
    done = set_to(raw, "x.json", "2", Status.DONE)
    assert done == raw.replace(b'"b", "status": "todo"', b'"b", "status": "Completed"')
    assert set_to(done, "x.json", "2", Status.TODO) == raw


def test_a_list_is_complete_when_every_task_is_done() -> None:
    raw = b'{"features": [{"description": "a\\nb", "passes": true}]}'
    plan = parse_plan(raw, path="x.json")
    assert (plan.complete, plan.phases[0].title) == (True, "a")
    assert set_completed(raw, path="x.json", completed="2026-01-01") == raw


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"tasks": [\n1,]}', "x.json:2: this is no JSON"),
        (b'{"a": 1}', "x.json:1: no tasks with titles"),
        (b'{"tasks": []}', "x.json:1: no tasks with titles; runplan reads a list of tasks, or one under tasks,"),
        (b'[{"title": "a", "passes": "no"}]', "x.json:1: the field passes of task 1 is neither true nor false"),
        (b"[" * 100_000, "x.json:1: the values are nested too deeply"),
        (b'[{"title": "a", "id": ' + b"1" * 5000 + b"}]", "x.json:1: the values are nested too deeply, or a number"),
        (b'[{"title": "a", "id": "b\\nc", "passes": true}]', "x.json:1: the id of a task has at most 80 printable"),
        (b'[{"title": "a\\ud800", "passes": true}]', "x.json:1: this is no UTF-8 text"),
        (b'[\n{"title": "a"}]', "x.json:2: task 1 has no status; add one: pending"),
        (b'[{"id": 1, "title": "a", "passes": true},\n{"id": "1", "title": "b", "passes": true}]', "x.json:2: two"),
        (b'[{"title": "a", "status": "todo", "dependencies": [7]}]', "x.json:1: task 1 depends on 7, which is not"),
        (b'{"a": {"tasks": []}, "b": {"tasks": []}}', "x.json:1: the file has the tags a, b; name one of them master"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_with_its_line(raw: bytes, said: str) -> None:
    with pytest.raises(PlanUnreadable) as refused:
        parse_plan(raw, path="x.json")
    assert str(refused.value).startswith(said)


def test_tasks_that_wait_for_each_other_have_no_prose_to_correct() -> None:
    tasks = b'[{"id": 1, "title": "a", "passes": false, "dependencies": [2]}, {"id": 2, "title": "b", "passes": false}]'
    with pytest.raises(PlanUnreadable, match=r"the phases wait for each other: 1 → 2 → 1; break the cycle$"):
        parse_plan(tasks, path="x.json")


def test_a_damaged_list_raises_nothing_but_the_readers_own_error() -> None:
    pieces = [b'"', b"}", b"[", b"null", b"7", b'"status"', b'"subtasks"', b"{}", b"\\", b"\xff", b"\n", b"-1e9", b'""']
    for seed in range(400):
        chance = random.Random(seed)
        raw = bytearray(file(chance.choice(["tasks.json", "prd.json"])))
        for _ in range(chance.randrange(4)):
            begin = chance.choice([match.start() for match in re.finditer(rb'"|\b', raw)])
            end = begin + chance.choice([0, 1, len(re.match(rb'"[^"]*"|\w*|', raw[begin:])[0])])  # type: ignore[index]
            raw[begin:end] = chance.choice(pieces)
        with contextlib.suppress(PlanUnreadable):
            for phase in parse_plan(bytes(raw), path="x.json").phases:
                json.loads(set_to(bytes(raw), "x.json", phase.id, Status.DONE))


def test_each_line_of_a_list_in_a_text_is_a_criterion() -> None:
    raw = b'[{"title": "a", "passes": false, "testStrategy": "1. b\\n   c\\n2. d\\n- e", "steps": ["f\\ng"]}]'
    assert items(parse_plan(raw, path="x.json"), "1") == ["C1 b c", "C2 d", "C3 e", "C4 f g"]


def test_other_tags_are_named() -> None:
    task = b'{"tasks": [{"title": "a", "status": "todo"}]}'
    plan = parse_plan(b'{"x": ' + task + b', "master": ' + task + b"}", path="x.json")
    assert [remark.text for remark in plan.remarks] == ["left out: the tasks of x; only master is worked"]


def test_each_value_knows_its_place() -> None:
    text = '{"a\\"}": [1, {"b": "x\\\\"}, -2.5e3, null], "ü": {}, "c": "[\\"{"}'
    root = locate_values(text)
    inner = root.inner['a"}'].inner
    assert [text[node.begin : node.end] for node in (*inner.values(), inner["1"].inner["b"], root.inner["c"])] == [
        *("1", '{"b": "x\\\\"}', "-2.5e3", "null", '"x\\\\"', '"[\\"{"')
    ]


# --- Backlog.md -------------------------------------------------------------------------------------------


def test_a_folder_is_one_text_and_becomes_its_files_again() -> None:
    raw = join_files(FOLDER)
    assert split_files(raw, "backlog/tasks") == FOLDER
    assert split_files(TASK_1, "backlog/tasks") == {}
    assert split_files(raw, "backlog") == {}, "a line in another plan is text"


def test_the_tasks_of_a_folder_are_its_phases() -> None:
    plan = parse_plan(join_files(FOLDER), path="backlog/tasks")
    assert (plan.read_as, plan.title) == ("Backlog.md tasks", "Backlog")
    assert described(plan) == [
        ("TASK-1", "Shelves", "todo", ()),
        ("task-2", "Fax", "done", ("TASK-1",)),
        ("TASK-10", "Search: titles", "in-progress", ("TASK-1",)),
    ]
    assert items(plan, "task-1") == ["C1 #1 A shelf holds 40 books", "C2 #2 It has a label"]
    assert plan.phases[0].touches == ("src/**",)
    assert "status" not in plan.phases[0].text
    assert [remark.text for remark in plan.remarks] == [
        "backlog/tasks/readme.md is no task of Backlog.md and is left out",
        "task TASK-10 depends on task-9, which is not here; that counts as done",
        "phase TASK-10 is marked in progress; it is passed over unless it is named: "
        "runplan start backlog/tasks TASK-10",
    ]


def test_a_task_is_set_in_its_own_file() -> None:
    raw = join_files(FOLDER)
    done = split_files(set_to(raw, "backlog/tasks", "TASK-1", Status.DONE), "backlog/tasks")
    own = TASK_1.replace(b"To Do", b"Done").replace(b"- [ ]", b"- [x]")
    assert done == {**FOLDER, "backlog/tasks/task-1 - Shelves.md": own}
    quoted = split_files(set_to(raw, "backlog/tasks", "TASK-10", Status.DONE), "backlog/tasks")
    assert quoted == {**FOLDER, "backlog/tasks/task-10 - Search.md": TASK_10.replace(b"In Progress", b"Done")}
    back = split_files(set_to(raw, "backlog/tasks", "task-2", Status.TODO), "backlog/tasks")
    assert back == {**FOLDER, "backlog/tasks/task-2 - Fax.md": TASK_2.replace(b"Done", b"To Do")}


def test_a_single_task_file_is_a_plan_with_one_phase() -> None:
    plan = parse_plan(TASK_1, path="task-1 - Shelves.md")
    assert (plan.title, described(plan)) == ("Shelves", [("TASK-1", "Shelves", "todo", ())])
    done = set_to(TASK_1, "t.md", "task-1", Status.DONE)
    assert done == TASK_1.replace(b"To Do", b"Done").replace(b"- [ ]", b"- [x]")
    assert set_completed(done, path="t.md", completed="2026-01-01") == done
    assert parse_plan(done, path="t.md").complete


def test_a_plan_with_a_front_matter_of_its_own_is_no_task() -> None:
    plan = parse_plan(b"---\nid: 7\ntitle: X\nstatus: active\n---\n- [ ] a\n", path="t.md")
    assert (plan.format, plan.title) == ("checklist", "X")


def test_an_epic_waits_for_its_parts() -> None:
    front = "---\nid: {}\ntitle: T\nstatus: To Do\nlabels: []\ndependencies: [{}]\n{}---\n"
    parts = {"task-1": ("task-3", ""), "task-1.1": ("", "TASK-1"), "task-1.2": ("task-1", "task-1"), "task-3": ("", "")}
    files = {
        f"backlog/tasks/{id_} - T.md": front.format(
            id_, waits, f"parent_task_id: {parent}\n" if parent else ""
        ).encode()
        for id_, (waits, parent) in parts.items()
    }
    plan = parse_plan(join_files(files), path="backlog/tasks")
    waits_for = {phase.id: " ".join(phase.depends) for phase in plan.phases}
    assert waits_for == {"task-1": "task-3 task-1.1", "task-1.1": "", "task-1.2": "task-1", "task-3": ""}


# --- Cursor -----------------------------------------------------------------------------------------------


def test_a_todo_has_the_document_as_its_context_and_is_set_in_its_line() -> None:
    raw = (LISTS.parent / "cursor" / "02-in-order.md").read_bytes() + b"\n# Why\n\n- [ ] no item\n"
    plan = parse_plan(raw, path="x.plan.md")
    assert plan.phases[0].text == "## Todo a\n\nFirst\n\n\n# Why\n\n- [ ] no item\n"
    assert items(plan, "a") == ["P First"]
    done = set_to(raw, "x.plan.md", "a", Status.DONE)
    assert done == raw.replace(b'"pending"', b'"completed"')
    assert set_to(done, "x.plan.md", "a", Status.TODO) == raw
    assert set_completed(done, path="x.plan.md", completed="2026-01-01") == done


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "x.md:3: task a has no status; add one: pending"),
        ("  status: pending\n  dependencies: [q]\n", "x.md:3: task a depends on q, which"),
    ],
)
def test_a_todo_that_cannot_be_used_is_refused(rest: str, said: str) -> None:
    with pytest.raises(PlanUnreadable, match=said):
        parse_plan(f"---\ntodos:\n- id: a\n  content: x\n{rest}---\n".encode(), path="x.md")


# --- GSD --------------------------------------------------------------------------------------------------


def test_a_roadmap_has_its_statuses_in_the_list_of_phases_and_in_the_table() -> None:
    raw = file("ROADMAP.txt")
    plan = parse_plan(raw, path="ROADMAP.md")
    assert plan.read_as == "GSD roadmap"
    phases = [("1", "Shelves", "done", ()), ("2", "Search", "todo", ("1",)), ("2.1", "Barcodes", "todo", ("2",))]
    assert described(plan) == phases
    assert items(plan, "1") == ["W1 01-01-PLAN.md — Schema", "C1 A shelf holds 40 books"]
    works = ["W1 02.1-01-PLAN.md — Scanner", "W2 02.1-02-PLAN.md — Page"]
    assert items(plan, "2.1") == [*works, "C1 A scan opens the book"]
    done = set_to(raw, "ROADMAP.md", "2.1", Status.DONE)
    changed = raw.replace(b"- [ ] **Phase 2.1", b"- [x] **Phase 2.1").replace(b"- [ ] 02.1-", b"- [x] 02.1-")
    assert done == changed.replace(b"| 0/2 | Not started |", b"| 0/2 | Complete |")
    assert set_to(done, "ROADMAP.md", "2.1", Status.TODO) == raw


def test_a_phase_that_only_the_table_of_a_roadmap_calls_complete_is_done_with_a_warning() -> None:
    plan = parse_plan(file("ROADMAP.txt").replace(b"| 0/? | Not started |", b"| 2/2 | Complete |"), path="ROADMAP.md")
    assert [phase.status for phase in plan.phases] == [Status.DONE, Status.DONE, Status.TODO]
    assert "the table says that phase 2 is done, the list does not; it counts as done" in plan.remarks[0].text


EARLIER = (
    "# Roadmap\n\n<details>\n\n- [x] Phase 1: A (2/2 plans)\n- [x] Phase 2: B (1/1 plans)\n\n</details>\n\n{}"
    "| Phase | Plans Complete | Status |\n|---|---|---|\n| 1. A | 2/2 | Complete |\n| 2. B | 1/1 | Complete |\n{}"
)


@pytest.mark.parametrize(
    ("listed", "rest", "expected"),
    [
        ("", "", "1 done, 2 done"),
        ("- [ ] Phase 3: C\n\n", "", "1 done, 2 done, 3 blocked"),
        ("", "| 3. C | 0/1 | Planned |\n", "1 done, 2 done, 3 blocked"),
        (
            "",
            "| 3. C | 0/1 | Planned |\n\n### Phase 3: C\n**Depends on:** Phase 2\n- [ ] 03-01\n",
            "1 done, 2 done, 3 todo",
        ),
        ("- [ ] Phase 3: C\n\n", "| v1.1 | 0/1 | Planned |\n\n### Phase 3: C\n- [ ] 03-01\n", "1 done, 2 done, 3 todo"),
    ],
)
def test_a_phase_of_a_roadmap_without_a_section_is_done_or_needs_one(listed: str, rest: str, expected: str) -> None:
    plan = parse_plan(EARLIER.format(listed, rest).encode(), path="ROADMAP.md")
    assert ", ".join(f"{phase.id} {phase.status}" for phase in plan.phases) == expected
    assert plan.complete is ("3" not in expected)


def test_a_task_block_in_a_fence_is_no_plan() -> None:
    raw = b"# X\n\n- [ ] a\n\n```xml\n<task type='auto'>\n</task>\n```\n"
    assert parse_plan(raw, path="x.md").format == "checklist"


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [
        *((name, True) for name in ("config.yml", "tasks/task-1 - Shelves.md", "tasks/back-12.1 - Shelves.md")),
        ("tasks/notes.md", False),
    ],
)
def test_a_folder_of_tasks_is_known_by_settings_or_files(tmp_path: Path, name: str, *, is_folder: bool) -> None:
    folder = tmp_path / "backlog/tasks"
    folder.mkdir(parents=True)
    (tmp_path / "backlog" / name).touch()
    assert task_folder(tmp_path / "backlog") == task_folder(folder) == (folder if is_folder else None)
