"""An agent with a full context is replaced by a fresh one, which gets a note."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, once, steps, work

FULL = "tell = {context = 130000, window = 200000}"
PHASES = ("1",)


@pytest.mark.promise
def test_an_agent_with_a_full_context_is_replaced_and_passes_on_a_note(project: Project, tmp_path: Path) -> None:
    first = once(tmp_path, "full", 'write = "a.txt"', 'say = "b comes next"', FULL, "sleep = 60")
    project.agent(steps(*first, 'write = "b.txt"'))
    project.start("1", "auto").exits(0)
    (over,) = project.bodies("HandedOver")
    assert "plans/X.md, phase 1" in str(over["note"])
    assert "## Immediate next action\n\nW1: Write 1.txt" in str(over["note"])
    assert "- a.txt" in str(over["note"])
    assert "> b comes next" in str(over["note"])
    (note,) = (project.path / ".git/runplan/dispatch").glob("*/handoff.md")
    assert note.read_text() == over["note"]
    assert str(over["note"]) in project.prompts("implement")[1]


def test_a_successor_gets_the_notes_of_every_agent_before_it(project: Project, tmp_path: Path) -> None:
    """In its prompt as quoted text, and in its own file; nothing is committed, and a link is not followed."""
    first = once(tmp_path, "first", 'write = "a.txt"', 'run = "echo no cache >>$RUNPLAN_NOTES"', FULL, "sleep = 60")
    second = once(tmp_path, "second", 'write = "b.txt"', 'run = "echo b is next >>$RUNPLAN_NOTES"', FULL, "sleep = 60")
    (tmp_path / "private").write_text("private\n")
    link = f'run = "ln -sf {tmp_path / "private"} $RUNPLAN_NOTES"'
    third = once(tmp_path, "third", 'write = "c.txt"', link, FULL, "sleep = 60")
    project.agent(steps(*first, *second, *third, 'write = "d.txt"'))
    project.start("1", "auto").exits(0)
    one, two, three = [str(over["note"]) for over in project.bodies("HandedOver")]
    assert one.endswith("=== begin of notes ===\nno cache\n=== end of notes ===\n")
    assert two.endswith("=== begin of notes ===\nno cache\nb is next\n=== end of notes ===\n")
    assert "private" not in three
    assert two in project.prompts()[2]
    assert project.repo.git("ls-tree", "--name-only", "main").count("notes") == 0


def test_an_interrupted_run_is_listed_and_not_resumed_by_another_start(project: Project) -> None:
    """An interrupted run is information; only a person, or the daemon whose run it was, goes on with it."""
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    project.agent(work() + work(phase="2"))
    assert project.start("1", "auto", TEST_KILL="after DispatchStarted").code == -9
    before = project.events()
    assert project.runplan("start", "Y", "2", "auto", "--foreground").code == 0
    assert project.events() == before
    assert "interrupted; no process is working on it" in project.runplan("status", "X").out
