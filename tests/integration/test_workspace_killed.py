"""Leftovers of killed processes and moved directories in runplan's repositories are repaired; work stays."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from runplan.adapters.git.command import Git
from runplan.adapters.git.workspace import copy_commits
from runplan.domain.errors import GitFailed, ObjectsRefused
from tests.support.repos import BRANCH, Place
from tests.support.tools import write_script

HOURS_AGO = 7200.0


def worked(place: Place) -> str:
    tip = place.lease().commit("work", **{"c.txt": "c"})
    place.take()
    return tip


@pytest.mark.parametrize("part", ["HEAD", "config", "refs"])
def test_half_a_repository_is_made_whole_and_keeps_its_objects(place: Place, part: str) -> None:
    """The process died while git made it."""
    tip = worked(place)
    lost = place.workspace.path / part
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    place.workspace.prepare()
    assert place.workspace.git.tip(tip) == tip
    assert worked(place)


def test_a_git_that_is_killed_while_it_copies_is_not_the_fault_of_the_commits(place: Place, tmp_path: Path) -> None:
    tree = place.lease()
    (tree.path / "large.bin").write_bytes(os.urandom(2_000_000))
    tree.commit("large")
    tip = place.take()
    real = shutil.which("git")
    script = write_script(
        tmp_path / "bin/git", f'for word; do test "$word" = pack-objects && kill -9 $$; done\nexec {real} "$@"'
    )
    path = f"{script.parent}:{os.environ['PATH']}"
    places = (place.workspace.path / "objects", place.workspace.common_dir / "objects")
    user = Git(place.workspace.user.cwd, env={**place.workspace.user.env, "PATH": path})
    with closing(user), pytest.raises(GitFailed, match="pack-objects") as caught:
        copy_commits(user, places, tip, without=[place.base])
    assert not isinstance(caught.value, ObjectsRefused)


def test_the_users_objects_are_found_after_the_repository_was_moved(place: Place) -> None:
    borrowed = place.workspace.path / "objects/info/alternates"
    borrowed.write_text("/where/it/was/.git/objects\n")
    place.workspace.prepare()
    assert place.workspace.git.tip(place.base) == place.base


def head_cut_off(place: Place) -> None:
    (place.lane / "worktrees/run/HEAD").write_bytes(b"")


def state_deleted(place: Place) -> None:
    for name in ("lanes", "seen", "lent"):
        shutil.rmtree(place.workspace.state / name)


@pytest.mark.parametrize("lose", [head_cut_off, state_deleted])
@pytest.mark.parametrize("then", [Place.lease, lambda place: place.removal.remove_worktree("run")], ids=["lease", "gc"])
def test_files_whose_repository_is_gone_are_parked(
    place: Place, lose: Callable[[Place], None], then: Callable[[Place], object]
) -> None:
    tree = place.lease()
    tree.write("draft.txt", "draft\n")
    lose(place)
    then(place)
    kept = [ref for ref in place.repo.refs() if ref.startswith("refs/runplan/parked/")]
    assert [place.repo.git("show", f"{ref}:draft.txt") for ref in kept] == ["draft"]


def test_files_that_are_a_commit_of_the_target_are_not_parked(place: Place) -> None:
    place.lease()
    state_deleted(place)
    place.lease(base=place.repo.commit("On", **{"on.txt": "on\n"}))
    assert [ref for ref in place.repo.refs() if ref.startswith("refs/runplan/parked/")] == []


def test_gc_gives_the_user_a_branch_that_no_journal_knows(place: Place) -> None:
    tip = worked(place)
    place.removal.remove_worktree("run")
    listed = place.removal.remove_leftovers(dry_run=True, prefix="runplan/", active=())
    assert BRANCH in [one.what for one in listed]
    assert BRANCH not in place.repo.refs()
    place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=())
    assert place.repo.refs()[BRANCH] == tip
    assert place.workspace.git.tip(BRANCH) is None


@pytest.mark.parametrize(("age", "left"), [(HOURS_AGO, 0), (0.0, 3)], ids=["old", "at work"])
def test_leftovers_of_killed_copies_are_removed_after_the_copy_timeout(place: Place, age: float, left: int) -> None:
    packs = place.repo.path / ".git/objects/pack"
    made = [packs / "pack-1.keep", packs / "pack-2.keep", place.workspace.path / "objects/pack/tmp_pack_x"]
    own = packs / "pack-3.keep"
    for path, text in zip((*made, own), ("runplan\n", "runplan landing\n", "", "mine\n"), strict=True):
        path.write_text(text)
        os.utime(path, (time.time() - age, time.time() - age))
    place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=())
    assert len([path for path in made if path.exists()]) == left
    assert own.exists()
