"""What next? The one function that answers, from recorded facts, for start, resume, recovery and schedule alike."""

from msgspec.structs import replace

from runplan.domain.plan.marks import NoWorkKind
from runplan.domain.run import actions as a
from runplan.domain.run.actions import Decision, fail_phase, perform_action, wait_for, wait_until
from runplan.domain.run.attempt_parts import PlanningChosen
from runplan.domain.run.attempts import Attempt, PlanningAttempt, WorkAttempt
from runplan.domain.run.events import PhaseChosen, PhaseFailed, UndoChosen, WorkTaken
from runplan.domain.run.kinds import FOR_ANSWER, Mode, PhaseStep, Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import PUSHING_KEYS, describe_lost
from runplan.domain.run.rows import wait_of
from runplan.domain.run.rules.lanes import may_begin_ahead
from runplan.domain.run.rules.phases import work_on
from runplan.domain.run.rules.planning import MAX_REVISIONS, describe_misfit, write_plan
from runplan.domain.run.rules.shared import await_subplan, land_candidate, undo_phase
from runplan.domain.run.state import (
    RunState,
    count_busy,
    failed_lane,
    failure,
    find_awaiting,
    list_questions,
    missing_labels,
    open_lanes,
    open_states,
)
from runplan.domain.standing.actions import NextAction, actions_of_wait, describe_actions
from runplan.domain.text import command

BEGINNINGS = (a.READ_PLAN.step, a.CHOOSE_GOAL.step, a.LEASE.step, a.START)  #: steps that begin something
MAX_CRASHES = 2  #: between two landings
#: These steps first say what is to be pushed.
BEFORE_PUSH = (*(action.step for action in (a.TAKE_WORK, a.HAND_OVER, a.ASK_QUESTION)), "fail")


def decide(state: RunState) -> Decision:
    """The actions that are due in this state; a claim that met a rate limit is shown later, next to the work."""
    decision = _decide_work(state)
    if not state.claim_at or state.stop or decision.waiting or not decision.actions:
        return decision
    wake = min(filter(None, (decision.wake, state.claim_at)))
    return replace(decision, actions=(a.CLAIM_ISSUES, *decision.actions), wake=wake)


def _decide_work(state: RunState) -> Decision:
    if not open_lanes(state) and (waiting := await_retry(state)):
        return waiting
    decision = _decide_step(state)
    if not state.host or state.ended is not None or open_lanes(state):
        return decision
    if state.pause is not None and state.pause.kind is WaitKind.UNREACHABLE:
        return decision
    if state.host != state.home:
        return perform_action(a.TAKE_OVER, f"the host {state.host} continues what {state.home} has begun")
    may_push = isinstance(state.attempt, WorkAttempt) and state.attempt.may_push
    if not may_push or any(action.step in BEFORE_PUSH for action in decision.actions):
        return decision
    return perform_action(a.PUSH_WORK, "the work is pushed, so that another host can continue it")


def await_retry(state: RunState) -> Decision | None:
    """After a defect of runplan itself the step is taken once more; after a second one a person has to continue it."""
    if state.crashes < MAX_CRASHES or state.stop or state.ended is not None:
        return None
    return wait_for(WaitKind.CRASHED, f"runplan itself failed {state.crashes} times: {state.crash}")


