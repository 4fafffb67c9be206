"""Builds the candidate: the phase's commits on the target's tip, dressed as they will land."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from runplan.app.actions.doing import phase_of
from runplan.core.events import CandidateBuilt, CandidateConflicted, CandidateEmpty, WorkRefused
from runplan.core.gitfacts import Built, Conflicted, NothingLeft
from runplan.core.reasons import Reason
from runplan.core.trailers import LANDING, PHASE, PLAN, RUN, UNDOES, add_trailers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import BuildCandidate
    from runplan.core.events import Event
    from runplan.core.gitfacts import Commit, Identity
    from runplan.core.run import RunState


def build_candidate(action: BuildCandidate, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.work is not None
    if world.objects.tip(phase.work.head) is None:
        yield WorkRefused(reason=Reason.NO_COMMITS, detail=f"the commits of {phase.work.head[:12]} are gone from git")
        return
    onto = world.tip()
    trailers = trailers_of(world, state)

    def dress(commit: Commit) -> tuple[str, Identity, str]:
        author = commit.author if world.settings.run.author == "agent" else world.user
        message = (phase.read.title or f"Phase {phase.read.phase}") if phase.handovers else commit.message
        return add_trailers(message, trailers), author, commit.authored

    replayed = world.candidates.replay(
        base=phase.base,
        head=phase.work.head,
        onto=onto,
        dress=dress,
        committer=world.user,
        when=world.git_date(),
        sign=world.sign,
        whole=bool(phase.handovers),
    )
    match replayed:
        case Built(commits=commits, tree=tree, patch=patch):
            world.candidates.anchor(world.mark, commits[-1])
            world.point("BuildCandidate.anchored")
            onto_tree = world.objects.commit(onto).tree
            yield CandidateBuilt(onto=onto, onto_tree=onto_tree, commits=commits, tree=tree, patch=patch)
        case Conflicted(paths=paths):
            yield CandidateConflicted(onto=onto, paths=paths)
        case NothingLeft():
            yield CandidateEmpty(onto=onto)
        case unreachable:
            assert_never(unreachable)


def landing_id(world: RunContext, state: RunState) -> str:
    """One landing per phase of a run, however often its candidate is rebuilt: whichever lands first is the one."""
    return f"{world.mark}.{len(state.landed) + 1}"


def trailers_of(world: RunContext, state: RunState) -> tuple[tuple[str, str], ...]:
    """What every landed commit says of where it comes from."""
    phase = phase_of(state)
    undoes = phase.candidate.undoes if phase.candidate else ""
    return (
        (PLAN, world.plan),
        (PHASE, phase.read.phase or "complete"),
        (RUN, world.run),
        (LANDING, landing_id(world, state)),
        *([(UNDOES, undoes)] if undoes else []),
    )
