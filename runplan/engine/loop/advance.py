"""The loop: decide, act, record. Start, resume and recovery all use it. And a rehearsal of it in memory."""

import os
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec.structs import replace

from runplan.adapters.store.files import file_lock, remove_directory
from runplan.adapters.store.journal import Journal
from runplan.domain.errors import PlanUnreadable, RefusedEarly, RunplanError, SettingsError
from runplan.domain.run import actions as a, events as e
from runplan.domain.run.decide import BEGINNINGS, decide
from runplan.domain.run.dispatch import GRACE_S
from runplan.domain.run.kinds import PLANNING, Mode, Reason, Role
from runplan.domain.run.state import RunState, apply, fold, list_running
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import make_run_context
from runplan.engine.steps import conclude, gates, land, lease, outcome, planning, process, proof, verify, work
from runplan.engine.steps.context import OpenRepository, RunContext
from runplan.engine.steps.read_plan import read_plan

#: The function of each step. It returns its event, or yields events as they happen. A step that cannot simply be
#: repeated after a crash asks git, the process table or the store first. An intent is recorded by yielding it: it is on
#: disk before the function continues, unless it may wait (`may_wait`).
Step: TypeAlias = Callable[[RunState, RunContext], e.Event | Iterable[e.Event]]
STEPS: dict[str, Step] = {
    "read-plan": read_plan,
    "lease": lease.lease,
    "await": outcome.await_end,
    "sleep": outcome.sleep,
    "await-host": outcome.await_host,
    "hand-over": work.hand_over,
    "ask-question": work.ask_question,
    "take-work": work.take_work,
    "take-delegated": process.take_delegated,
    "judge-baseline": gates.judge_baseline,
    "judge-gate": gates.judge_gate,
    "judge-proof": proof.judge_proof,
    "judge-verdict": verify.judge_verdict,
    "judge-trial": verify.judge_trial,
    "build-candidate": land.build_candidate,
    "build-undo": land.build_undo,
    "push-work": work.push_work,
    "take-over": lease.take_over,
    "ask": land.ask,
    "choose-goal": planning.choose_goal,
    "ask-questions": planning.ask_questions,
    "judge-step": planning.judge_step,
    "propose": planning.propose,
    "queue-start": planning.queue_start,
    "land": land.land,
    "conclude": conclude.conclude,
    "review": conclude.review,
    "claim-issues": conclude.claim_issues,
    "merge-target": conclude.merge_target,
    "end": outcome.end,
    "clean-up": work.clean_up,
}
#: How an agent is prepared, by its role. The other roles are commands of the project.
PREPARATIONS: dict[Role, process.Prepare] = {
    **dict.fromkeys((Role.IMPLEMENT, Role.FIX), process.prepare_writer),
    **dict.fromkeys(PLANNING, planning.prepare_planner),
    Role.VERIFY: verify.prepare_verifier,
    Role.TRY: verify.prepare_trial,
}

Act: TypeAlias = Callable[[a.Action, RunState, RunContext], Iterable[e.Event]]
SLUG = "doctor_run"  #: in the name of the worktree; no plan has it, for the slugs of plans have no underscore
LOCK = "locks/doctor.lock"  #: below the directory of the journal; held while a rehearsal uses its worktree


def act(action: a.Action, state: RunState, context: RunContext) -> Iterable[e.Event]:
    answer: e.Event | Iterable[e.Event]
    match action:
        case a.Start(dispatch=dispatch) if (prepare := PREPARATIONS.get(dispatch.role)) is not None:
            answer = process.start_dispatch(dispatch, state, context, prepare)
        case a.Start(dispatch=dispatch):
            known = process.find_result(dispatch, state, context) if context.reuses_results else ()
            answer = known or process.start_dispatch(dispatch, state, context, process.prepare_command)
        case a.RebuildBranch():
            answer = lease.rebuild_branch(action, state, context)
        case a.Fail():
            answer = work.fail(action, state, context)
        case a.Finish():
            answer = work.finish(action, state, context)
        case _:
            answer = STEPS[action.step](state, context)
    return (answer,) if isinstance(answer, e.Event) else answer


class NoProgress(Exception):
    """The same actions were decided twice in a row; a bug in runplan."""


