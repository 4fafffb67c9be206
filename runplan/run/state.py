"""The state of a run and of the attempt at a phase, folded from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.run import events as e
from runplan.run.dispatch import WRITERS
from runplan.run.reasons import Reason
from runplan.run.timing import MOST_BUSY

if TYPE_CHECKING:
    from collections.abc import Iterable


class PhaseRun(Struct, frozen=True, kw_only=True):
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


class RunState(Struct, frozen=True, kw_only=True):
    """Everything the machine knows of a run."""

    started: e.RunStarted | None = None
    auto: bool = False
    plan: e.PlanRead | None = None  #: the newest reading not yet acted upon
    phase: PhaseRun | None = None
    dispatches: int = 0  #: processes started so far; numbers their ids
    landed: tuple[e.Landed, ...] = ()
    leased: bool = False  #: the run has a worktree
    tidy: bool = False  #: and it holds nothing but what git knows
    pause: e.Paused | None = None  #: what time will mend
    waits: int = 0  #: waits for the same thing in a row
    queued: bool = False  #: waits for its turn
    halted: str = ""  #: who asked that nothing new is begun
    missing: tuple[str, ...] = ()  #: the variables that a restart has lost, where that is why
    stop: str = ""
    warnings: tuple[str, ...] = ()  #: for the report, of whatever phase
    lanes: tuple[Lane, ...] = ()  #: phases worked side by side, those that have ended included
    looked: bool = False  #: whether more can begin beside them is known
    ended: e.RunEnded | None = None


class Lane(Struct, frozen=True, kw_only=True):
    """One of several phases that are worked side by side, like a run of that phase alone."""

    name: str
    phase: str
    touches: tuple[str, ...]
    state: RunState


def open_lanes(state: RunState) -> list[Lane]:
    """The lanes that have not ended."""
    return [lane for lane in state.lanes if lane.state.ended is None]


def strands(state: RunState) -> list[tuple[str, RunState]]:
    """What goes on in the run: its open lanes by name, or the run itself, which has none."""
    return [(lane.name, lane.state) for lane in open_lanes(state)] or [("", state)]


def running(state: RunState) -> list[str]:
    """The dispatches that have not been seen to end."""
    phases = (one.phase for _, one in strands(state))
    return [phase.dispatch.id for phase in phases if phase is not None and phase.dispatch is not None]


def awaiting(state: RunState) -> PhaseRun | None:
    """The phase that waits for a person, where one does; else the first that is worked."""
    phases = [one.phase for _, one in strands(state) if one.phase is not None]
    return next((phase for phase in phases if phase.asked or phase.held), phases[0] if phases else None)


def shown(state: RunState) -> PhaseRun | None:
    """The phase that stands for the run: of several side by side the first that goes on, or that it ended with."""
    if state.phase is not None or not state.lanes:
        return state.phase
    lane = next(iter(open_lanes(state)), None) or failed_lane(state) or state.lanes[-1]
    return lane.state.phase


def failed_lane(state: RunState) -> Lane | None:
    """The lane that ended first without having landed."""
    landed = ("done", "nothing-to-do")  # somebody else may have marked the phase done meanwhile
    return next((lane for lane in state.lanes if lane.state.ended and lane.state.ended.outcome not in landed), None)


def failure(state: RunState) -> e.PhaseFailed | None:
    """What the run failed at."""
    lane = failed_lane(state)
    phase = lane.state.phase if lane is not None else state.phase
    return phase.failure if phase is not None else None


def words(started: e.RunStarted) -> list[str]:
    """The words that ask for such a run, as they are said after `runplan start PLAN`."""
    first = "finish" if started.mode == "finish" else started.wanted
    return [word for word in (first, "auto" if started.auto else "", started.landing) if word]


def fold(recorded: Iterable[e.Fact]) -> RunState:
    """The state after these facts, in order."""
    state = RunState()
    for fact in recorded:
        state = apply(state, fact)
    return state


def apply(state: RunState, fact: e.Fact) -> RunState:
    """The state after one more fact."""
    if isinstance(fact, e.LaneFact):
        return _in_lane(state, fact.lane, fact.event)
    state = _apply(state, fact)
    match fact:
        case e.LanesChosen():
            return _branched(state, fact)
        case e.PlanRead() if open_lanes(state):
            return replace(state, looked=True)
        case e.RunResumed():
            each = (replace(lane, state=apply(lane.state, _for_lane(fact, lane))) for lane in state.lanes)
            return replace(state, lanes=tuple(each))
        case e.StopRequested() | e.Queued() | e.Admitted() | e.Halted() | e.Continued() | e.IssueShared():
            each = (replace(lane, state=apply(lane.state, fact)) for lane in state.lanes)
            return replace(state, lanes=tuple(each))
        case e.Approved() | e.Rejected():
            each = (_answered(lane, fact) for lane in state.lanes)
            return replace(state, lanes=tuple(each))
        case _:
            return state


def _in_lane(state: RunState, name: str, event: e.Event) -> RunState:
    if not any(lane.name == name for lane in state.lanes):
        raise KeyError(f"there is no lane {name}")
    lanes = tuple(replace(lane, state=apply(lane.state, event)) if lane.name == name else lane for lane in state.lanes)
    state = replace(state, lanes=lanes)
    if isinstance(event, e.DispatchEnded):
        return replace(state, lanes=tuple(_may_use_what_is_left(lane) for lane in lanes))
    if isinstance(event, e.Landed):
        return replace(state, landed=(*state.landed, event))
    # What has landed may have made way for others.
    return replace(state, looked=False, plan=None) if isinstance(event, e.RunEnded) else state


def _may_use_what_is_left(lane: Lane) -> Lane:
    """What an agent in another lane has not used comes back."""
    waits = lane.state.pause is not None and lane.state.pause.kind == "budget"
    return replace(lane, state=replace(lane.state, pause=None)) if waits else lane


def _branched(state: RunState, event: e.LanesChosen) -> RunState:
    """From here on the phases go their own ways, as the run was asked for."""
    assert state.started is not None
    begun = (
        Lane(
            name=name,
            phase=phase,
            touches=touches,
            state=RunState(
                started=replace(state.started, mode="phase", wanted=phase), auto=state.auto, warnings=state.warnings
            ),
        )
        for name, phase, touches in event.lanes
    )
    return replace(state, lanes=(*state.lanes, *begun), looked=True, plan=None, phase=None)


def _answered(lane: Lane, answer: e.Approved | e.Rejected) -> Lane:
    candidate = lane.state.phase.candidate if lane.state.phase else None
    meant = candidate is not None and candidate.tree == answer.tree
    return replace(lane, state=apply(lane.state, answer)) if meant else lane


def _for_lane(event: e.RunResumed, lane: Lane) -> e.RunResumed:
    return replace(event, mode="phase", wanted=lane.phase)


def _apply(state: RunState, event: e.Event) -> RunState:
    match event:
        case e.RunStarted():
            return replace(state, started=event, auto=event.auto)
        case e.RunResumed():
            return _resumed(state, event)
        case e.PlanRead(choice="next" | "all-done" | "undo"):
            return replace(state, plan=event, phase=PhaseRun(read=event))
        case e.PlanRead():
            return replace(state, plan=event, phase=None)
        case e.StopRequested():
            return replace(state, stop=event.by, pause=None)  # whatever it waited for, it need not any more
        case e.Queued() | e.Admitted() | e.Halted() | e.Continued() | e.Paused():
            return _waits(state, event)
        case e.IssueShared():
            return replace(state, warnings=(*state.warnings, event.words))
        case e.RunEnded():
            return replace(state, ended=event)
        case e.LandingMoved() if state.phase is not None and state.phase.candidate is None:
            return replace(state, plan=None, phase=None)  # only the plan was to be marked; it is read again
        case e.Woke():
            state = replace(state, pause=None)
        case e.Landed():
            state = replace(state, landed=(*state.landed, event), plan=None, waits=0)
        case e.Leased():
            state = replace(state, leased=True)
        case e.CleanedUp():
            state = replace(state, tidy=_is_tidy(state.phase))
        case e.DispatchStarted():
            state = replace(state, dispatches=state.dispatches + 1, waits=0)
        case _:
            pass
    if state.phase is None:
        return state
    return replace(state, phase=after(state.phase, event))


def _waits(state: RunState, event: e.Queued | e.Admitted | e.Halted | e.Continued | e.Paused) -> RunState:
    match event:
        case e.Queued():
            return replace(state, queued=True)
        case e.Admitted():
            return replace(state, queued=False)
        case e.Halted():
            return replace(state, halted=event.by, missing=event.missing)
        case e.Continued():
            return replace(state, halted="", missing=())
        case e.Paused():
            again = state.waits if event.kind in ("checkout", "unreachable") else 0
            return replace(state, pause=event, waits=again + 1)


def _resumed(state: RunState, event: e.RunResumed) -> RunState:
    """What is asked for now holds from here on; what was proven with other checks is proven again."""
    assert state.started is not None
    was = state.started
    started = replace(
        handed_over(was, event),
        mode=event.mode,
        wanted=event.wanted,
        max_fix_cycles=event.max_fix_cycles,
        test_command=event.test_command,
        setup=event.setup,
        clean=event.clean,
        parallel=event.parallel,
    )
    phase = replace(state.phase, held="", asked="") if state.phase else None
    checks = (was.test_command, was.setup, was.clean)
    if phase is not None and checks != (started.test_command, started.setup, started.clean):
        phase = replace(phase, baseline=None, gates=(), set_up=False, prepared="")
    state = replace(state, pause=None, waits=0, halted="", missing=())
    return replace(state, started=started, auto=event.auto, phase=phase, tidy=False)


def handed_over(started: e.RunStarted, event: e.RunResumed) -> e.RunStarted:
    """A run that began in the foreground is the daemon's when the daemon is asked to go on with it."""
    return replace(started, daemon=True, needs=event.needs) if event.daemon else started


def _is_tidy(phase: PhaseRun | None) -> bool:
    """Whether the verifier was the last to be in the worktree, and left nothing there."""
    return phase is not None and phase.verdict is not None and phase.verdict.pristine and phase.moves == 0