def _decide_step(state: RunState) -> Decision:
    attempt = state.attempt
    running = state.running
    if state.started is None:
        return Decision(why="nothing has been started")
    if state.ended is not None:
        failed = failure(state)
        is_known = failed is not None and failed.detail == state.ended.detail  # by the failure of the phase
        words = ": ".join(filter(None, (state.ended.reason, "" if is_known else state.ended.detail)))
        return Decision(why=f"the run ended: {state.ended.outcome}" + (f" ({words})" if state.ended.reason else ""))
    if lanes := open_lanes(state):
        return _side_by_side(state, lanes)
    if state.pause is not None and state.pause.kind is WaitKind.UNREACHABLE and not (state.stop and running):
        return wait_until(state.pause)  # git, disk or network did not answer
    if attempt is None or attempt.cleaned:
        return _between_attempts(state, attempt)
    if running is not None:
        if state.stop:
            return perform_action(a.END, f"stopped by {state.stop}; {running.agent or running.role} is being ended")
        why = f": {running.why}" if running.why else ""
        why += f", and {len(running.beside)} more" if running.beside else ""
        awaited = perform_action(a.AWAIT, f"{running.agent or 'a command'} is running ({running.role}{why})")
        return _look_ahead(state, awaited)
    if attempt.failure is not None:
        kept = "; its work is kept on a branch" if attempt.failure.branch else ""
        work = "the phase" if attempt.chosen.phase else "the work"
        return perform_action(a.CLEAN_UP, f"{work} failed ({attempt.failure.reason}){kept}")
    if attempt.delivery.landed is not None:
        return perform_action(a.CLEAN_UP, "the phase has landed; its branch is not needed any more")
    if attempt.delivery.landing is not None:
        return _hold_push(state, perform_action(a.LAND, "a landing was started; git is asked whether it happened"))
    if state.stop and isinstance(attempt, WorkAttempt) and attempt.awaited_plan:
        return await_subplan(attempt)  # its run is stopped first
    if state.stop:
        # The next attempt takes up the words of a rejection that no agent has taken up yet.
        step = attempt.step if attempt.revision else PhaseStep.STOP
        return fail_phase(Reason.STOPPED, step, f"stopped by {state.stop}")
    if attempt.refusal is not None:
        reason, detail = attempt.refusal
        is_landing = reason is Reason.ALREADY_ON_TARGET and attempt.step is not PhaseStep.UNDO
        return fail_phase(reason, PhaseStep.LAND if is_landing else attempt.step, detail)
    if waiting := _find_wait(replace(state, missing=(), halted="")):
        return _hold_back(state, waiting)
    decision = _hold_back(state, _continue_attempt(state, attempt))
    is_held = decision.waiting is not None and wait_of(decision.waiting).is_for_person
    if state.revision is not None and is_held and isinstance(attempt.chosen, PhaseChosen):
        return fail_phase(Reason.STOPPED, attempt.step, "its text is revised; the work is kept")
    return _look_ahead(state, decision)


def _continue_attempt(state: RunState, attempt: Attempt) -> Decision:
    """The work, unless a person, another phase or a host with its labels has to come first."""
    if state.questions:
        about = "; ".join(f"{question.text} ({question.id})" for question in state.questions)
        who = f"phase {attempt.chosen.phase}" if attempt.chosen.phase else "the agent"
        return wait_for(WaitKind.QUESTION, about, f"{who} asks: {about}")
    match attempt:
        case WorkAttempt(work=WorkTaken(), broken=None) if state.after and attempt.dispatches.ended is None:
            why = f"the work is done, and is proven when phase {state.after} has landed"
            return wait_for(WaitKind.PHASE, f"the landing of phase {state.after}", why)
        case WorkAttempt():
            work = work_on(state.options, attempt)
        case PlanningAttempt():
            work = write_plan(attempt)
        case Attempt(chosen=UndoChosen()):
            work = undo_phase(state.options, attempt)
        case _:
            work = land_candidate(state.options, attempt)  # only bookkeeping
    missing = missing_labels(state) if work.actions else ()
    return perform_action(a.AWAIT_HOST, f"this host lacks the labels {', '.join(missing)}") if missing else work


def _look_ahead(state: RunState, decision: Decision) -> Decision:
    is_asked = state.options.auto and decision.waiting in FOR_ANSWER
    is_searched = not state.lane and (is_asked or may_begin_ahead(state))
    if not is_searched or (more := _search_phases(state)) is None:
        return decision
    return more if is_asked else replace(decision, actions=(*decision.actions, *more.actions))


