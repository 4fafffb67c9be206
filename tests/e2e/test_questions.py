"""Agents ask, a person answers, and the work continues; the inbox lists what waits for a person."""

import json
import shlex
from pathlib import Path

import pytest

from tests.support.cli import (
    Project,
    a_plan,
    a_project,
    assert_nothing_runs,
    fix,
    set_up,
    steps,
    until,
    verify,
    work,
    writes,
)
from tests.support.daemons import kill_daemon, run_of, until_runs_are, user_settings


def asks(words: str, mark: str) -> tuple[str, str]:
    """Steps of an agent that asks, but only the first one that comes here."""
    return (f'say = "BLOCKER: {words}"\nonce = "main:.git/{mark}"', f'exit = 0\nonce = "main:.git/{mark}-ended"')


def ask(project: Project) -> str:
    """The id of the newest question."""
    return str([body["id"] for body in project.bodies("QuestionAsked")][-1])


@pytest.mark.promise
def test_answers_continue_the_kept_work_of_implementer_and_fixer(project: Project) -> None:
    implement = steps('write = "1.txt"\ntext = "half"', *asks("which port?", "a"), 'append = "1.txt"\ntext = " done"')
    fixes = fix(*asks("which host?", "b"), 'append = "1.txt"\ntext = " fixed"')
    fails = verify('fail = ["W1"]')
    set_up(project, agent=implement + fixes + fails + verify("pass_all = true", cycle="2"))

    waits = project.start("1", "auto")

    first = ask(project)
    assert (waits.code, waits.last) == (4, "runplan: Answer: runplan answer plans/X.md TEXT"), waits.err
    assert f"runplan: phase 1 asks: which port? ({first})\n" in waits.err
    run = run_of(project)
    assert (run["state"], run["waiting_for"], run["phase"]) == ("waiting", "question", "1")
    again = project.runplan("retry", "X")
    assert (again.code, "which port?" in again.last, project.dispatched()) == (4, True, ["implement"]), again.err
    project.runplan("answer", "X", "Use", "port 8080.").exits(4, "which host?")
    late = project.runplan("answer", first, "Use 9090.")
    already = f"runplan: the question {first} of plans/X.md is already answered, or its run has ended; see: "
    assert (late.code, late.last) == (3, f"{already}runplan status plans/X.md")
    project.runplan("answer", ask(project), "localhost").exits(0)
    assert project.show("main:1.txt") == "half done fixed"
    assert project.repo.git("log", "--format=%s", "main").splitlines()[1] == "Step 1", "no commit of a half"
    assert project.dispatched() == ["implement", "implement", "verify", "fix", "fix", "verify"]
    quoted = "=== begin of answer ===\nUse port 8080.\n=== end of answer ==="
    assert [quoted in prompt for prompt in project.prompts("implement", "fix")] == [False, True, True, True]
    assert (
        "which host?\n=== end of question ===\n=== begin of answer ===\nlocalhost\n"
        in project.prompts("implement", "fix")[-1]
    )
    assert "an agent asked: which port?; a person answered: Use port 8080." in project.runplan("report", "X").out
    assert_nothing_runs(project)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_each_question_is_notified_once_and_survives_a_killed_daemon(project: Project, tmp_path: Path) -> None:
    notices = tmp_path / "notices"
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_TEXT >>{notices}"\non = ["waiting"]\n')
    set_up(project, agent=work(*asks("which port?", "a"), *asks("which host?", "b")) + writes("2"))
    assert project.runplan("start", "X", "finish", "auto").code == 0
    heard: list[str] = []
    for question in ("which port", "which host"):
        heard.append(question)
        until(lambda: [line.partition("?")[0] for line in lines_of(notices)] == heard)
        kill_daemon(project)
        project.runplan("answer", ask(project), "8080").exits(0)
    until_runs_are(project, "done")
    assert project.landed() == ["1", "2"]
    assert len(lines_of(notices)) == 2
    none = project.runplan("answer", "X", "8080")
    assert none.last == "runplan: no question of plans/X.md waits for you; see: runplan status plans/X.md"


