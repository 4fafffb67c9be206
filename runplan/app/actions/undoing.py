"""Builds the commit that takes a landed phase back."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from runplan.app.actions.building import trailers_of
from runplan.app.actions.doing import phase_of
from runplan.app.undoable import Undoing, landing_to_undo, taken_back_meanwhile
from runplan.core.errors import PlanUnreadable
from runplan.core.events import CandidateBuilt, CandidateConflicted, WorkRefused
from runplan.core.gitfacts import Built, Conflicted, NothingLeft
from runplan.core.plan import Status, parse
from runplan.core.reasons import Reason
from runplan.core.report import shortened
from runplan.core.trailers import UNDOES, add_trailers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import BuildUndo
    from runplan.core.events import Event
    from runplan.core.run import RunState


def build_undo(action: BuildUndo, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    read = phase_of(state).read
    onto = world.tip()
    found = _found(world, onto, read.phase)
    if not isinstance(found, Undoing):
        yield found
        return
    code = found.code
    subjects = [
        f"    {shortened(world.objects.commit(oid).message.partition(chr(10))[0])} ({oid[:12]})" for oid in code
    ]
    told = "\n".join([f"Undo phase {read.phase}: {read.title}", "", "This takes back:", "", *subjects])
    reverted = world.candidates.revert(
        code,
        without=(*found.without, world.report),
        onto=onto,
        message=add_trailers(told, (*trailers_of(world, state), (UNDOES, found.landing))),
        author=world.user,
        when=world.git_date(),
        sign=world.sign,
    )
    match reverted:
        case Built(commits=commits, tree=tree, patch=patch):
            world.candidates.anchor(world.mark, commits[-1])
        case NothingLeft():  # somebody has reverted it by hand; the row and the report are what is left to set
            commits, tree, patch = (onto,), world.objects.commit(onto).tree, ""
        case Conflicted(paths=paths):
            yield CandidateConflicted(onto=onto, paths=paths)
            return
        case unreachable:
            assert_never(unreachable)
    yield CandidateBuilt(
        onto=onto,
        onto_tree=world.objects.commit(onto).tree,
        commits=commits,
        tree=tree,
        patch=patch,
        undoes=found.landing,
        undone=code,
    )


def _found(world: RunContext, onto: str, phase: str) -> Undoing | WorkRefused:
    text = world.objects.blob(onto, world.plan)
    try:
        plan = parse(text or b"", path=world.plan)
    except PlanUnreadable as error:
        return WorkRefused(reason=Reason.BLOCKED, detail=str(error))
    row = plan.phase(phase)
    if row is None or row.status is not Status.DONE:
        return taken_back_meanwhile(phase)
    found = landing_to_undo(
        onto, plan, row, target=world.settings.run.target, objects=world.objects, candidates=world.candidates
    )
    return found if isinstance(found, Undoing) else WorkRefused(reason=Reason.BLOCKED, detail=found.why)
