"""The state of a run and of the attempt at a phase, folded from the journal."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.run import events as e
from runplan.run.dispatch import MAX_OVERLOADS, WRITERS
from runplan.run.reasons import Beginning, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


GOOD = ("done", "nothing-to-do")  #: outcomes of a lane; another run may have finished its phase
#: Waits after which the same thing is looked at again.
REPEATED_WAITS = ("checkout", "unreachable", "parent", "checks", "review", "merge")


class PhaseRun(Struct, frozen=True, kw_only=True):
    """One attempt at one phase."""

    chosen: e.Chosen
    lease: e.Leased | None = None
    base: str = ""  #: start of the branch; moves when the branch is rebuilt
    base_tree: str = ""
    set_up: bool = False  #: run.setup has run in the agents' worktree since it was leased
    proof_set_up: bool = False  #: likewise in the proof worktree
    prepared: str = ""  #: the tree on which run.setup ran last in the proof worktree
    authors: tuple[str, ...] = ()  #: the agents that have written
    baselines: dict[str, e.BaselineKnown] = {}  #: by check; on the base, or on the target that the candidate is on
    cycle: int = 1  #: 1 is the implementer's, each fix adds one
    newest: e.DispatchStarted | None = None  #: the last one
    dispatch: e.DispatchStarted | None = None  #: its end is not recorded yet
    began: str = ""  #: when the first process of its role and cycle started
    ended: e.DispatchEnded | None = None  #: ended, and not yet judged
    again: tuple[e.DispatchStarted, ...] = ()  #: repetitions after a crash
    lost: int = 0  #: lost dispatches in a row
    limited: int = 0  #: usage limits in a row
    busy: int = 0  #: overloaded providers in a row
    handovers: tuple[e.HandedOver, ...] = ()
    failed_tree: str = ""  #: the tree that the fixer has to fix
    complaint: str = ""  #: what is wrong with it
    cycles: tuple[str, ...] = ()  #: why each fix cycle began, with the failed items
    work: e.WorkTaken | None = None
    broken: e.RulesBroken | None = None  #: no fixer was started for it yet
    breaks: int = 0  #: how often rules were broken
    candidate: e.CandidateBuilt | None = None
    gates: tuple[e.GateJudged, ...] = ()  #: on the candidate's tree
    proofs: tuple[e.ProofJudged, ...] = ()  #: on the candidate's tree
    verdicts: tuple[e.VerdictGiven, ...] = ()  #: on the candidate's patch, one of each verifier
    unresolved: e.EvidenceUnresolved | None = None  #: what the next verifier is asked for once more
    written: str = ""  #: the newest dispatch of a writer
    drift: e.DriftFound | None = None
    is_last: bool = False  #: a run of all phases ends with it
    conflict: e.CandidateConflicted | None = None
    unsolved: e.CandidateConflicted | None = None  #: the conflict that the fixer has to solve
    parked: str = ""  #: the ref that keeps the work as it was before that conflict
    rebuilt: int = 0
    asked: str = ""  #: the tree that waits for approval
    approved: str = ""  #: the tree that a person approved
    landing: e.LandingStarted | None = None
    held: str = ""
    moves: int = 0
    landed: e.Landed | None = None
    failure: e.PhaseFailed | None = None
    rejected: str | None = None  #: a person's reason; None when not rejected
    refusal: tuple[str, str] | None = None  #: reason and detail of a failure that is not recorded yet
    warnings: tuple[str, ...] = ()
    cleaned: bool = False

    @property
    def verdict(self) -> e.VerdictGiven | None:
        """The newest verdict."""
        return self.verdicts[-1] if self.verdicts else None

    @property
    def judged(self) -> dict[str, e.GateJudged]:
        """The newest judgement of each gate on the candidate's tree."""
        return {gate.name: gate for gate in self.gates}

    @property
    def proven(self) -> dict[e.ProofKind, e.ProofJudged]:
        """The newest judgement of each proof on the candidate's tree."""
        return {proof.kind: proof for proof in self.proofs}

    @property
    def questions(self) -> e.Rows:
        """The tests of the base that the new code breaks, each with an id: which item demands that?"""
        promises = dict.fromkeys(promise for proof in self.proven.values() for promise in proof.promises)
        words = "passed on the base, and that version of it does not pass on the new code"
        return tuple((f"T{n}", f"{promise.test} {words}: {promise.why}") for n, promise in enumerate(promises, 1))

    def questions_to_verifiers(self, changed: str) -> e.Rows:
        """These questions, unless `tests.changed` gives them to a person or refuses the change."""
        return self.questions if changed == "verify" else ()

    @property
    def failed(self) -> e.Rows:
        """The items that the newest verdict fails, with the evidence."""
        items = self.verdict.items if self.verdict is not None else ()
        return tuple((item, evidence) for item, passed, evidence in items if not passed)

    @property
    def red(self) -> e.Rows:
        """The checks with output for the fixer."""
        return tuple((gate.name, gate.output) for gate in self.judged.values() if gate.output)

    @property
    def squash(self) -> bool:
        """Whether the work lands as one commit, under the title of the phase."""
        return bool(self.handovers) or (self.work is not None and self.work.squash)

    @property
    def leased(self) -> e.Leased:
        """The lease, for steps that are due only with one."""
        assert self.lease is not None
        return self.lease

    @property
    def built(self) -> e.CandidateBuilt:
        """The candidate, for steps that are due only with one."""
        assert self.candidate is not None
        return self.candidate


