"""An agent with a full context is replaced by a fresh one, which gets a note."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, fix, set_up, steps, verify, work
from tests.support.daemons import none_left

HALF = "tell = {context = 104000, window = 200000}"
FULL = "tell = {context = 130000, window = 200000}"
DONE = 'return = {status = "done", summary = "all", items = [{item = "W1", result = "pass", evidence = "1.txt:1"}]}'


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1")


def once(place: Path, name: str, *played: str) -> tuple[str, ...]:
    """Steps that only the first agent plays."""
    return tuple(f'{step}\nonce = "{place / name}.{number}"' for number, step in enumerate(played))


def of(project: Project, kind: str, plan: str = "plans/X.md") -> list[dict[str, object]]:
    return [body for name, body in project.events(plan) if name == kind]


def kept(project: Project, dispatch: object, name: str) -> Path:
    return project.path / ".git/runplan/dispatch" / str(dispatch) / name


@pytest.mark.promise
def test_an_agent_with_a_full_context_is_replaced_and_passes_on_a_note(project: Project, tmp_path: Path) -> None:
    first = once(tmp_path, "full", 'write = "a.txt"', 'say = "b comes next"', FULL, "sleep = 60")
    project.agent(steps(*first, 'write = "b.txt"'))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    (over,) = of(project, "HandedOver")
    assert "plans/X.md, phase 1" in str(over["note"])
    assert "## Immediate next action\n\nW1: Write 1.txt" in str(over["note"])
    assert "- a.txt" in str(over["note"])
    assert "> b comes next" in str(over["note"])
    first_id, second_id, _ = [body["id"] for body in of(project, "DispatchStarted")]
    assert kept(project, first_id, "handoff.md").read_text() == over["note"]
    assert str(over["note"]) in kept(project, second_id, "prompt.md").read_text()


def test_a_successor_gets_the_notes_of_every_agent_before_it(project: Project, tmp_path: Path) -> None:
    """In its prompt as quoted text, and in its own file; nothing is committed, and a link is not followed."""
    first = once(tmp_path, "first", 'write = "a.txt"', 'run = "echo no cache >>$RUNPLAN_NOTES"', FULL, "sleep = 60")
    second = once(tmp_path, "second", 'write = "b.txt"', 'run = "echo b is next >>$RUNPLAN_NOTES"', FULL, "sleep = 60")
    (tmp_path / "private").write_text("private\n")
    link = f'run = "ln -sf {tmp_path / "private"} $RUNPLAN_NOTES"'
    third = once(tmp_path, "third", 'write = "c.txt"', link, FULL, "sleep = 60")
    project.agent(steps(*first, *second, *third, 'write = "d.txt"'))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    one, two, three = [str(over["note"]) for over in of(project, "HandedOver")]
    assert one.endswith("=== begin of notes ===\nno cache\n=== end of notes ===\n")
    assert two.endswith("=== begin of notes ===\nno cache\nb is next\n=== end of notes ===\n")
    assert "private" not in three
    prompts = [kept(project, body["id"], "prompt.md").read_text() for body in of(project, "DispatchStarted")]
    assert two in prompts[2]
    assert project.repo.git("ls-tree", "--name-only", "main").count("notes") == 0


@pytest.mark.parametrize(
    ("settings", "reading", "handed_over"),
    [("context_critical = 40", HALF, 1), ("context_critical = 60", HALF, 0), ("context_critical = 0", FULL, 0)],
)
def test_the_context_limit_can_be_configured(
    project: Project, tmp_path: Path, settings: str, reading: str, handed_over: int
) -> None:
    rest = "sleep = 60" if handed_over else 'write = "a.txt"'
    agent = steps(*once(tmp_path, "first", reading, rest), 'write = "b.txt"')
    set_up(project, agent=agent, settings=f"[limits]\n{settings}\n")
    assert project.start("1", "auto").code == 0
    assert len(of(project, "HandedOver")) == handed_over


def test_a_verifier_is_not_handed_over(project: Project) -> None:
    project.agent(work() + verify(FULL, "pass_all = true"))
    assert project.start("1", "auto").code == 0
    assert of(project, "HandedOver") == []


def test_a_fixer_is_handed_over_too(project: Project, tmp_path: Path) -> None:
    first = once(tmp_path, "fix", 'append = "1.txt"\ntext = "more\\n"', FULL, "sleep = 60")
    project.agent(
        work() + verify('fail = ["W1"]') + fix(*first, 'write = "2.txt"') + verify("pass_all = true", cycle="2")
    )
    assert project.start("1", "auto").code == 0
    assert len(of(project, "HandedOver")) == 1
    assert project.dispatched() == ["implement", "verify", "fix", "fix", "verify"]


# --- many plans ---------------------------------------------------------------------------------------


def test_handover_notes_of_two_plans_are_kept_apart(project: Project, tmp_path: Path) -> None:
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    agent = ""
    for phase in "12":
        first = once(tmp_path, phase, f'write = "{phase}.txt"', f'say = "words of {phase}"', FULL, "sleep = 60")
        agent += steps(*first, f'append = "{phase}.txt"\ntext = "more"', phase=phase)
    project.agent(agent)
    for plan in "XY":
        killed = project.runplan("start", plan, "auto", "--foreground", TEST_KILL="after HandedOver")
        assert killed.code == -9, killed.err
    for plan, phase, other in (("X", "1", "2"), ("Y", "2", "1")):
        assert project.runplan("retry", plan).code == 0
        second = [body["id"] for body in of(project, "DispatchStarted", f"plans/{plan}.md")][1]
        prompt = kept(project, second, "prompt.md").read_text()
        assert f"> words of {phase}" in prompt
        assert f"plans/{plan}.md, phase {phase}" in prompt
        assert f"words of {other}" not in prompt


def test_an_interrupted_run_is_listed_and_not_resumed_by_another_start(project: Project) -> None:
    """An interrupted run is information; only a person, or the daemon whose run it was, goes on with it."""
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    project.agent(work() + work(phase="2"))
    assert project.start("1", "auto", TEST_KILL="after DispatchStarted").code == -9
    before = project.events()
    assert project.runplan("start", "Y", "2", "auto", "--foreground").code == 0
    assert project.events() == before
    assert "interrupted; no process is working on it" in project.runplan("status", "X").out


def test_retry_of_a_successful_run_does_nothing(project: Project) -> None:
    """Its journal still names the plan; that it has ended is what counts."""
    project.agent(work())
    assert project.start("finish", "auto").code == 0
    before = project.dispatched()
    again = project.runplan("retry", "X")
    assert (again.code, again.last) == (0, "runplan: the last run of plans/X.md succeeded; nothing to retry")
    assert project.dispatched() == before
    assert project.landed() == ["1"]


def test_an_interrupted_run_whose_plan_was_deleted_is_refused(project: Project) -> None:
    project.agent(work())
    assert project.start("1", "auto", TEST_KILL="after DispatchStarted").code == -9
    project.repo.git("rm", "-q", "plans/X.md")
    project.repo.git("commit", "-qm", "Drop the plan")
    again = project.runplan("retry", "X")
    assert again.code == 3, again.err
    assert "plans/X.md: no such plan on main" in again.last
    assert "Traceback" not in again.err
