"""Damage, kills, full disks and users who interfere lose no work: plan and git are enough to continue."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import (
    Meanwhile,
    Project,
    Ran,
    a_plan,
    a_project,
    end_processes_of,
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
from tests.support.mounts import fill, inside, make_room, small_disk

PHASES = ("1",)
PAGE = 4096


def landed_once(project: Project, ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert project.landed() == ["1"]
    assert project.repo.status() == ""
    assert project.runplan("gc").code == 0
    assert project.leftovers() == [], "what a forgotten run left is on the target, and goes"


def journal(project: Project) -> Path:
    return project.path / ".git/runplan/journal.db"


def test_a_damaged_journal_is_refused_and_the_printed_command_helps(project: Project) -> None:
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
    landed_once(project, project.start("finish", "auto"))


POINTS = ["before rename index", "after Landed"]


@pytest.mark.parametrize("point", POINTS)
def test_a_deleted_state_directory_is_rebuilt_from_plan_and_git(project: Project, point: str) -> None:
    killed_at(project, point)
    shutil.rmtree(project.path / ".git/runplan")
    landed_once(project, project.start("finish", "auto"))


LOSSES = {"gone": "rm -rf {0}", "emptied": "rm -rf {0}/objects {0}/refs", "damaged": "echo garbage >{0}/HEAD"}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
@pytest.mark.parametrize("role", ["implement", "verify"])
def test_a_lost_tool_repository_ends_the_run_and_the_next_one_continues(
    project: Project, tmp_path: Path, role: str, loss: str
) -> None:
    """It is an error of the infrastructure, not of the agent's work. The lane still has the agent's commits."""
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


def test_gc_reads_forgotten_work_within_the_limits_of_the_settings(project: Project) -> None:
    killed_at(project, "after WorkTaken")
    for name in ("a", "b"):
        (worktree(project) / name).write_text(name)
    shutil.rmtree(journal(project).parent)
    project.settings("[limits]\nhandover_entries = 1\n")
    assert "more than 1 files and directories differ (limits.handover_entries)" in project.runplan("gc").out


def test_work_of_a_run_without_journal_is_parked(project: Project) -> None:
    """Commits are in `tool.git`, which a person may delete as well; the files of the worktree are there still."""
    killed_at(project, "after WorkTaken")
    project.agent(writes("1").replace('text = "1', 'text = "another way'))
    (worktree(project) / "draft.txt").write_text("not committed\n")
    shutil.rmtree(journal(project).parent)
    listed = [one["what"] for one in project.runplan("gc", "--dry-run", "--json").json]
    assert str(worktree(project)) in listed
    project.start("1", "auto").exits(0)
    assert holding(project, "draft.txt", "not committed")
    assert holding(project, "1.txt", "1")


def test_a_start_names_the_running_agent_of_an_unknown_run(project: Project, meanwhile: Meanwhile) -> None:
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
    project.agent(writes("1"))
    assert project.start("finish", "auto").code == 0
    assert project.landed() == ["1"]
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
        side_by_side = "side by side: phase 1 as [1], phase 2 as [2], phase 3 as [3]"
        ended(process).exits(5, side_by_side, "[1] phase 1  Step 1", "[1]   landed")
    project.agent(steps("exit = 3", phase="2") + steps("exit = 3", phase="3"))
    project.runplan("retry", "X").exits(0)
    assert sorted(project.landed()) == ["1", "2", "3"]


LANDING = "after LandingStarted"


@pytest.mark.parametrize(
    ("place", "point", "code", "message"),
    [
        (".git/runplan", "", 5, "No space left on device; free space on the disk, then try again"),
        (".git/objects", LANDING, 5, "write error. Out of diskspace; the work is kept"),  # in the words of git
        (".", LANDING, 4, "the landing waits: git cannot update"),
    ],
)
def test_a_run_stops_on_a_full_disk_and_continues_when_there_is_space(
    project: Project, place: str, point: str, code: int, message: str
) -> None:
    directory = project.path / place
    with inside(project) as there:
        small_disk(there, directory)
        if place == ".":
            small_disk(there, directory / ".git")
        if point:
            killed = there.start("finish", "auto", TEST_KILL=point)
            assert killed.code in (-signal.SIGKILL, 128 + signal.SIGKILL), killed.err
            end_processes_of(project.home)
        fill(there, directory)
        ran = there.start("finish", "auto").exits(code, message)
        assert ("runplan retry plans/X.md" in ran.last) == bool(point)  # else there is no run to continue
        make_room(there, directory)
        there.start("finish", "auto").exits(0)
        subjects = there.sh("git log --format=%s main && git status --porcelain").splitlines()
        assert subjects == ["x: record phase 1 as done", "Write 1", "Begin"]


# --- users --------------------------------------------------------------------------------------------


def prune(project: Project) -> None:
    project.repo.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    project.repo.git("gc", "-q", "--prune=now")


def leave_lock(project: Project) -> None:
    lock = project.path / f".git/runplan/lanes/{worktree(project).name}.git/refs/heads/runplan/x/1.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()


#: Done between a crash during the landing and the next start.
INTERFERENCES: dict[str, Callable[[Project], object]] = {
    "deletes the worktree": lambda project: shutil.rmtree(worktree(project)),
    "rewrites the target": lambda project: project.repo.git("commit", "-q", "--amend", "-m", "Begin otherwise"),
    "collects garbage": prune,
    "leaves a lock of a dead git in the lane": leave_lock,
}


@pytest.mark.parametrize("name", INTERFERENCES)
def test_a_phase_lands_once_although_the_user_interferes_after_a_crash(project: Project, name: str) -> None:
    killed_at(project, LANDING)
    INTERFERENCES[name](project)
    mine = project.repo.head("main")
    landed_once(project, project.start("finish", "auto"))
    assert project.repo.git("merge-base", "main", mine) == mine


@pytest.mark.promise
def test_a_deleted_target_is_refused_and_the_run_continues_when_it_is_back(project: Project) -> None:
    killed_at(project, LANDING)
    project.repo.git("switch", "-q", "-c", "other")
    project.repo.git("branch", "-q", "-D", "main")
    project.start("finish", "auto").exits(2, "the target branch main does not exist")
    project.repo.git("branch", "main", "other")
    project.repo.git("switch", "-q", "main")
    landed_once(project, project.start("finish", "auto"))
