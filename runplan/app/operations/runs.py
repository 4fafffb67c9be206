"""Turns a plan and options into a run request, after all checks, and has it executed: here, or by the daemon."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.environment import for_a_run, needed_by_a_run
from runplan.adapters.agents.invocation import home_use
from runplan.adapters.configuration.load import USER_PREFIXES, list_secret_places, load_user, setting_variables
from runplan.adapters.configuration.places import state_directory
from runplan.adapters.git.command import ANY
from runplan.adapters.sandbox.engines import is_used, require_sandbox
from runplan.adapters.sandbox.home import HomeMounts
from runplan.app.operations.model import Accepted, Answer, Caller, Declined
from runplan.app.views.journal import follow_events
from runplan.app.views.plans import ANSWER_S, ask_daemon
from runplan.domain import errors
from runplan.domain.decoding import parse_json
from runplan.domain.names import WATCHES
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.decide import decide, is_ending
from runplan.domain.run.events import Answered, ReviewItem, RunStarted
from runplan.domain.run.kinds import FOR_ANSWER, Mode, RunStatus
from runplan.domain.run.recorded import from_json
from runplan.domain.run.requests import BY_PERSON, RunRequest, Timing
from runplan.domain.run.rows import Answer as RowAnswer, Command, RunRow
from runplan.domain.run.state import RunState
from runplan.domain.settings.options import Options, in_plan
from runplan.domain.settings.schedule import describe_delay
from runplan.domain.settings.schema import RunSettings, uses_remote
from runplan.domain.text import command, dated, plain
from runplan.domain.times import parse_iso, zone
from runplan.engine.landing import modes
from runplan.engine.loop import context as contexts, preflight
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.repository import open_repository
from runplan.engine.loop.runs import describe_busy, does_what_is_asked, find_awaited, state_of
from runplan.hosts.daemon.state import Known, remember_repository, wake_daemon
from runplan.hosts.daemon.submit import submit_commands
from runplan.hosts.foreground import ForegroundHost, Interruption

MOST_TARGETS = 3  #: branches whose settings may name another target, in a row


class Ready(Struct, frozen=True, kw_only=True):
    """A start that passed all checks: the context of its run, and the request."""

    context: RepositoryContext
    request: RunRequest
    plan: Plan
    phases: list[str]  #: ids of those that would be worked on


def resolve_start(
    caller: Caller,
    context: RepositoryContext,
    word: str,
    asked: Options,
    *,
    like: RunStarted | None = None,
    review: tuple[ReviewItem, ...] = (),
) -> Ready | Answer:
    """Resolve the plan and the settings of a start, and check everything that can be refused.

    `like` is the run that is retried: the new one lands in the same place. A run at work takes a `review`, too.
    """
    context = with_landing(context, asked.landing)
    path = ""
    if not review and context.store().list_active_plans():
        path = contexts.plan_path(context, word)
        left = unfinished_run(context, path)
        if left is not None and left[1].options.mode is Mode.PLAN:
            if decide(left[1]).waiting in FOR_ANSWER:
                see = command("runplan", "diff", path)
                raise errors.Busy(f"{path} is a proposal that waits for your answer; see: {see}")
            if context.store().get_living_owner(path):
                raise errors.Busy(describe_busy(path, left[0].id, left[1]))
    if path and not asked.every and (running := _already_running(caller, context, path, asked)) is not None:
        return running
    for sentence in context.left_out:
        caller.warn(sentence)
    remarks = complete_landings(caller, context)
    context = with_target_settings(context, asked.landing, like=like)
    start = resolve_request(caller, context, path or resolve_plan(context, word), asked)
    if isinstance(start, str):
        caller.say(start)
        return Declined()
    request = replace(start.request, started=replace(start.request.started, review=review, remarks=remarks))
    if (left := unfinished_run(context, request.started.plan)) is not None:  # a resumed run keeps its settings
        context = context.for_run(left[1].options)
    elif note := contexts.settings_note(context):
        caller.say(note)
    return replace(start, context=context, request=request)


def resolve_plan(context: RepositoryContext, word: str) -> str:
    """The path of the plan; a repository without a commit has none."""
    context.tip()
    return contexts.plan_path(context, word)


def _already_running(caller: Caller, context: RepositoryContext, plan: str, asked: Options) -> Accepted | None:
    """Find a live process that does what is asked, before the remote is asked, which may hang.

    Other work is refused. A run that is being stopped, or has only to clean up, ends first.
    """
    store = context.store()
    row = store.get_interrupted_run(plan)
    owner = store.get_living_owner(plan)
    if row is None or row.state != RunStatus.RUNNING or not owner or row.asked:
        return None
    if any(queued.plan == plan for queued in store.list_queued_commands()):
        return None
    state = state_of(store, row)
    if is_ending(state):
        return None
    context = context.landing_like(row)
    phases = parse_plan(preflight.committed_plan(context, plan, is_compared=False), path=plan).phases
    wanted = in_plan(asked, [phase.id for phase in phases])
    request = run_started(context.with_landing(asked.landing or row.landing), plan, row.title, wanted)
    if not does_what_is_asked(state, request):
        raise errors.Busy(describe_busy(plan, row.id, state))
    if not row.daemon:
        caller.say(describe_owner(plan, owner))
        return Accepted(plan=plan)
    wake_daemon(context.env)  # the repository may have been away
    hello = ask_daemon(context.env, answer_s=ANSWER_S)
    if not isinstance(hello, str) and hello.draining:
        again = command("runplan", "daemon", "restart")
        caller.warn(f"the daemon is shutting down; the next one continues {plan}. Start it: {again}")
    caller.say(_describe_running(plan, row.id))
    return Accepted(plan=plan, run=row.id)


def _describe_running(plan: str, run: str) -> str:
    return f"{plan} is already running ({run}); see: {command('runplan', 'status', plan)}"


def name_person(caller: Caller, context: RepositoryContext) -> str:
    """Who speaks, and by which way; a link is for everyone who has it."""
    way = plain(caller.by)
    person = context.git.run("config", "user.name", ok=ANY).text or "a person"
    return way if way.startswith("link ") else f"{person} ({way})"


def describe_owner(plan: str, owner: str) -> str:
    pid = owner.partition(":")[0]
    follow = command("runplan", "logs", plan, "-f")
    return f"{plan} is already running in another process ({pid}); nothing was changed. Follow it: {follow}"


def with_landing(context: RepositoryContext, landing: str) -> RepositoryContext:
    """The context with this landing mode, else that of the settings; it decides the tip that the plan is read from."""
    landing = landing or context.settings.run.landing
    modes.require_allowed(landing, context.settings.run, is_fleet=context.fleet is not None)
    return context.with_landing(landing)


def complete_landings(caller: Caller, context: RepositoryContext) -> tuple[str, ...]:
    """Complete interrupted landings, and refuse a target that cannot be landed on; remarks for the report."""
    notes = preflight.settle_lost_landings(context)
    remarks = modes.require_ready(context, context.settings, context.env)
    for note in (*notes, *remarks):
        caller.warn(note)
    return remarks


def with_target_settings(
    context: RepositoryContext, landing: str, *, like: RunStarted | None = None
) -> RepositoryContext:
    """The context with this landing mode and the settings of the target's tip, which a new run uses."""
    context = with_landing(context, landing)
    for _ in range(MOST_TARGETS):
        there = with_landing(context.with_committed_settings(), landing)
        if like is not None:
            return there.with_landing(there.settings.run.landing, target=like.target, remote=like.remote)
        if there.target == context.target:
            return there
        modes.require_ready(there, there.settings, there.env)
        context = there
    raise errors.SettingsError(
        f"run.target: the settings on each branch name another one; the last is {context.target_name}"
    )


