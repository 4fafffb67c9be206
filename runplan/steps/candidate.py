"""Builds the candidate: the commits on the target tip, the bookkeeping, or the revert of a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from runplan.errors import PlanUnreadable
from runplan.git.candidate import Built, Conflicted, NothingLeft
from runplan.git.trailers import LANDING, PHASE, PLAN, RUN, UNDOES, add_trailers
from runplan.plan import model as plans, tracker
from runplan.plan.model import Status, parse
from runplan.plan.tracker import missing
from runplan.report import text as report
from runplan.report.text import shortened
from runplan.run import events as e
from runplan.run.events import CandidateBuilt, CandidateConflicted, CandidateEmpty, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.account import failure_sections, phase_account, undo_account
from runplan.steps.context import phase_of
from runplan.steps.undo import Undoing, landing_to_undo, taken_back_meanwhile
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.gitfacts import Commit, Identity
    from runplan.plan.model import Phase, Plan
    from runplan.run.actions import BuildCandidate, BuildUndo
    from runplan.run.events import Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext


SHORT = 7  #: digits of a commit in the tracker

Files: TypeAlias = dict[str, bytes]
Refusal: TypeAlias = e.WorkRefused | e.LandingHeld


def bookkeeping(state: RunState, world: RunContext, onto: str) -> Files | Refusal:
    """Plan and report as they land, made from the target's own texts; or why they cannot."""
    phase = phase_of(state)
    text = world.objects.blob(onto, world.plan)
    if text is None:
        return _blocked(f"{world.plan} is no longer on the target")
    try:
        plan = plans.parse(text, path=world.plan)
    except PlanUnreadable as error:
        return _blocked(str(error))
    row = plan.phase(phase.read.phase) if phase.read.phase else None
    if phase.read.phase and row is None:
        return _blocked(f"{world.plan} has no phase {phase.read.phase} any more")
    sections = failure_sections(world.store, world.plan)
    if row is not None and phase.read.choice == "undo":
        return _undone(state, world, plan, row, text, onto, sections)
    if row is not None:
        if refusal := _refusal(state, world, plan, row):
            return refusal
        assert phase.candidate is not None
        short = phase.candidate.commits[-1][:SHORT]
        text = tracker.set_status(text, path=world.plan, phase=row.id, status=plans.Status.DONE, commit=short)
        sections = [*sections, report.phase_section(phase_account(state, world))]
    if all(other.status is plans.Status.DONE for other in plan.phases if other.id != phase.read.phase):
        text = tracker.complete(text, path=world.plan, completed=world.iso())
    return _files(world, onto, plan, text, sections)


def _refusal(state: RunState, world: RunContext, plan: Plan, row: Phase) -> Refusal | None:
    """What somebody changed in the plan meanwhile that the landing must not pass over."""
    target = world.settings.run.target
    if row.status is plans.Status.DONE:
        detail = f"phase {row.id} was marked done on the target meanwhile, so another run has landed it"
        return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=detail)
    if row.text.rstrip() != phase_of(state).read.text.rstrip():
        why = (
            f"phase {row.id} was reworded on {target} while it was worked; put the wording "
            f"back, or drop this work and begin anew: {command('runplan', 'reject', world.plan)}"
        )
        return e.LandingHeld(id=landing_id(world, state), why=why)
    if waits := missing(plan, row):
        why = f"phase {row.id} depends on {', '.join(waits)}, which {target} shows as not done"
        return e.LandingHeld(id=landing_id(world, state), why=why)
    return None


def _undone(
    state: RunState, world: RunContext, plan: Plan, row: Phase, text: bytes, onto: str, sections: list[str]
) -> Files | Refusal:
    if row.status is not plans.Status.DONE:
        return taken_back_meanwhile(row.id)
    text = tracker.set_status(text, path=world.plan, phase=row.id, status=plans.Status.TODO)
    text = tracker.reopen(text, path=world.plan)
    return _files(world, onto, plan, text, [*sections, report.undo_section(undo_account(state, world))])


def _files(world: RunContext, onto: str, plan: Plan, text: bytes, sections: list[str]) -> Files:
    if not sections:
        return {world.plan: text}
    before = world.objects.blob(onto, world.report)
    old = None if before is None else before.decode("utf-8", "surrogateescape")
    whole = report.prepend(old, plan_title=plan.title, sections=sections)
    return {world.plan: text, world.report: whole.encode("utf-8", "surrogateescape")}


def _blocked(detail: str) -> e.WorkRefused:
    return e.WorkRefused(reason=Reason.BLOCKED, detail=detail)


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
