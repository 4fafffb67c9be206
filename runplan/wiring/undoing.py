"""Finds, before anything is touched, the landing that an undo would take back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters.candidate import Candidates
from runplan.adapters.processes import alive
from runplan.app.undoable import Standing, landing_to_undo
from runplan.core.errors import RefusedEarly

if TYPE_CHECKING:
    from runplan.adapters.store.sqlite import Store
    from runplan.core.plan import Phase, Plan
    from runplan.wiring.here import Here


def require_undoable(at: Here, plan: Plan, phase: Phase) -> None:
    """Refuse what cannot be taken back, with the commit that speaks against it."""
    git, common = at.repository.git, at.repository.common_dir
    candidates = Candidates(git, common_dir=common)
    found = landing_to_undo(at.tip(), plan, phase, target=at.target_name, objects=git, candidates=candidates)
    if isinstance(found, Standing):
        shallow = "; this clone is shallow, and the commit may be further down: git fetch --deepen=100"
        more = shallow if (common / "shallow").exists() and "--deepen" not in found.why else ""
        raise RefusedEarly(f"{found.why}{more}")


def living_owner(store: Store, plan: str) -> str:
    """Who works on the plan right now; "" for nobody who lives."""
    claim = store.claim("plan", plan)
    return claim[1] if claim is not None and alive(claim[1]) else ""
