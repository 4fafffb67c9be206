"""A filling context prepares a handover; a full one replaces the agent, which passes on a note."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Meanwhile, a_plan, a_project, ended, fix, set_up, steps, until, verify, work
from tests.support.daemons import none_left

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

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


def armed(project: Project) -> bool:
    return bool(of(project, "HandoverArmed"))


def test_a_filling_context_prepares_a_handover_and_the_agent_continues(project: Project, meanwhile: Meanwhile) -> None:
    """S8: the note is written, status shows it, and the agent ends by itself."""
    words = 'say = "a is done, b is not"'
    project.agent(work(words, HALF, *meanwhile.pause("half"), "tell = {context = 118000}", 'write = "2.txt"'))
    with project.running("start", "X", "1", "auto", "--foreground") as run:
        meanwhile.reached("half")
        until(lambda: armed(project))
        view = project.runplan("status", "X", "--json").json["run"]
        assert (view["context"], view["handover"], view["step"]) == (52, "armed", "implement")
        assert "robot, context 52 %, hand-over prepared" in project.runplan("status", "X").out
        (fact,) = of(project, "HandoverArmed")
        note = kept(project, fact["id"], "handoff.md").read_text()
        assert fact["note"] == note
        assert "its context was 52 % full" in note
        assert "## Immediate next action\n\nW1: Write 1.txt" in note
        assert "- 1.txt" in note, "what it has committed so far"
        assert "> a is done, b is not" in note
        explained = project.runplan("explain", "X").out
        assert "robot is running (implement); its context is 52 % full, a hand-over is prepared" in explained
        assert "HandoverArmed" in project.runplan("logs", "X").out
        meanwhile.let_on("half")
        ran = ended(run)
    assert ran.code == 0, ran.err
    assert ran.err.count("context    52 % full; a hand-over is prepared") == 1
    assert len(of(project, "HandoverArmed")) == 1, "once, however much fuller it gets"
    assert of(project, "HandedOver") == []
    assert project.dispatched() == ["implement", "verify"]
    assert (set(project.landed()), project.leftovers()) == ({"1"}, [])
    assert not kept(project, fact["id"], "wakeup").exists()
    assert project.runplan("status", "X", "--json").json["run"]["handover"] is None


def test_an_agent_with_a_full_context_is_replaced_and_passes_on_a_note(project: Project, tmp_path: Path) -> None:
    """S7"""
    first = once(tmp_path, "full", HALF, f'wait_for = "{tmp_path}/on"', 'write = "a.txt"', FULL, "sleep = 60")
    project.agent(steps(*first, 'write = "b.txt"'))
    with project.running("start", "X", "1", "auto", "--foreground") as run:
        until(lambda: armed(project))
        (tmp_path / "on").touch()
        assert ended(run).code == 0
    kinds = [kind for kind, _ in project.events() if kind in ("HandoverArmed", "HandedOver")]
    assert kinds == ["HandoverArmed", "HandedOver"]
    over = of(project, "HandedOver")[0]
    assert "plans/X.md, phase 1" in str(over["note"])
    assert kept(project, of(project, "HandoverArmed")[0]["id"], "handoff.md").read_text() == over["note"]
    second = [body["id"] for body in of(project, "DispatchStarted")][1]
    prompt = kept(project, second, "prompt.md").read_text()
    assert str(over["note"]) in prompt
    assert "was at work when this was written" not in prompt


@pytest.mark.parametrize(
    ("settings", "reading", "kinds"),
    [
        ("context_warn = 40", "tell = {context = 84000, window = 200000}", ["HandoverArmed"]),
        ("context_critical = 0", FULL, ["HandoverArmed"]),
    ],
)
def test_the_context_limits_can_be_configured(
    project: Project, tmp_path: Path, settings: str, reading: str, kinds: list[str]
) -> None:
    wait = [f'wait_for = "{tmp_path}/on"'] if kinds else []
    agent = steps(*once(tmp_path, "first", 'write = "a.txt"', reading, *wait), 'write = "b.txt"')
    set_up(project, agent=agent, settings=f"[limits]\n{settings}\n")
    with project.running("start", "X", "1", "auto", "--foreground") as run:
        if kinds:
            until(lambda: of(project, kinds[0]))
        (tmp_path / "on").touch()
        assert ended(run).code == 0
    assert [kind for kind, _ in project.events() if kind in ("HandoverArmed", "HandedOver")] == kinds


def test_a_verifier_is_not_handed_over(project: Project, tmp_path: Path) -> None:
    project.agent(work() + verify(HALF, FULL, "pass_all = true"))
    assert project.start("1", "auto").code == 0
    assert [kind for kind, _ in project.events() if kind in ("HandoverArmed", "HandedOver")] == []


def test_a_fixer_is_handed_over_too(project: Project, tmp_path: Path) -> None:
    first = once(tmp_path, "fix", 'append = "1.txt"\ntext = "more\\n"', FULL, "sleep = 60")
    project.agent(
        work() + verify('fail = ["W1"]') + fix(*first, 'write = "2.txt"') + verify("pass_all = true", cycle="2")
    )
    assert project.start("1", "auto").code == 0
    assert len(of(project, "HandedOver")) == 1
    assert project.dispatched() == ["implement", "verify", "fix", "fix", "verify"]


# --- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("printed", [pytest.param(FULL, id="S9")])
def test_an_agent_that_has_returned_done_is_not_replaced(project: Project, printed: str) -> None:
    ending = "sleep = 60" if printed == FULL else "exit = 1"
    project.agent(steps('write = "1.txt"', DONE, printed, ending))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert of(project, "HandedOver") == []
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]


def test_a_message_that_everything_is_complete_proves_nothing(project: Project) -> None:
    """S19"""
    complete = 'say = "PLAN COMPLETE: All tasks finished successfully."'
    project.settings("[run]\nmax_fix_cycles = 0\n")
    project.agent(work(complete) + verify(complete, 'fail = ["W1"]'))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: verification-failed")


# --- crashes ------------------------------------------------------------------------------------------


def test_the_handover_note_of_an_overloaded_agent_reaches_its_successor(project: Project, tmp_path: Path) -> None:
    """An overload ends it without a hand-over; the next one, in the same worktree, reads what was noted in time."""
    busy = 'tell = {trouble = "overloaded", words = "529 overloaded"}'
    first = once(tmp_path, "busy", 'write = "a.txt"', 'say = "b comes next"', HALF, f'wait_for = "{tmp_path}/on"', busy)
    project.agent(steps(*first, *once(tmp_path, "exit", "exit = 1"), 'write = "b.txt"'))
    project.extra["TEST_NOW"] = "2026-01-01T00:00:00Z"
    with project.running("start", "X", "1", "auto", "--foreground") as run:
        until(lambda: armed(project))
        (tmp_path / "on").touch()
        assert ended(run).code == 0
    second = [body["id"] for body in of(project, "DispatchStarted")][1]
    prompt = kept(project, second, "prompt.md").read_text()
    assert str(of(project, "HandoverArmed")[0]["note"]) in prompt
    assert "> b comes next" in prompt


# --- many plans ---------------------------------------------------------------------------------------


def test_handover_notes_of_two_plans_are_kept_apart(project: Project, tmp_path: Path) -> None:
    """S10"""
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
    """S11: an interrupted run is information; only a person, or the daemon whose run it was, goes on with it."""
    project.plan(a_plan("2").replace("title: X", "title: Y"), "plans/Y.md")
    project.agent(work() + work(phase="2"))
    assert project.start("1", "auto", TEST_KILL="after DispatchStarted").code == -9
    before = project.events()
    assert project.runplan("start", "Y", "2", "auto", "--foreground").code == 0
    assert project.events() == before
    assert "interrupted; no process is working on it" in project.runplan("status", "X").out


def test_retry_of_a_successful_run_does_nothing(project: Project) -> None:
    """S12: its journal still names the plan; that it has ended is what counts."""
    project.agent(work())
    assert project.start("finish", "auto").code == 0
    before = project.dispatched()
    again = project.runplan("retry", "X")
    assert (again.code, again.last) == (0, "runplan: the last run of plans/X.md succeeded; nothing to retry")
    assert project.dispatched() == before
    assert project.landed() == ["1"]


def test_an_interrupted_run_whose_plan_was_deleted_is_refused(project: Project) -> None:
    """S13"""
    project.agent(work())
    assert project.start("1", "auto", TEST_KILL="after DispatchStarted").code == -9
    project.repo.git("rm", "-q", "plans/X.md")
    project.repo.git("commit", "-qm", "Drop the plan")
    again = project.runplan("retry", "X")
    assert again.code == 3, again.err
    assert "plans/X.md: no such plan on main" in again.last
    assert "Traceback" not in again.err
