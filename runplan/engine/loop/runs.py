"""A run that a worker owns: decisions about requests for it, and its end after a crash."""

import traceback
from collections.abc import Container
from contextlib import closing, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.git.command import ANY
from runplan.adapters.store.journal import Journal, list_records
from runplan.adapters.store.protocol import Store, open_store
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.decoding import convert
from runplan.domain.errors import Crashed, PlanUnreadable, RefusedEarly, RunplanError, Unreachable, refused_by_system
from runplan.domain.names import HEADS
from runplan.domain.plan.model import Plan
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import ProposalMade, RevisionRequested, StepCrashed
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.decide import await_retry, decide
from runplan.domain.run.dispatch import GRACE_S
from runplan.domain.run.kinds import ANSWERED, Mode, Reason, RunOutcome, WaitKind
from runplan.domain.run.requests import Reply
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import RunState, failed_lane, failure, fold, list_running, open_lanes, open_states
from runplan.domain.text import command
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.loop.context import RepositoryContext, slug_of
from runplan.engine.loop.preflight import describe_nesting
from runplan.engine.steps.conclude import report_end
from runplan.engine.steps.context import RunContext

TRACED = 8  #: calls of a traceback that are recorded


class ActiveRun(Struct, frozen=True, kw_only=True):
    context: RunContext
    journal: Journal

    @property
    def id(self) -> str:
        return self.context.run

    @property
    def state(self) -> RunState:
        return self.journal.state


def state_of(store: Store, row: RunRow) -> RunState:
    state = fold(fact.event for fact in list_records(store, row.id))
    if state.started is None:
        raise RefusedEarly(f"{row.plan}: the run {row.id} cannot be read; see: {command('runplan', 'logs', row.plan)}")
    return state


def find_awaited(store: Store, row: RunRow) -> RunRow:
    awaited = store.get_newest_run(row.subplan) if row.subplan else None
    return find_awaited(store, awaited) if awaited is not None and awaited.is_active else row


def awaited_plan(state: RunState) -> str:
    return state.work.awaited_plan if state.ended is None and isinstance(state.attempt, WorkAttempt) else ""


def examine_subplan(
    active: ActiveRun, state: RunState, *, here: RepositoryContext, owned: Container[str]
) -> e.Event | None:
    """An end of the sub-plan to record, or the `RunStarted` or `StopRequested` of its own run; None while it runs."""
    path = awaited_plan(state)
    if not path or decide(state).waiting is not WaitKind.SUBPLAN or state.pause is not None:
        return None
    store = active.context.store
    child_runs = [fact.run for fact in store.list_facts(e.RunStarted, plan=path) if fact.event.parent == active.id]
    child = store.get_run(child_runs[-1]) if child_runs else None
    if state.stop and child is not None and child.is_active:
        return e.StopRequested(by=state.stop)
    if state.stop:  # a run that the parent did not begin continues
        return e.SubplanEnded(complete=False, run=child.id if child else "", detail=f"{path} was stopped")
    if path in owned:
        return None
    lander = active.context.lander  # a pull request has a branch of its own before the target
    tip = (lander.target if isinstance(lander, PullRequestLander) else lander).tip() or ""

    def read(name: str) -> Plan:
        return replace(active.context, plan=name).plan_at(tip)[0]

    try:
        plan = read(path)
        nesting = describe_nesting(read, (*state.options.parents, active.context.plan, path))
    except PlanUnreadable as error:
        return e.WorkRefused(reason=Reason.BLOCKED, detail=str(error))
    is_over = child is None or not child.is_active  # else the run was interrupted, and is resumed
    if plan.complete and is_over:
        return e.SubplanEnded(complete=True, run=child.id if child else "")
    if nesting and is_over:
        return e.WorkRefused(reason=Reason.BLOCKED, detail=nesting)
    if child is not None and is_over:
        ended = state_of(store, child)
        failed = failure(ended)
        where = f"phase {failed.phase}, " if failed is not None and failed.phase else ""
        why = f": {ended.ended.detail}" if ended.ended is not None and ended.ended.detail else ""
        see = command("runplan", "report", path)
        detail = f"{path} is not complete ({where}{child.reason or child.outcome}){why}; see: {see}"
        return e.SubplanEnded(complete=False, run=child.id, detail=detail)
    above = (*state.options.parents, state.options.plan)
    asked = replace(state.options, review=(), remarks=(), command=0, watch="", parent=active.id, parents=above)
    asked = replace(asked, plan=plan.path, title=plan.title, slug=slug_of(here, path), issues=plan.issues)
    return replace(asked, mode=Mode.FINISH, wanted="")


