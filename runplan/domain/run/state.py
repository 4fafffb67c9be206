"""The state of a run, folded from the journal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import HostChanged, PlanningChosen, RevisionRequested, StepCrashed
from runplan.domain.run.attempts import Attempt, PlanningAttempt, WorkAttempt, begin_attempt
from runplan.domain.run.kinds import REPEATED_WAITS, Mode, Reason, WaitKind
from runplan.domain.standing.usage import AgentUsage, sum_usage


class RunState(Struct, frozen=True, kw_only=True):
    """A run, or one of its phases side by side, which follows the same rules as a run of its own."""

    lane: str = ""  #: its name among the lanes of a run; "" for the run
    touches: tuple[str, ...] = ()  #: paths of the phase of a lane
    started: e.RunStarted | None = None
    no_work: e.NoWork | None = None  #: why no further phase is due
    attempt: Attempt | None = None
    dispatches: int = 0  #: processes started so far; numbers their ids
    usage: AgentUsage = AgentUsage()  #: of agents that have ended
    near: tuple[str, ...] = ()  #: limits that were nearly used up when its newest agent began
    landed: tuple[e.Landed, ...] = ()
    pulls: tuple[str, ...] = ()  #: number and address of each open pull request
    leased: bool = False  #: the run has a worktree
    labels: tuple[str, ...] | None = None  #: of the host that owns the run; None without a fleet
    pause: e.Paused | None = None
    waited: WaitKind | None = None  #: the kind of the last wait
    waits: int = 0  #: waits for the same thing in a row
    crashes: int = 0  #: defects of runplan itself since the last landing, or since a person continued the run
    crash: str = ""  #: the last of them
    queued: bool = False
    halted: str = ""  #: who paused the run
    missing: tuple[str, ...] = ()  #: the variables that a restart has lost
    stop: str = ""  #: who stopped the run
    warnings: tuple[str, ...] = ()  #: for the report of every phase
    lanes: tuple[RunState, ...] = ()  #: phases side by side, ended ones included
    after: str = ""  #: the phase that has to land before this one is proven
    base: str = ""  #: the commit of that phase that this one begins on
    is_dropped: bool = False  #: the lane is ended, because it began on work that does not land so
    zone: str = ""  #: the lane whose worktree its agents use
    proof: str = ""  #: the lane whose proof worktree it uses
    concluded: e.Concluded | None = None
    review: tuple[e.ReviewItem, ...] = ()  #: comments of reviewers that are to be handled
    claimed: bool = False  #: the forge shows that the run works on its issues
    claim_at: str = ""  #: when a claim that met a rate limit is shown
    repairs: int = 0  #: fixes of failed checks on the forge
    reviews: tuple[str, ...] = ()  #: repairs for messages on a pull request, by its group of a stack
    updates: int = 0  #: merges of the target into the branch
    revision: e.Planning | None = None  #: of the plan, that a person wants before the next phase
    revisions: int = 0  #: of the plan, in a run of its phases
    looked: bool = False  #: the plan was searched for further phases that can start
    host: str = ""  #: of a fleet, which owns the run; "" without a fleet
    home: str = ""  #: the host with the files of the attempt
    ended: e.RunEnded | None = None

    @property
    def options(self) -> e.RunStarted:
        assert self.started is not None
        return self.started

    @property
    def chosen(self) -> e.Chosen | None:
        return self.attempt.chosen if self.attempt is not None else None

    @property
    def running(self) -> e.DispatchStarted | None:
        return self.attempt.dispatches.running if self.attempt is not None else None

    @property
    def questions(self) -> tuple[e.QuestionAsked, ...]:
        return self.attempt.dispatches.open_questions if self.attempt is not None else ()

    def of_lane(self, name: str) -> RunState:
        return next(lane for lane in self.lanes if lane.lane == name) if name else self

    @property
    def current(self) -> Attempt:
        assert self.attempt is not None
        return self.attempt

    @property
    def planning(self) -> PlanningAttempt:
        assert isinstance(self.attempt, PlanningAttempt)
        return self.attempt

    @property
    def work(self) -> WorkAttempt:
        assert isinstance(self.attempt, WorkAttempt)
        return self.attempt


def open_lanes(state: RunState) -> list[RunState]:
    return [lane for lane in state.lanes if lane.ended is None]


def count_busy(state: RunState) -> int:
    """The phases at work side by side, without those ahead; one that waits for a person counts against no limit."""
    lanes = (lane for lane in open_states(state) if not lane.after)
    return sum(lane.attempt is None or not (lane.attempt.delivery.asked or lane.questions) for lane in lanes)


def count_ahead(state: RunState) -> int:
    return sum(bool(lane.after) for lane in open_lanes(state))


def open_states(state: RunState) -> list[RunState]:
    """The open lanes, and the run without them, where it has a phase or has no lanes."""
    if not (lanes := open_lanes(state)):
        return [state]
    has_phase = state.attempt is not None and not state.attempt.cleaned
    return [*lanes, *([replace(state, lanes=(), looked=True)] if has_phase else [])]


def list_places(state: RunState) -> list[str]:
    """The lanes whose worktrees the run has made, "" for the run itself; none of a lane, as others use them next."""
    states = (state, *state.lanes) if not state.lane else ()
    return sorted({place for user in states if user.leased or user.base for place in (user.zone, user.proof)})


def list_running(state: RunState, *lanes: str) -> list[str]:
    dispatches = (lane.running for lane in open_states(state) if not lanes or lane.lane in lanes)
    return [id_ for dispatch in dispatches if dispatch is not None for id_ in (dispatch.id, *dispatch.beside)]


def list_questions(state: RunState) -> tuple[str, ...]:
    return tuple(question.id for lane in open_states(state) for question in lane.questions)


def missing_labels(state: RunState) -> tuple[str, ...]:
    if state.labels is None or state.attempt is None or state.attempt.cleaned:
        return ()
    return tuple(label for label in state.attempt.chosen.host if label not in state.labels)


def awaited_labels(state: RunState) -> tuple[str, ...]:
    return next((lane.current.chosen.host for lane in open_states(state) if missing_labels(lane)), ())


def find_awaiting(state: RunState) -> Attempt | None:
    attempts = [lane.attempt for lane in open_states(state) if lane.attempt is not None]
    waits = ((attempt, attempt.delivery.asked or attempt.delivery.held) for attempt in attempts)
    waiting = (attempt for attempt, for_person in waits if for_person or attempt.dispatches.open_questions)
    return next(waiting, attempts[0] if attempts else None)


def failed_lane(state: RunState) -> RunState | None:
    """The first lane that ended without a landing, unless it was dropped or the plan is revised for it."""
    lanes = (lane for lane in state.lanes if not lane.is_dropped and lane.revision is None)
    return next((lane for lane in lanes if lane.ended and not lane.ended.outcome.is_good), None)


def failure(state: RunState) -> e.PhaseFailed | None:
    if state.attempt is not None and state.attempt.failure is not None:
        return state.attempt.failure
    lane = failed_lane(state)
    attempt = lane.attempt if lane is not None else None
    return attempt.failure if attempt is not None else None


def fold(events: Iterable[e.Event]) -> RunState:
    return functools.reduce(apply, events, RunState())


def apply(state: RunState, fact: e.Event) -> RunState:
    if fact.lane and not state.lane:
        return _update_followers(_apply_to_lane(state, fact.lane, fact), fact)
    state = _update_followers(_apply_to_run(state, fact), fact)
    match fact:
        case e.LanesChosen():
            return _begin_lanes(state, fact)
        case e.Chosen() | e.NoWork() if open_lanes(state) or _is_at_work(state.attempt):
            return replace(state, looked=True)
        case e.QuestionAsked() | e.ApprovalAsked() | e.CandidateBuilt() | e.CleanedUp():  # further phases may start
            return replace(state, looked=False)
        case e.RunResumed():
            resumed = replace(fact, mode=Mode.PHASE)
            return _change_lanes(state, lambda lane: apply(lane, replace(resumed, wanted=lane.options.wanted)))
        case e.StopRequested() | e.Queued() | e.Admitted() | e.Halted() | e.Continued() | e.IssueShared():
            return _change_lanes(state, lambda lane: apply(lane, fact))
        case RevisionRequested() | e.Answered() | e.QuestionAnswered() | e.ClaimTaken():  # each lane knows its own
            return _change_lanes(state, lambda lane: apply(lane, fact))
        case _:
            return state


def _change_lanes(state: RunState, change: Callable[[RunState], RunState]) -> RunState:
    return replace(state, lanes=tuple(map(change, state.lanes)))


def _apply_to_lane(state: RunState, name: str, event: e.Event) -> RunState:
    state = _change_lanes(state, lambda lane: apply(lane, event) if lane.lane == name else lane)
    match event:
        case e.DispatchEnded():  # it gives back the part of the budget that it did not use
            waits = [lane.lane for lane in state.lanes if lane.pause and lane.pause.kind is WaitKind.BUDGET]
            return _change_lanes(state, lambda lane: replace(lane, pause=None) if lane.lane in waits else lane)
        case e.Landed():
            return _record_landing(state, event)
        case e.RunEnded() | e.QuestionAsked() | e.ApprovalAsked():  # further phases may start
            return replace(state, looked=False, no_work=None)
        case e.CandidateBuilt() | e.WorkTaken() if state.options.kept.run.pipeline:
            return replace(state, looked=False)
        case _:
            return state


def _begin_lanes(state: RunState, event: e.LanesChosen) -> RunState:
    state = replace(state, looked=True, no_work=None, attempt=state.attempt if _is_at_work(state.attempt) else None)
    ahead = {name: (after, base) for name, after, base in event.ahead}
    for name, phase, touches in event.lanes:
        after, base = ahead.get(name, ("", ""))
        started = replace(state.options, mode=Mode.PHASE, wanted=phase)
        alone = RunState(lane=name, touches=touches, started=started, warnings=state.warnings, labels=state.labels)
        alone = replace(alone, after=after, base=base, host=state.host, home=state.home)
        if after:  # it takes over the worktrees of the phase that it begins on, whose fixer gets another one
            states = (lane for lane in open_states(state) if lane.attempt is not None)
            below = next(lane for lane in states if lane.current.chosen.phase == after)
            alone = replace(alone, zone=below.zone, proof=below.proof)
            moved = {"zone": name, "attempt": replace(below.work, setup=replace(below.work.setup, agents=False))}
            lanes = tuple(replace(lane, **moved) if lane.lane == below.lane else lane for lane in state.lanes)
            state = replace(state, lanes=lanes) if below.lane else replace(state, **moved)
        else:  # those that earlier lanes do not use any more, else its own
            busy = [user for user in open_states(state) if user.lane or _is_at_work(user.attempt)]
            owners = [owner for owner in (state, *state.lanes) if owner.leased]
            zones = (owner.zone for owner in owners if owner.zone not in {user.zone for user in busy})
            proofs = (owner.proof for owner in owners if owner.proof not in {user.proof for user in busy})
            alone = replace(alone, zone=next(zones, name), proof=next(proofs, name))
        state = replace(state, lanes=(*state.lanes, alone))
    return state


def _is_at_work(attempt: Attempt | None) -> bool:
    """Whether it asks a person or is proven, while the plan is searched for other phases."""
    return attempt is not None and not attempt.cleaned


def _update_followers(state: RunState, event: e.Event) -> RunState:
    """The lanes that began on a phase, when it lands or fails, or when its numbers correct their text."""
    match event:
        case e.Landed(phase=phase, code=code):
            lanes = list(state.lanes)
            for place, lane in enumerate(lanes):
                if lane.after == phase:
                    is_lost = lane.attempt is not None and lane.attempt.failure is not None and code != lane.base
                    lanes[place] = replace(lane, after="", is_dropped=lane.is_dropped or is_lost)
            return replace(state, lanes=tuple(lanes))
        case e.PhaseFailed(phase=phase):
            by = f"the failure of phase {phase}, on which it began"
            dropped = [lane.lane for lane in state.lanes if lane.after == phase]
        case e.DriftFound(of=phase, corrections=corrections):
            by = f"phase {phase}, which corrects its text"
            corrected = {row[0] for row in corrections}
            dropped = [lane.lane for lane in state.lanes if lane.after and lane.options.wanted in corrected]
        case _:
            return state
    drop = {"stop": by, "pause": None, "is_dropped": True}
    return _change_lanes(state, lambda lane: replace(lane, **drop) if lane.lane in dropped else lane)


def _apply_to_run(state: RunState, event: e.Event) -> RunState:
    match event:
        case e.RunStarted():
            return replace(state, started=event, review=event.review, warnings=event.remarks)
        case e.RunResumed():
            return _resume_run(state, event)
        case e.Chosen():
            return _begin_attempt(state, event)
        case RevisionRequested():
            is_over = isinstance(state.attempt, PlanningAttempt) and state.attempt.cleaned and not state.attempt.failure
            return replace(state, revision=event.planning, halted="", attempt=None if is_over else state.attempt)
        case e.NoWork():
            return replace(state, no_work=event, attempt=state.attempt if _is_at_work(state.attempt) else None)
        case e.StopRequested():
            return replace(state, stop=event.by, pause=None)
        case e.Queued() | e.Admitted():
            return replace(state, queued=isinstance(event, e.Queued))
        case e.Halted():
            return replace(state, halted=event.by, missing=event.missing)
        case e.Continued():
            return replace(state, halted="", missing=())
        case e.Paused():
            is_again = event.kind in REPEATED_WAITS and event.kind is state.waited
            return replace(state, pause=event, waited=event.kind, waits=state.waits + 1 if is_again else 1)
        case e.IssueShared():
            return replace(state, warnings=(*state.warnings, event.words))
        case e.IssuesMarked():
            warnings = tuple(dict.fromkeys((*state.warnings, *event.notes)))
            return replace(state, claimed=True, claim_at=event.until, warnings=warnings)
        case e.RunEnded():
            return replace(state, ended=event, pulls=() if event.reason == Reason.PR_CLOSED else state.pulls)
        case e.Concluded():  # the next pull request of a stack has its own limits
            pulls = tuple(pull for pull in state.pulls if pull != event.pull)
            next_one = replace(state, repairs=0, updates=0, waits=0, pulls=pulls)
            return next_one if event.group else replace(next_one, concluded=event)
        case e.LandingMoved() if isinstance(state.chosen, e.CompletionChosen | e.SubplanChosen):
            return replace(state, no_work=None, attempt=None)  # only the plan was to be marked; it is read again
        case _:
            return _apply_to_attempt(_apply_beside_attempt(state, event), event)


def _record_landing(state: RunState, event: e.Landed) -> RunState:
    pulls = dict.fromkeys((*state.pulls, *([event.pull] if event.pull else [])))
    return replace(state, landed=(*state.landed, event), pulls=tuple(pulls))


def _apply_to_attempt(state: RunState, event: e.Event) -> RunState:
    return replace(state, attempt=state.attempt.record(event)) if state.attempt is not None else state


def _begin_attempt(state: RunState, chosen: e.Chosen) -> RunState:
    state = replace(state, no_work=None, attempt=begin_attempt(chosen))
    match chosen:
        case e.MergeChosen():
            return replace(state, updates=state.updates + (not chosen.since), review=())
        case PlanningChosen(planning=planning):
            state = replace(state, revision=None, revisions=state.revisions + 1)
            return _change_lanes(state, lambda lane: replace(lane, revision=planning))
        case e.RepairChosen(review=review, group=group):
            reviews = (*state.reviews, group) if review else state.reviews
            return replace(state, repairs=state.repairs + (not review), reviews=reviews, review=())
        case _:
            return state


def _apply_beside_attempt(state: RunState, event: e.Event) -> RunState:
    """What the run itself keeps of a fact that its attempt takes up as well."""
    match event:
        case HostChanged():
            state = replace(state, home=event.host)
            if not state.base or event.has_branch:
                return state
            # A lane whose base the remote lacks is ended, and its phase begins later.
            return replace(state, stop=f"the loss of the host {event.before}", pause=None, is_dropped=True)
        case StepCrashed(detail=detail):
            return replace(state, crashes=state.crashes + 1, crash=detail)
        case e.Woke():
            return replace(state, pause=None)
        case e.ClaimTaken(owner=owner, labels=labels):
            host = owner.rpartition("/")[0]
            is_over = state.pause is not None and state.pause.kind is WaitKind.HOST  # this host may have the labels
            home = f"the former {host}" if event.is_new_host and state.home == host else state.home or host
            state = replace(state, host=host, home=home)
            return replace(state, labels=labels, pause=None if is_over else state.pause)
        case e.Landed():
            return replace(_record_landing(state, event), no_work=None, waits=0, crashes=0)
        case e.Leased():
            return replace(state, leased=True)
        case e.DispatchStarted():
            near = event.near if event.agent else state.near
            return replace(state, dispatches=state.dispatches + 1, waits=0, near=near)
        case e.DispatchEnded():
            return replace(state, usage=sum_usage(AgentUsage, [state.usage, event.usage]))
        case _:
            return state


def _resume_run(state: RunState, event: e.RunResumed) -> RunState:
    was = state.options
    started = replace(was, mode=event.mode, wanted=event.wanted, auto=event.auto, memory=event.memory)
    started = replace(started, model=event.model or was.model, effort=event.effort or was.effort)
    if event.daemon:  # a foreground run belongs to the daemon once the daemon was asked to resume it
        started = replace(started, daemon=True, needs=event.needs)
    state = replace(_apply_to_attempt(state, event), pause=None, waits=0, halted="", missing=())
    state = replace(state, repairs=0, reviews=(), crashes=0)
    handled = state.chosen.review if isinstance(state.chosen, e.RepairChosen) else ()
    known = {id_ for landed in state.landed for id_ in landed.review}.union(handled)
    review = tuple(item for item in event.review if item.thread not in known) or state.review
    return replace(state, started=started, review=review)
