"""The loop: decide, act, record. Start, resume and recovery all use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import PlanUnreadable, RefusedEarly, RunplanError, SettingsError
from runplan.run import actions as a
from runplan.run.decide import decide, list_end_actions, without_beginnings
from runplan.run.dispatch import GRACE_S
from runplan.run.events import Event, WorkRefused
from runplan.run.kinds import Reason
from runplan.run.state import RunState, list_running
from runplan.steps import conclude, delegate, gates, land, planning, process, proof, read_plan, verify, work

if TYPE_CHECKING:
    from runplan.run.actions import Decision
    from runplan.steps.context import RunContext
    from runplan.store.journal import Journal, LaneJournal


class Step(Struct, frozen=True, kw_only=True):
    """`already_done` asks git, the process table or the store; `act` yields events as they happen.

    An intent is recorded by yielding it: it is on disk before `act` continues, unless it may wait (`may_wait`).
    """

    act: Callable[[Any, RunState, RunContext], Iterator[Event]]
    #: Idempotent steps have none: they are simply repeated.
    already_done: Callable[[Any, RunState, RunContext], tuple[Event, ...]] = lambda *_: ()


STEPS: dict[str, Step] = {
    "read-plan": Step(act=read_plan.read_plan),
    "lease": Step(act=work.lease),
    "start": Step(act=process.start, already_done=delegate.already_done),
    "await": Step(act=process.await_end),
    "sleep": Step(act=process.sleep),
    "hand-over": Step(act=work.hand_over),
    "ask-question": Step(act=work.ask_question),
    "take-work": Step(act=work.take_work),
    "take-delegated": Step(act=delegate.take_delegated),
    "judge-baseline": Step(act=gates.judge_baseline),
    "judge-gate": Step(act=gates.judge_gate),
    "judge-proof": Step(act=proof.judge_proof),
    "judge-verdict": Step(act=verify.judge_verdict),
    "build-candidate": Step(act=land.build_candidate),
    "build-undo": Step(act=land.build_undo),
    "rebuild-branch": Step(act=work.rebuild_branch),
    "ask": Step(act=land.ask),
    "choose-goal": Step(act=planning.choose_goal),
    "ask-questions": Step(act=planning.ask_questions),
    "judge-step": Step(act=planning.judge_step),
    "propose": Step(act=planning.propose),
    "queue-start": Step(act=planning.queue_start, already_done=planning.already_queued),
    "land": Step(act=land.land, already_done=land.already_done),
    "conclude": Step(act=conclude.conclude),
    "review": Step(act=conclude.review),
    "claim-issues": Step(act=conclude.claim_issues),
    "merge-target": Step(act=conclude.merge_target),
    "end": Step(act=process.end),
    "fail": Step(act=work.fail),
    "clean-up": Step(act=work.clean_up),
    "finish": Step(act=work.finish),
}


class NoProgress(Exception):
    """The same actions were decided twice in a row; a bug in runplan."""


def advance(journal: Journal, context: RunContext, may_begin: Callable[[], bool]) -> Decision:
    """Take every step that is due, until the run has ended or waits.

    Calling it again is harmless: all state comes from the journal, git and the process table. When `may_begin` is
    false, nothing new begins.
    """
    last: Decision | None = None
    try:
        while True:
            decision = decide(journal.state)
            decision = decision if may_begin() else without_beginnings(decision)
            if not decision.actions:
                return decision
            if decision == last:
                raise NoProgress(f"{decision.why}: {decision.actions} was done and is due again")
            last = decision
            if ending := [action.lane for action in decision.actions if action.step == a.END.step]:
                # All at once: one by one takes long.
                context.dispatches.end(list_running(journal.state, *ending), grace_s=GRACE_S)
            recorded = [_take_in_lane(action, journal, context) for action in decision.actions]
            if not any(recorded):  # all that is left are running processes
                return decision
    finally:
        context.store.flush()


def record_ends(journal: Journal, context: RunContext) -> None:
    """Record the end of all processes of the run, which this process has ended; they are due again afterwards."""
    for action in list_end_actions(journal.state):
        _take_in_lane(action, journal, context)


def _take_in_lane(action: a.Action, journal: Journal, context: RunContext) -> bool:
    if not action.lane:
        return _take_step(action, journal, context)
    try:
        return _take_step(action, journal.lane(action.lane), replace(context, lane=action.lane))
    except RunplanError as error:
        error.lane = action.lane
        raise


def _take_step(action: a.Action, journal: Journal | LaneJournal, context: RunContext) -> bool:
    """Take one step; whether it recorded anything."""
    step = STEPS[action.step]
    context = context.for_state(journal.state)
    recorded = False
    if journal.state.stop:
        context.zones.hurry()
    context.store.require_there()  # an unplugged repository proves nothing
    context.workspace.require_whole()
    try:
        for event in step.already_done(action, journal.state, context) or step.act(action, journal.state, context):
            journal.append(event)
            recorded = True
    except (RefusedEarly, SettingsError, PlanUnreadable) as error:
        # An error that a start would have refused came up during the run: it ends the phase.
        attempt = journal.state.attempt
        if attempt is None or attempt.failure is not None or attempt.delivery.landed is not None:
            raise
        journal.append(WorkRefused(reason=Reason.BLOCKED, detail=str(error)))
        recorded = True
    return recorded
