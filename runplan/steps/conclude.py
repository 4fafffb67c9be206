"""After the last phase: the lander brings the landed phases to the target, and repairs what is in its way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from runplan.forge.model import ForgeBusy
from runplan.landing.lander import Failed, Landed, NeedsRepair, Progress, Waiting
from runplan.landing.pull_request import PullRequestLander
from runplan.run import events as e
from runplan.steps.context import phase_of
from runplan.times import delay_s, iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Action
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext

LONGEST_S = 600.0  #: between two looks at the forge
CONFLICT = (
    "The target was merged into this branch, with conflict markers in {}. Resolve them: keep what both sides mean, "
    "and leave no marker."
)


def _lander(context: RunContext) -> PullRequestLander:
    assert isinstance(context.lander, PullRequestLander)
    return context.lander


def conclude(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    assert state.started is not None
    progress = Progress(
        may_merge=state.started.auto,
        repairs=state.repairs,
        max_repairs=state.started.max_fix_cycles,
        updates=state.updates,
        pushed=tuple(one.event.new for one in context.store.facts(e.LandingStarted, plan=context.plan)),
    )
    now = context.clock.now()
    try:
        with context.claims.landing_lock():
            answer = _lander(context).conclude(progress, now=now.timestamp())
    except ForgeBusy as busy:
        yield e.Paused(kind="merge", until=iso(now + timedelta(seconds=busy.wait_s)), words=str(busy))
        return
    match answer:
        case Landed(note=note):
            yield e.Concluded(note=note)
        case Waiting(kind=kind, why=why):
            first_s = context.settings.pull_request.poll_s
            wait_s = delay_s(state.waits + 1, first_s=first_s, longest_s=max(first_s, LONGEST_S), factor=1.5)
            yield e.Paused(kind=kind, until=iso(now + timedelta(seconds=wait_s)), words=why)
        case NeedsRepair():
            yield _repair(answer, context)
        case Failed(reason=reason, why=why):
            yield e.Concluded(reason=reason, note=why)
        case unreachable:
            assert_never(unreachable)


def _repair(needed: NeedsRepair, context: RunContext) -> e.PlanRead:
    """A repair is worked on as a phase that is in no plan."""
    return e.PlanRead(
        tip=context.tip(),
        choice="repair",
        title=needed.title,
        text=context.agents.redacted(needed.complaint),
        items=(("P", "The problem is solved, and nothing else has changed."),),
        merge=(_lander(context).target_tip() or "") if needed.merge else "",
    )


def merge_target(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.lease is not None
    tip = phase.read.tip
    tree, conflicts = context.candidates.merge(tip, phase.read.merge)
    made = context.candidates.commit(tree, onto=tip, message=f"{phase.read.title}\n", by=context.signature())
    if not conflicts:
        yield e.WorkTaken(head=made, tree=tree, commits=1, files=())
        return
    run = context.settings.run
    context.worktrees.lease(
        context.worktree,
        branch=phase.lease.branch,
        base=made,
        pin=context.mark,
        onto=tip,
        clean=run.clean,
        keep=run.copy,
    )
    complaint = CONFLICT.format(", ".join(conflicts))
    yield e.CandidateConflicted(onto=tip, paths=conflicts)
    yield e.BranchRebuilt(base=made, base_tree=tree, parked=phase.parked, complaint=complaint)
