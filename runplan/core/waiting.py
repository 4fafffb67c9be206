"""Which facts may wait to be written together with the next ones.

A fact may wait when a run that dies before it is written finds it again: nothing has to be on disk before the next
effect, and what that effect does is done again as well. The table is in docs/crash-safety.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core import events as e
from runplan.core.dispatch import Ending

if TYPE_CHECKING:
    from runplan.core.events import Event


def may_wait(event: Event) -> bool:
    match event:
        case e.PlanRead() | e.WorkTaken() | e.CandidateBuilt() | e.GateJudged() | e.VerdictGiven() | e.CleanedUp():
            return True
        case e.Leased():
            return not event.parked  # once put aside, an earlier attempt's work is not found on the branch again
        case e.DispatchEnded():
            return event.ending == Ending.EXITED  # its shim has written that down
        case _:
            return False
