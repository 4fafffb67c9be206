"""Full disks, wrong clocks, stale locks and users who interfere: each fault has a named outcome and loses nothing."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runplan.adapters.configuration.places import state_directory
from tests.support.cli import Project, Ran, a_project, end_processes_of, killed_at, set_up, steps, verify, writes
from tests.support.mounts import Inside, fill, inside, make_room, read_only, small_disk, writable

LANDING = "after LandingStarted"
BRANCH = "refs/heads/runplan/x/1"
PHASES = ("1",)


def landed_once(project: Project, ran: Ran) -> None:
    assert ran.code == 0, ran.err
    assert project.landed() == ["1"]
    assert project.repo.status() == ""


# --- disks --------------------------------------------------------------------------------------------


def places(project: Project) -> dict[str, Path]:
    git = project.path / ".git"
    return {
        "journal": git / "runplan",
        "worktrees": project.worktrees,
        "objects": git / "objects",
        "logs": git / "runplan/dispatch",
        "checkout": project.path,
    }


def interrupted(there: Inside, point: str) -> None:
    if point:
        ran = there.start("finish", "auto", TEST_KILL=point)
        assert ran.code in (-signal.SIGKILL, 128 + signal.SIGKILL), ran.err
        end_processes_of(there.project.home)


def refused_then_landed(there: Inside, *, code: int, message: str, settle: Callable[[], None]) -> Ran:
    """The run stops with the message, here; after `settle` the next start lands the phase once."""
    ran = there.start("finish", "auto")
    assert ran.code == code, ran.err
    assert message in ran.err
    settle()
    there.start("finish", "auto").exits(0)
    subjects = there.sh("git log --format=%s main && git status --porcelain").splitlines()
    assert subjects == ["x: record phase 1 as done", "Write 1", "Begin"]
    return ran


@pytest.mark.parametrize(
    ("place", "point", "code", "message"),
    [
        ("journal", "", 5, "No space left on device; free space on the disk, then try again"),
        ("objects", LANDING, 5, "write error. Out of diskspace; the work is kept"),  # in the words of git
        ("checkout", LANDING, 4, "the landing waits: git cannot update"),
    ],
)
def test_a_run_stops_on_a_full_disk_and_continues_when_there_is_space(
    project: Project, place: str, point: str, code: int, message: str
) -> None:
    directory = places(project)[place]
    with inside(project) as there:
        small_disk(there, directory)
        if place == "checkout":
            small_disk(there, directory / ".git")
        interrupted(there, point)
        fill(there, directory)
        ran = refused_then_landed(there, code=code, message=message, settle=lambda: make_room(there, directory))
        assert ("runplan retry plans/X.md" in ran.last) == bool(point)  # else there is no run to continue


def test_a_start_names_the_full_disk_of_the_daemon(project: Project) -> None:
    directory = state_directory(project.env)
    with inside(project) as there:
        small_disk(there, directory)
        fill(there, directory)
        ran = there.runplan("start", "X", "auto")
    full = f"{directory}/daemon.out: No space left on device; free space on the disk, then try again"
    assert (ran.code, ran.last) == (5, f"runplan: {full}")


def test_an_agent_whose_output_fills_the_disk_is_started_again_when_there_is_space(project: Project) -> None:
    talk = f'[[phase."1".implement]]\nsay = "{"so many words " * 5000}"\n' * 20
    project.agent(talk + writes("1"))
    logs = places(project)["logs"]
    with inside(project) as there:
        small_disk(there, logs, kilobytes=400)
        there.start("finish", "auto").exits(5, "No space left on device; free space on the disk")
        there.sh('mount -o remount,size=64m "$1"', logs)
        assert there.start("finish", "auto").code == 0
        assert there.sh("git log --format=%s main").splitlines()[:2] == ["x: record phase 1 as done", "Write 1"]


def test_a_read_only_directory_is_named_and_the_run_continues_when_it_is_writable(project: Project) -> None:
    directory = places(project)["worktrees"]
    with inside(project) as there:
        read_only(there, directory)
        assert there.runplan("status").code == 0, "reading verbs write nothing"
        message = "Read-only file system; make it writable, then try again; the work is kept"
        refused_then_landed(there, code=5, message=message, settle=lambda: writable(there, directory))


def test_leftovers_whose_branch_could_not_be_written_are_kept(project: Project) -> None:
    lock = project.path / f".git/runplan/tool.git/{BRANCH}.lock"
    leaves = steps('write = "1.txt"\ntext = "1\\n"', f'run = "touch {lock}"', phase="1")
    set_up(project, agent=leaves + verify('return = "{}"'))
    ran = project.start("1", "auto")
    assert (ran.code, "the work is kept" in ran.last) == (5, True)
    lock.unlink()
    project.runplan("retry", "X").ends(1, "runplan: failed: invalid-verdict")
    assert project.show("runplan/x/1:1.txt") == "1"


# --- clocks -------------------------------------------------------------------------------------------


def test_the_newest_run_is_the_last_one_started_under_any_clock(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    for phase, moment in (("1", "2051-01-01T00:00:00Z"), ("2", "1999-01-01T00:00:00Z")):
        assert project.start(phase, "auto", TEST_NOW=moment).code == 0
        run = project.runplan("status", "X", "--json").json["run"]
        assert (run["phase"], run["state"]) == (phase, "done")
    assert project.landed() == ["1", "2"]


# --- users --------------------------------------------------------------------------------------------


def worktree(project: Project) -> Path:
    return next(path for path in project.worktrees.iterdir() if not path.name.endswith("-proof"))


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
    assert project.leftovers() == []


def test_a_phase_branch_that_the_user_moved_stays_where_it_is(project: Project) -> None:
    killed_at(project, LANDING)
    theirs = project.repo.git("commit-tree", "-p", "main", "-m", "Mine", "main^{tree}")
    project.repo.git("update-ref", BRANCH, theirs)
    landed_once(project, project.start("finish", "auto"))
    assert project.repo.refs()[BRANCH] == theirs


def test_a_target_reset_below_the_landing_gets_the_phase_again(project: Project) -> None:
    killed_at(project, "after Landed")
    project.repo.git("reset", "-q", "--hard", "main~2")
    landed_once(project, project.start("finish", "auto"))


@pytest.mark.promise
def test_a_deleted_target_is_refused_and_the_run_continues_when_it_is_back(project: Project) -> None:
    killed_at(project, LANDING)
    project.repo.git("switch", "-q", "-c", "other")
    project.repo.git("branch", "-q", "-D", "main")
    project.start("finish", "auto").exits(2, "the target branch main does not exist")
    project.repo.git("branch", "main", "other")
    project.repo.git("switch", "-q", "main")
    landed_once(project, project.start("finish", "auto"))
