"""A phase that a command does: it runs with the user's rights in the main checkout, and lands by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.gitfacts import LANDING, read_trailers
from runplan.run import events as e
from runplan.run.kinds import Reason, Role
from runplan.steps import gates, proof, setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.gitfacts import Commit
    from runplan.run.actions import Action, Start
    from runplan.run.attempts import DelegateAttempt, WorkAttempt
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


def lease(phase: DelegateAttempt, context: RunContext) -> e.Leased:
    """Only the worktree of the checks is used."""
    base = phase.chosen.tip
    branch = context.branch(phase.chosen.phase)
    return e.Leased(
        phase=phase.chosen.phase,
        branch=branch,
        base=base,
        base_tree=context.objects.commit(base).tree,
        worktree=context.zone.name,
        attempt=context.store.count_leases(context.plan, branch) + 1,
    )


def already_done(action: Start, state: RunState, context: RunContext) -> tuple[e.Event, ...]:
    """A command that left no result is not repeated when the target has moved."""
    if action.dispatch.role is Role.SETUP:
        return gates.known_baselines(action, state, context) or setup.already_done(action.dispatch, state.work, context)
    if action.dispatch.role is not Role.DELEGATE:
        return proof.already_known(action, state, context)
    phase = state.work
    newest = phase.dispatches.newest
    if newest is None or newest.role is not Role.DELEGATE:
        return ()
    taken = _look_at_target(phase, context)
    return taken if len(taken) > 1 else ()


def take_delegated(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    yield from _look_at_target(state.work, context)


def _look_at_target(phase: WorkAttempt, context: RunContext) -> tuple[e.Event, ...]:
    """The work and the candidate: all commits that the target got since the phase began; or that it got none."""
    base = phase.base
    tip = context.tip()
    tree = context.objects.commit(tip).tree
    if not context.objects.is_ancestor(base, tip):
        return (e.WorkRefused(reason=Reason.OFF_BASE, detail=f"the target does not contain {base[:12]} any more"),)
    commits = context.candidates.commits(base, tip)
    if not _lands_something(phase, commits, context):
        return (e.WorkTaken(head=tip, tree=tree, commits=0),)
    oids = tuple(commit.oid for commit in commits) if commits else (tip,)
    files = tuple(change.path for change in context.candidates.changes(base, tip))
    onto_tree = context.objects.commit(base).tree
    built = e.CandidateBuilt(onto=base, onto_tree=onto_tree, commits=oids, tree=tree, patch=tree)
    return e.WorkTaken(head=tip, tree=tree, commits=len(oids), files=files), built


def _lands_something(phase: WorkAttempt, commits: tuple[Commit, ...] | None, context: RunContext) -> bool:
    """Whether a commit is not one of runplan's own landings; a merge is not."""
    if commits is None:
        return True
    ours = {fact.event.id for fact in context.store.list_facts(e.Landed, since=phase.dispatches.began)}
    return any(read_trailers(commit.message).get(LANDING) not in ours for commit in commits)