def is_current(state: RunState, answer: Reply) -> bool:
    for lane in open_states(state):
        attempt = lane.attempt
        if isinstance(answer, e.QuestionAnswered):
            if answer.id in (question.id for question in lane.questions):
                return True
            continue
        if attempt is None or attempt.refusal or attempt.revision or attempt.delivery.landed:
            continue
        delivery = attempt.delivery
        tree = attempt.answerable
        is_approved = bool(tree) and (delivery.is_approved or delivery.approved == tree) and not delivery.held
        shown = answer.replaces if isinstance(answer, ProposalMade) else answer.tree
        if shown == tree and not is_approved:
            return True
    return False


def does_other_work(state: RunState, asked: e.RunStarted) -> bool:
    was = state.started
    if was is None:
        return False
    if asked.anew:
        return True
    if (is_same := _is_same_work(asked, was)) is not None:
        return not is_same
    other = bool(open_lanes(state)) or asked.wanted not in (phases_at_work(state) or [asked.wanted])
    return _lands_elsewhere(asked, was) or (asked.mode is Mode.PHASE and other)


def as_resumed(asked: e.RunStarted) -> e.RunResumed:
    return convert(asked, e.RunResumed, from_attributes=True)


def requested_revision(state: RunState, asked: e.RunStarted) -> RevisionRequested | None:
    is_unfinished = state.started is not None and state.ended is None and not state.stop
    if asked.planning is None or not asked.planning.is_revision or not is_unfinished:
        return None
    return RevisionRequested(planning=asked.planning) if state.options.mode.works_phases else None


def does_what_is_asked(state: RunState, asked: e.RunStarted) -> bool:
    was = state.options
    if (is_same := _is_same_work(asked, was)) is not None:
        return is_same
    if _lands_elsewhere(asked, was) or (asked.anew and not was.anew):
        return False
    at_work = phases_at_work(state)
    if was.mode is Mode.FINISH:
        return asked.mode is not Mode.PHASE or failed_lane(state) is None or asked.wanted in at_work
    return asked.mode is Mode.NEXT or (asked.mode is Mode.PHASE and asked.wanted in at_work)


def _is_same_work(asked: e.RunStarted, was: e.RunStarted) -> bool | None:
    """Whether both are the same undo or write the same plan; None when both work on phases."""
    if asked.mode.works_phases and was.mode.works_phases:
        return None
    goals = [started.planning.goal if started.planning else "" for started in (asked, was)]
    return (asked.mode, asked.wanted) == (was.mode, was.wanted) and goals[0] == goals[1]


def _lands_elsewhere(asked: e.RunStarted, was: e.RunStarted) -> bool:
    return (asked.landing, asked.target, asked.remote) != (was.landing, was.target, was.remote)


def phases_at_work(state: RunState) -> list[str]:
    states = open_states(state)
    phases = (lane.attempt.chosen.phase if lane.attempt is not None else lane.options.wanted for lane in states)
    return [phase for phase in phases if phase]


def awaits_retry(state: RunState) -> bool:
    options = state.options
    is_work = options.daemon and options.auto and options.concludes and options.mode.works_phases
    return is_work and state.ended is not None and state.ended.outcome is RunOutcome.FAILED


def describe_busy(plan: str, run: str, state: RunState) -> str:
    phases = phases_at_work(state)
    work = f"{'phases' if len(phases) > 1 else 'phase'} {', '.join(phases)}" if phases else "another run"
    special = {Mode.UNDO: f"the undo of {work}", Mode.PLAN: "a plan that is being written"}
    work = special.get(state.options.mode, work)
    follow = command("runplan", "logs", plan, "-f")
    stop = command("runplan", "stop", plan)
    if decide(state).waiting in ANSWERED:
        see = command("runplan", "diff", plan)
        return f"{plan}: {work} ({run}) waits for your answer; nothing was changed. See it: {see}; end it: {stop}"
    return f"{plan} is busy with {work} ({run}); nothing was changed. Follow it: {follow}; end it: {stop}"


