"""Gets the run's worktree onto the branch of a phase, and begins that branch anew after a conflict."""

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


def lease(action: Lease, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    branch, base = world.branch(phase.read.phase), phase.read.tip
    earlier = world.store.leases(world.plan, branch)
    refusal = refused(world.worktrees.standing, branch, base, known=bool(earlier))
    if refusal:
        yield WorkRefused(reason=Reason.BLOCKED, detail=refusal)
        return
    world.removal.free([branch])  # a git that was killed while it leased may have locked it
    parked = _put_aside(world, branch, base)
    run = world.settings.run
    # The worktree of a run that died while it leased is there, and nothing was set up in it.
    fresh = run.clean == "ignored" or not state.leased or not world.worktrees.path(world.worktree).exists()
    clean = "" if state.tidy else run.clean
    path = world.worktrees.lease(world.worktree, branch=branch, base=base, pin=world.mark, clean=clean, keep=run.copy)
    world.worktrees.copy(path, run.copy, world.root)
    yield Leased(
        phase=phase.read.phase,
        branch=branch,
        base=base,
        base_tree=world.objects.commit(base).tree,
        worktree=world.worktree,
        attempt=earlier + 1,
        fresh=fresh,
        parked=parked,
    )


def refused(standing: Callable[[str, str], BranchStanding], branch: str, base: str, *, known: bool) -> str:
    """Why the branch cannot be used: it is somebody else's. Ours, from an attempt before, is put aside instead."""
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


def _put_aside(world: RunContext, branch: str, base: str) -> str:
    """Keep what an earlier attempt left on the branch under a parked ref, and free the name."""
    if world.worktrees.tip(branch) in (None, base) and not world.worktrees.published(branch):
        return ""
    answer = world.removal.ref(branch)
    if isinstance(answer, Kept):
        raise RefusedEarly(f"the branch {branch.removeprefix('refs/heads/')} cannot be begun anew: {answer.why}")
    return answer.parked


def rebuild_branch(action: RebuildBranch, state: RunState, world: RunContext) -> Iterator[Event]:
    """The fixer starts on the target's tip; the branch as it was stays readable under a parked ref."""
    phase = phase_of(state)
    leased = phase.lease
    assert leased is not None
    branch = leased.branch
    parked = _put_aside(world, branch, action.start)
    run = world.settings.run
    world.worktrees.lease(
        world.worktree,
        branch=branch,
        base=action.start,
        pin=world.mark,
        onto=action.onto,
        clean=run.clean,
        keep=run.copy,
    )
    where = f" It conflicts in {conflicting(phase)}." if phase.conflict else ""
    kept = f"It is kept at {parked}: bring it onto this branch."
    conflict = f"The work does not apply on the target any more.{where} {kept}"
    yield BranchRebuilt(
        base=action.onto,
        base_tree=world.objects.commit(action.onto).tree,
        parked=parked,
        conflict=action.conflict,
        complaint=action.complaint or conflict,
        tree=action.tree,
    )
