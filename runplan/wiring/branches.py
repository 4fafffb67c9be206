"""Looks, before any work, at what stands where a run would make its own: of somebody else, or of a forgotten run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from runplan.adapters.settings import worktree_root
from runplan.app.actions.lease import leased_before, refused
from runplan.core import names
from runplan.core.errors import RefusedEarly
from runplan.git.worktrees import standing
from runplan.landing.recovery import BOX
from runplan.wiring import testing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.landing.recovery import Ended
    from runplan.wiring.here import Here

PATIENCE_S = 20.0  #: a landing here takes less, a push may take longer


def settle_lost_landings(at: Here) -> list[str]:
    """Bring a landing that was killed to its end, of whichever plan; what the user should know, in sentences."""
    common = at.repository.common_dir
    if not (common / BOX).exists():
        return []
    from runplan.adapters.claims import landing_lock
    from runplan.landing.cherry_pick import CherryPick

    store = at.store()
    with at.repository.git.at(at.repository.root) as git, contextlib.ExitStack() as closing:
        if store is not None:
            closing.callback(store.close)
        try:
            closing.enter_context(landing_lock(at.state / "locks").acquire(timeout=PATIENCE_S))
        except TimeoutError:
            return []  # another landing is at work, and settles these as well
        known = {row.id for row in store.unfinished()} if store else set()
        point = testing.kill_point(at.env)
        lander = CherryPick(git, ref=at.local_target, root=at.repository.root, common_dir=common, point=point)
        settled = lander.settle()
        return _told(settled, is_known=_run(settled) in known)


def _run(settled: Ended) -> str:
    return names.run_of(settled.id.rpartition(".")[0])


def _told(settled: Ended, *, is_known: bool) -> list[str]:
    if settled.waits and not is_known:  # else its run says so itself
        raise RefusedEarly(settled.waits)
    if not settled.id or is_known:
        return [settled.note] if settled.note else []
    told = f"the landing {settled.id}, which was killed and which no journal knows, was brought to its end"
    return [f"{told}; {settled.note}" if settled.note else told]


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
