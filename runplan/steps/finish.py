"""Hands a phase over, and ends a phase and a run: nothing that is not elsewhere is removed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.agents.context import READING, Standing, note, reading_of
from runplan.checks import returns
from runplan.errors import GitFailed
from runplan.git.removal import Kept
from runplan.run.dispatch import WRITERS, Outcome, Return
from runplan.run.events import CleanedUp, HandedOver, HandoverArmed, PhaseFailed, RunEnded, WorkRefused
from runplan.run.reasons import Reason, percent_full
from runplan.steps.account import evidence
from runplan.steps.context import phase_of
from runplan.steps.judge import return_text
from runplan.steps.work import commit_leftovers
from runplan.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Await, CleanUp, Fail, Finish, HandOver
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext


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
    why = f"its context was {percent_full(reading.percent, estimated=reading.estimated)}"
    message = world.agents.redacted(reading.message)
    leased = phase.lease
    assert leased is not None
    head = world.worktrees.committed(leased.worktree, branch=leased.branch, base=phase.base)
    text = plain(note(_standing(phase, world, action.id, message=message, head=head, why=why, at_work=True)))
    world.dispatches.write(action.id, NOTE, text)
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


def fail(action: Fail, state: RunState, world: RunContext) -> Iterator[Event]:
    phase = phase_of(state)
    kept = world.worktrees.publish(phase.lease.branch, base=phase.base) if phase.lease else ""
    tree = phase.work.tree if phase.work else ""
    stuck = _is_stuck(action, phase.read.phase, tree, world)
    yield PhaseFailed(
        phase=phase.read.phase,
        reason=Reason.NO_PROGRESS if stuck else action.reason,
        step=action.step,
        detail=f"the same tree and the same failure as the attempt before: {action.detail}" if stuck else action.detail,
        tree=tree,
        title=phase.read.title,
        attempt=phase.lease.attempt if phase.lease else 1,
        branch=kept.removeprefix("refs/heads/"),
        parked=phase.parked,
        evidence=evidence(action.reason, state, world),
        dispatch=f"{world.mark}.{state.dispatches}" if phase.first else "",
        rejected=phase.rejected or "",
    )


def _is_stuck(action: Fail, phase: str, tree: str, world: RunContext) -> bool:
    """Whether the attempt before failed for the same reason with the very same work."""
    if action.reason == Reason.STOPPED:  # a person ended both
        return False
    rows = [json.loads(row.body) for row in world.store.facts(world.plan, "PhaseFailed")] if tree else []
    before = [row for row in rows if row["phase"] == phase][-1:]
    reasons = (action.reason, Reason.NO_PROGRESS)
    return any(row.get("tree") == tree and row["reason"] in reasons and row["step"] == action.step for row in before)


def clean_up(action: CleanUp, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    branch = phase.lease.branch if phase.lease else ""
    tip = world.worktrees.tip(branch) if branch else None
    if phase.landed is not None and phase.lease is not None and phase.work is not None and tip == phase.work.head:
        refs = {branch: tip, world.candidate: world.objects.tip(world.candidate) or ""}
        path = world.worktrees.path(phase.lease.worktree)
        world.removal.landed({ref: oid for ref, oid in refs.items() if oid}, worktree=path)
    else:
        world.candidates.drop(world.mark)
        if branch:
            world.worktrees.hand_over(branch, base=phase.base)
    yield CleanedUp(phase=phase.read.phase)


def finish(action: Finish, state: RunState, world: RunContext) -> Iterator[Event]:
    detail, parked = action.detail, ""
    world.worktrees.unpin(world.mark)  # a run that is stopped while it leases has a pin and no lease
    if state.leased:
        answer = world.removal.worktree(world.worktree)
        if isinstance(answer, Kept):
            detail = f"{detail}; {answer.what} was kept: {answer.why}".lstrip("; ")
        else:
            parked = answer.parked
    yield RunEnded(outcome=action.outcome, reason=action.reason, detail=detail, parked=parked)