def _hold_back(state: RunState, decision: Decision) -> Decision:
    """Nothing begins without its keys or while a person pauses the run; what waits for an answer is still asked."""
    if state.halted and not state.missing and decision.waiting in FOR_ANSWER:
        paused = f"paused by {state.halted}: an answer takes effect with `runplan resume`"
        return replace(decision, about=f"{decision.about or decision.waiting}; {paused}")
    if not state.missing:
        return _find_wait(state) or decision
    lost = describe_lost(state.missing)
    if decision.waiting:
        return replace(decision, about=f"{decision.about or decision.waiting}; {lost}")
    if any(action.step in BEGINNINGS for action in decision.actions):
        return wait_for(WaitKind.KEY, lost)
    return _hold_push(state, decision)


def _hold_push(state: RunState, decision: Decision) -> Decision:
    is_pushing = state.options.remote and any(name in PUSHING_KEYS for name in state.missing)
    return wait_for(WaitKind.KEY, describe_lost(state.missing)) if is_pushing else decision


def _find_wait(state: RunState) -> Decision | None:
    """Why nothing new may start; running processes continue."""
    if state.missing:
        return wait_for(WaitKind.KEY, describe_lost(state.missing))
    if state.halted:
        return wait_for(WaitKind.PAUSED, f"paused by {state.halted}")
    if state.queued:
        why = "the limit of concurrent runs is reached; this run starts when another one ends or waits"
        return wait_for(WaitKind.SLOT, "its turn", why)
    return wait_until(state.pause) if state.pause is not None else None


def _between_attempts(state: RunState, attempt: Attempt | None) -> Decision:
    if attempt is not None and attempt.failure is not None:
        return _revise_plan(state) or _finish_failed(state, attempt, attempt.failure)
    lane = failed_lane(state)
    if lane is not None and (ended := lane.ended) is not None:
        finish = a.Finish(outcome=ended.outcome, reason=ended.reason, detail=ended.detail)
        over = perform_action(finish, f"phase {lane.options.wanted} did not land, and the other phases have ended")
        return _revise_plan(state) or over
    if state.stop:
        return perform_action(a.Finish(outcome=RunOutcome.STOPPED, reason=Reason.STOPPED), f"stopped by {state.stop}")
    if state.concluded is not None and state.concluded.reason:
        return _conclude_run(state)
    is_worked = state.options.mode is not Mode.PLAN and not state.lane
    if state.options.kept.issues.claim and state.options.issues and not state.claimed and is_worked:
        return _find_wait(state) or perform_action(a.CLAIM_ISSUES, "show on the forge which issues the run works on")
    if state.review and not state.lane:
        return _find_wait(state) or perform_action(a.REVIEW, "comments of reviewers are to be handled")
    if state.options.concludes and not state.lane and state.landed and state.landed[-1].complete:
        return _find_wait(state) or _conclude_run(state)
    is_planning = isinstance(attempt, PlanningAttempt)
    if isinstance(attempt, PlanningAttempt) and attempt.chosen.planning.then and not attempt.queued:
        return perform_action(a.QUEUE_START, "the plan is approved; its run is queued")
    if state.revision is not None and not is_planning and (revise := _revise_plan(state)):
        return revise
    is_revised = is_planning and state.options.mode is not Mode.PLAN  # the run continues with the new text
    if (attempt is not None or state.lanes) and state.options.mode is not Mode.FINISH and not is_revised:
        return perform_action(a.Finish(outcome=RunOutcome.DONE), "everything requested has landed")
    if waiting := _find_wait(state):
        return waiting
    if state.options.mode is Mode.PLAN:
        return perform_action(a.CHOOSE_GOAL, "a plan is to be written")
    if state.no_work is None:
        return perform_action(a.READ_PLAN, "the next phase is chosen from the plan on the target")
    detail = state.no_work.detail
    kind = state.no_work.kind
    if state.options.concludes and kind is NoWorkKind.COMPLETE:
        return _conclude_run(state)
    if kind in (NoWorkKind.COMPLETE, NoWorkKind.PHASE_DONE, NoWorkKind.ELSEWHERE):
        finish = a.Finish(outcome=RunOutcome.DONE if state.landed else RunOutcome.NOTHING_TO_DO, detail=detail)
    else:
        outcome = RunOutcome.FAILED if state.landed else RunOutcome.REFUSED
        finish = a.Finish(outcome=outcome, reason=Reason.BLOCKED, detail=detail)
    return perform_action(finish, f"no phase is due: {detail}")