@pytest.mark.parametrize("settings", ["", '[run]\nsign_off = ["1.*"]\n'], ids=["plan", "settings"])
def test_independent_phases_go_on_while_one_waits_for_a_person(project: Project, settings: str) -> None:
    """Also where phases are worked one after the other; dependent ones wait."""
    text = a_plan("1", "2", "3", depends={"3": "Phase 1"}, is_apart=True)
    plan = text if settings else text.replace("Touches: 1", "Sign-off: required\nTouches: 1")
    set_up(project, plan=plan, settings=settings, agent=writes("1", "2", "3"))
    told = "phase 1 will wait for your sign-off; independent phases go on meanwhile"
    project.start("finish", "auto").exits(4, told)
    assert project.landed() == ["2"]
    assert project.runplan("status", "X", "--json").json["run"]["waiting_for"] == "sign-off"
    project.runplan("approve", "X").exits(0)
    assert project.landed() == ["2", "1", "3"]


def test_a_start_says_that_phases_without_paths_of_their_own_wait_too(project: Project) -> None:
    project.plan(a_plan("1", "2").replace("### Work", "Sign-off: look at it\n\n### Work", 1))
    ran = project.start("finish", "auto")
    told = "phase 1 will wait for your sign-off; no other phase goes on meanwhile: `Touches:` overlap or are missing"
    assert (ran.code, told in ran.err, project.landed()) == (4, True, []), ran.err


@pytest.mark.promise
def test_a_running_agent_that_takes_messages_hears_a_person_at_once(project: Project) -> None:
    full = "tell = {context = 110000, window = 200000}"
    project.agent(steps('run = "true"', full, 'hear = "main:.git/notes"', 'hear = "main:.git/heard"') + work())
    assert project.runplan("start", "X", "auto").code == 0
    until((project.path / ".git/notes").exists)
    shown = project.runplan("status", "X").out
    assert ", context 55 % full, 1 tool call, last output" in shown
    run = project.runplan("status", "X", "--json").json["run"]
    assert (run["context"], run["tools"]) == (55, 1)
    project.runplan("tell", "X", "use tabs").ends(0, "runplan: Told plans/X.md: its agent reads it now")
    until_runs_are(project, "done")
    notes = json.loads((project.path / ".git/notes").read_text())
    assert notes.startswith("Your context is 50 per cent full. Write to the file named by RUNPLAN_NOTES now")
    assert json.loads((project.path / ".git/heard").read_text()).endswith("Take it in, and go on.\n\nuse tabs")


@pytest.mark.promise
def test_what_a_person_tells_is_the_first_thing_that_the_next_agent_reads(project: Project) -> None:
    project.agent(work() + work(phase="2"))
    absent = project.runplan("tell", "X", "too early")
    assert (absent.code, absent.last.startswith("runplan: plans/X.md is not running; nobody was told.")) == (3, True)
    assert project.runplan("start", "X", "finish", "--wait").code == 4
    project.runplan("tell", "X", "use the existing {{{phase}}} parser").ends(
        0, "runplan: Told plans/X.md: the next agent of its run reads it first"
    )
    assert project.runplan("tell", "X", " ").code == 2
    assert project.runplan("approve", "X", "--wait").code == 4
    prompt = project.prompts("implement")[-1]
    assert prompt.startswith("## What a person says now\n")
    assert "=== begin of words ===\nuse the existing { { {phase}}} parser\n=== end of words ===\n" in prompt
    assert "What a person says" not in project.prompts("verify")[-1]
    assert project.runplan("approve", "X", "--wait").code == 0
    report = project.show("main:reports/plan-x.md")
    assert report.count("- Uma User (terminal) told the agents: use the existing") == 1
    assert "told       by Uma User (terminal): use the existing" in project.runplan("logs", "X").out
    assert "told       by Uma User (terminal): use the existing" in project.runplan("attach", "X").out


