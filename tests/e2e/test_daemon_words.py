"""What is told of runs in the hands of the daemon is true, also after a restart, and when they have ended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, a_project, ended, until
from tests.support.daemons import (
    approve,
    in_foreground,
    kill_daemon,
    log_of,
    none_left,
    run_of,
    until_runs_are,
    user_settings,
)
from tests.support.scripts import Meanwhile, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield a_project(tmp_path, "1", "2")


@pytest.fixture
def meanwhile(tmp_path: Path) -> Meanwhile:
    return Meanwhile(tmp_path)


# --- who waits ------------------------------------------------------------------------------------------------


def test_a_start_that_waits_does_not_hang_on_a_checkout_that_is_in_the_way(project: Project) -> None:
    """Like an approval it waits for a person; unlike one it goes on by itself when that is settled."""
    project.repo.write("1.txt", "mine\n")
    for _ in range(2):
        ran = project.runplan("start", "X", "1", "auto", "--wait")
        assert (ran.code, "runplan retry plans/X.md" in ran.last) == (4, True), ran.err
        assert "continues by itself" in ran.last
    (project.path / "1.txt").unlink()
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")


def test_whoever_leaves_while_it_waits_is_told_that_the_run_goes_on(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(work(*meanwhile.pause("agent")))
    with project.running("start", "X", "1", "auto", "--wait") as waits:
        meanwhile.reached("agent")
        told = waits.stderr
        assert told is not None
        until(lambda: b"implement" in told.readline())
        waits.send_signal(signal.SIGINT)
        ran = ended(waits)
    run = run_of(project)["id"]
    assert (ran.code, ran.last) == (
        130,
        f"runplan: detached; {run} continues. Follow it: runplan logs plans/X.md -f; stop it: runplan stop plans/X.md",
    )
    meanwhile.let_on("agent")
    until_runs_are(project, "done")


# --- issues ---------------------------------------------------------------------------------------------------


def plans_of_one_issue(project: Project) -> None:
    project.plan(a_plan("1", "2", front="status: active\nissue: 7"))
    project.plan(a_plan("3", front="status: active\nissue: 7"), name="plans/Y.md")
    project.agent(work() + work(phase="2") + work(phase="3"))


def claimed_by(project: Project) -> str:
    return f"issue #7 is claimed by the run {run_of(project)['id']} of plans/X.md; both runs continue"


def test_who_starts_a_plan_whose_issue_another_run_has_claimed_is_warned(project: Project) -> None:
    plans_of_one_issue(project)
    assert project.runplan("start", "X", "1").code == 0
    until_runs_are(project, "waiting")
    second = project.runplan("start", "Y", "auto")
    assert (second.code, f"runplan: warning: {claimed_by(project)}" in second.err.splitlines()) == (0, True), second.err
    until_runs_are(project, "done", plan="plans/Y.md")
    assert f"- Warning: {claimed_by(project)}" in project.runplan("report", "Y").out.replace("\\", "")
    approve(project)
    assert "Warning" not in project.runplan("report", "X").out


@pytest.mark.parametrize("where", ["daemon", "foreground"])
def test_a_run_that_waits_keeps_its_issue_when_its_process_is_gone(project: Project, where: str) -> None:
    plans_of_one_issue(project)
    if where == "daemon":
        assert project.runplan("start", "X", "finish").code == 0
        until_runs_are(project, "waiting")
        kill_daemon(project)
    else:
        assert project.start("finish").code == 4
        assert project.runplan("approve", "X").code == 4, "approved, and waits for the next phase"
    second = project.runplan("start", "Y", "auto", "--foreground")
    assert (second.code, f"runplan: warning: {claimed_by(project)}" in second.err) == (0, True), second.err
    with in_foreground(project):
        assert project.runplan("stop", "X").code == 0
        until_runs_are(project, "stopped")
        third = project.runplan("start", "X", "1")
        assert (third.code, "warning" in third.err) == (0, False), third.err


def test_a_person_is_called_once_to_what_waits_for_them_however_often_the_daemon_is_started(
    project: Project, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    user_settings(project, f'[notify]\ncommand = "echo $RUNPLAN_NOTICE $RUNPLAN_PHASE >>{told}"\n')
    assert project.runplan("start", "X", "finish").code == 0
    until(lambda: told.exists() and project.rows("SELECT 1 FROM notices"))
    kill_daemon(project)
    with in_foreground(project):
        until(lambda: len(log_of(project, "waits")) == 2)
        approve(project)
        until(lambda: "waiting 2" in told.read_text())
    assert told.read_text().splitlines() == ["waiting 1", "waiting 2"]
