"""What is done for a repository while its desk is at a step that takes long: by other connections, in other threads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.dispatches import Dispatches
from runplan.adapters.store.sqlite import Store
from runplan.adapters.store.wishes import Wishes
from runplan.core.dispatch import GRACE_S
from runplan.core.errors import Unreachable
from runplan.core.eventtext import recorded_as
from runplan.core.run import fold, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.adapters.repositories import Repositories
    from runplan.core.rows import Wish


class Besides:
    """Finds the journals of the repositories that the daemon knows."""

    def __init__(self, known: Repositories) -> None:
        self._known = known

    def note(self, root: str, wish: Wish) -> None:
        with closing(Store(self._state(root))) as store:
            Wishes(store).note(wish)

    def end_agents(self, root: str, plan: str = "") -> list[str]:
        return end_agents(self._state(root), plan or None)

    def _state(self, root: str) -> Path:
        for one in self._known.there():
            if one.root == root:
                return Path(one.common) / "runplan"
        raise Unreachable(f"the daemon does not know {root}")


def end_agents(state: Path, plan: str | None = None, *, daemons: Sequence[bool] = (True,)) -> list[str]:
    """End the processes of the daemon's runs, or of its run of one plan; says of which plans there were any.

    `daemons`: whether of those of the daemon, or of the others.

    It is for the desk, or for the next daemon, to record it: only who holds a run writes its journal.
    """
    with closing(Store(state, writable=False)) as store:
        meant = [row for row in store.unfinished() if plan in (None, row.plan)]
        found = {row.plan: ids for row in meant if (ids := _running(store, row.id, daemons))}
    if found:
        Dispatches(state / "dispatch").end([id_ for ids in found.values() for id_ in ids], grace_s=GRACE_S)
    return list(found)


def _running(store: Store, run: str, daemons: Sequence[bool]) -> list[str]:
    facts = (recorded_as(row.type, row.body) for row in store.events(run))
    state = fold(fact for fact in facts if fact is not None)
    return running(state) if state.started is not None and state.started.daemon in daemons else []