def prepare_run(caller: Caller, context: RepositoryContext, landing: str) -> RepositoryContext:
    """The context of a new run with this landing mode; interrupted landings are completed before."""
    complete_landings(caller, with_landing(context, landing))
    return with_target_settings(context, landing)


def resolve_request(caller: Caller, context: RepositoryContext, path: str, asked: Options) -> Ready | str:
    """The request for a run of the plan, which is read from the target, or its own branch; or why none is due."""
    on_target = context
    if context.settings.run.concludes:
        context = replace(context, pull=contexts.slug_of(context, path))
        modes.fetch_branch(context, context.settings.run, context.pull, context.env)
    tip = context.tip()
    resuming = context.store().get_interrupted_run(path) is not None
    text = preflight.committed_plan(context, path, is_compared=not resuming)
    plan = parse_plan(text, path=path)
    asked = in_plan(asked, [phase.id for phase in plan.phases])
    phases = preflight.phases_to_work(plan, text, tip=tip, options=asked, resuming=resuming)
    preflight.require_clear(plan)
    if isinstance(phases, str):
        if not context.is_on_branch:
            return phases
        phases = []  # the pull request is still to be merged
    if not asked.phase and not resuming:
        preflight.require_open(context, plan, tip)
    plan = preflight.foresee_refusals(context, plan, tip)
    preflight.require_clear(plan)
    preflight.require_landable(context, plan)
    override = PhaseSettings(model=asked.model, effort=asked.effort)
    preflight.list_wanted_agents(context.settings.agents, override)
    wanted = [override, *preflight.list_own(context, plan.phases)]
    on_target, context = (preflight.with_agents_of(place, wanted) for place in (on_target, context))
    preflight.require_subplans(on_target, plan)
    if unnamed := preflight.require_test_command(context):
        caller.warn(unnamed)
    started = context.record_settings(run_started(context, path, plan.title, asked, issues=plan.issues))
    new = [] if resuming else phases
    preflight.require_places(context, plan=path, slug=started.slug, phases=new, tip=tip)
    for remark in plan.remarks:
        if remark.landing != started.landing:
            caller.warn(f"{path}:{remark.line}: {remark.text}")
    return Ready(context=on_target, request=RunRequest(started=started), plan=plan, phases=phases)


