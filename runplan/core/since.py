"""Since when a run does what is shown of it, waits for it, or has ended: the same however often it is read again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core.decide import decide
from runplan.core.quickclass import dataclass
from runplan.core.run import strands
from runplan.core.told import step_of

if TYPE_CHECKING:
    from runplan.core.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What was shown last, and since when."""

    at: str = ""
    steps: tuple[str, ...] = ()
    stepped: str = ""  #: when they were begun
    waiting: str = ""
    ended: bool = False


def moved(before: Since, state: RunState, at: str) -> Since:
    """The same after a fact that was recorded `at` then, and made the state of it."""
    if state.ended is not None:
        return before if before.ended else replace(before, at=at, ended=True)
    steps = tuple(step_of(one.phase) if one.phase is not None else "" for _, one in strands(state))
    stepped = before.stepped if before.stepped and steps == before.steps else at
    waiting = decide(state).waiting
    if before.waiting and not waiting and stepped == before.stepped and any(one.waits for _, one in strands(state)):
        return before  # it is looked at again, and may well have to wait on
    waits = before.at if waiting == before.waiting else at
    return Since(at=waits if waiting else stepped, steps=steps, stepped=stepped, waiting=waiting)
