"""Hands a phase over: what the agent made goes onto its branch, and a note tells the next one where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.app.actions.leftovers import commit_leftovers
from runplan.app.actions.watching import return_text
from runplan.core import returns
from runplan.core.dispatch import Outcome, Return
from runplan.core.events import HandedOver, WorkRefused
from runplan.core.handoff import Standing, note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.world import World
    from runplan.core.actions import HandOver
    from runplan.core.events import Event
    from runplan.core.run import RunState


def hand_over(action: HandOver, state: RunState, world: World) -> Iterator[Event]:
    phase = phase_of(state)
    assert phase.ended is not None
    number = len(phase.handovers) + 1
    head = commit_leftovers(phase, world, message=f"wip: {world.slug} phase {phase.read.phase} hand-over {number}\n")
    if isinstance(head, WorkRefused):
        yield head
        return
    outcome = world.dispatches.standing(phase.ended.id)
    message = outcome.message if isinstance(outcome, Outcome) else ""
    told = returns.parse_return(return_text(world, phase.ended.id), message)
    standing = Standing(
        number=number,
        why=action.why,
        items=phase.read.items,
        done=tuple(item.item for item in told.items if item.passed) if isinstance(told, Return) else (),
        summary=told.summary if isinstance(told, Return) else "",
        files=tuple(change.path for change in world.candidates.changes(phase.base, head)),
        message=message,
        commit=head,
    )
    text = note(standing)
    world.dispatches.write(phase.ended.id, "handoff.md", text)
    tree = world.objects.commit(head).tree
    yield HandedOver(number=number, head=head, tree=tree, note=text, why=action.why)