def _revise_plan(state: RunState) -> Decision | None:
    """Have the plan revised, because a person wants it, or the failed phase does not fit the code."""
    failed = failure(state)
    is_planned = state.options.mode is Mode.PLAN or state.lane or isinstance(state.attempt, PlanningAttempt)
    if state.stop or is_planned:
        return None
    fits = failed is None or not describe_misfit(failed)
    agents = state.options.kept.agents
    replans = state.options.kept.plan.replan and agents.planner in dict(agents.dispatched).values()
    if state.revision is None and (fits or not replans or state.revisions >= MAX_REVISIONS):
        return None
    return _find_wait(state) or perform_action(a.CHOOSE_GOAL, "the plan is revised before its next phase")


def _finish_failed(state: RunState, attempt: Attempt, failed: PhaseFailed) -> Decision:
    if attempt.other_run:
        success = RunOutcome.DONE if state.landed else RunOutcome.NOTHING_TO_DO
        return perform_action(a.Finish(outcome=success, detail=failed.detail), "another run works on the plan")
    special = {Reason.BASELINE_RED: RunOutcome.REFUSED, Reason.STOPPED: RunOutcome.STOPPED}
    outcome = special.get(failed.reason, RunOutcome.FAILED)
    finish = a.Finish(outcome=outcome, reason=failed.reason, detail=failed.detail)
    if isinstance(attempt, PlanningAttempt) and attempt.chosen.reason and outcome is RunOutcome.FAILED:
        detail = f"{attempt.chosen.text}; and the plan was not revised: {failed.reason}: {failed.detail}"
        finish = replace(finish, reason=attempt.chosen.reason, detail=detail)
    return perform_action(finish, "the failed phase is cleaned up")


def _conclude_run(state: RunState) -> Decision:
    done = state.concluded
    if done is None:
        return perform_action(a.CONCLUDE, "every phase is on the branch of the pull request; now it is to be merged")
    success = RunOutcome.DONE if state.landed else RunOutcome.NOTHING_TO_DO
    outcome = RunOutcome.FAILED if done.reason else success
    return perform_action(a.Finish(outcome=outcome, reason=done.reason, detail=done.note), done.note or "merged")


def _side_by_side(state: RunState, lanes: list[RunState]) -> Decision:
    """Each lane by the same rules as a run of its own; and a search for further phases."""
    states = open_states(state)
    decisions = [_decide_work(lane) for lane in states]
    more = _search_phases(state)
    decided = zip(states, decisions, strict=True)
    actions = [replace(action, lane=lane.lane) for lane, decision in decided for action in decision.actions]
    # The run waits only when all lanes wait. It then waits for the first thing that can happen.
    waits = [decision for decision in decisions if decision.waiting]
    waits.sort(key=lambda decision: (decision.waiting is WaitKind.PHASE, decision.wake or "~"))
    first = waits[0] if len(waits) == len(decisions) and (more is None or more.waiting) else None
    phases = [lane.options.wanted for lane in lanes]
    phases += [state.attempt.chosen.phase] if state.attempt and len(states) > len(lanes) else []
    why = [f"phase {phase}: {decision.why}" for phase, decision in zip(phases, decisions, strict=True)]
    if (failed := failed_lane(state)) is not None:
        why.append(f"phase {failed.options.wanted} did not land, so no further phase starts")
    wakes = (decision.wake for decision in (*decisions, *([more] if more else [])) if decision.wake)
    actions += more.actions if more else ()
    both = Decision(actions=tuple(actions), why="; ".join(why), wake=min(wakes, default=""))
    return replace(both, waiting=first.waiting, about=first.about) if first else both


