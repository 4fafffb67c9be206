"""Disks, clocks, locks and people get in the way: each has its outcome by name, and nothing is lost or landed twice."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, end_processes_of, killed_at, processes_of, until, writes
from tests.support.mounts import Inside, fill, inside, make_room, read_only, small_disk, writable
from tests.support.scripts import Meanwhile, steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cli import Ran

WORKED = "Await.DispatchEnded.after#1"
BUILT = "BuildCandidate.CandidateBuilt.after#1"
INTENDED = "Land.LandingStarted.after#1"
BRANCH = "refs/heads/runplan/x/1"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def landed_once(project: Project, ran: Ran, *phases: str) -> None:
    assert ran.code == 0, ran.err
    assert project.landed() == list(phases or ("1",))
    assert project.repo.status() == ""


# --- disks --------------------------------------------------------------------------------------------


def places(project: Project) -> dict[str, Path]:
    git = project.path / ".git"
    return {
        "journal": git / "runplan",
        "worktrees": project.home / ".cache/runplan/worktrees",
        "objects": git / "objects",
        "logs": git / "runplan/dispatch",
        "git": git,
        "checkout": project.path,
    }


def interrupted(there: Inside, point: str) -> None:
    if point:
        ran = there.start("finish", "auto", RUNPLAN_TEST_KILL=point)
        assert ran.code in (-signal.SIGKILL, 128 + signal.SIGKILL), ran.err
        end_processes_of(there.project.home)


def refused_then_landed(there: Inside, *, code: int, told: str, settle: Callable[[], None]) -> None:
    """The fault is named and everything kept; when it is settled, starting again lands the phase, once."""
    ran = there.start("finish", "auto")
    assert ran.code == code, ran.err
    assert told in ran.err
    settle()
    again = there.start("finish", "auto")
    assert again.code == 0, again.err
    subjects = there.sh("git log --format=%s main && git status --porcelain").splitlines()
    assert subjects == ["x: record phase 1 as done", "Write 1", "Begin"]


FULL = [
    ("journal", "", 5, "No space left on device; make room on the disk, then try again"),
    ("journal", WORKED, 5, "make room on the disk, then try again"),
    ("journal", "TakeWork.WorkTaken.after#1", 5, "make room on the disk, then try again"),
    ("journal", "Land.Landed.after#1", 5, "make room on the disk, then try again"),
    ("worktrees", "ReadPlan.PlanRead.after#1", 5, "make room on the disk, then try again; the work is kept"),
    ("objects", WORKED, 5, "No space left on device; make room on the disk, then try again"),
    ("logs", "Lease.Leased.after#1", 5, "No space left on device; make room on the disk, then try again"),
    ("git", BUILT, 5, "No space left on device; make room on the disk, then try again; the work is kept"),
    ("git", INTENDED, 5, "No space left on device; make room on the disk, then try again"),
    ("git", "land.swapped", 4, "waits: git cannot"),
    ("checkout", INTENDED, 4, "the landing waits: git cannot update"),
]


@pytest.mark.parametrize(("place", "point", "code", "told"), FULL)
def test_on_a_full_disk_the_run_stops_by_name_and_goes_on_when_there_is_room(
    project: Project, place: str, point: str, code: int, told: str
) -> None:
    directory = places(project)[place]
    with inside(project) as there:
        small_disk(there, directory)
        inner = {"git": "runplan", "checkout": ".git"}.get(place)
        if inner:
            small_disk(there, directory / inner)
        interrupted(there, point)
        fill(there, directory)
        refused_then_landed(there, code=code, told=told, settle=lambda: make_room(there, directory))


def test_work_that_cannot_be_committed_for_want_of_room_is_committed_later(project: Project) -> None:
    project.agent(writes("1", commit=False))
    with inside(project) as there:
        small_disk(there, places(project)["objects"])
        interrupted(there, WORKED)
        fill(there, places(project)["objects"])
        ran = there.start("finish", "auto")
        assert ran.code == 5, ran.err
        assert "No space left on device" in ran.err
        make_room(there, places(project)["objects"])
        assert there.start("finish", "auto").code == 0
        assert there.sh("git show main:1.txt") == "1\n"


def test_an_agent_whose_output_fills_the_disk_is_sent_again_when_there_is_room(project: Project) -> None:
    talk = f'[[phase."1".implement]]\nprint = "{"so many words " * 5000}"\n' * 20
    project.agent(talk + writes("1"))
    logs = places(project)["logs"]
    with inside(project) as there:
        small_disk(there, logs, kilobytes=400)
        ran = there.start("finish", "auto")
        assert ran.code == 5, ran.err
        assert "No space left on device; make room on the disk" in ran.err
        there.sh('mount -o remount,size=64m "$1"', logs)
        assert there.start("finish", "auto").code == 0
        assert there.sh("git log --format=%s main").splitlines()[:2] == ["x: record phase 1 as done", "Write 1"]


READ_ONLY = [
    ("journal", "", 5, "Read-only file system; make it writable, then try again"),
    ("journal", INTENDED, 5, "Read-only file system; make it writable, then try again"),
    ("worktrees", "", 5, "Read-only file system; make it writable, then try again; the work is kept"),
    ("worktrees", BUILT, 5, "Read-only file system"),
    ("objects", WORKED, 5, "Read-only file system; make it writable, then try again"),
    ("git", "", 5, ".git/runplan cannot be made: Read-only file system"),
    ("checkout", "", 4, "the landing waits: git cannot update"),
    ("checkout", INTENDED, 4, "the landing waits: git cannot update"),
]


@pytest.mark.parametrize(("place", "point", "code", "told"), READ_ONLY)
def test_a_directory_that_cannot_be_written_is_named_and_the_run_goes_on_when_it_can(
    project: Project, place: str, point: str, code: int, told: str
) -> None:
    directory, git = places(project)[place], project.path / ".git"
    with inside(project) as there:
        interrupted(there, point)
        read_only(there, directory)
        if place == "checkout":  # its files alone
            there.sh('mount --bind "$1" "$1"; mount -o remount,bind,rw "$1"', git)

        def settle() -> None:
            if place == "checkout":
                writable(there, git)
            writable(there, directory)

        assert there.runplan("status").code == 0, "reading needs no writing"
        refused_then_landed(there, code=code, told=told, settle=settle)


# --- clocks -------------------------------------------------------------------------------------------

THEN, NOW = "1999-01-01T00:00:00Z", "2051-01-01T00:00:00Z"


@pytest.mark.parametrize(("before", "after"), [(THEN, NOW), (NOW, THEN)], ids=["forwards", "backwards"])
@pytest.mark.parametrize("point", ["Start.spawned#1", "land.swapped#1"])
def test_a_clock_that_jumps_inside_a_run_changes_nothing_but_dates(
    project: Project, point: str, before: str, after: str
) -> None:
    killed = project.start("finish", "auto", RUNPLAN_TEST_NOW=before, RUNPLAN_TEST_KILL=point)
    assert killed.code == -signal.SIGKILL
    landed_once(project, project.start("finish", "auto", RUNPLAN_TEST_NOW=after))
    assert project.leftovers() == []


def test_the_newest_run_is_the_last_one_whatever_the_clock_says(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    for phase, moment in (("1", NOW), ("2", THEN), ("3", NOW)):
        assert project.start(phase, "auto", RUNPLAN_TEST_NOW=moment, RUNPLAN_TEST_RUN=f"r{phase}").code == 0
        run = project.runplan("status", "X", "--json").json["run"]
        assert run["id"] == f"r{phase}"
        assert f'"run": "r{phase}"' in project.runplan("logs", "X", "--json").out
    assert project.landed() == ["1", "2", "3"]
    assert project.leftovers() == []


# --- people -------------------------------------------------------------------------------------------


def worktree(project: Project) -> Path:
    return next(one for one in (project.home / ".cache/runplan/worktrees").iterdir() if one.name != ".trash")


def killed_at_work(project: Project, place: Path) -> None:
    """Kill the runner, and then its agent, which had begun; the next one finds its way clear."""
    meanwhile = Meanwhile(place)
    project.agent(steps(*meanwhile.pause("agent")) + writes("1"))
    assert project.start("finish", "auto", RUNPLAN_TEST_KILL="Start.spawned#1").code == -signal.SIGKILL
    meanwhile.reached("agent")
    end_processes_of(project.home)
    until(lambda: not processes_of(project.home))
    meanwhile.let_on("agent")


@pytest.mark.parametrize("point", [WORKED, BUILT, INTENDED])
@pytest.mark.parametrize("how", ["rm", "git worktree remove"])
def test_a_worktree_deleted_by_hand_is_made_again(project: Project, point: str, how: str) -> None:
    killed_at(project, point)
    if how == "rm":
        shutil.rmtree(worktree(project))
    else:
        project.repo.git("-C", str(worktree(project)), "worktree", "remove", "-f", "-f", str(worktree(project)))
    landed_once(project, project.start("finish", "auto"))
    assert project.leftovers() == []


def test_a_worktree_deleted_under_its_agent_is_made_again(project: Project, tmp_path: Path) -> None:
    killed_at_work(project, tmp_path)
    shutil.rmtree(worktree(project))
    landed_once(project, project.start("finish", "auto"))
    assert project.leftovers() == []


@pytest.mark.parametrize("point", ["TakeWork.WorkTaken.after#1", BUILT, INTENDED])
def test_a_branch_deleted_in_the_worktree_is_not_missed_once_its_work_was_taken(project: Project, point: str) -> None:
    killed_at(project, point)
    project.repo.at(worktree(project)).git("update-ref", "-d", BRANCH)
    landed_once(project, project.start("finish", "auto"))


def test_a_branch_deleted_under_its_agent_is_made_again_and_the_files_stay(project: Project, tmp_path: Path) -> None:
    killed_at_work(project, tmp_path)
    project.repo.at(worktree(project)).git("update-ref", "-d", BRANCH)
    (worktree(project) / "draft.txt").write_text("draft\n")
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    assert project.show("main:draft.txt") == "draft"


@pytest.mark.parametrize("point", ["TakeWork.WorkTaken.after#1", BUILT, INTENDED, "Land.Landed.after#1"])
def test_a_branch_of_ours_moved_by_hand_stays_where_it_was_put(project: Project, point: str) -> None:
    killed_at(project, point)
    theirs = project.repo.git("commit-tree", "-p", "main", "-m", "Mine", "main^{tree}")
    project.repo.git("update-ref", BRANCH, theirs)
    landed_once(project, project.start("finish", "auto"))
    assert project.repo.refs()[BRANCH] == theirs


TARGETS: dict[str, Callable[[Project], object]] = {
    "committed to": lambda project: project.repo.commit("User", **{"user.txt": "u\n"}),
    "rebased": lambda project: project.repo.git("commit", "-q", "--amend", "-m", "Begin otherwise"),
}


@pytest.mark.parametrize("how", TARGETS)
@pytest.mark.parametrize("point", [WORKED, INTENDED])
def test_a_target_that_moved_meanwhile_is_landed_on_once(project: Project, point: str, how: str) -> None:
    killed_at(project, point)
    TARGETS[how](project)
    mine = project.repo.head("main")
    landed_once(project, project.start("finish", "auto"))
    assert project.repo.git("merge-base", "main", mine) == mine


@pytest.mark.parametrize("point", ["Land.swapped#1", "Land.Landed.after#1", "CleanUp.CleanedUp.after#1"])
def test_a_target_forced_back_below_the_landing_gets_the_phase_again_once(project: Project, point: str) -> None:
    killed_at(project, point)
    project.repo.git("reset", "-q", "--hard", "main~2")
    landed_once(project, project.start("finish", "auto"))


@pytest.mark.parametrize("point", [WORKED, INTENDED])
def test_a_target_that_was_deleted_is_asked_for_and_the_run_goes_on_when_it_is_back(
    project: Project, point: str
) -> None:
    killed_at(project, point)
    project.repo.git("switch", "-q", "-c", "other")
    project.repo.git("branch", "-q", "-D", "main")
    ran = project.start("finish", "auto")
    assert ran.code == 2, ran.err
    assert "the target branch main does not exist" in ran.err
    project.repo.git("branch", "main", "other")
    project.repo.git("switch", "-q", "main")
    landed_once(project, project.start("finish", "auto"))


# --- git ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point", ["Start.spawned#1", WORKED, "TakeWork.WorkTaken.after#1", BUILT, "Land.bookkept#1", INTENDED]
)
def test_collecting_garbage_in_the_middle_takes_nothing_that_is_needed(project: Project, point: str) -> None:
    killed_at(project, point)
    project.repo.git("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    project.repo.git("gc", "-q", "--prune=now")
    landed_once(project, project.start("finish", "auto"))


OURS = [
    "runplan/tool.git/refs/heads/runplan/x/1.lock",
    "runplan/tool.git/packed-refs.lock",
    "runplan/tool.git/worktrees/{worktree}/index.lock",
    "runplan/tool.git/worktrees/{worktree}/HEAD.lock",
    "runplan/lanes/{worktree}.git/refs/heads/runplan/x/1.lock",
    "runplan/lanes/{worktree}.git/worktrees/{worktree}/index.lock",
    "refs/heads/runplan/x/1.lock",
]
THEIRS = [("index.lock", 4), ("refs/heads/main.lock", 4), ("HEAD.lock", 4)]


@pytest.mark.parametrize("lock", OURS)
@pytest.mark.parametrize("point", ["Lease.Leased.after#1", BUILT])
def test_a_lock_a_dead_git_left_on_what_is_ours_is_cleared(project: Project, lock: str, point: str) -> None:
    killed_at(project, point)
    left = project.path / ".git" / lock.format(worktree=worktree(project).name)
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    landed_once(project, project.start("finish", "auto"))
    assert project.leftovers() == []


@pytest.mark.parametrize(("lock", "code"), THEIRS)
def test_a_lock_of_the_users_git_is_named_and_never_removed(project: Project, lock: str, code: int) -> None:
    killed_at(project, INTENDED)
    left = project.path / ".git" / lock
    left.touch()
    ran = project.start("finish", "auto")
    assert ran.code == code, ran.err
    assert "another git command is running" in ran.err
    assert f"if there is none, remove {left}" in ran.err
    assert left.exists()
    left.unlink()
    landed_once(project, project.start("finish", "auto"))
    assert project.leftovers() == []
