"""Refuses, before any work, branches of somebody else that stand where a run would make its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters.settings import worktree_root
from runplan.adapters.worktrees import Worktrees
from runplan.app.actions.lease import leased_before, refused
from runplan.core import names
from runplan.core.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.wiring.here import Here


def require_own_branches(at: Here, *, plan: str, slug: str, phases: Iterable[str], tip: str) -> None:
    git, common = at.repository.git, at.repository.common_dir
    branches = [f"refs/heads/{names.branch(at.settings.run.branch_prefix, slug, phase)}" for phase in phases]
    there = [branch for branch in branches if git.tip(branch) is not None]
    if not there:
        return
    store = at.store()
    worktrees = Worktrees(
        git,
        root=worktree_root(at.repository.root, at.settings, at.env),
        common_dir=common,
        lock_dir=at.state / "locks",
    )
    try:
        for branch in there:
            known = store is not None and leased_before(store, plan, branch) > 0
            if refusal := refused(worktrees, branch, tip, known=known):
                raise RefusedEarly(refusal)
    finally:
        worktrees.close()
