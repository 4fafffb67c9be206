"""A repository with worktrees of runs, and what takes them away again."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runplan.adapters.removal import Removal
from runplan.adapters.worktrees import Worktrees
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
PARKED = "refs/runplan/parked/plan/1/1"


@dataclass(kw_only=True)
class Place:
    repo: Repo
    trees: Worktrees
    removal: Removal
    base: str

    def lease(self, branch: str = BRANCH, name: str = "run") -> Repo:
        return self.repo.at(self.trees.lease(name, branch=branch, base=self.base))

    def gone(self, tree: Repo) -> bool:
        """L1, L2: neither the directory nor git's entry is left."""
        self.removal.close()
        listed = self.repo.git("worktree", "list", "--porcelain")
        return not tree.path.exists() and str(tree.path) not in listed and not (self.trees.root / ".trash").exists()


@contextmanager
def a_place(path: Path) -> Iterator[Place]:
    repo = make_repo(path / "repo", **{"a.txt": "a\n", "b.txt": "b\n", ".gitignore": "*.o\n"})
    common = repo.path / ".git"
    root, locks = path / "trees", common / "runplan/locks"
    with repo.adapter() as git:
        yield Place(
            repo=repo,
            trees=Worktrees(git, root=root, common_dir=common, lock_dir=locks),
            removal=Removal(
                git,
                root=root,
                common_dir=common,
                lock_dir=locks,
                targets=("refs/heads/main", "refs/remotes/origin/main"),
            ),
            base=repo.head(),
        )
