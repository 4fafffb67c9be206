"""A new attempt, or a fresh agent, continues from the work that is there, with what a person did to it."""

from pathlib import Path

import pytest

from tests.support.cli import Project, fix, once, set_up, steps, work

BRANCH = "runplan/x/1"
RED = '[tests]\ncommand = "! grep -q wrong 1.txt"\nallow_red_baseline = true\n'
WRONG = steps('write = "1.txt"\ntext = "wrong\\n"', 'commit = "Write it wrong"')
UNUSED = steps('write = "unused.txt"')  #: an implementer that must not run
PHASES = ("1",)


def roles(project: Project, since: int) -> list[str]:
    return project.dispatched()[since:]


def commit_on_the_branch(project: Project, place: Path, files: dict[str, str], *, amend: bool = False) -> str:
    """A person's commit on the kept branch, in a worktree of their own that is gone afterwards."""
    project.repo.git("worktree", "add", "-q", str(place), BRANCH)
    for name, text in files.items():
        (place / name).write_text(text)
    project.repo.git("-C", str(place), "add", "-A")
    project.repo.git("-C", str(place), "commit", "-qm", "By hand", *(["--amend"] if amend else []))
    project.repo.git("worktree", "remove", str(place))
    return project.repo.head(BRANCH)


@pytest.mark.promise
def test_after_failed_tests_a_fixer_gets_the_complaint_and_the_kept_work(project: Project) -> None:
    set_up(
        project, settings=f"[run]\nmax_fix_cycles = 1\n{RED}", agent=WRONG + fix('append = "1.txt"\ntext = "wronger"')
    )
    assert project.start("1", "auto").last == "runplan: failed: tests-failed"
    before = len(project.dispatched())
    project.agent(UNUSED + fix('run = "grep -q wronger 1.txt"', 'write = "1.txt"\ntext = "right\\n"'))
    project.runplan("retry", "X").exits(0)
    assert roles(project, before)[0] == "fix"
    assert "the checks failed: " in project.prompts("fix")[-1]
    assert project.show("main:1.txt") == "right"
    assert project.leftovers() == []


@pytest.mark.parametrize("amend", [False, True])
def test_commits_of_a_person_on_the_branch_belong_to_the_phase(project: Project, tmp_path: Path, amend: bool) -> None:
    """They settle the complaint, so no fixer is needed."""
    set_up(project, settings=f"[run]\nmax_fix_cycles = 1\n{RED}", agent=WRONG + fix('write = "2.txt"'))
    assert project.start("1", "auto").last == "runplan: failed: tests-failed"
    commit_on_the_branch(project, tmp_path / "mine", {"1.txt": "right\n", "3.txt": "mine\n"}, amend=amend)
    before = len(project.dispatched())
    project.agent(UNUSED + fix('write = "unused.txt"'))
    project.runplan("retry", "X").exits(0)
    assert "fix" not in roles(project, before)
    assert (project.show("main:1.txt"), project.show("main:3.txt")) == ("right", "mine")
    assert "By hand" in project.repo.git("log", "--format=%s", "main")
    assert project.leftovers() == []


@pytest.mark.promise
def test_an_implementer_continues_the_work_of_one_that_failed(project: Project) -> None:
    project.agent(work("exit = 3"))
    assert project.start("1", "auto").last == "runplan: failed: agent-failed"
    project.agent(steps('run = "test -e 1.txt && grep -q \\"Work so far\\" $RUNPLAN_PROMPT"', 'write = "2.txt"'))
    project.start("1", "auto").exits(0)
    assert project.show("main:1.txt") == "1"


@pytest.mark.promise
def test_retry_fresh_begins_on_the_target_and_parks_the_branch(project: Project) -> None:
    project.agent(work("exit = 3"))
    assert project.start("1", "auto").code == 1
    kept = project.repo.head(BRANCH)
    project.agent(steps('run = "test ! -e 1.txt"', 'write = "2.txt"'))
    project.runplan("retry", "X", "--fresh").exits(0, "the earlier attempt is kept at refs/runplan/parked/x/1/1")
    assert project.repo.head("refs/runplan/parked/x/1/1") == kept
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "main").split()


@pytest.mark.promise
def test_a_rejection_stands_until_a_fixer_has_changed_something(project: Project) -> None:
    assert project.start("1").code == 4
    project.agent(UNUSED + fix("exit = 3"))
    assert project.runplan("reject", "X", "-m", "too short").last == "runplan: failed: agent-failed"
    project.agent(
        UNUSED + fix('run = "grep -q \\"too short\\" $RUNPLAN_PROMPT"', 'append = "1.txt"\ntext = "longer\\n"')
    )
    ran = project.start("1", "auto")
    assert (ran.code, project.show("main:1.txt")) == (0, "1\nlonger"), ran.err


@pytest.mark.parametrize(
    "change", ["same", pytest.param("moved", marks=pytest.mark.rest), pytest.param("renamed", marks=pytest.mark.rest)]
)
def test_a_rejected_change_lands_only_with_a_person_who_is_told_of_the_rejection(project: Project, change: str) -> None:
    """Also as the same change on another base, which has another tree, or of a plan of another name."""
    assert project.start("1").code == 4
    assert project.runplan("reject", "X").code == 0
    assert project.start("1", "auto").last == "runplan: failed: no-progress"
    plan = "X"
    told = "a person rejected this very change on "
    if change == "moved":
        project.commit_file("other.txt", "other\n")
    elif change == "renamed":
        plan = "Y"
        told = "a person rejected this very change in plans/X.md on "
        project.repo.git("mv", "plans/X.md", "plans/Y.md")
        project.repo.commit("Rename")
    start = ("start", plan, "1", "auto", "--foreground")
    ran = project.runplan(*(start if change == "renamed" else ("retry", plan)))
    assert (ran.code, f"needs your sign-off: {told}" in ran.err) == (4, True), ran.err
    assert project.landed() == []
    for verb in ("inbox", "diff", "status"):
        assert told in project.runplan(verb, *([plan] if verb != "inbox" else [])).out, verb
    project.runplan(*start).exits(4, told)
    assert project.runplan("approve", plan).code == 0
    assert project.landed() == ["1"]
    report = project.show(f"main:reports/plan-{plan.lower()}.md")
    assert (f"Warning: {told}" in report, "### Sign-off\n\n- Approved by Uma User" in report) == (True, True)


def test_a_retry_continues_what_lies_beside_a_nested_repository_whose_files_stay(project: Project) -> None:
    commit = "git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m x"
    nested = f"run = 'git init -q nested && cd nested && {commit} && echo theirs >file'"
    project.agent(steps('write = "1.txt"\ntext = "1\\n"', nested))
    assert project.start("1", "auto").last == "runplan: failed: tampered"
    assert project.show(f"{BRANCH}:1.txt") == "1"
    project.agent(UNUSED + fix('append = "1.txt"\ntext = "2\\n"'))
    project.runplan("retry", "X").exits(0)
    assert "nested is a git repository of its own" in project.prompts("fix")[-1]
    assert project.show("main:1.txt") == "1\n2"
    for _ in range(2):
        told = (ran := project.runplan("gc")).out + ran.err
        assert "/nested is a git repository of its own, and only it has its files; move it elsewhere" in told


# --- agents with a full context --------------------------------------------------------------------------


FULL = "tell = {context = 130000, window = 200000}"


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
