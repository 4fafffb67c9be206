"""Carries an errand to its end in this process, or to where only a person can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from runplan.app.foreground import Interruption, Person, work
from runplan.app.holding import Declined, take_up
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.app.holding import Errand, Rooms, Voice
    from runplan.core.decide import Decision
    from runplan.core.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The run came to its end, or to where it waits."""

    run: str
    decision: Decision
    state: RunState


Answer: TypeAlias = Declined | Carried


def carry(errand: Errand, rooms: Rooms, voice: Voice, *, ask: Person, interruption: Interruption) -> Answer:
    """Own the plan, go on where the journal stands, and work until the run has ended or waits for a person."""
    while True:
        held = take_up(errand, rooms, voice)
        if isinstance(held, Declined):
            return held
        decision = work(held.journal, held.world, person=ask, interruption=interruption)
        if not held.ends:
            return Carried(run=held.world.run, decision=decision, state=held.journal.state)
