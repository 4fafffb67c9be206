"""Builds the commit that takes a landed phase back."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from runplan.app.actions.building import trailers_of
from runplan.app.actions.doing import phase_of
from runplan.core.events import CandidateBuilt, CandidateConflicted, WorkRefused
from runplan.core.gitfacts import Built, Conflicted, NothingLeft
from runplan.core.reasons import Reason
from runplan.core.trailers import UNDOES, add_trailers
from runplan.core.undo import newest_landing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.world import World
    from runplan.core.actions import BuildUndo
    from runplan.core.events import Event
    from runplan.core.run import RunState


def build_undo(action: BuildUndo, state: RunState, world: World) -> Iterator[Event]:  # noqa: ARG001
    read = phase_of(state).read
    onto = world.tip()
    found = newest_landing(world.candidates.marked(onto), plan=world.plan, phase=read.phase)
    if found is None:
        yield WorkRefused(reason=Reason.BLOCKED, detail=f"no commit on the target says that it landed {read.phase}")
        return
    code = tuple(oid for oid in found.commits if _is_code(world, oid))
    subjects = [f"    {world.objects.commit(oid).message.partition(chr(10))[0]} ({oid[:12]})" for oid in code]
    told = "\n".join([f"Undo phase {read.phase}: {read.title}", "", "This takes back:", "", *subjects])
    reverted = world.candidates.revert(
        code,
        onto=onto,
        message=add_trailers(told, (*trailers_of(world, state), (UNDOES, found.landing))),
        author=world.user,
        when=world.git_date(),
        sign=world.sign,
    )
    match reverted:
        case Built(commits=commits, tree=tree, patch=patch):
            world.candidates.anchor(world.run, commits[-1])
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


def _is_code(world: World, oid: str) -> bool:
    """Whether the commit changes more than what a landing writes beside the code."""
    parents = world.objects.commit(oid).parents
    changes = world.candidates.changes(parents[0], oid) if parents else ()
    return any(change.path not in (world.plan, world.report) for change in changes)
