"""Looks, before any work, at what stands where a run would make its own: of somebody else, or of a forgotten run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from runplan.adapters.settings import worktree_root
from runplan.app.actions.lease import leased_before, refused
from runplan.core import names
from runplan.core.errors import RefusedEarly
from runplan.git.worktrees import standing
from runplan.wiring import testing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.wiring.here import Here

PATIENCE_S = 20.0  #: a landing here takes less, a push may take longer


def settle_lost_landings(at: Here) -> list[str]:
    """End what killed landings left in checkouts, of whatever plan; the ids of those that no journal knows."""
    git_dirs = [at.repository.common_dir, *at.repository.common_dir.glob("worktrees/*")]
    if not any(one for directory in git_dirs for one in directory.glob("runplan.hold.*")):
        return []
    from runplan.adapters.claims import landing_lock
    from runplan.adapters.lostholds import settle_lost

    store = at.store()
    point = testing.kill_point(at.env)
    with at.repository.git.at(at.repository.root) as git, contextlib.ExitStack() as closing:
        point.watch_git(git)
        if store is not None:
            closing.callback(store.close)
        try:
            closing.enter_context(landing_lock(at.state / "locks").acquire(timeout=PATIENCE_S))
        except TimeoutError:
            return []  # whoever lands all that time ends these as well
        return settle_lost(
            git,
            root=at.repository.root,
            common_dir=at.repository.common_dir,
            target=at.target,
            known={row.id for row in store.unfinished()} if store else (),
            point=point,
        )


def require_nobody_inside(at: Here, slug: str) -> None:
    """Refuse a worktree in which an agent of a forgotten run still works: two would get in each other's way."""
    from runplan.adapters.processtable import this_table
    from runplan.git.removal import processes_inside

    place = worktree_root(at.repository.root, at.settings, at.env) / names.worktree_name(str(at.repository.root), slug)
    if not place.is_dir():
        return
    table = this_table()
    agents = [str(pid) for pid in processes_inside(place.resolve()) if table.mark(pid)]
    if agents:
        raise RefusedEarly(
            f"an agent of a run that no journal knows still works in {place}; wait for it, or end it: "
            f"kill {' '.join(agents)}"
        )


def require_own_branches(at: Here, *, plan: str, slug: str, phases: Iterable[str], tip: str) -> None:
    require_nobody_inside(at, slug)
    git = at.repository.git
    branches = [f"refs/heads/{names.branch(at.settings.run.branch_prefix, slug, phase)}" for phase in phases]
    store = at.store()
    for branch in (branch for branch in branches if git.tip(branch) is not None):
        known = store is not None and leased_before(store, plan, branch) > 0
        if refusal := refused(lambda ref, base: standing(git, ref, base), branch, tip, known=known):
            raise RefusedEarly(refusal)
