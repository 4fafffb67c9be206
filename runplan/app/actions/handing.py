"""Hands a phase over: what the agent made goes onto its branch, and a note tells the next one where it stands.

The note is written before there is need of it, when the context fills, for an agent that does not come to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.app.actions.leftovers import commit_leftovers
from runplan.app.actions.returned import return_text
from runplan.core import returns
from runplan.core.dispatch import WRITERS, Outcome, Return
from runplan.core.errors import GitFailed
from runplan.core.events import HandedOver, HandoverArmed, WorkRefused
from runplan.core.gauge import READING, reading_of
from runplan.core.handoff import Standing, note
from runplan.core.terminal import plain
from runplan.core.told import full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import Await, HandOver
    from runplan.core.events import Event
    from runplan.core.run import PhaseRun, RunState

NOTE = "handoff.md"


def arm(action: Await, state: RunState, world: RunContext) -> Iterator[Event]:
    """Prepare the hand-over of an agent whose context fills, once; the agent goes on.

    Nothing is asked of its worktree: git would read there what an agent at work can write, filters for instance.
    """
    phase = phase_of(state)
    if action.role not in WRITERS or (phase.armed is not None and phase.armed.id == action.id):
        return
    reading = reading_of(world.dispatches.read(action.id, READING))
    if reading is None:
        return
    why = f"its context was {full(reading.percent, estimated=reading.estimated)}"
    message = world.agents.redacted(reading.message)
    leased = phase.lease
    assert leased is not None
    head = world.worktrees.committed(leased.worktree, branch=leased.branch, base=phase.base)
    text = plain(note(_standing(phase, world, action.id, message=message, head=head, why=why, at_work=True)))
    world.dispatches.write(action.id, NOTE, text)
    world.point("Await.noted")
    yield HandoverArmed(id=action.id, percent=reading.percent, estimated=reading.estimated, note=text)


def hand_over(action: HandOver, state: RunState, world: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    assert phase.ended is not None
    number = len(phase.handovers) + 1
    head = commit_leftovers(phase, world, message=f"wip: {world.slug} phase {phase.read.phase} hand-over {number}\n")
    if isinstance(head, WorkRefused):
        yield head
        return
    outcome = world.dispatches.standing(phase.ended.id)
    message = outcome.message if isinstance(outcome, Outcome) else ""
    text = plain(note(_standing(phase, world, phase.ended.id, message=message, head=head, why=action.why)))
    world.dispatches.write(phase.ended.id, NOTE, text)
    tree = world.objects.commit(head).tree
    yield HandedOver(number=number, head=head, tree=tree, note=text, why=action.why)


def _standing(
    phase: PhaseRun, world: RunContext, id: str, *, message: str, head: str, why: str, at_work: bool = False
) -> Standing:
    told = returns.parse_return(return_text(world, id), message)
    return Standing(
        number=len(phase.handovers) + 1,
        why=why,
        at_work=at_work,
        plan=world.plan,
        phase=phase.read.phase,
        items=phase.read.items,
        done=tuple(item.item for item in told.items if item.passed) if isinstance(told, Return) else (),
        summary=told.summary if isinstance(told, Return) else "",
        files=_files(phase, world, head, sure=not at_work),
        message=message,
        commit=head,
    )


def _files(phase: PhaseRun, world: RunContext, head: str, *, sure: bool) -> tuple[str, ...]:
    """What was committed so far; an agent at work that breaks its repository is met at its end, not here."""
    try:
        return tuple(change.path for change in world.candidates.changes(phase.base, head))
    except GitFailed:
        if sure:
            raise
        return ()