def after(phase: PhaseRun, event: e.Event) -> PhaseRun:
    """The attempt after one more event."""
    match event:
        case e.Leased():
            return _leased(phase, event)
        case e.BaselineKnown():
            return replace(phase, baselines={**phase.baselines, event.name: event}, ended=None)
        case e.DispatchStarted():
            return _started(phase, event)
        case e.DispatchEnded():
            return _ended(phase, event)
        case e.HandedOver():
            return replace(phase, handovers=(*phase.handovers, event), ended=None)
        case e.GuardFound():
            worse = (Reason.GUARD_VIOLATED, "; ".join(event.lines)) if event.violated else phase.refusal
            return replace(phase, refusal=worse, warnings=(*phase.warnings, *event.lines))
        case e.WorkTaken():
            return replace(phase, work=event, ended=None, candidate=None, warnings=(*phase.warnings, *event.lines))
        case e.RulesBroken():
            warnings = (*phase.warnings, *(f"a fixer was told: {line}" for line in event.lines))
            phase = replace(phase, ended=None, gates=(), verdicts=(), warnings=warnings)
            return replace(phase, broken=event, breaks=phase.breaks + 1)
        case e.WorkRefused():
            return replace(phase, refusal=phase.refusal or (event.reason, event.detail))
        case e.CandidateBuilt():
            return _built(phase, event)
        case e.CandidateConflicted():
            return replace(phase, conflict=event)
        case e.BranchRebuilt():
            return _rebuilt(phase, event)
        case _:
            return _judged(phase, event)


def _judged(phase: PhaseRun, event: e.Event) -> PhaseRun:
    match event:
        case e.GateJudged():
            return replace(phase, gates=(*phase.gates, event), ended=None)
        case e.ProofJudged():
            return replace(phase, proofs=(*phase.proofs, event), ended=None)
        case e.VerdictGiven():
            return replace(phase, verdicts=(*phase.verdicts, event), unresolved=None, ended=None)
        case e.EvidenceUnresolved():
            named = ", ".join(item for item, _ in event.items)
            asked = f"the verifier was asked once more, because its evidence for {named} did not resolve"
            return replace(phase, unresolved=event, ended=None, warnings=(*phase.warnings, asked))
        case e.DriftFound():
            refusal = (Reason.DRIFT, event.abort) if event.abort else None
            return replace(phase, drift=event, refusal=phase.refusal or refusal)
        case _:
            return _landing(phase, event)


def _leased(phase: PhaseRun, event: e.Leased) -> PhaseRun:
    phase = replace(phase, lease=event, base=event.base, base_tree=event.base_tree)
    phase = replace(phase, set_up=not event.fresh, proof_set_up=not event.fresh)
    if (kept := event.kept) is None:
        return phase
    phase = replace(phase, authors=kept.authors)
    if kept.beginning is not Beginning.FIX:
        return phase
    return _to_fix(phase, tree=kept.tree, complaint=kept.complaint, cycle=2)


def _landing(phase: PhaseRun, event: e.Event) -> PhaseRun:
    match event:
        case e.FinalVerificationDue():
            return replace(phase, is_last=True)
        case e.ApprovalAsked():
            return replace(phase, asked=event.tree)
        case e.Answered(approved=True):
            return replace(phase, approved=event.tree, asked="")
        case e.Answered() if phase.candidate is None or event.tree in ("", phase.candidate.tree):
            detail = "the change was rejected" + (f": {event.why}" if event.why else "")
            return replace(phase, refusal=(Reason.STOPPED, detail), rejected=event.why, asked="")
        case e.Woke(kind="checkout"):
            return replace(phase, held="")
        case e.LandingStarted():
            return replace(phase, landing=event, held="")
        case e.LandingHeld():
            return replace(phase, landing=None, held=event.why)
        case e.LandingMoved():
            return replace(phase, landing=None, candidate=None, moves=phase.moves + (not event.ours))
        case e.LandingRefused():
            return replace(phase, landing=None, refusal=(Reason(event.reason), event.why))
        case e.Landed():
            return replace(phase, landing=None, landed=event)
        case e.PhaseFailed():
            return replace(phase, failure=event)
        case e.CleanedUp():
            return replace(phase, cleaned=True)
        case _:
            return phase