def _search_phases(state: RunState) -> Decision | None:
    has_room = count_busy(state) < state.options.kept.run.parallel or may_begin_ahead(state)
    may_start = state.options.mode is Mode.FINISH and has_room and not state.looked
    is_held = state.stop or state.revision or state.halted or state.queued or state.concluded
    if not may_start or is_held or failed_lane(state) is not None or failure(state) is not None:
        return None
    if waiting := await_retry(state) or (wait_until(state.pause) if state.pause is not None else None):
        return waiting  # the plan could not be read; the open lanes continue
    return perform_action(a.READ_PLAN, "the plan is searched for phases that can start next to the running ones")


def is_ending(state: RunState) -> bool:
    steps = {action.step for action in decide(state).actions}
    is_approved = state.attempt is not None and state.attempt.delivery.is_approved
    is_last = state.options.mode is not Mode.FINISH or failure(state) is not None or steps <= {"fail", "finish"}
    ends = ("fail", "finish", a.CLEAN_UP.step, a.QUEUE_START.step, *([a.LAND.step] if is_approved else []))
    return bool(steps) and is_last and steps <= {*ends}


def pause_reason(state: RunState) -> str:
    """Why the plan's schedule pauses after this run, until a person resumes it; "" when it does not."""
    ended = state.ended
    failed = failure(state)
    if phase := rejected_phase(state):
        return f"phase {phase} was rejected"
    is_daemons = state.started is not None and state.started.daemon  # not in the foreground
    if not is_daemons or ended is None or ended.outcome not in (RunOutcome.FAILED, RunOutcome.REFUSED):
        return ""
    if state.attempt or state.lanes:
        return f"phase {failed.phase} failed ({ended.reason})" if failed else f"the run failed ({ended.reason})"
    # A blocked phase may be free the next time; a plan that is unreadable or not active needs a person.
    kinds = (NoWorkKind.UNREADABLE, NoWorkKind.INACTIVE)
    needs_person = state.no_work is not None and state.no_work.kind in kinds
    return ended.detail if needs_person else ""


def rejected_phase(state: RunState) -> str:
    attempts = [lane.attempt for lane in (state, *state.lanes)] if state.ended is not None else []
    rejected = (attempt for attempt in attempts if attempt is not None and attempt.rejected is not None)
    chosen = next((attempt.chosen for attempt in rejected), None)
    return chosen.planning.revises if isinstance(chosen, PlanningChosen) else chosen.phase if chosen else ""


def actions_of_state(state: RunState, waiting: WaitKind | None, plan: str) -> tuple[NextAction, ...]:
    awaiting = find_awaiting(state)
    phase = awaiting.chosen.phase if awaiting is not None else ""
    is_proposal = isinstance(awaiting, PlanningAttempt) and awaiting.proposal is not None
    return actions_of_wait(waiting, plan, phase, questions=list_questions(state), is_proposal=is_proposal)


def pending_answer(state: RunState, plan: str) -> str:
    """Why a schedule may not continue the plan's unfinished run; "" when it may. Only a person adds `auto`."""
    if state.started is None or state.ended is not None:
        return ""
    decision = decide(state)
    see = command("runplan", "status", plan)
    if decision.waiting in (*FOR_ANSWER, WaitKind.CRASHED, WaitKind.ISSUE):
        return f"{decision.why}. {describe_actions(actions_of_state(state, decision.waiting, plan))}"
    return "" if state.started.auto else f"a run of {plan} without `auto` has not ended: {decision.why}; see: {see}"
