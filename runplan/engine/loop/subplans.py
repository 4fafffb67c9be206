"""Sub-plans: plans that do a phase of another plan, each in a run of its own, which the worker begins."""

from collections.abc import Callable, Container

from msgspec.structs import replace

from runplan.adapters.git.objects import read_plan
from runplan.domain.errors import PlanUnreadable, RefusedEarly
from runplan.domain.plan.marks import ExecutionKind, PlanStatus, Status
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import Mode, Reason, WaitKind
from runplan.domain.run.state import RunState, failure
from runplan.domain.text import command
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, slug_of
from runplan.engine.loop.runs import ActiveRun, state_of

MAX_DEPTH = 3  #: sub-plans below each other


def require_subplans(context: RepositoryContext, plan: Plan) -> None:
    """Refuse a plan with a sub-plan that is missing, cannot be worked, is nested too deep or waits for the plan."""
    tip = context.tip()

    def read(path: str) -> Plan:
        if path == plan.path:
            return plan
        text = read_plan(context.git, f"{tip}:{path}", path)
        if text is None:
            raise RefusedEarly(f"{path}: no such plan on {context.target_name}")
        subplan = parse_plan(text, path=path)
        if subplan.status not in (PlanStatus.ACTIVE, PlanStatus.COMPLETE):
            raise RefusedEarly(f"{path}: the plan says status: {subplan.status}")
        preflight.require_clear(subplan)
        preflight.require_executions(context, subplan)
        return subplan

    if why := describe_nesting(read, (plan.path,)):
        raise RefusedEarly(why)


def describe_nesting(read: Callable[[str], Plan], chain: tuple[str, ...]) -> str:
    """Why the last plan of the chain cannot be worked: it or one below it is in a cycle or too deep; "" if it can."""
    *above, path = chain
    shown = " → ".join(chain)
    if path in above:
        return f"the plans wait for each other: {shown}; remove one of the lines `Execution: plan …`"
    if len(above) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} sub-plans are below each other: {shown}"
    plan = read(path)
    is_open = plan.status is PlanStatus.ACTIVE
    phases = [phase for phase in plan.phases if is_open and phase.status is not Status.DONE]
    subplans = [phase.execution.argument for phase in phases if phase.execution.kind is ExecutionKind.PLAN]
    return next(filter(None, (describe_nesting(read, (*chain, subplan)) for subplan in subplans)), "")


def awaited_plan(state: RunState) -> str:
    is_at_work = state.ended is None and isinstance(state.attempt, WorkAttempt)
    return state.work.awaited_plan if is_at_work else ""


def examine_subplan(
    active: ActiveRun, state: RunState, *, here: RepositoryContext, owned: Container[str]
) -> e.Event | None:
    """An end of the sub-plan to record, or the `RunStarted` or `StopRequested` of its own run; None while it runs."""
    path = awaited_plan(state)
    if not path or decide(state).waiting is not WaitKind.SUBPLAN or state.pause is not None:
        return None
    store = active.context.store
    own_runs = [fact.run for fact in store.list_facts(e.RunStarted, plan=path) if fact.event.parent == active.id]
    own = store.get_run(own_runs[-1]) if own_runs else None
    if state.stop and own is not None and own.is_active:
        return e.StopRequested(by=state.stop)
    if state.stop:  # a run that the parent did not begin continues
        return e.SubplanEnded(complete=False, run=own.id if own else "", detail=f"{path} was stopped")
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
    is_over = own is None or not own.is_active  # else the run was interrupted, and is resumed
    if plan.complete and is_over:
        return e.SubplanEnded(complete=True, run=own.id if own else "")
    if nesting and is_over:
        return e.WorkRefused(reason=Reason.BLOCKED, detail=nesting)
    if own is not None and is_over:
        ended = state_of(store, own)
        failed = failure(ended)
        where = f"phase {failed.phase}, " if failed is not None and failed.phase else ""
        why = f": {ended.ended.detail}" if ended.ended is not None and ended.ended.detail else ""
        see = command("runplan", "report", path)
        detail = f"{path} is not complete ({where}{own.reason or own.outcome}){why}; see: {see}"
        return e.SubplanEnded(complete=False, run=own.id, detail=detail)
    above = (*state.options.parents, state.options.plan)
    asked = replace(state.options, review=(), remarks=(), command=0, watch="", parent=active.id, parents=above)
    asked = replace(asked, plan=plan.path, title=plan.title, slug=slug_of(here, path), issues=plan.issues)
    return replace(asked, mode=Mode.FINISH, wanted="")