def _to_fix(phase: PhaseRun, *, tree: str, complaint: str, cycle: int) -> PhaseRun:
    if cycle != phase.cycle:
        failed = "".join(f"\n  {item}: {evidence}" for item, evidence in phase.failed)
        phase = replace(phase, cycles=(*phase.cycles, f"Fix cycle {cycle - 1}: {complaint}{failed}"))
    phase = replace(phase, cycle=cycle, failed_tree=tree, complaint=complaint)
    return replace(phase, work=None, broken=None, candidate=None)


def _rebuilt(phase: PhaseRun, event: e.BranchRebuilt) -> PhaseRun:
    if not event.tree:  # a conflict
        phase = replace(phase, rebuilt=phase.rebuilt + 1, gates=(), verdicts=(), parked=event.parked)
        phase = replace(phase, unsolved=phase.conflict)
    phase = replace(phase, base=event.base, base_tree=event.base_tree, conflict=None)
    return _to_fix(phase, tree=event.tree, complaint=event.complaint, cycle=phase.cycle + 1)


def _started(phase: PhaseRun, event: e.DispatchStarted) -> PhaseRun:
    same = phase.newest is not None and (phase.newest.role, phase.newest.cycle) == (event.role, event.cycle)
    phase = replace(phase, began=phase.began if same else event.at, newest=event, dispatch=event)
    if event.again and event.agent:
        warnings = (*phase.warnings, f"{event.again}; it was tried once more")
        phase = replace(phase, again=(*phase.again, event), ended=None, warnings=warnings)
    if event.role in WRITERS:
        phase = replace(phase, written=event.id)
    if event.role != "fix":
        return phase
    return _to_fix(phase, tree=event.tree, complaint=event.complaint, cycle=event.cycle)


def _ended(phase: PhaseRun, event: e.DispatchEnded) -> PhaseRun:
    tree = phase.dispatch.tree if phase.dispatch else ""
    phase = replace(phase, dispatch=None)
    is_busy = event.kind == "overloaded" and phase.busy < MAX_OVERLOADS
    if event.role in WRITERS and event.kind not in ("limit", "overloaded") and event.agent not in ("", *phase.authors):
        phase = replace(phase, authors=(*phase.authors, event.agent))
    if event.ending in ("lost", "ended"):  # the same dispatch is due again
        if event.role not in WRITERS:  # after run.setup, whose products may have changed
            phase = replace(phase, prepared="", proof_set_up=False)
        return replace(phase, lost=phase.lost + (event.ending == "lost"))
    if event.role == "setup" and event.ending == "exited" and event.code == 0:
        done = replace(phase, proof_set_up=True, prepared=tree) if tree else replace(phase, set_up=True)
        return replace(done, lost=0)
    if is_busy or event.kind == "limit":
        return replace(phase, busy=phase.busy + is_busy, limited=phase.limited + (not is_busy))
    return replace(phase, ended=event, lost=0, limited=0, busy=0)


def _built(phase: PhaseRun, event: e.CandidateBuilt) -> PhaseRun:
    """A verdict stays valid for another tree when the patch is the same; gates and baselines do not."""
    return replace(
        phase,
        candidate=event,
        conflict=None,
        unsolved=None,
        baselines={name: one for name, one in phase.baselines.items() if one.tree == event.onto_tree},
        gates=tuple(gate for gate in phase.gates if gate.tree == event.tree),
        proofs=tuple(proof for proof in phase.proofs if proof.tree == event.tree),
        verdicts=tuple(one for one in phase.verdicts if one.patch == event.patch),
        unresolved=phase.unresolved if phase.unresolved and phase.unresolved.patch == event.patch else None,
        asked="",
        approved=phase.approved if phase.approved == event.tree else "",
    )


