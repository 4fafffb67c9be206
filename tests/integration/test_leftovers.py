"""What an agent leaves lying about is committed as it lies there: all of it, whatever git was told to overlook."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.leftovers import MANY
from runplan.adapters.worktrees import Worktrees
from runplan.core.gitfacts import Unstored
from runplan.core.guard import AGENT
from tests.support.repos import Repo, init_repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
FILES = {"a.txt": "a\n", "b.txt": "b\n", "src/c.txt": "c\n", "src/d.txt": "d\n"}


@dataclass(kw_only=True)
class Place:
    repo: Repo
    trees: Worktrees

    def lease(self) -> Repo:
        return self.repo.at(self.trees.lease("run", branch=BRANCH, base=self.repo.head()))

    def left(self, tree: Repo) -> list[str]:
        """What a status finds."""
        state = self.trees.state(tree.path)
        return [*state.changed, *(one.path for one in state.untracked)]

    def commit(self, tree: Repo, *paths: str) -> str:
        made = self.trees.commit_leftovers(
            tree.path, paths, message="m", author=AGENT, committer=AGENT, when="1700000000 +0000"
        )
        assert isinstance(made, str)
        return made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repo(tmp_path_factory.mktemp("model") / "repo", **FILES).path


@pytest.fixture
def place(model: Path, tmp_path: Path) -> Iterator[Place]:
    yield from _placed(Repo(path=shutil.copytree(model, tmp_path / "repo")), tmp_path)


def _placed(repo: Repo, tmp_path: Path) -> Iterator[Place]:
    git = repo.adapter()
    common = repo.path / ".git"
    trees = Worktrees(git, root=tmp_path / "trees", common_dir=common, lock_dir=common / "runplan/locks")
    yield Place(repo=repo, trees=trees)
    trees.close()
    git.close()
    assert repo.git("fsck", "--no-dangling", "--strict") == ""


# --- committing -----------------------------------------------------------------------------------------


def test_many_files_are_committed_together(place: Place) -> None:
    tree = place.lease()
    names = [f"many/{number}" for number in range(MANY + 1)]
    for name in names:
        tree.write(name, name)
    place.commit(tree, *place.left(tree))
    assert sorted(tree.git("ls-tree", "-r", "--name-only", "HEAD", "many/").split()) == sorted(names)
    assert place.left(tree) == []


def test_a_directory_that_became_a_file_is_committed_as_one(place: Place) -> None:
    tree = place.lease()
    shutil.rmtree(tree.path / "src")
    tree.write("src", "a file")
    left = place.left(tree)
    assert left == ["src/c.txt", "src/d.txt", "src"]
    place.commit(tree, *left)
    assert tree.git("ls-tree", "-r", "--name-only", "HEAD").split() == ["a.txt", "b.txt", "src"]
    assert place.left(tree) == []


def test_modes_and_links_are_committed(place: Place) -> None:
    tree = place.lease()
    (tree.path / "a.txt").chmod(0o755)
    (tree.path / "link").symlink_to("a.txt")
    place.commit(tree, *place.left(tree))
    modes = [line.split()[0] for line in tree.git("ls-tree", "HEAD", "a.txt", "link").splitlines()]
    assert modes == ["100755", "120000"]


def test_what_is_as_the_branch_has_it_makes_no_commit(place: Place) -> None:
    tree = place.lease()
    blob = tree.git("rev-parse", "HEAD:a.txt")
    stages = "".join(f"100644 {blob} {stage}\tgone.txt\n" for stage in (1, 2, 3))
    tree.git("update-index", "--index-info", stdin=stages)
    assert place.left(tree) == ["gone.txt"], "unmerged, and not there"
    assert place.commit(tree, "gone.txt") == place.repo.head()
    assert place.left(tree) == []


@pytest.mark.parametrize("how", [["--split-index"], ["--index-version", "4"]], ids=["split", "version 4"])
def test_an_index_of_another_kind_is_read_too(place: Place, how: list[str]) -> None:
    tree = place.lease()
    tree.git("update-index", *how)
    tree.write("a.txt", "new\n")
    tree.write("src/e.txt", "e\n")
    place.commit(tree, *place.left(tree))
    assert (tree.show("HEAD:a.txt"), tree.show("HEAD:src/e.txt")) == ("new", "e")
    assert place.left(tree) == []


def test_a_repository_with_long_ids_is_served(tmp_path: Path) -> None:
    repo = init_repo(tmp_path / "repo", "--object-format=sha256")
    repo.commit("Start", **FILES)
    for place in _placed(repo, tmp_path):
        tree = place.lease()
        tree.git("update-index", "--skip-worktree", "a.txt")
        tree.write("a.txt", "new\n")
        oid = place.commit(tree, *place.left(tree))
        assert len(oid) == 64
        assert tree.show("HEAD:a.txt") == "new"


# --- what is hidden -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
@pytest.mark.parametrize("kind", [[], ["--index-version", "4"], ["--split-index"]], ids=["2", "4", "split"])
def test_files_that_git_was_told_to_overlook_are_seen(place: Place, flag: str, kind: list[str]) -> None:
    tree = place.lease()
    tree.git("update-index", flag, "a.txt", "src/c.txt", "src/d.txt")
    if kind:
        tree.git("update-index", *kind)
    tree.write("a.txt", "hidden\n")
    (tree.path / "src/c.txt").unlink()
    assert tree.status() == ""
    assert place.left(tree) == ["a.txt", "src/c.txt"]
    place.commit(tree, *place.left(tree))
    assert tree.show("HEAD:a.txt") == "hidden"
    assert tree.git("ls-tree", "--name-only", "HEAD", "src/").split() == ["src/d.txt"]


def test_work_that_was_hidden_is_parked_before_it_makes_room(place: Place) -> None:
    tree = place.lease()
    tree.git("update-index", "--skip-worktree", "a.txt")
    tree.write("a.txt", "hidden\n")
    place.lease()
    parked = [ref for ref in place.repo.refs() if ref.startswith("refs/runplan/parked/")]
    assert [place.repo.show(f"{ref}:a.txt") for ref in parked] == ["hidden"]


def test_work_that_git_cannot_store_as_it_is_told_to_is_parked_byte_for_byte(place: Place) -> None:
    tree = place.lease()
    odd = b"odd\r\nbytes \xff\n"
    for name in ("a.txt", "new.txt"):
        (tree.path / name).write_bytes(odd)
    tree.write(".gitattributes", "*.txt working-tree-encoding=UTF-16LE\n")
    left = place.left(tree)
    made = place.trees.commit_leftovers(
        tree.path, left, message="m", author=AGENT, committer=AGENT, when="1700000000 +0000"
    )
    assert isinstance(made, Unstored)
    assert made.path == "a.txt"
    place.lease()
    (parked,) = (ref for ref in place.repo.refs() if ref.startswith("refs/runplan/parked/"))
    for name in ("a.txt", "new.txt"):
        assert os.fsencode(place.repo.git("cat-file", "blob", f"{parked}:{name}") + "\n") == odd
    assert set(place.repo.git("ls-tree", "-r", "--name-only", parked).split()) == {*FILES, ".gitattributes", "new.txt"}


@pytest.mark.parametrize("index", [b"", b"zzz\n", None], ids=["empty", "garbage", "cut"])
def test_an_index_that_was_spoilt_is_made_again(place: Place, index: bytes | None) -> None:
    tree = place.lease()
    tree.write("a.txt", "new\n")
    there = place.repo.path / ".git/worktrees/run/index"
    there.write_bytes(there.read_bytes()[:-30] if index is None else index)
    assert place.left(tree) == ["a.txt"]


def test_what_a_sparse_checkout_leaves_out_is_no_deletion(place: Place) -> None:
    tree = place.lease()
    tree.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    assert not (tree.path / "src").exists()
    assert place.left(tree) == []
    tree.write("a.txt", "new\n")
    tree.write("src/c.txt", "there after all\n")
    assert place.left(tree) == ["a.txt", "src/c.txt"]
    place.commit(tree, *place.left(tree))
    assert tree.git("ls-tree", "-r", "--name-only", "HEAD").split() == list(FILES)
    assert tree.show("HEAD:src/c.txt") == "there after all"


def test_what_is_staged_outside_of_a_sparse_checkout_is_committed_as_staged(place: Place) -> None:
    tree = place.lease()
    tree.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    blob = tree.git("hash-object", "-w", "--stdin", stdin="staged\n")
    tree.git("update-index", "--cacheinfo", f"100644,{blob},b.txt")
    tree.git("update-index", "--skip-worktree", "b.txt")
    assert place.left(tree) == ["b.txt"]
    place.commit(tree, "b.txt")
    assert tree.show("HEAD:b.txt") == "staged"


def test_nothing_hidden_costs_no_process(place: Place) -> None:
    tree = place.lease()
    started: list[str] = []
    git = place.repo.adapter()
    git.started = lambda args, _: started.append(args[0])
    common = place.repo.path / ".git"
    trees = Worktrees(git, root=place.trees.root, common_dir=common, lock_dir=common / "runplan/locks")
    trees.state(tree.path)
    trees.close()
    git.close()
    assert started == ["status"]
