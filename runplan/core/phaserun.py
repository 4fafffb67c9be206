"""One attempt at one phase, folded from the journal of its run."""

from __future__ import annotations

from dataclasses import replace

from runplan.core import events as e
from runplan.core.quickclass import dataclass
from runplan.core.reasons import Reason
from runplan.core.roles import WRITERS
from runplan.core.waits import MOST_BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRun:
    """One attempt at one phase, as far as it has come."""

    read: e.PlanRead
    lease: e.Leased | None = None
    base: str = ""  #: where the branch begins; moves when it is rebuilt after a conflict
    base_tree: str = ""
    set_up: bool = False  #: run.setup has run since the worktree was leased
    prepared: str = ""  #: the tree run.setup was last run on, and nothing else since
    first: str = ""  #: the first agent that was started for the phase
    authors: tuple[str, ...] = ()  #: the agents that have written for it
    baseline: e.BaselineKnown | None = None
    cycle: int = 1  #: 1 is the implementer's, each fix adds one
    dispatch: e.DispatchStarted | None = None  #: alive, or not yet seen to have ended
    ended: e.DispatchEnded | None = None  #: ended, and not yet judged
    again: tuple[e.DispatchStarted, ...] = ()  #: those that tried the work of a crashed one once more
    lost: int = 0  #: dispatches that vanished without a trace, in a row
    limited: int = 0  #: usage limits met in a row
    busy: int = 0  #: overloaded providers met in a row
    armed: e.HandoverArmed | None = None  #: what the last writer left, in case it does not come to its end
    handovers: tuple[e.HandedOver, ...] = ()
    failed_tree: str = ""  #: the tree the fixer was sent to mend
    errand: str = ""  #: what the fixer is told
    work: e.WorkTaken | None = None
    candidate: e.CandidateBuilt | None = None
    gates: tuple[e.GateJudged, ...] = ()  #: on the candidate's tree
    verdict: e.VerdictGiven | None = None
    conflict: e.CandidateConflicted | None = None
    unsolved: e.CandidateConflicted | None = None  #: the conflict that a fixer was sent to solve
    parked: str = ""  #: the ref that keeps the work as it was before that conflict
    rebuilt: int = 0
    asked: str = ""  #: the tree a person was asked about
    approved: str = ""  #: the tree a person said yes to
    landing: e.LandingStarted | None = None
    held: str = ""
    moves: int = 0
    landed: e.Landed | None = None
    failure: e.PhaseFailed | None = None
    rejected: str | None = None  #: what a person said against the candidate; None when nobody rejected it
    refusal: tuple[str, str] | None = None  #: a reason found and its detail, not yet recorded as the failure
    warnings: tuple[str, ...] = ()
    cleaned: bool = False


def after(phase: PhaseRun, event: e.Event) -> PhaseRun:
    """The attempt after one more event."""
    match event:
        case e.Leased():
            return replace(phase, lease=event, base=event.base, base_tree=event.base_tree, set_up=not event.fresh)
        case e.BaselineKnown():
            return replace(phase, baseline=event, ended=None)
        case e.DispatchStarted():
            return _started(phase, event)
        case e.DispatchEnded():
            return _ended(phase, event)
        case e.Woke(kind="checkout"):
            return replace(phase, held="")
        case e.HandoverArmed():
            return replace(phase, armed=event)
        case e.HandedOver():
            return replace(phase, handovers=(*phase.handovers, event), ended=None, armed=None)
        case e.GuardFound():
            worse = ("guard-violated", "; ".join(event.lines)) if event.violated else phase.refusal
            return replace(phase, refusal=worse, warnings=(*phase.warnings, *event.lines))
        case e.WorkTaken():
            return replace(phase, work=event, ended=None, candidate=None, armed=None)
        case e.WorkRefused():
            return replace(phase, refusal=phase.refusal or (event.reason, event.detail), ended=None)
        case e.GateJudged():
            return replace(phase, gates=(*phase.gates, event), ended=None)
        case e.VerdictGiven():
            return replace(phase, verdict=event, ended=None)
        case _:
            return _apply_landing(phase, event)