class RunState(Struct, frozen=True, kw_only=True):
    """Everything that the journal says about a run."""

    started: e.RunStarted | None = None
    no_work: e.NoWork | None = None  #: why no further phase is due
    phase: PhaseRun | None = None
    dispatches: int = 0  #: processes started so far; numbers their ids
    tokens: int = 0  #: sent and received, by agents that have ended
    usd: float = 0.0
    unpriced: bool = False  #: an agent reported tokens but no cost
    landed: tuple[e.Landed, ...] = ()
    leased: bool = False  #: the run has a worktree
    pause: e.Paused | None = None
    waited: str = ""  #: the kind of the last wait
    waits: int = 0  #: waits for the same thing in a row
    queued: bool = False
    halted: str = ""  #: who paused the run
    missing: tuple[str, ...] = ()  #: the variables that a restart has lost
    stop: str = ""  #: who stopped the run
    warnings: tuple[str, ...] = ()  #: for the report of every phase
    lanes: tuple[Lane, ...] = ()  #: phases side by side, ended ones included
    is_lane: bool = False  #: one of several phases that run side by side
    concluded: e.Concluded | None = None
    review: e.Rows = ()  #: comments of reviewers that are to be handled
    claimed: bool = False  #: the forge shows that the run works on its issues
    repairs: int = 0  #: fixes of failed checks on the forge
    updates: int = 0  #: merges of the target into the branch
    looked: bool = False  #: the plan was searched for further phases that can start
    ended: e.RunEnded | None = None

    @property
    def options(self) -> e.RunStarted:
        """The options of the run, for steps that are due only in one."""
        assert self.started is not None
        return self.started

    @property
    def current(self) -> PhaseRun:
        """The current phase, for steps that are due only in one."""
        assert self.phase is not None
        return self.phase


class Lane(Struct, frozen=True, kw_only=True):
    """One of several phases that run side by side, with the state of a run of that phase alone."""

    name: str
    phase: str
    touches: tuple[str, ...]
    state: RunState


# --- questions ----------------------------------------------------------------------------------------


def open_lanes(state: RunState) -> list[Lane]:
    return [lane for lane in state.lanes if lane.state.ended is None]


def open_states(state: RunState) -> list[tuple[str, RunState]]:
    """The open lanes by name, or the run itself under "" when it has none."""
    return [(lane.name, lane.state) for lane in open_lanes(state)] or [("", state)]


def running(state: RunState) -> list[str]:
    """The dispatches whose end is not recorded."""
    phases = (one.phase for _, one in open_states(state))
    return [phase.dispatch.id for phase in phases if phase is not None and phase.dispatch is not None]


def awaiting(state: RunState) -> PhaseRun | None:
    """The phase that waits for a person, else the first open one."""
    phases = [one.phase for _, one in open_states(state) if one.phase is not None]
    return next((phase for phase in phases if phase.asked or phase.held), phases[0] if phases else None)


def shown(state: RunState) -> PhaseRun | None:
    """The phase that represents the run: the first open lane, else the failed one, else the last."""
    if state.phase is not None or not state.lanes:
        return state.phase
    lane = next(iter(open_lanes(state)), None) or failed_lane(state) or state.lanes[-1]
    return lane.state.phase


def failed_lane(state: RunState) -> Lane | None:
    """The first lane that ended without a landing."""
    return next((lane for lane in state.lanes if lane.state.ended and lane.state.ended.outcome not in GOOD), None)


def failure(state: RunState) -> e.PhaseFailed | None:
    lane = failed_lane(state)
    phase = lane.state.phase if lane is not None else state.phase
    return phase.failure if phase is not None else None


# --- the fold -----------------------------------------------------------------------------------------


def fold(events: Iterable[e.Event]) -> RunState:
    return functools.reduce(apply, events, RunState())


def apply(state: RunState, fact: e.Event) -> RunState:
    """The state after one more fact."""
    if fact.lane and not state.is_lane:
        return _in_lane(state, fact.lane, fact)
    state = _apply(state, fact)
    match fact:
        case e.LanesChosen():
            return _branched(state, fact)
        case e.Chosen() | e.NoWork() if open_lanes(state):
            return replace(state, looked=True)
        case e.RunResumed():
            return _each(state, lambda lane: apply(lane.state, replace(fact, mode="phase", wanted=lane.phase)))
        case e.StopRequested() | e.Queued() | e.Admitted() | e.Halted() | e.Continued() | e.IssueShared():
            return _each(state, lambda lane: apply(lane.state, fact))
        case e.Answered():
            return _each(state, lambda lane: apply(lane.state, fact) if _is_meant(lane, fact.tree) else lane.state)
        case _:
            return state


def _each(state: RunState, change: Callable[[Lane], RunState]) -> RunState:
    return replace(state, lanes=tuple(replace(lane, state=change(lane)) for lane in state.lanes))


def _is_meant(lane: Lane, tree: str) -> bool:
    candidate = lane.state.phase.candidate if lane.state.phase else None
    return candidate is not None and candidate.tree == tree