def describe_late(plan: str, answer: Reply) -> str:
    see = command("runplan", "status", plan)
    if isinstance(answer, e.QuestionAnswered):
        return f"the question {answer.id} of {plan} is already answered, or its run has ended; see: {see}"
    return f"no change of {plan} waits for an answer; see: {see}"


def describe_success(plan: str) -> str:
    return f"the last run of {plan} succeeded; nothing to retry"


def record_crash(error: Exception, active: ActiveRun, lane: str) -> RunplanError | None:
    """Record a defect of runplan itself; the error to raise, or None when the step is to be taken once more."""
    if refused := refused_by_system(error):
        return Unreachable(refused)
    active.context.store.require_there()
    detail = f"{type(error).__name__}: {error}"
    if active.state.stop:
        fail_run(active, detail)
    else:
        trace = "".join(traceback.format_exception(error, limit=-TRACED, chain=False))
        active.journal.append(StepCrashed(detail=detail, trace=trace), lane=lane)
        if await_retry(active.state.of_lane(lane)) is None:
            return None
    return Crashed(f"unexpected {detail} (--debug shows the traceback)")


def end_lost(active: ActiveRun) -> Unreachable | None:
    """End a run whose commits are gone from runplan's own repository; None when they are there."""
    workspace = active.context.workspace
    if active.state.host != active.state.home:
        return None  # they are fetched first
    attempts = (state.attempt for state in open_states(active.state))
    phases = [attempt for attempt in attempts if isinstance(attempt, WorkAttempt) and attempt.lease]
    needed = {phase.work.head if phase.work else phase.base for phase in phases}
    active.context.store.require_there()
    if workspace.is_whole and not any(workspace.git.run("cat-file", "-e", oid, ok=ANY).code == 1 for oid in needed):
        return None  # a killed git proves nothing
    names = [phase.leased.branch.removeprefix(HEADS) for phase in phases]
    lost = f"; commits of {' and '.join(names)} that only it held are lost" if names else ""
    detail = f"runplan's own repository {workspace.path} is gone or damaged{lost}"
    rest = "The next start or retry makes it again and continues with what the worktree and your branches hold"
    remedy = f"{rest}: {command('runplan', 'retry', active.context.plan)}"
    fail_run(active, detail, remedy)
    return Unreachable(f"{detail}. {remedy}")


def fail_run(active: ActiveRun, detail: str, remedy: str = "", reason: Reason = Reason.CRASHED) -> None:
    """End the run as failed: its agents end, the report names the error, and the claim is free."""
    journal = active.journal
    active.context.dispatches.end(list_running(journal.state), grace_s=GRACE_S)
    over = e.RunEnded(outcome=RunOutcome.FAILED, reason=reason, detail=detail, remedy=remedy)
    with suppress(Exception):  # the end of the run is recorded in any case
        over = replace(over, detail="; ".join((detail, *report_end(over, journal.state, active.context))))
    for state in open_states(journal.state):
        attempt = state.attempt
        if attempt is not None and attempt.failure is None and attempt.delivery.landed is None:
            lease = attempt.lease if isinstance(attempt, WorkAttempt) else None
            failed = e.PhaseFailed(phase=attempt.chosen.phase, reason=reason, step=attempt.step, detail=detail)
            failed = replace(failed, title=attempt.chosen.title, attempt=lease.attempt if lease else 1)
            journal.append(failed, *([over] if state.lane else []), lane=state.lane)
    journal.append(over)


def end_recorded_agents(state: Path, plan: str) -> list[str]:
    """End the agents of the plan, or of all plans (""), for a worker that does not answer; the plans that had any."""
    with closing(open_store(state, writable=False)) as store:
        meant = [row for row in store.list_unfinished_runs() if plan in ("", row.plan)]
        ids_by_plan = {row.plan: ids for row in meant if (ids := list_running(state_of(store, row)))}
    if ids_by_plan:
        Dispatches(state / "dispatch").end([id_ for ids in ids_by_plan.values() for id_ in ids], grace_s=GRACE_S)
    return list(ids_by_plan)
