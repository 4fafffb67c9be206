"""Finds, before anything is touched, the landing that an undo would take back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters.candidate import Candidates
from runplan.core.errors import RefusedEarly
from runplan.core.undo import newest_landing

if TYPE_CHECKING:
    from runplan.core.plan import Plan
    from runplan.wiring.here import Here


def landing_to_undo(at: Here, plan: Plan, phase: str) -> str:
    """The id of the landing; refused when no commit on the target names it."""
    candidates = Candidates(at.repository.git, common_dir=at.repository.common_dir)
    found = newest_landing(candidates.marked(at.tip()), plan=plan.path, phase=phase)
    if found is None:
        raise RefusedEarly(
            f"no commit on {at.target_name} says that it landed phase {phase} of {plan.path} (Runplan-Phase); "
            "revert its commits yourself: git revert"
        )
    return found.landing
