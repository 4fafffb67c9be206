"""Retry and undo: resume a run, continue a failed phase, revert a landed one."""

from msgspec.structs import replace

from runplan.adapters.store.protocol import Store
from runplan.app.operations import runs
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, Where, operation
from runplan.app.operations.requests import RetryRequest, UndoRequest
from runplan.app.operations.start import start_run
from runplan.domain.errors import Busy, NotFound, RefusedEarly
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.events import ReviewItem, RunStarted
from runplan.domain.run.kinds import Mode, RunStatus
from runplan.domain.run.requests import RunRequest
from runplan.domain.settings.options import Options
from runplan.domain.text import command
from runplan.engine.landing import modes
from runplan.engine.landing.conversation import find_due, list_comments
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, newest_run, plan_path, slug_of
from runplan.engine.loop.runs import describe_busy, describe_success, state_of
from runplan.engine.steps.conclude import list_answers
from runplan.engine.steps.land import landing_to_undo


@operation
def retry(caller: Caller, request: RetryRequest) -> Answer:
    with caller.open() as context:
        store, row = newest_run(context, request.plan)
        last = state_of(store, row).options
        context = context.for_run(last)
        here = not last.daemon if caller.where is Where.AS_BEFORE else caller.where is Where.HERE
        review: tuple[ReviewItem, ...] = ()
        if request.review:
            review = _new_comments(caller, context, last, store)
            if not review:
                return Declined()
            last = replace(last, mode=Mode.FINISH, wanted="", auto=False) if last.mode is Mode.UNDO else last
        elif request.phase:
            options = (state_of(store, run).options for run in store.list_runs(last.plan))
            worked = next((started for started in options if started.mode not in (Mode.UNDO, Mode.PLAN)), None)
            last = replace(worked or replace(last, daemon=True, auto=False), mode=Mode.PHASE, wanted=request.phase)
        elif row.state == RunStatus.DONE:
            caller.say(describe_success(row.plan))
            return Declined()
        elif last.mode is Mode.UNDO:
            return _undo_phase(caller, context, row.plan, last.wanted)
        elif last.mode is Mode.PLAN:
            again = RunRequest(started=replace(last, command=0, anew=request.fresh), again=True)
            return (runs.run_here if here else runs.submit_run)(caller, context, again)
        is_again = not request.phase and not request.review
        asked = Options(
            phase=last.wanted, finish=last.mode is Mode.FINISH, auto=last.auto, landing=last.landing, anew=request.fresh
        )
        if last.mode is not Mode.PLAN:  # whose model was for the planner
            asked = replace(asked, model=last.model, effort=last.effort, memory=last.memory)
        return start_run(caller, context, row.plan, asked, here=here, again=is_again, like=last, review=review)


def _new_comments(caller: Caller, context: RepositoryContext, last: RunStarted, store: Store) -> tuple[ReviewItem, ...]:
    """The comments of reviewers on the plan's open pull request that no run has handled."""
    if not last.concludes:
        raise RefusedEarly(f"the last run of {last.plan} landed by {last.landing}; only a pull request has a review")
    run = context.settings.run
    forge = modes.open_forge(context.git, run, context.env)
    text = preflight.committed_plan(context.for_plan(last.plan), last.plan, is_compared=False)
    plan = parse_plan(text, path=last.plan)
    pull = next(modes.list_open(forge, context.settings, last.slug, plan), None)  # the lowest one of a stack
    if pull is None:
        raise NotFound(f"{last.plan} has no open pull request; see: {command('runplan', 'status', last.plan)}")
    messages = forge.read_activity(pull.number, pull.head).messages
    due = find_due(messages, handled=list_answers(store, last.plan), login=forge.own_login, may_write=forge.may_write)
    if due.strangers:
        is_shown = "are shown to the agent" if context.settings.issues.trust == "all" else "are left out (issues.trust)"
        authors = sorted({message.author for message in due.strangers})
        caller.warn(f"comments of accounts without write access {is_shown}: {', '.join(authors)}")
    if not due.requests:
        caller.say(f"no new review comments on {pull.name}; nothing to do")
        return ()
    return list_comments(due, with_strangers=context.settings.issues.trust == "all")


@operation
def undo(caller: Caller, request: UndoRequest) -> Answer:
    with caller.open() as context:
        return _undo_phase(caller, context, plan_path(context, request.plan), request.phase)


def _undo_phase(caller: Caller, context: RepositoryContext, path: str, wanted: str) -> Answer:
    """Revert the phase in this process, with the landing mode of the plan."""
    context = context.for_plan(path)
    runs.complete_landings(caller, context)
    plan = parse_plan(preflight.committed_plan(context, path, is_compared=False), path=path)
    left = runs.unfinished_run(context, path)
    if left is not None and (owner := context.store().get_living_owner(path)):
        was = left[1].options
        if (was.mode, was.wanted) != (Mode.UNDO, wanted):
            raise Busy(describe_busy(path, left[0].id, left[1]))
        caller.say(runs.describe_owner(path, owner))
        return Accepted(plan=path)
    phase = preflight.require_phase(plan, wanted)
    unfinished = left[1].started if left is not None else None
    if unfinished is None:
        if phase.status != "done":
            raise RefusedEarly(f"phase {phase.id} of {plan.path} is not done; there is nothing to undo")
        upon = [other.id for other in reversed(plan.phases) if other.status == "done" and phase.id in other.depends]
        if upon:
            first = command("runplan", "undo", plan.path, upon[0])
            depend = f"phase {upon[0]} depends" if len(upon) == 1 else f"phases {', '.join(upon)} depend"
            raise RefusedEarly(f"{depend} on phase {phase.id}; undo {upon[0]} first: {first}")
        slug = slug_of(context, plan.path)
        merged = modes.fetch_merged(context.repository, context.settings, slug, context.env, plan)
        landing_to_undo(context.tip(), plan, phase, target=context.target_name, objects=context.git, merged=merged)
    elif (unfinished.mode, unfinished.wanted) != (Mode.UNDO, phase.id):
        ways = f"continue it: {command('runplan', 'retry', path)}; or end it: {command('runplan', 'stop', path)}"
        raise RefusedEarly(f"a run of {path} has not ended; {ways}")
    context = runs.with_landing(context.with_committed_settings().for_plan(path), "")
    asked = runs.run_started(context, path, plan.title, Options(phase=phase.id, auto=True))
    return runs.run_here(caller, context, RunRequest(started=context.record_settings(replace(asked, mode=Mode.UNDO))))
