"""Removal of worktrees: nothing goes whose content is not elsewhere; what goes leaves no trace."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.trash import Trash
from runplan.core.gitfacts import Kept, Removed
from tests.support.removals import BRANCH, PARKED, Place, a_place
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ODD = ("with space.txt", "new\nline.txt", "ünïcode/日本.txt")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with a_place(tmp_path) as made:
        yield made


def test_a_clean_worktree_goes_and_its_branch_stays(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    tree.write("build.o", "ignored")
    assert place.removal.worktree("run") == Removed(what=str(tree.path))
    assert place.gone(tree)
    assert place.repo.refs() == {"refs/heads/main": place.base, BRANCH: tip}


def test_a_dirty_worktree_is_parked_whole_before_it_goes(place: Place) -> None:
    """J5: staged, unstaged, untracked, deleted, all in the parked commit; nothing else is changed."""
    tree = place.lease()
    tree.write("a.txt", "staged\n")
    tree.git("add", "a.txt")
    tree.write("a.txt", "unstaged on top\n")
    (tree.path / "b.txt").unlink()
    for name in ODD:
        tree.write(name, "odd\n")
    place.repo.write("users.txt", "mine")
    before = (place.repo.status(), place.repo.git("stash", "list"))
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=PARKED)
    assert place.gone(tree)
    assert place.repo.show(f"{PARKED}:a.txt") == "unstaged on top"
    assert place.repo.show(f"{PARKED}^2:a.txt") == "staged"
    assert [place.repo.show(f"{PARKED}:{name}") for name in ODD] == ["odd"] * 3
    assert place.repo.git("ls-tree", "--name-only", PARKED, "b.txt") == ""
    assert place.repo.head(f"{PARKED}^1") == place.base
    assert (place.repo.status(), place.repo.git("stash", "list")) == before


def test_an_unmerged_worktree_is_parked_too(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "-b", "theirs")
    tree.commit("theirs", **{"a.txt": "theirs\n"})
    tree.git("checkout", "-q", "runplan/plan/1")
    tree.commit("ours", **{"a.txt": "ours\n"})
    tree.git("merge", "theirs", ok=False)
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=PARKED)
    assert "<<<<<<<" in place.repo.show(f"{PARKED}:a.txt")


def test_commits_on_no_branch_are_parked(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "--detach")
    tip = tree.commit("floating", **{"c.txt": "c"})
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.repo.head(parked) == tip


def test_a_shown_worktree_goes_without_a_look(place: Place) -> None:
    tree = place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    tree.write("coverage.xml", "left by a gate")
    assert place.removal.worktree("run") == Removed(what=str(tree.path))
    assert place.gone(tree)


def test_work_begun_where_the_base_was_shown_is_parked_also_when_its_branch_has_gone(place: Place) -> None:
    """A baseline is looked at on the very commit on which the agent then begins, and to which HEAD falls back."""
    tree = place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    place.trees.attach("run", branch=BRANCH)
    tree.write("words.txt", "not committed yet\n")
    place.removal.ref(BRANCH)
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.repo.show(f"{parked}:words.txt") == "not committed yet"


def test_nor_is_it_lost_to_the_next_phase_that_begins_where_the_last_one_landed(place: Place) -> None:
    tree = place.lease()
    place.removal.landed({BRANCH: place.base}, worktree=tree.path, onto=place.base)
    again = place.lease("refs/heads/runplan/plan/2")
    again.write("words.txt", "not committed yet\n")
    place.removal.ref("refs/heads/runplan/plan/2")
    answer = place.removal.worktree("run")
    assert isinstance(answer, Removed)
    assert place.repo.show(f"{answer.parked}:words.txt") == "not committed yet"


def _directory_gone(tree: Repo, common: Path) -> None:
    shutil.rmtree(tree.path)


def _entry_gone(tree: Repo, common: Path) -> None:
    shutil.rmtree(common / "worktrees/run")


def _half_made(tree: Repo, common: Path) -> None:
    (common / "worktrees/run/locked").write_text("initializing\n")


@pytest.mark.parametrize("crash", [_directory_gone, _entry_gone, _half_made])
def test_half_a_worktree_goes_as_well_and_twice_is_once(place: Place, crash: Callable[[Repo, Path], None]) -> None:
    """J11, L1, L2"""
    tree = place.lease()
    crash(tree, place.repo.path / ".git")
    for _ in range(2):
        assert place.removal.worktree("run") == Removed(what=str(tree.path))
        assert place.gone(tree)


def test_work_in_a_directory_without_entry_is_parked(place: Place) -> None:
    tree = place.lease()
    tree.write("a.txt", "edited\n")
    _entry_gone(tree, place.repo.path / ".git")
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.repo.show(f"{parked}:a.txt") == "edited"


def test_a_worktree_a_process_works_in_is_kept(place: Place) -> None:
    tree = place.lease()
    tree.write("sub/x.txt", "x")
    process = subprocess.Popen(["sleep", "60"], cwd=tree.path / "sub")
    try:
        kept = place.removal.worktree("run")
    finally:
        process.kill()
        process.wait()
    assert kept == Kept(what=str(tree.path), why=f"process {process.pid} works in it")
    assert (tree.path / "sub/x.txt").exists()


def test_a_worktree_with_a_repository_inside_is_kept(place: Place) -> None:
    tree = place.lease()
    make_repo(tree.path / "inner")
    kept = Kept(what=str(tree.path), why="it holds another git repository: inner/")
    assert place.removal.worktree("run") == kept
    assert (tree.path / "inner/README.md").exists()


def test_what_is_not_ours_is_kept(place: Place) -> None:
    foreign = make_repo(place.trees.path("run"))
    kept = place.removal.worktree("run")
    assert isinstance(kept, Kept)
    assert "not a worktree of this repository" in kept.why
    assert (foreign.path / "README.md").exists()


def test_trash_of_dead_processes_is_swept_also_where_nobody_may_write(tmp_path: Path) -> None:
    locked = tmp_path / ".trash/old.123/deep/er"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    locked.chmod(0o500)
    locked.parent.chmod(0o500)
    trash = Trash(tmp_path)
    assert [path.name for path in trash.leftovers()] == ["old.123"]
    trash.sweep()
    trash.close()
    assert not (tmp_path / ".trash").exists()
