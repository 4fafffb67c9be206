"""Reverts a landed phase; checked before the run begins, and again when the revert is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.git.objects import Built, Conflicted, NothingLeft
from runplan.gitfacts import UNDOES, Unclear, add_trailers, newest_landing
from runplan.plan.model import Status, parse
from runplan.run.events import CandidateBuilt, CandidateConflicted, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.context import phase_of
from runplan.steps.land import trailers_of, undone_meanwhile
from runplan.text import bounded, command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.git.command import Git
    from runplan.git.objects import Candidates
    from runplan.gitfacts import Oid
    from runplan.plan.model import Phase, Plan
    from runplan.run.actions import Action
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


class Undoable(Struct, frozen=True, kw_only=True):
    """A landing that can be reverted."""

    landing: str
    code: tuple[Oid, ...]  #: newest first, the commits that change more than bookkeeping
    bookkeeping: tuple[str, ...]  #: plan, report and index, which are written anew and never reverted


def landing_to_undo(
    tip: Oid, plan: Plan, row: Phase, *, target: str, objects: Git, candidates: Candidates
) -> Undoable | str:
    """The phase's newest landing on `tip`, or why it cannot be reverted."""
    found = newest_landing(candidates.landed_commits(tip), plan=plan.path, phase=row.id)
    if found is None:
        why = f"no commit on {target} has the trailers of phase {row.id} of {plan.path} (Runplan-Phase)"
        return _by_hand(why, row.commit)
    if isinstance(found, Unclear):
        why = "belongs to more than one landing, or has text below its Runplan trailers"
        return _by_hand(f"the commit {found.commit[:12]} {why}", found.commit)
    changed: dict[Oid, set[str]] = {}
    for oid in found.commits:
        parents = objects.commit(oid).parents
        if len(parents) != 1 or objects.tip(parents[0]) is None:
            return _by_hand(f"the commit {oid[:12]} is a merge, or its parent is not in this clone", oid)
        changed[oid] = {change.path for change in candidates.changes(parents[0], oid)}
    # No agent may change the plan, so a commit that does is runplan's own.
    bookkeeping = {path for paths in changed.values() if plan.path in paths for path in paths}
    code = tuple(oid for oid, paths in changed.items() if paths - bookkeeping)
    if not code:
        return _by_hand(f"no commit of the landing of phase {row.id} changes code alone", found.commits[0])
    return Undoable(landing=found.landing, code=code, bookkeeping=tuple(sorted(bookkeeping)))


def _by_hand(why: str, oid: Oid) -> str:
    look = f"look at it ({command('git', 'show', oid[:12])}), " if oid else ""
    return f"{why}; {look}revert the phase yourself, and set its row to todo"


def build_undo(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    read = phase_of(state).read
    onto = context.tip()
    found = _find(context, onto, read.phase)
    if isinstance(found, WorkRefused):
        yield found
        return
    subjects = [
        f"    {bounded(context.objects.commit(oid).message.partition(chr(10))[0])} ({oid[:12]})" for oid in found.code
    ]
    message = "\n".join([f"Undo phase {read.phase}: {read.title}", "", "This reverts:", "", *subjects])
    reverted = context.candidates.revert(
        found.code,
        without=(*found.bookkeeping, *context.bookkeeping),
        onto=onto,
        message=add_trailers(message, (*trailers_of(context, state), (UNDOES, found.landing))),
        by=context.signature(),
    )
    match reverted:
        case Built(commits=commits, tree=tree, patch=patch):
            pass
        case NothingLeft():  # reverted by hand before; only row and report are left to set
            commits, tree, patch = (onto,), context.objects.commit(onto).tree, ""
        case Conflicted(paths=paths):
            yield CandidateConflicted(onto=onto, paths=paths)
            return
        case unreachable:
            assert_never(unreachable)
    yield CandidateBuilt(
        onto=onto,
        onto_tree=context.objects.commit(onto).tree,
        commits=commits,
        tree=tree,
        patch=patch,
        undoes=found.landing,
        undone=found.code,
    )


def _find(context: RunContext, onto: str, phase: str) -> Undoable | WorkRefused:
    try:
        plan = parse(context.objects.blob(onto, context.plan) or b"", path=context.plan)
    except PlanUnreadable as error:
        return WorkRefused(reason=Reason.BLOCKED, detail=str(error))
    row = plan.phase(phase)
    if row is None or row.status is not Status.DONE:
        return undone_meanwhile(phase)
    found = landing_to_undo(
        onto, plan, row, target=context.settings.run.target, objects=context.objects, candidates=context.candidates
    )
    return found if isinstance(found, Undoable) else WorkRefused(reason=Reason.BLOCKED, detail=found)
