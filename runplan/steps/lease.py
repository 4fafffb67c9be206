"""Checks out the branch of a phase in the run's worktree, and restarts that branch after a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import RefusedEarly
from runplan.git.removal import Kept
from runplan.run.events import BranchRebuilt, Leased, WorkRefused
from runplan.run.reasons import Reason, conflicting
from runplan.steps.context import phase_of
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runplan.git.worktrees import BranchStanding
    from runplan.run.actions import Lease, RebuildBranch
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


def lease(action: Lease, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    branch, base = context.branch(phase.read.phase), phase.read.tip
    earlier = context.store.leases(context.plan, branch)
    refusal = refused(context.worktrees.standing, branch, base, known=bool(earlier))
    if refusal:
        yield WorkRefused(reason=Reason.BLOCKED, detail=refusal)
        return
    context.removal.remove_stale_locks([branch])  # a killed git may have left a lock
    parked = _park(context, branch, base)
    run = context.settings.run
    # A run that died while it leased has left a worktree in which run.setup has not run.
    fresh = run.clean == "ignored" or not state.leased or not context.worktrees.path(context.worktree).exists()
    clean = "" if state.tidy else run.clean
    path = context.worktrees.lease(
        context.worktree, branch=branch, base=base, pin=context.mark, clean=clean, keep=run.copy
    )
    context.worktrees.copy(path, run.copy, context.root)
    yield Leased(
        phase=phase.read.phase,
        branch=branch,
        base=base,
        base_tree=context.objects.commit(base).tree,
        worktree=context.worktree,
        attempt=earlier + 1,
        fresh=fresh,
        parked=parked,
    )


def refused(standing: Callable[[str, str], BranchStanding], branch: str, base: str, *, known: bool) -> str:
    """Why the branch cannot be used: it is the user's own. A branch of an earlier attempt is parked instead."""
    if known:
        return ""
    short = branch.removeprefix("refs/heads/")
    rename = f"look at it, then: {command('git', 'branch', '-m', short, f'{short}-kept')}"
    found = standing(branch, base)
    if found.behind and not found.ahead:
        return f"the branch {short} exists and lies {_commits(found.behind)} behind the target; {rename}"
    if found.ahead and not found.by_agents:  # else the journal was lost, and the commits say whose they are
        return f"the branch {short} exists and holds {_commits(found.ahead)} that runplan did not make; {rename}"
    return ""


def _commits(number: int) -> str:
    return f"{number} commit{'' if number == 1 else 's'}"


def _park(context: RunContext, branch: str, base: str) -> str:
    """Move the work of an earlier attempt from the branch to a parked ref."""
    if context.worktrees.tip(branch) in (None, base) and not context.worktrees.published(branch):
        return ""
    answer = context.removal.ref(branch)
    if isinstance(answer, Kept):
        raise RefusedEarly(f"the branch {branch.removeprefix('refs/heads/')} cannot be restarted: {answer.why}")
    return answer.parked


def rebuild_branch(action: RebuildBranch, state: RunState, context: RunContext) -> Iterator[Event]:
    """Restart the branch on the target's tip; its former commits stay under a parked ref."""
    phase = phase_of(state)
    assert phase.lease is not None
    parked = _park(context, phase.lease.branch, action.start)
    run = context.settings.run
    context.worktrees.lease(
        context.worktree,
        branch=phase.lease.branch,
        base=action.start,
        pin=context.mark,
        onto=action.onto,
        clean=run.clean,
        keep=run.copy,
    )
    where = f" It conflicts in {conflicting(phase)}." if phase.conflict else ""
    conflict = (
        f"The work does not apply on the target any more.{where} It is kept at {parked}: bring it onto this branch."
    )
    yield BranchRebuilt(
        base=action.onto,
        base_tree=context.objects.commit(action.onto).tree,
        parked=parked,
        conflict=action.conflict,
        complaint=action.complaint or conflict,
        tree=action.tree,
    )