# --- the inbox -------------------------------------------------------------------------------------------


def a_neighbour(project: Project, place: Path) -> Project:
    """Another repository of the same user."""
    place.mkdir()
    other = a_project(place, "1")
    other.home = project.home
    return other


@pytest.mark.promise
def test_the_inbox_lists_changes_sign_offs_and_questions_of_all_repositories(project: Project, tmp_path: Path) -> None:
    assert project.runplan("inbox").out == "Nothing waits for you.\n"
    other = a_neighbour(project, tmp_path / "other dir")
    set_up(other, plan=a_plan("1").replace("## Phase 1 — Step 1\n", "## Phase 1 — Step 1\n\nSign-off: required\n"))
    assert other.start("1", "auto").code == 4
    project.plan(a_plan("2"), name="plans/Y.md")
    assert project.runplan("start", "Y", "--foreground").code == 4
    project.agent(steps('say = "BLOCKER: which port?"'))
    assert project.start("1", "auto").code == 4
    broken = a_neighbour(project, tmp_path / "broken")
    assert broken.start("1").code == 4
    (broken.path / ".git/runplan/journal.db").write_bytes(b"no journal" * 1000)

    seen = project.runplan("inbox")
    view = project.runplan("inbox", "--json").json

    entries = view["entries"]
    assert [(entry["kind"], entry["plan"], entry["phase"], entry["title"]) for entry in entries] == [
        ("sign-off", "plans/X.md", "1", "Step 1"),
        ("change", "plans/Y.md", "2", "Step 2"),
        ("question", "plans/X.md", "1", "Step 1"),
    ]
    assert [entry["repository"] for entry in entries] == [str(other.path), str(project.path), str(project.path)]
    assert [lost["repository"] for lost in view["unreadable"]] == [str(broken.path)]
    assert (seen.code, f"runplan: warning: {broken.path} cannot be read" in seen.err) == (0, True), seen.err
    question = entries[2]
    assert question["text"] == "which port?"
    assert question["commands"] == [f"runplan answer {question['id']} TEXT"]
    approve = "runplan approve plans/X.md 1"
    assert approve in entries[0]["commands"]
    assert f"\n  cd {shlex.quote(str(other.path))} && {approve}\n" in seen.out
    assert "\n  runplan approve plans/Y.md 2\n" in seen.out
    assert other.runplan(*shlex.split(approve)[1:]).code == 0
    assert project.runplan("reject", "Y").code == 0
    assert project.runplan("stop").code == 0
    assert project.runplan("inbox").out == "Nothing waits for you.\n"


def test_a_failed_plan_is_listed_until_it_is_retried(project: Project, tmp_path: Path) -> None:
    project.agent(steps('say = "nothing done"'))
    assert project.start("1", "auto").code == 1
    (entry,) = project.runplan("inbox", "--json").json["entries"]
    assert (entry["kind"], entry["plan"], entry["run"]) == ("failed", "plans/X.md", entry["id"])
    assert entry["text"].startswith("phase 1: no-commits: ")
    assert entry["commands"] == [
        *("runplan retry plans/X.md", "runplan retry plans/X.md 1", "runplan report plans/X.md")
    ]
    other = a_neighbour(project, tmp_path / "other")
    assert other.start("1").code == 4
    places = {str(project.path), str(other.path)}
    for words, place in ((("status", "--all"), project.path), (("status",), project.home)):
        seen = project.runplan_in(place, *words)
        assert {line.removeprefix("== cd ") for line in seen.out.splitlines() if line.startswith("== ")} == places
        views = project.runplan_in(place, *words, "--json").json
        assert {(view["repository"], view["need"]) for view in views} == {
            (str(project.path), "failed"),
            (str(other.path), "waiting"),
        }
    project.agent(work())
    assert project.runplan("retry", "X").code == 0
    assert [entry["kind"] for entry in project.runplan("inbox", "--json").json["entries"]] == ["change"]