def run_started(
    context: RepositoryContext, plan: str, title: str, asked: Options, *, issues: tuple[int, ...] = ()
) -> RunStarted:
    """A run with these options and the landing of this context; `plan` may be a watch of issues."""
    run = context.settings.run
    variables = setting_variables(context.env).items()
    return RunStarted(
        plan=plan,
        title=title,
        mode=asked.mode,
        wanted=asked.phase,
        auto=asked.auto,
        anew=asked.anew,
        landing=run.landing,
        target=run.target,
        slug="" if plan.startswith(WATCHES) else contexts.slug_of(context, plan),
        issues=issues,
        remote=run.remote if uses_remote(run.landing) else "",
        concludes=run.concludes,
        given=tuple((name, text) for name, text in variables if not name.startswith(USER_PREFIXES)),
        memory=asked.memory,
        model=asked.model,
        effort=asked.effort,
    )


def unfinished_run(context: RepositoryContext, plan: str) -> tuple[RunRow, RunState] | None:
    store = context.store()
    row = store.get_interrupted_run(plan)
    return (row, state_of(store, row)) if row is not None else None


def submit_command(
    caller: Caller,
    context: RepositoryContext,
    plan: str,
    verb: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    wait: bool = True,
) -> RowAnswer | None:
    """Submit a command; its answer, or None while the daemon is busy, unless `wait`. A refusal is raised."""
    asked = Command(plan=plan, verb=verb, arguments=arguments or {}, by=BY_PERSON, at="")
    (answer,) = submit_commands(context, [asked], say=caller.say, wait=wait, limit_s=caller.limit_s)
    if answer is not None and answer.error:
        raise errors.error_with(answer.error, answer.exit)
    return answer


def for_daemon(context: RepositoryContext, started: RunStarted) -> RunStarted:
    """The run with the names of the variables that the daemon has to have for it; a fleet's workers have their own."""
    if context.fleet is not None:
        return replace(started, daemon=True, given=(), settings=None)
    agents = context.settings.agents
    checks = context.settings.tests.env
    sent = for_a_run(context.env, agents, forge=started.concludes, checks=checks)
    needs = needed_by_a_run(sent, agents, pushes=uses_remote(started.landing), forge=started.concludes, checks=checks)
    return replace(started, daemon=True, needs=needs)


