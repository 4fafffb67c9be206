"""The loop: fold, decide, observe, do, record. There is no other, not even for recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.errors import RefusedEarly, RunplanError, SettingsError
from runplan.run.actions import Action, End, LaneAction
from runplan.run.decide import Decision, decide, ends, without_beginnings
from runplan.run.dispatch import GRACE_S
from runplan.run.events import WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.registry import DOINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.steps.context import RunContext
    from runplan.store.journal import Journal, Strand


class StandsStill(Exception):
    """The machine asks for what it has just got; a fault of ours, never of the user's."""


def always() -> bool:
    return True


def advance(journal: Journal, world: RunContext, begins: Callable[[], bool] = always) -> Decision:
    """Take every step that is due; return when the run has ended or waits for something outside.

    Calling it late or twice is harmless: everything it knows it reads from the journal and from the world. As soon as
    `begins` does not hold any more, nothing new is begun.
    """
    try:
        return _advance(journal, world, begins)
    finally:
        world.store.flush()


def _advance(journal: Journal, world: RunContext, begins: Callable[[], bool]) -> Decision:
    last: Decision | None = None
    while (decision := _due(journal, begins)).actions:
        if decision == last:
            # Facts were recorded and changed nothing: going on would do the same for ever.
            raise StandsStill(f"{decision.why}: {decision.actions} was done and is due again")
        last = decision
        _end_together(decision, world)
        taken = [_take(action, journal, world) for action in decision.actions]
        if not any(taken):  # only processes that are still running
            break
    return decision


def _end_together(decision: Decision, world: RunContext) -> None:
    """Processes that are to end are ended at the same time: it would take long, one after the other."""
    plain = [action.action if isinstance(action, LaneAction) else action for action in decision.actions]
    if ids := [action.id for action in plain if isinstance(action, End)]:
        world.dispatches.end(ids, grace_s=GRACE_S)


def record_ends(journal: Journal, world: RunContext) -> None:
    """Every process of the run was ended by us: that charges nobody, and the same is due again afterwards."""
    for action in ends(journal.state):
        _take(action, journal, world)


def _take(action: Action, journal: Journal, world: RunContext) -> bool:
    if not isinstance(action, LaneAction):
        return take(action, journal, world)
    try:
        return take(action.action, journal.strand(action.lane), replace(world, lane=action.lane))
    except RunplanError as error:
        error.lane = action.lane
        raise


def _due(journal: Journal, begins: Callable[[], bool]) -> Decision:
    decision = decide(journal.state)
    return decision if begins() else without_beginnings(decision)


def take(action: Action, journal: Journal | Strand, world: RunContext) -> bool:
    """One action: has it happened already? If not, do it. A fact that may not wait is on disk before the next one."""
    doing = DOINGS[type(action)]
    recorded = False
    world.store.require_there()  # what is not there tells nothing, and nothing is made there
    try:
        done = doing.observe(action, journal.state, world) or doing.do(action, journal.state, world)
        for event in done:
            journal.append(event)
            recorded = True
    except (RefusedEarly, SettingsError) as error:
        # What would have been refused at the door came up in the middle: the phase ends with it, by name.
        phase = journal.state.phase
        if phase is None or phase.failure is not None or phase.landed is not None:
            raise
        journal.append(WorkRefused(reason=Reason.BLOCKED, detail=str(error)))
        recorded = True
    return recorded
