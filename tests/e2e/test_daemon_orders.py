"""What people ask for is done, or refused in words, whatever has become of the daemon and of what it reads."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import processes_of, until
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    kill_daemon,
    run_of,
    states,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, work

if TYPE_CHECKING:
    from tests.support.cli import Project


def started_and_orphaned(project: Project, meanwhile: Meanwhile, *words: str) -> None:
    """An agent is at work, and the daemon is dead."""
    project.agent(work(*meanwhile.pause("agent")) + work(phase="2"))
    assert project.runplan("start", "X", *words).code == 0
    meanwhile.reached("agent")
    kill_daemon(project)
    assert processes_of(project.home), "the agent lives on"


# --- without a daemon -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("X",)], ids=["one"])
def test_a_stop_without_a_daemon_ends_what_the_dead_one_left(
    project: Project, meanwhile: Meanwhile, words: tuple[str, ...]
) -> None:
    started_and_orphaned(project, meanwhile, "1", "auto")
    ran = project.runplan("stop", *words)
    assert (ran.code, ran.err.splitlines()) == (0, ["runplan: Stopping plans/X.md; its work is kept"])
    until(lambda: processes_of(project.home) == [])
    assert states(project) == ["stopped"]
    assert project.show("runplan/x/1:1.txt") == "1"
    assert "Nothing to stop here" in project.runplan("stop").err
    meanwhile.let_on("agent")
    with in_foreground(project):
        assert project.runplan("start", "X", "2", "auto", "--wait").code == 0
    assert (states(project), project.landed()) == (["stopped", "done"], ["2"])


def test_a_stop_after_a_drain_ends_what_waited_and_its_schedule(project: Project) -> None:
    project.agent(work())
    for words in (("auto", "every", "4h"), ("1",)):
        assert project.runplan("start", "X", *words).code == 0
    until(lambda: states(project) == ["waiting"])
    kill_daemon(project, signal.SIGTERM)
    ran = project.runplan("stop", "X")
    assert ran.code == 0, ran.err
    assert [line.partition(",")[0] for line in ran.err.splitlines()] == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    assert (states(project), daemon_of(project)) == (["stopped"], 0)


@pytest.mark.parametrize("daemon", [False], ids=["no-daemon"])
def test_a_stop_ends_what_a_killed_terminal_left(project: Project, meanwhile: Meanwhile, *, daemon: bool) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    if daemon:
        assert project.runplan("start", "X", "every", "4h").code == 0
    foreground = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("agent")
    foreground.kill()
    foreground.communicate()
    ran = project.runplan("stop")
    assert (ran.code, ran.last) == (0, "runplan: Stopping plans/X.md; its work is kept")
    until_runs_are(project, "stopped")
    until(lambda: processes_of(project.home) == ([daemon_of(project)] if daemon else []))


def test_a_pause_without_a_daemon_holds_for_the_next_one(project: Project, meanwhile: Meanwhile) -> None:
    started_and_orphaned(project, meanwhile, "1", "auto")
    ran = project.runplan("pause", "X")
    assert (ran.code, ran.last.endswith("runplan resume plans/X.md")) == (0, True), ran.err
    meanwhile.let_on("agent")
    until(lambda: processes_of(project.home) == [])
    with in_foreground(project):
        until(lambda: states(project) == ["waiting"])
        assert run_of(project)["about"] == "paused by a person"
        assert project.dispatched() == ["implement"]
        assert project.runplan("resume", "X").code == 0
        until_runs_are(project, "done")
    assert project.landed() == ["1"]


def test_a_pause_of_what_nobody_works_on_is_refused(project: Project) -> None:
    ran = project.runplan("pause", "X")
    assert (ran.code, "plans/X.md has no daemon run and no schedule" in ran.last) == (3, True), ran.err


# --- what cannot be read --------------------------------------------------------------------------------------


BROKEN = {
    "repository": "runplan.toml:1: invalid TOML: ",
    "user": "/.config/runplan/runplan.toml:1: invalid TOML: ",
}


@pytest.mark.parametrize(("whose", "daemon"), [("repository", True), ("user", False)])
def test_settings_that_are_broken_keep_nobody_from_looking_and_stopping(
    project: Project, meanwhile: Meanwhile, whose: str, *, daemon: bool
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    if not daemon:
        kill_daemon(project)
    if whose == "user":
        user_settings(project, "[run\n")
    else:
        project.repo.write("runplan.toml", "[run\n")
    looks = ("status", "status X", "next", "logs X", "explain X", *(() if daemon else ("metrics",)))
    for words in map(str.split, (*looks, "pause X", "stop X")):
        ran = project.runplan(*words)
        assert ran.code == (0 if words[0] in ("pause", "stop") else 2), (words, ran.err)
        assert ran.out or words[0] in ("pause", "stop")
        warning = ran.err.splitlines()[0]
        assert (warning.startswith("runplan: warning: "), BROKEN[whose] in warning) == (True, True), (words, warning)
        assert warning.endswith("; ignoring this source")
    until_runs_are(project, "stopped")
    assert project.runplan("start", "X", "1", "auto").code == 2, "nothing is begun with them"


@pytest.mark.parametrize("words", [("stop", "X")], ids=" ".join)
def test_a_plan_that_was_taken_away_while_it_is_worked_is_shown_and_stopped(
    project: Project, meanwhile: Meanwhile, words: tuple[str, ...]
) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    assert project.runplan("start", "X", "auto", "every", "4h", "now").code == 0
    meanwhile.reached("agent")
    (project.path / "plans/X.md").unlink()
    project.repo.commit("No plan")
    (view,) = project.runplan("status", "--json").json
    gone = "plans/X.md: the plan is gone, from main and from the checkout"
    assert (view["plan"], view["status"], view["error"]) == ("plans/X.md", "unreadable", gone)
    assert (view["run"]["state"], view["schedule"]["spec"], view["claim"]["alive"]) == ("running", "every 4h", True)
    for shown in (project.runplan("status").out, project.runplan("status", "X").out):
        assert shown.splitlines()[0] == gone
        assert "  Running: phase 1, implement for " in shown
        assert f"  Run {view['run']['id']}: robot" in shown
        assert "  every 4h, next " in shown
    assert project.runplan("pause", "X").code == 0
    ran = project.runplan(*words)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [
        "runplan: Cancelled the schedule of plans/X.md (every 4h)",
        "runplan: Stopping plans/X.md; its work is kept",
    ]
    until_runs_are(project, "stopped")
    assert project.runplan("status").out.splitlines()[0] == gone, "whatever has been run can be looked up"
