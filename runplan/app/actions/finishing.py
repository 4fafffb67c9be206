"""Ends a phase and a run: nothing is left behind, and nothing that is not elsewhere is removed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.app.accounts import evidence
from runplan.app.actions.doing import phase_of
from runplan.core.events import CleanedUp, PhaseFailed, RunEnded
from runplan.core.gitfacts import Kept
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import CleanUp, Fail, Finish
    from runplan.core.events import Event
    from runplan.core.run import RunState


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
    world.point("CleanUp.dropped")
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
        world.point("Finish.worktree")
    yield RunEnded(outcome=action.outcome, reason=action.reason, detail=detail, parked=parked)
