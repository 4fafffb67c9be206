"""The row of a run that `status` shows, from the same state and decision that drive the run."""

from msgspec import Struct
from msgspec.structs import asdict, replace

from runplan.domain.run.attempts import Attempt, WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import PhaseStep, RunOutcome, RunStatus, WaitKind
from runplan.domain.run.rows import RunRow, Work
from runplan.domain.run.state import RunState, failed_lane, list_questions, open_lanes, open_states
from runplan.domain.standing.usage import AgentUsage, sum_usage


def project_run(state: RunState, *, run: str, plan: str, started: str, since: str) -> RunRow:
    ended = state.ended
    lanes = open_lanes(state)
    attempt = state.attempt
    if attempt is None or (attempt.cleaned and attempt.failure is None):  # a lane is shown instead
        last = state.lanes[-1] if state.lanes and attempt is None else None
        shown = next(iter(lanes), None) or failed_lane(state) or last
        attempt = shown.attempt if shown is not None else attempt
    lease = attempt.lease if isinstance(attempt, WorkAttempt) else None
    states = (state, *state.lanes)
    work = _project_work(state, attempt, since)
    works = []
    for lane in state.lanes if lanes else ():
        over = lane.ended
        why = (over.reason or over.outcome) if over is not None and not over.outcome.is_good else None
        if why or lane in lanes:
            lane_work = _project_work(lane, lane.attempt, since)
            begin = lane_work.began or lane_work.dispatched or since
            works.append(replace(lane_work, phase=lane.options.wanted, since=begin, failed=why))
    works += [_project_work(lane, lane.attempt, since) for lane in open_states(state) if lanes and not lane.lane]
    if ended:
        failed = RunStatus.STOPPED if ended.outcome is RunOutcome.STOPPED else RunStatus.FAILED
        run_state = RunStatus.DONE if ended.outcome.is_good else failed
    else:
        run_state = {None: RunStatus.RUNNING, WaitKind.SLOT: RunStatus.QUEUED}.get(work.waiting_for, RunStatus.WAITING)
    phase = work.phase or next((lane.options.wanted for lane in lanes), None)  # of a lane that has not begun
    retries = max([work.retries, *(lane_work.retries for lane_work in works)])
    work = replace(work, phase=phase, step=None if ended else work.step, retries=retries)
    work = replace(work, **asdict(sum_usage(AgentUsage, [part.usage for part in states])))
    copied = ("landing", "target", "remote", "title", "slug", "concludes", "mode", "daemon")
    options = {name: getattr(state.started, name) for name in copied} if state.started else {"landing": "cherry-pick"}
    row = RunRow(**asdict(work), **options, id=run, plan=plan, started=started, state=run_state, lanes=tuple(works))
    asked = "stop" if state.stop else "pause" if state.halted and not state.missing else None
    number = lease.attempt if lease else 1
    row = replace(row, attempt=number, asked=asked, questions=list_questions(state), pulls=state.pulls)
    row = replace(row, near=tuple(dict.fromkeys(limit for part in states for limit in part.near)))
    return replace(row, outcome=ended.outcome, reason=ended.reason or None) if ended else row


def _project_work(state: RunState, attempt: Attempt | None, since: str) -> Work:
    decision = decide(state)
    work = Work(since=since, waiting_for=decision.waiting, about=decision.about or None, wake=decision.wake or None)
    work = replace(work, **asdict(state.usage))
    if attempt is None:
        return work
    is_over = attempt.refusal or attempt.failure or attempt.delivery.landed
    work = replace(work, phase=attempt.chosen.phase or None, step=PhaseStep.CLEAN_UP if is_over else attempt.step)
    if isinstance(attempt, WorkAttempt):
        kept = attempt.pushing.kept if attempt.delivery.landed is None else ""
        work = replace(work, subplan=attempt.awaited_plan or None, kept=kept or None)
    dispatches = attempt.dispatches
    is_at_step = dispatches.newest is not None and PhaseStep(dispatches.newest.role) is attempt.step
    work = replace(work, began=dispatches.began if is_at_step else None, retries=attempt.retries)
    if (running := dispatches.running) is None:
        return work
    work = replace(work, dispatch=running.id, dispatched=running.at or None, gates=running.gates)
    return replace(work, agent=running.agent or None, version=running.version or None)


class CurrentStep(Struct, frozen=True, kw_only=True):
    since: str = ""
    ended: bool = False
    steps: tuple[str, ...] = ()
    waiting: WaitKind | None = None


def start_of_current_step(previous: CurrentStep, state: RunState, now: str) -> CurrentStep:
    """The current step after an event that was recorded at `now` and led to `state`; it keeps its start."""
    states = open_states(state)
    steps = tuple(lane.attempt.step if lane.attempt is not None else "" for lane in states)
    ended = state.ended is not None
    current = CurrentStep(since=now, ended=ended, steps=steps, waiting=decide(state).waiting)
    works = not current.waiting and not ended
    is_look = previous.waiting and works and steps == previous.steps and any(lane.waits for lane in states)
    # A look in between two waits for the same thing changes nothing.
    return previous if is_look or current == replace(previous, since=now) else current
