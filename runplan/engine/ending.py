"""Ends agents by what the journal says, where the worker that owns their runs does not answer."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from runplan.adapters.dispatches import Dispatches
from runplan.core.dispatch import GRACE_S
from runplan.core.eventtext import recorded_as
from runplan.core.run import fold, running
from runplan.store.sqlite import Store

if TYPE_CHECKING:
    from pathlib import Path


def end_agents(state: Path, plan: str = "") -> list[str]:
    """End the processes of all runs, or of the run of one plan; the plans that had any.

    The owner of a run, or the next one, records it: nobody else writes its journal.
    """
    with closing(Store(state, writable=False)) as store:
        meant = [row for row in store.unfinished() if plan in ("", row.plan)]
        found = {row.plan: ids for row in meant if (ids := _running(store, row.id))}
    if found:
        Dispatches(state / "dispatch").end([id_ for ids in found.values() for id_ in ids], grace_s=GRACE_S)
    return list(found)


def _running(store: Store, run: str) -> list[str]:
    facts = (recorded_as(row.type, row.body) for row in store.events(run))
    return running(fold(fact for fact in facts if fact is not None))
