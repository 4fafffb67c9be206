"""A damaged or deleted journal, and a landing that was killed, lose no work: plan and git are enough to continue."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import (
    Meanwhile,
    Project,
    Ran,
    a_plan,
    a_project,
    ended,
    killed_at,
    processes_of,
    set_up,
    steps,
    until,
    verify,
    work,
    writes,
)

PAGE = 4096


def landed_once(project: Project, ran: Ran, *phases: str) -> None:
    assert ran.code == 0, ran.err
    assert project.landed() == list(phases or ("1", "2"))
    assert project.repo.status() == ""
    assert project.runplan("gc").code == 0
    assert project.leftovers() == [], "what a forgotten run left is on the target, and goes"


def journal(project: Project) -> Path:
    return project.path / ".git/runplan/journal.db"


def test_a_damaged_journal_is_refused_and_the_printed_command_helps(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    stopped = project.start("finish")  # phase 1 waits for its approval
    assert stopped.code == 4, stopped.err
    valid = journal(project).read_bytes()
    garbage = random.Random(7).randbytes(PAGE)
    for damaged in (valid[: len(valid) // 2], garbage + garbage, valid[:PAGE] + garbage + valid[2 * PAGE :]):
        journal(project).write_bytes(damaged)
        ran = project.start("finish", "auto").exits(5)
        assert "landed work is safe in the plans and in git; move it away and start again: mv " in ran.last
        assert project.landed() == []
        for kept in journal(project).parent.glob("journal.db-*"):
            kept.unlink()
    helps = ran.last.rpartition("start again: ")[2]
    subprocess.run(shlex.split(helps), check=True)
    landed_once(project, project.start("finish", "auto"), "1")


POINTS = ["before rename index", "after Landed"]


@pytest.mark.parametrize("point", POINTS)
def test_a_deleted_state_directory_is_rebuilt_from_plan_and_git(project: Project, point: str) -> None:
    killed_at(project, point)
    shutil.rmtree(project.path / ".git/runplan")
    landed_once(project, project.start("finish", "auto"))


LOSSES = {"gone": "rm -rf {0}", "emptied": "rm -rf {0}/objects {0}/refs", "damaged": "echo garbage >{0}/HEAD"}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
@pytest.mark.parametrize("role", ["implement", "verify"])
def test_a_lost_tool_repository_ends_the_run_and_the_next_one_continues(tmp_path: Path, role: str, loss: str) -> None:
    """It is an error of the infrastructure, not of the agent's work. The lane still has the agent's commits."""
    project = a_project(tmp_path, "1")
    tool = project.path / ".git/runplan/tool.git"
    loses = f'run = "{loss.format(tool)}"\nonce = "{tmp_path}/lost"'
    project.agent(work(loses) if role == "implement" else work() + verify(loses, "pass_all = true"))
    ran = project.start("1", "auto").exits(5)
    assert f"{tool} is gone or damaged; commits of runplan/x/1 that only it held are lost" in ran.last
    assert project.runplan("status", "X", "--json").json["run"]["reason"] == "crashed"
    project.runplan("retry", "X").exits(0)
    assert project.landed() == ["1"]
    assert project.dispatched().count("implement") == 1
    assert project.runplan("gc").code == 0
    assert project.leftovers() == []


def worktree(project: Project) -> Path:
    return next(path for path in project.worktrees.iterdir() if not path.name.endswith("-proof"))


def holding(project: Project, path: str, text: str) -> list[str]:
    """The parked refs whose commit has the file with this text."""
    parked = [ref for ref in project.repo.refs() if ref.startswith("refs/runplan/parked/")]
    return [ref for ref in parked if project.repo.git("show", f"{ref}:{path}", ok=False) == text]


def test_work_of_a_run_without_journal_is_parked(project: Project) -> None:
    """Commits are in `tool.git`, which a person may delete as well; the files of the worktree are there still."""
    killed_at(project, "after WorkTaken")
    project.agent(writes("1", "2").replace('text = "1', 'text = "another way'))
    (worktree(project) / "draft.txt").write_text("not committed\n")
    shutil.rmtree(journal(project).parent)
    listed = [one["what"] for one in project.runplan("gc", "--dry-run", "--json").json]
    assert str(worktree(project)) in listed
    project.start("1", "auto").exits(0)
    assert holding(project, "draft.txt", "not committed")
    assert holding(project, "1.txt", "1")


def test_a_start_names_the_running_agent_of_an_unknown_run(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    project.agent(work(*meanwhile.pause("at")))
    running = meanwhile.begin(project, "at", "start", "X", "finish", "auto", "--foreground")
    running.kill()
    running.communicate()
    shutil.rmtree(project.path / ".git/runplan")
    ran = project.start("finish", "auto").exits(2)
    assert "an agent of an unknown run still works in" in ran.last
    pids = [int(pid) for pid in ran.last.rpartition("kill ")[2].split()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the agent's shell ends its sleeps by itself
            os.kill(pid, signal.SIGTERM)
    until(lambda: not processes_of(project.home))
    project.agent(writes("1", "2"))
    assert project.start("finish", "auto").code == 0
    assert project.landed() == ["1", "2"]
    assert holding(project, "1.txt", "1"), "what that agent left in its worktree"


def test_lanes_that_lost_tool_git_give_their_work_to_their_own_phases(tmp_path: Path) -> None:
    """Phase 1 has landed, so the retry works on phase 2 in the first lane and on phase 3 in the second."""
    project, meanwhile = a_project(tmp_path, "1", "2", "3"), Meanwhile(tmp_path)
    plan = a_plan("1", "2", "3", is_apart=True)
    agent = work() + work(*meanwhile.pause("a"), phase="2") + work(*meanwhile.pause("b"), phase="3")
    set_up(project, settings="[run]\nparallel = 3\n", plan=plan, agent=agent)
    with project.running("start", "X", "finish", "auto", "--foreground") as process:
        meanwhile.reached("a")
        meanwhile.reached("b")
        until(lambda: project.landed() == ["1"])
        (project.path / ".git/runplan/tool.git").rename(tmp_path / "gone")  # at once: runplan still works in it
        meanwhile.let_on("a")
        meanwhile.let_on("b")
        assert ended(process).code == 5
    project.agent(steps("exit = 3", phase="2") + steps("exit = 3", phase="3"))
    project.runplan("retry", "X").exits(0)
    assert sorted(project.landed()) == ["1", "2", "3"]