def timing_of(asked: Options, run: RunSettings) -> Timing | None:
    if not asked.every:
        return None
    return Timing(every=asked.every, now=asked.now, zone=run.timezone, misfire=run.misfire)


def submit_run(caller: Caller, context: RepositoryContext, request: RunRequest, timing: Timing | None = None) -> Answer:
    plan = request.started.plan
    seen = context.store().get_newest_event()
    left = context.store().get_interrupted_run(plan)
    orphan = left.id if left is not None and not context.store().get_living_owner(plan) else ""
    submitted = replace(request, started=for_daemon(context, request.started), timing=timing)
    wait = context.fleet is None or caller.waits or request.reply is not None
    answer = submit_command(caller, context, plan, "start", to_builtins(submitted), wait=wait)
    if answer is None:
        see = command("runplan", "status", plan)
        caller.say(f"The start is stored, and the next free host executes it. See: {see}")
        return Accepted(plan=plan)
    if orphan and answer.run == orphan and not answer.declined and request.reply is None:
        answer = replace(answer, resumed=True)  # by the daemon, which was started for the command
    if timing is not None and answer.scheduled:
        first = parse_iso(answer.scheduled).astimezone(zone(context.settings.run.timezone))
        instead = f" instead of every {answer.instead}" if answer.instead else ""
        moved = f" ({why})" if (why := describe_delay(timing.every, plan)) else ""
        caller.say(f"Scheduled {plan} every {timing.every}{instead}, first at {dated(first)}{moved}")
        if not timing.now:
            return Accepted(plan=plan)
    return tell_answer(caller, plan, answer, None if timing else request, seen=seen)


def admit_agents(caller: Caller, context: RepositoryContext, *, is_new: bool = True) -> None:
    """Refuse agents that cannot run, and a server of trials; say that there is no sandbox, if one was wanted."""
    if context.fleet is not None:
        return  # they run on other machines
    preflight.require_agents(context)
    server = context.settings.trial.serve if context.settings.trial.paths else ""
    program = preflight.missing_program(context, server)
    if program and "/" not in program:  # the work may bring one with a path
        remedy = f"install {program}, or set try.serve to another command"
        raise errors.RefusedEarly(f"try.serve, `{server}`: {program} was not found; {remedy}")
    sandboxes = context.settings.agents.sandboxes
    off = [key for key, mode in sandboxes.items() if mode == "none"]
    if off and len(off) < len(sandboxes) and is_new:
        caller.warn(f'{off[0]} = "none": this agent can do what you can, so the run is unprotected')
    if require_sandbox(context.settings.agents, context.settings.tests, context.env) is not None and is_new:
        caller.warn("no sandbox: an agent can do what you can; see: runplan doctor")
    elif any(is_used(mode, context.env) for mode in sandboxes.values()):
        for sentence in HomeMounts(context.env, home_use(context.settings.tests)).describe_left_out():
            caller.warn(sentence)
    tables = context.settings.agents.used if is_new and context.settings.run.pace else ()
    if silent := [table.name for table in tables if not agent_of(table.kind).reports_quota]:
        caller.warn(f"run.pace has no effect on {', '.join(silent)}, which report no use of their usage window")
    for section in ("agents", "tests"):
        for key, place in list_secret_places(to_builtins(getattr(context.settings, section)), context.env):
            caller.warn(f"{section}.{key} = {place}: the sandbox opens a place with keys of yours")


