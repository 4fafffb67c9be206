"""Stops what runs and what is scheduled in a repository, whoever carries it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from runplan.adapters.clock import SystemClock
from runplan.adapters.store.schedules import Schedules
from runplan.adapters.store.sqlite import Store
from runplan.app.scheduling import give_up
from runplan.wiring import handing

if TYPE_CHECKING:
    from runplan.wiring.here import Here


def scheduled(at: Here) -> list[str]:
    """The plans of this repository that have a schedule."""
    store = at.store()
    if store is None:
        return []
    with closing(store):
        return [row.plan for row in Schedules(store).all()]


def stop(at: Here, plan: str | None, *, force: bool) -> list[str]:
    """Cancel schedules and end runs; what was stopped, a sentence each."""
    if not Store.exists(at.state):
        return []
    answer = handing.ask(at, "stop", plan, by="runplan stop", starts=False)
    told = [str(line) for line in answer.get("stopped", ())] if answer is not None else _cancelled(at, plan)
    return [*told, *_foreground(at, plan, force=force)]


def _cancelled(at: Here, plan: str | None) -> list[str]:
    """Without a daemon nobody fires them, and the next one must not."""
    with closing(Store(at.state)) as store:
        schedules = Schedules(store)
        rows = [row for row in schedules.all() if plan in (None, row.plan)]
        for row in rows:
            give_up(row, schedules, SystemClock().now(), "the schedule was cancelled")
            schedules.drop(row.plan)
        return [f"the schedule of {row.plan} (every {row.spec}) is cancelled" for row in rows]


def _foreground(at: Here, plan: str | None, *, force: bool) -> list[str]:
    """Runs of other terminals are asked to end, as Ctrl-C would; only their own process releases their claims."""
    store = at.store()
    if store is None:
        return []
    with closing(store):
        claims = {key: owner for key, (_, owner, _) in store.claims("plan").items() if plan in (None, key)}
    return [
        f"the run of {key} in process {owner.partition(':')[0]} was asked to end"
        for key, owner in claims.items()
        if handing.end_politely(owner, force=force)
    ]
