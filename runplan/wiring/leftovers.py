"""Finds what ended runs left behind, leaving alone what a run that has not ended still uses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.adapters.removal import Removal
from runplan.adapters.settings import worktree_root
from runplan.core import names
from runplan.core.gitfacts import Kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.core.gitfacts import Removed
    from runplan.wiring.here import Here


def collect(at: Here, *, dry_run: bool) -> list[Removed | Kept]:
    removal = Removal(
        at.repository.git,
        root=worktree_root(at.repository.root, at.settings, at.env),
        common_dir=at.repository.common_dir,
        lock_dir=at.state / "locks",
        target=at.target,
    )
    try:
        found = removal.gc(dry_run=dry_run, prefix=at.settings.run.branch_prefix, active=set(_in_use(at)))
    finally:
        removal.close()
    return [*found, *_unreadable_claims(at)]


def _unreadable_claims(at: Here) -> Iterator[Kept]:
    from runplan.adapters.claims import readable

    store = at.store()
    for plan, (_, owner, fence) in (store.claims("plan") if store else {}).items():
        if not readable(owner, fence):
            why = f"it cannot be read ({owner!r}); if nobody works on the plan: runplan gc --release {plan}"
            yield Kept(what=f"the claim on {plan}", why=why)


def release(at: Here, plan: str) -> bool:
    """Drop a plan's claim that cannot be read; False when there is none."""
    from runplan.adapters.claims import Claims
    from runplan.adapters.store.sqlite import Store

    if not Store.exists(at.state):
        return False
    store = Store(at.state)
    try:
        return Claims(store, at.state / "locks").release_unreadable(plan)
    finally:
        store.close()


def _in_use(at: Here) -> Iterator[str]:
    """Branches, candidates and worktrees of runs that have not ended."""
    store = at.store()
    for row in store.unfinished() if store else []:
        yield f"refs/runplan/candidate/{row.id}"
        for fact in store.events(row.id) if store else []:
            if fact.type == "RunStarted":
                yield names.worktree_name(str(at.repository.root), json.loads(fact.body)["slug"])
            elif fact.type == "Leased":
                yield json.loads(fact.body)["branch"]
