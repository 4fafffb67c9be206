"""What gates and verifiers are shown is the commit, byte for byte, whatever was left for git to believe."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.ownindex import OWN_INDEX
from runplan.adapters.worktrees import Worktrees
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
FILES = {"a.txt": "a\n", "src/b.txt": "b\n", "src/c.txt": "c\n", ".gitignore": "*.o\n.gitattributes\nelse\n"}


@dataclass(kw_only=True)
class Place:
    repo: Repo
    trees: Worktrees
    base: str

    def lease(self) -> Repo:
        return self.repo.at(self.trees.lease("run", branch=BRANCH, base=self.base))

    def entry(self) -> Path:
        return self.repo.path / ".git/worktrees/run"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repo(tmp_path_factory.mktemp("model") / "repo", **FILES).path


@pytest.fixture
def place(model: Path, tmp_path: Path) -> Iterator[Place]:
    repo = Repo(path=shutil.copytree(model, tmp_path / "repo"))
    git = repo.adapter()
    lock_dir = repo.path / ".git/runplan/locks"
    trees = Worktrees(git, root=tmp_path / "trees", common_dir=repo.path / ".git", lock_dir=lock_dir)
    yield Place(repo=repo, trees=trees, base=repo.head())
    trees.close()
    git.close()


def seen(tree: Repo) -> dict[str, bytes]:
    there = [path for path in tree.path.rglob("*") if path.is_file() and path.name != ".git"]
    return {str(path.relative_to(tree.path)): path.read_bytes() for path in there}


def as_bytes(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}


# --- what an agent can leave ----------------------------------------------------------------------------


def _hides_a_file(tree: Repo, place: Place) -> None:
    tree.git("update-index", "--skip-worktree", "a.txt")
    tree.write("a.txt", "hidden\n")


def _hides_it_in_our_copy(tree: Repo, place: Place) -> None:
    _hides_a_file(tree, place)
    shutil.copy2(place.entry() / "index", place.entry() / OWN_INDEX)


def _puts_a_link_in_its_place(tree: Repo, place: Place) -> None:
    _hides_a_file(tree, place)
    (place.entry() / OWN_INDEX).unlink()
    (place.entry() / OWN_INDEX).symlink_to(place.entry() / "index")


def _puts_a_folder_in_its_place(tree: Repo, place: Place) -> None:
    _hides_a_file(tree, place)
    (place.entry() / OWN_INDEX).unlink()
    (place.entry() / OWN_INDEX).mkdir()


def _puts_a_pipe_in_its_place(tree: Repo, place: Place) -> None:
    _hides_a_file(tree, place)
    (place.entry() / OWN_INDEX).unlink()
    os.mkfifo(place.entry() / OWN_INDEX)


def _sets_its_time(tree: Repo, place: Place) -> None:
    was = (tree.path / "a.txt").stat()
    (tree.path / "a.txt").write_text("A\n")
    os.utime(tree.path / "a.txt", ns=(was.st_atime_ns, was.st_mtime_ns))
    os.utime(place.entry() / OWN_INDEX, ns=(was.st_mtime_ns + 10**15, was.st_mtime_ns + 10**15))


def _splits_the_index(tree: Repo, place: Place) -> None:
    tree.git("update-index", "--split-index")
    _hides_it_in_our_copy(tree, place)


def _writes_attributes(tree: Repo, place: Place) -> None:
    tree.write(".gitattributes", "*.txt working-tree-encoding=UTF-16LE\n")
    tree.write("src/b.txt", "other\n")


def _writes_attributes_further_down(tree: Repo, place: Place) -> None:
    tree.write("src/.gitattributes", "*.txt eol=crlf\n")
    tree.write("src/b.txt", "other\n")


def _leaves_files_out(tree: Repo, place: Place) -> None:
    tree.git("sparse-checkout", "set", "--no-cone", "/a.txt", "/.gitignore")


def _moves_a_folder_away(tree: Repo, place: Place) -> None:
    (tree.path / "src").rename(tree.path / "else")
    (tree.path / "src").symlink_to("else")


LEAVES = [
    _hides_a_file,
    _hides_it_in_our_copy,
    _puts_a_link_in_its_place,
    _puts_a_folder_in_its_place,
    _puts_a_pipe_in_its_place,
    _sets_its_time,
    _splits_the_index,
    _writes_attributes,
    _writes_attributes_further_down,
    _leaves_files_out,
    _moves_a_folder_away,
]


@pytest.mark.parametrize("clean", ["ignored", "untracked"])
@pytest.mark.parametrize("leaves", LEAVES)
def test_the_commit_is_shown_whatever_was_left(place: Place, leaves: Callable[[Repo, Place], None], clean: str) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"d.txt": "d\n"})
    leaves(tree, place)
    place.trees.show(tree.path, tip, clean=clean)
    found = seen(tree)
    # What a commit ignores stays where only the untracked goes; it is nothing that git obeys.
    assert {name: found[name] for name in found if not name.startswith("else/")} == as_bytes(FILES | {"d.txt": "d\n"})
    assert (tree.path / "src").is_symlink() is False


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_was_left_where_it_was_looked_at_is_not_believed_later(
    place: Place, leaves: Callable[[Repo, Place], None]
) -> None:
    tree = place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    leaves(tree, place)  # a verifier, or tests that an agent has written
    place.trees.attach("run", branch=BRANCH)
    place.trees.show(tree.path, place.base, clean="ignored")
    assert seen(tree) == as_bytes(FILES)


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_a_failed_attempt_left_is_not_believed_in_the_next(
    place: Place, leaves: Callable[[Repo, Place], None]
) -> None:
    tree = place.lease()
    leaves(tree, place)
    place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    assert seen(tree) == as_bytes(FILES)


def test_another_process_believes_no_index_of_this_one(place: Place) -> None:
    tree = place.lease()
    _hides_it_in_our_copy(tree, place)
    root = place.trees.root
    common = place.repo.path / ".git"
    with place.repo.adapter() as git:
        other = Worktrees(git, root=root, common_dir=common, lock_dir=common / "runplan/locks")
        other.show(tree.path, place.base, clean="ignored")
        other.close()
    assert seen(tree) == as_bytes(FILES)


def test_files_that_nobody_touched_are_not_written_again(place: Place) -> None:
    tree = place.lease()
    before = (tree.path / "src/c.txt").stat().st_ino
    tip = tree.commit("work", **{"src/b.txt": "B\n"})
    place.trees.show(tree.path, tip, clean="ignored")
    assert seen(tree) == as_bytes(FILES | {"src/b.txt": "B\n"})
    assert (tree.path / "src/c.txt").stat().st_ino == before


def test_a_replacement_is_not_seen(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"src/b.txt": "EVIL\n"})
    place.repo.git("replace", f"{tip}:src", f"{place.base}:src")
    place.trees.show(tree.path, tip, clean="ignored")
    assert seen(tree)["src/b.txt"] == b"EVIL\n"
    with place.repo.adapter() as git:
        assert git.blob(tip, "src/b.txt") == b"EVIL\n"