def _in_lane(state: RunState, name: str, event: e.Event) -> RunState:
    state = _each(state, lambda lane: apply(lane.state, event) if lane.name == name else lane.state)
    match event:
        case e.DispatchEnded():  # it gives back the part of the budget that it did not use
            return _each(state, _without_budget_pause)
        case e.Landed():
            return replace(state, landed=(*state.landed, event))
        case e.RunEnded():  # a landing may allow further phases to start
            return replace(state, looked=False, no_work=None)
        case _:
            return state


def _without_budget_pause(lane: Lane) -> RunState:
    waits = lane.state.pause is not None and lane.state.pause.kind == "budget"
    return replace(lane.state, pause=None) if waits else lane.state


def _branched(state: RunState, event: e.LanesChosen) -> RunState:
    begun = []
    for name, phase, touches in event.lanes:
        started = replace(state.options, mode="phase", wanted=phase)
        alone = RunState(started=started, warnings=state.warnings, is_lane=True)
        begun.append(Lane(name=name, phase=phase, touches=touches, state=alone))
    return replace(state, lanes=(*state.lanes, *begun), looked=True, no_work=None, phase=None)


def _apply(state: RunState, event: e.Event) -> RunState:
    match event:
        case e.RunStarted():
            return replace(state, started=event, review=event.review, warnings=event.remarks)
        case e.RunResumed():
            return _resumed(state, event)
        case e.Chosen():
            return _begun(state, event)
        case e.NoWork():
            return replace(state, no_work=event, phase=None)
        case e.StopRequested():
            return replace(state, stop=event.by, pause=None)
        case e.Queued() | e.Admitted():
            return replace(state, queued=isinstance(event, e.Queued))
        case e.Halted():
            return replace(state, halted=event.by, missing=event.missing)
        case e.Continued():
            return replace(state, halted="", missing=())
        case e.Paused():
            is_again = event.kind in REPEATED_WAITS and event.kind == state.waited
            return replace(state, pause=event, waited=event.kind, waits=state.waits + 1 if is_again else 1)
        case e.IssueShared():
            return replace(state, warnings=(*state.warnings, event.words))
        case e.IssuesMarked():
            return replace(state, claimed=True, warnings=(*state.warnings, *event.notes))
        case e.RunEnded():
            return replace(state, ended=event)
        case e.Concluded():
            return replace(state, concluded=event)
        case e.LandingMoved() if state.phase is not None and state.phase.candidate is None:
            return replace(state, no_work=None, phase=None)  # only the plan was to be marked; it is read again
        case _:
            state = _counted(state, event)
            return replace(state, phase=after(state.phase, event)) if state.phase is not None else state


def _begun(state: RunState, chosen: e.Chosen) -> RunState:
    state = replace(state, no_work=None, phase=PhaseRun(chosen=chosen, warnings=chosen.remarks))
    match chosen:
        case e.MergeChosen():
            return replace(state, updates=state.updates + 1, review=())
        case e.RepairChosen(review=review):
            return replace(state, repairs=state.repairs + (not review), review=())
        case _:
            return state


def _counted(state: RunState, event: e.Event) -> RunState:
    """The fields of the run that change with events of its phase."""
    match event:
        case e.Woke():
            return replace(state, pause=None)
        case e.Landed():
            return replace(state, landed=(*state.landed, event), no_work=None, waits=0)
        case e.Leased():
            return replace(state, leased=True)
        case e.DispatchStarted():
            return replace(state, dispatches=state.dispatches + 1, waits=0)
        case e.DispatchEnded():
            tokens = event.input_tokens + event.output_tokens
            unpriced = state.unpriced or bool(tokens and not event.usd)
            return replace(state, tokens=state.tokens + tokens, usd=state.usd + event.usd, unpriced=unpriced)
        case _:
            return state


def _resumed(state: RunState, event: e.RunResumed) -> RunState:
    """The new options hold from now on; the settings stay."""
    started = replace(state.options, mode=event.mode, wanted=event.wanted, auto=event.auto)
    if event.daemon:  # a foreground run belongs to the daemon once the daemon was asked to resume it
        started = replace(started, daemon=True, needs=event.needs)
    phase = replace(state.phase, held="", asked="") if state.phase else None
    state = replace(state, pause=None, waits=0, halted="", missing=())
    handled = phase.chosen.review if phase and isinstance(phase.chosen, e.RepairChosen) else ()
    known = {id_ for landed in state.landed for id_ in landed.review}.union(handled)
    review = tuple(row for row in event.review if row[0] not in known) or state.review
    return replace(state, started=started, phase=phase, review=review)