def advance(journal: Journal, context: RunContext, may_begin: Callable[[], bool], act: Act = act) -> a.Decision:
    """Take every step that is due, until the run has ended or waits; `act` takes one.

    Calling it again is harmless: all state comes from the journal, git and the process table. When `may_begin` is
    false, nothing new begins.
    """
    last: a.Decision | None = None
    try:
        while True:
            decision = decide(journal.state)
            if not may_begin():  # a draining daemon leaves what begins something to the next one
                actions = tuple(action for action in decision.actions if action.step not in BEGINNINGS)
                decision = replace(decision, actions=actions)
            if not decision.actions:
                return decision
            if decision == last:
                raise NoProgress(f"{decision.why}: {decision.actions} was done and is due again")
            last = decision
            if ending := [action.lane for action in decision.actions if action.step == a.END.step]:
                # All at once: one by one takes long.
                context.dispatches.end(list_running(journal.state, *ending), grace_s=GRACE_S)
            recorded = [take_step(action, journal, context, act) for action in decision.actions]
            if not any(recorded):  # all that is left are running processes
                return decision
    finally:
        context.store.flush()


def take_step(action: a.Action, journal: Journal, context: RunContext, act: Act = act) -> bool:
    """Take one step; whether it recorded anything."""
    recorded = False
    try:
        state = journal.state.of_lane(action.lane)
        context = context.for_state(state)
        if state.stop:
            context.zones.hurry()
        context.store.require_there()  # an unplugged repository proves nothing
        context.workspace.require_whole()
        try:
            for event in act(action, state, context):
                journal.append(event, lane=action.lane)
                recorded = True
        except (RefusedEarly, SettingsError, PlanUnreadable) as error:
            # An error that a start would have refused came up during the run: it ends the phase.
            attempt = journal.state.of_lane(action.lane).attempt
            if attempt is None or attempt.failure is not None or attempt.delivery.landed is not None:
                raise
            journal.append(e.WorkRefused(reason=Reason.BLOCKED, detail=str(error)), lane=action.lane)
            recorded = True
    except Exception as error:
        error.lane = action.lane  # type: ignore[attr-defined]
        raise
    return recorded


def rehearse_phase(
    repository_context: RepositoryContext, repository: OpenRepository, on_event: Callable[[e.Event], None]
) -> RunState:
    """Work a phase in memory until its first agent is due, and remove everything that was made for it."""
    run = f"doctor{os.urandom(4).hex()}"
    landing = repository_context.settings.run.landing
    target = repository_context.settings.run.target
    options = e.RunStarted(
        plan=SLUG, title="", slug=SLUG, mode=Mode.PHASE, wanted=SLUG, auto=False, landing=landing, target=target
    )
    started = repository_context.record_settings(options)
    context = make_run_context(repository_context, repository, run=run, started=started)
    context = replace(context, reuses_results=False)
    lock = file_lock(repository_context.state / LOCK)
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        raise RefusedEarly("another `runplan doctor --run` is running in this repository; wait for its end") from None
    try:
        return _work_phase(fold([started, e.PhaseChosen(tip=context.tip(), phase=SLUG)]), context, on_event)
    finally:
        lock.release()
        for directory in (repository_context.state / "dispatch").glob(f"{run}.*"):
            remove_directory(directory)


def _work_phase(state: RunState, context: RunContext, on_event: Callable[[e.Event], None]) -> RunState:
    """Take the steps of the phase; the one that would start an agent stops it."""
    trouble: BaseException | None = None
    while state.ended is None:
        (action,) = decide(state).actions
        try:
            dispatch = action.dispatch if isinstance(action, a.Start) else None
            # The worktree of an agent would be set up as that of the checks was.
            if dispatch and (dispatch.role.is_writer or (process.is_for_writers(dispatch) and state.work.setup.tree)):
                state = apply(state, e.StopRequested(by=SLUG))
                continue
            if action.step == a.END.step:
                context.dispatches.end(list_running(state), grace_s=GRACE_S)
            if action.step == a.CLEAN_UP.step:
                context.zone.remove()  # no agent has had it: what run.setup changed there is no work to keep
            for event in act(action, state, context):
                state = apply(state, event)
                on_event(event)
            if action.step == a.AWAIT.step and (ids := list_running(state)):
                context.dispatches.wait(ids, timeout_s=None)
        except (KeyboardInterrupt, RunplanError) as error:
            if trouble is not None:
                raise
            trouble = error
            state = apply(state, e.StopRequested(by=SLUG))
    if trouble is not None:
        raise trouble
    return state