def run_here(caller: Caller, context: RepositoryContext, request: RunRequest) -> Answer:
    """Execute the run in this process; errors from outside name the command that continues it. Not in a fleet."""
    if context.fleet is not None and request.started.mode is Mode.UNDO:
        return submit_run(caller, context, request)
    if context.fleet is not None:
        raise errors.SettingsError(
            "fleet.dsn is set, so workers do the work and not this process; leave out --foreground"
        )
    plan = request.started.plan
    if request.started.mode is not Mode.UNDO:
        admit_agents(caller, context, is_new=unfinished_run(context, plan) is None)
    retry = command("runplan", "retry", plan)
    with (
        Interruption(load_user(context.env).daemon.grace_s) as interruption,
        open_repository(context, wakeup=interruption.wakeup) as repository,
    ):
        known = Known(common=str(context.common_dir), root=str(context.root))
        try:
            remember_repository(state_directory(context.env), known)
        except errors.Unreachable as error:  # the run does not depend on it
            caller.warn(f"{error}; report --since will not list this repository")
        host = ForegroundHost(interruption, context.env, show=caller.show, warn=caller.warn)
        host.owner.open(context, repository)
        try:
            answer = host.run(request)
        except KeyboardInterrupt:
            raise errors.Interrupted(f"interrupted; all agents are stopped. Continue with: {retry}") from None
        except (errors.Fenced, errors.JournalDamaged):
            raise  # this journal cannot be continued
        except errors.Unreachable as error:
            if plan not in host.owner.runs:  # it has not begun
                raise
            raise errors.Unreachable(f"{error}; the work is kept. Continue with: {retry}") from error
    row = context.store().get_run(answer.run)
    is_over = row is not None and row.state == RunStatus.STOPPED  # no agent has taken up the words of a rejection
    said = request.answer
    if answer.declined or (said is not None and not said.approved and (not said.why or is_over)):
        return tell_answer(caller, plan, answer, request)
    return Accepted(plan=plan, run=answer.run, is_ended=True, root=str(context.root))


def follow_run(caller: Caller, context: RepositoryContext, accepted: Accepted) -> None:
    """Show the events of the run until it ends or waits for a person."""
    with closing(context.store()) as store:
        after = store.get_newest_event() if accepted.seen is None else accepted.seen
        for rows, _ in follow_events(store, accepted.plan, accepted.run, after=after):
            for event in filter(None, (from_json(row.type, row.body) for row in rows)):
                caller.show(event)
        row = store.get_run(accepted.run)
        if row is not None and row.is_active and not find_awaited(store, row).needs_person:
            status = command("runplan", "status", accepted.plan)
            raise errors.Unreachable(f"the daemon has ended, and no process works on {row.id}; see: {status}")


def start_next(caller: Caller, context: RepositoryContext, run: str) -> None:
    """Have the daemon begin the run that follows a planning run, which has queued it; with the keys of this caller."""
    store = context.store()
    row = store.get_run(run)
    state = state_of(store, row) if row is not None else RunState()
    if isinstance(state.attempt, PlanningAttempt) and state.attempt.queued:
        request = parse_json(state.attempt.chosen.planning.then, RunRequest)
        submit_run(caller, context.for_run(state.options), replace(request, timing=None), request.timing)


def tell_answer(
    caller: Caller, plan: str, answer: RowAnswer, request: RunRequest | None = None, *, seen: int | None = None
) -> Answer:
    """Say what became of a request; None is that of a schedule."""
    is_watch = plan.startswith(WATCHES)
    plan = answer.plan or plan
    reply = request.reply if request is not None else None
    for text in answer.warnings:
        caller.warn(text)
    if answer.declined and answer.owner:
        caller.say(describe_owner(plan, answer.owner))
    elif answer.declined and request is None:
        caller.say(f"Not started: {answer.why}")
        return Declined(exit=errors.Exit.DONE if is_watch else errors.Exit.WAITING)
    elif answer.declined and (reply is not None or answer.exit):
        raise errors.error_with(answer.why, answer.exit or errors.Exit.NOT_FOUND)
    elif answer.declined:
        caller.say(answer.why)
    elif isinstance(reply, Answered) and not reply.approved and answer.run:
        see = command("runplan", "status", plan)
        is_plan = request is not None and request.started.planning is not None
        kept = "" if reply.why or is_plan else "; its work stays on its branch"
        caller.say(f"Rejected {answer.run}{kept}. See: {see}")
    elif answer.fresh or answer.resumed:
        done = f"Resumed {answer.run}" if answer.resumed else f"Accepted as {answer.run}"
        caller.say(f"{done}; follow it: {command('runplan', 'logs', plan, '-f')}")
    else:
        caller.say(_describe_running(plan, answer.run))
    return Declined() if answer.declined else Accepted(plan=plan, run=answer.run, seen=seen)
