"""One plan of every format is worked to its end, and its statuses are written in its own way."""

from pathlib import Path

import pytest

from runplan.domain.plan.model import Status, parse_plan
from tests.support.cli import Project, a_project, steps

PLANS = Path(__file__).parent.parent / "plans"

#: The file of a format, where its tool keeps it, and the word for it after `start`.
WORKED = {
    "tracker/05-letters": ("plans/LETTERS.md", "LETTERS"),
    "sections/02-boxes": ("plans/QUEUE.md", "QUEUE"),
    "checklist/03-phases": ("plans/SMALL.md", "SMALL"),
    "kiro/02-subtasks": (".kiro/specs/invoices/tasks.md", "invoices"),
    "openspec/02-title-and-progress": ("openspec/changes/links/tasks.md", "openspec/changes/links/"),
    "spec-kit/03-task-dependencies": ("specs/003-merge/tasks.md", "specs/003-merge/tasks.md"),
    "humanlayer/06-dependencies": ("thoughts/plans/billing.md", "thoughts/plans/billing.md"),
    "superpowers/08-depends": ("docs/superpowers/plans/pipeline.md", "docs/superpowers/plans/pipeline.md"),
    "ralphex/06-indented-boxes": ("docs/plans/release.md", "docs/plans/release.md"),
    "claude-code/09-depends-on-step": ("plans/replica.md", "replica"),
    "todo/05-done-section": ("TODO.md", "TODO.md"),
    "gsd/02-auto": (".planning/phases/01-01-PLAN.md", ".planning/phases/01-01-PLAN.md"),
    "cursor/02-in-order": (".cursor/plans/labels.plan.md", "labels"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", WORKED)
def test_a_plan_of_every_format_is_worked_to_its_end(name: str, project: Project) -> None:
    path, word = WORKED[name]
    text = (PLANS / f"{name}.md").read_bytes()
    left = [phase for phase in parse_plan(text, path=path).phases if phase.status is not Status.DONE]
    folders = {phase.id: phase.touches[0].removesuffix("**") if phase.touches else "" for phase in left}
    agent = "".join(steps(f'write = "{folder}{id_}.txt"', phase=id_) for id_, folder in folders.items())
    project.repo.commit("Set up", **{"agent.toml": agent, path: text.decode()})
    project.runplan("start", word, "finish", "auto", "--foreground").exits(0)
    assert project.landed() == [phase.id for phase in left]
    landed = parse_plan(project.show(f"HEAD:{path}").encode() + b"\n", path=path)
    assert landed.complete
    assert {phase.status for phase in landed.phases} == {Status.DONE}
    assert (landed.read_as, landed.title) == (parse_plan(text, path=path).read_as, parse_plan(text, path=path).title)


TASKS = """{"master": {"tasks": [
  {"id": 1, "title": "Schema", "status": "pending", "dependencies": [], "subtasks": [{"id": 1, "title": "Tables", "status": "pending"}]},
  {"id": 2, "title": "Search", "testStrategy": "A title is found", "status": "pending", "dependencies": [1]}
]}}"""  # noqa: E501


@pytest.mark.promise
def test_the_statuses_are_all_that_changes_in_a_task_list(project: Project) -> None:
    path = ".taskmaster/tasks/tasks.json"
    agent = steps('write = "1.txt"', phase="1") + steps('write = "2.txt"', phase="2")
    project.repo.commit("Set up", **{"agent.toml": agent, path: TASKS})
    assert "read as: JSON task list" in project.runplan("check", path).out
    project.runplan("start", path, "finish", "auto", "--foreground").exits(0)
    assert project.landed() == ["1", "2"]
    assert project.show(f"HEAD:{path}") == TASKS.replace("pending", "done")


TASK = """---
id: TASK-{number}
title: Part {number}
status: To Do
assignee: []
labels: []
dependencies: [{waits}]
---

## Acceptance Criteria

- [ ] #1 {number}.txt exists
"""


def test_a_folder_of_task_files_is_a_plan(project: Project) -> None:
    files = {
        "backlog/config.yml": "project_name: X\n",
        "backlog/tasks/task-2 - Part-2.md": TASK.format(number=2, waits="task-1"),
        "backlog/tasks/task-1 - Part-1.md": TASK.format(number=1, waits=""),
    }
    agent = steps('write = "1.txt"', phase="TASK-1") + steps('write = "2.txt"', phase="TASK-2")
    project.repo.commit("Set up", **{"agent.toml": agent, **files})
    shown = project.runplan("check", "backlog/tasks", "--json").json
    assert [phase["id"] for phase in shown["phases"]] == ["TASK-1", "TASK-2"]
    edited = project.path / "backlog/tasks/task-2 - Part-2.md"
    edited.write_text("edited")
    refused = project.runplan("start", "backlog", "--foreground")
    assert "backlog/tasks in the checkout differs from" in refused.err
    edited.write_text(files["backlog/tasks/task-2 - Part-2.md"])
    project.runplan("start", "backlog", "finish", "auto", "--foreground").exits(0)
    assert project.landed() == ["TASK-1", "TASK-2"]
    for path in ("backlog/tasks/task-1 - Part-1.md", "backlog/tasks/task-2 - Part-2.md"):
        expected = files[path].replace("To Do", "Done").replace("- [ ]", "- [x]")
        assert project.show(f"HEAD:{path}") + "\n" == expected
    assert project.runplan("status", "backlog", "--json").json["status"] == "complete"
    project.runplan("undo", "backlog", "TASK-2").exits(0)
    assert "status: To Do" in project.show("HEAD:backlog/tasks/task-2 - Part-2.md")


SPEC = "# Tasks: Login\n\n## Phase 1: Setup\n\n- [ ] T001 Create the form\n"


@pytest.mark.promise
def test_a_spec_folder_is_a_plan_and_its_files_are_context(project: Project) -> None:
    project.commit_file("specs/001-login/tasks.md", SPEC)
    project.commit_file("specs/001-login/spec.md", "# Login\n")
    project.commit_file(".specify/memory/constitution.md", "# Rules\n")
    project.shell_agent(
        "for file in specs/001-login/spec.md .specify/memory/constitution.md; do\n"
        '  grep -qF "$file" "$RUNPLAN_PROMPT" || exit 3\n'
        "done\n"
        '! grep -qF specs/001-login/plan.md "$RUNPLAN_PROMPT" && echo done > 1.txt\n'
    )
    project.runplan("start", "001-login", "finish", "auto", "--foreground").exits(0)
    verify = project.prompts("verify", plan="specs/001-login/tasks.md")[0]
    assert "- `specs/001-login/spec.md`\n- `.specify/memory/constitution.md`" in verify
    assert "- [x] T001" in project.show("HEAD:specs/001-login/tasks.md")
    assert "Phase — 1 Setup" in project.show("HEAD:reports/plan-001-login.md")
    assert project.runplan("check", "specs/001-login", "--json").json["read_as"] == "spec-kit tasks"


@pytest.mark.parametrize(("attribute", "encoding"), [("ident", "utf-8"), ("working-tree-encoding=UTF-16", "utf-16")])
def test_a_plan_that_git_stores_in_another_form_is_not_edited(tmp_path: Path, attribute: str, encoding: str) -> None:
    project = a_project(tmp_path, "1")
    project.repo.write(".gitattributes", f"plans/*.md {attribute}\n")
    file = project.path / "plans/X.md"
    file.write_text(file.read_text(encoding="utf-8") + "\n$Id$\n", encoding=encoding)
    project.repo.commit("Set an attribute")
    file.unlink()
    project.repo.git("checkout", "--", "plans/X.md")
    project.start("1", "auto").exits(0)
    assert (project.landed(), project.repo.git("status", "--short")) == (["1"], "")
    file.write_text(file.read_text(encoding=encoding).replace("Write 1.txt", "Write 2.txt"), encoding=encoding)
    edited = project.start("1", "auto").exits(2)
    assert "plan-not-committed: plans/X.md in the checkout differs from main" in edited.err
