"""A user's repository with a workspace, the worktrees made from it, and their removal."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runplan.git.removal import Removal
from runplan.git.workspace import Workspace
from runplan.git.worktrees import Worktrees
from tests.support.repos import AGENT_ENV, Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
PARKED = "refs/runplan/parked/plan/1/1"
BASE = "refs/runplan/base/r1"


@dataclass(kw_only=True)
class Place:
    """The user's repository is `repo`; `lease` lends a worktree as a run would."""

    repo: Repo
    workspace: Workspace
    trees: Worktrees
    removal: Removal
    base: str

    def lease(self, branch: str = BRANCH, name: str = "run", base: str = "") -> Repo:
        path = self.trees.lease(name, branch=branch, base=base or self.base, pin="r1")
        return Repo(path=path, env=self.repo.env | AGENT_ENV)

    def take(self, branch: str = BRANCH, name: str = "run") -> str | None:
        return self.trees.take(name, branch=branch, base=self.base)

    def refs(self) -> dict[str, str]:
        """The user's refs without the one that protects the base."""
        return {name: oid for name, oid in self.repo.refs().items() if name != BASE}


@contextmanager
def a_place(path: Path, repo: Repo | None = None) -> Iterator[Place]:
    repo = repo or make_repo(path / "repo", **{"a.txt": "a\n", "b.txt": "b\n", ".gitignore": "*.o\n"})
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    state = common / "runplan"
    state.mkdir()
    targets = ("refs/heads/main", "refs/remotes/origin/main")
    with repo.adapter() as git:
        workspace = Workspace(git, common_dir=common, state=state, root=path / "trees")
        workspace.prepare()
        trees = Worktrees(workspace, lock_dir=state / "locks", mirror=targets)
        removal = Removal(workspace, trees, targets=targets)
        try:
            yield Place(repo=repo, workspace=workspace, trees=trees, removal=removal, base=repo.head())
        finally:
            workspace.close()