def _apply_landing(phase: PhaseRun, event: e.Event) -> PhaseRun:
    match event:
        case e.CandidateBuilt():
            return _built(phase, event)
        case e.CandidateConflicted():
            return replace(phase, conflict=event)
        case e.CandidateEmpty():
            return replace(phase, refusal=("already-on-target", "every change of the phase is on the target"))
        case e.BranchRebuilt():
            return _rebuilt(phase, event)
        case e.ApprovalAsked():
            return replace(phase, asked=event.tree)
        case e.Approved():
            return replace(phase, approved=event.tree, asked="")
        case e.Rejected() if phase.candidate is None or event.tree in ("", phase.candidate.tree):
            told = "the candidate was rejected" + (f": {event.why}" if event.why else "")
            return replace(phase, refusal=("stopped", told), rejected=event.why, asked="")
        case e.LandingStarted():
            return replace(phase, landing=event, held="")
        case e.LandingHeld():
            return replace(phase, landing=None, held=event.why)
        case e.LandingMoved():
            return replace(phase, landing=None, candidate=None, moves=phase.moves + (not event.ours))
        case e.LandingRefused():
            return replace(phase, landing=None, refusal=(Reason.PROTECTED, event.why))
        case e.Landed():
            return replace(phase, landing=None, landed=event)
        case e.PhaseFailed():
            return replace(phase, failure=event)
        case e.CleanedUp():
            return replace(phase, cleaned=True)
        case _:
            return phase


def _rebuilt(phase: PhaseRun, event: e.BranchRebuilt) -> PhaseRun:
    if event.conflict:
        phase = replace(phase, rebuilt=phase.rebuilt + 1, gates=(), verdict=None)
        phase = replace(phase, unsolved=phase.conflict, parked=event.parked)
    return replace(
        phase,
        base=event.base,
        base_tree=event.base_tree,
        errand=event.errand,
        failed_tree=event.tree,
        cycle=phase.cycle + 1,
        conflict=None,
        work=None,
        candidate=None,
    )


def _started(phase: PhaseRun, event: e.DispatchStarted) -> PhaseRun:
    if event.agent:
        phase = replace(phase, first=phase.first or event.id)
    if event.again:
        told = (*phase.warnings, f"{event.again}; it was tried once more")
        phase = replace(phase, again=(*phase.again, event), ended=None, warnings=told)
    if event.role != "fix":
        return replace(phase, dispatch=event)
    return replace(
        phase,
        dispatch=event,
        cycle=event.cycle,
        failed_tree=event.tree,
        errand=event.complaint,
        work=None,
        candidate=None,
    )


def _ended(phase: PhaseRun, event: e.DispatchEnded) -> PhaseRun:
    tree = phase.dispatch.tree if phase.dispatch else ""
    phase = replace(phase, dispatch=None, prepared="", authors=_authors(phase, event))
    if event.ending in ("lost", "ended"):
        # Nobody's fault and nobody's work: the same dispatch is due again.
        return replace(phase, lost=phase.lost + (event.ending == "lost"))
    if event.role == "setup" and event.ending == "exited" and event.code == 0:
        return replace(phase, set_up=True, prepared=tree, lost=0)
    if event.kind == "limit":
        return replace(phase, limited=phase.limited + 1)
    if event.kind == "overloaded" and phase.busy < MOST_BUSY:
        return replace(phase, busy=phase.busy + 1)
    return replace(phase, ended=event, lost=0, limited=0, busy=0)


def _authors(phase: PhaseRun, event: e.DispatchEnded) -> tuple[str, ...]:
    """Whoever came to write; one that its provider sent away at once did not."""
    wrote = event.agent and event.role in WRITERS and event.kind not in ("limit", "overloaded")
    return (*phase.authors, event.agent) if wrote and event.agent not in phase.authors else phase.authors


def _built(phase: PhaseRun, event: e.CandidateBuilt) -> PhaseRun:
    """A verdict carries over to another tree when the phase's own change is the same; gates and baselines never do."""
    gates = phase.gates if phase.gates and phase.gates[-1].tree == event.tree else ()
    keeps = phase.verdict is not None and phase.verdict.patch == event.patch
    baseline = phase.baseline if phase.baseline and phase.baseline.tree == event.onto_tree else None
    return replace(
        phase,
        candidate=event,
        conflict=None,
        unsolved=None,
        baseline=baseline,
        gates=gates,
        verdict=phase.verdict if keeps else None,
        asked="",
        approved=phase.approved if phase.approved == event.tree else "",
    )
