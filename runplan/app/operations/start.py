"""Start a plan or an issue, preview it, and watch issues."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from runplan.adapters.agents import prompts
from runplan.adapters.agents.invocation import require_agents
from runplan.adapters.clock import SystemClock
from runplan.app.operations import runs
from runplan.app.operations.model import Answer, Caller, Declined, Where, operation
from runplan.app.operations.requests import StartRequest, WatchIssuesRequest
from runplan.app.views.plans import read_plans
from runplan.app.views.status import PlanState, describe_put_off
from runplan.domain import names
from runplan.domain.errors import NotFound, RefusedEarly, UsageError
from runplan.domain.plan.marks import ExecutionKind, PhaseSettings, PlanStatus, Status
from runplan.domain.plan.model import Phase, Plan
from runplan.domain.plan.tracker import assume_done, describe_hindrance
from runplan.domain.run.events import ReviewItem, RunStarted
from runplan.domain.run.kinds import Role
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rules.lanes import paths_overlap
from runplan.domain.settings.options import WORDS, Options, in_plan, parse_words
from runplan.domain.text import counted
from runplan.engine.landing import modes
from runplan.engine.loop import issues, preflight
from runplan.engine.loop.context import RepositoryContext, settings_note
from runplan.engine.report.summary import Outlook, forecast_phases, list_landed
from runplan.engine.steps.read_plan import choose_phase


@operation
def start(caller: Caller, request: StartRequest) -> Answer:
    with caller.open() as context:
        plan, asked = _read_words(caller, context, request)
        here = caller.where is Where.HERE
        if request.issue is not None and asked.every:
            raise UsageError(
                "every with --issue: an issue is worked on once, and has no plan yet; leave out one of them"
            )
        if here and asked.every:
            raise RefusedEarly("schedules need the daemon; leave out --foreground")
        if request.issue is not None:
            asked = in_plan(asked, ["1"])
            context = _with_pull_requests(caller, context, asked, "--issue")
            forge = modes.open_forge(context.git, context.settings.run, context.env)
            taken = issues.take_issue(context, forge, request.issue, now=SystemClock().now())
            if isinstance(taken, issues.TakenElsewhere):
                caller.say(taken.why)
                return Declined()
            context = taken.context
            plan = taken.plan
            asked = replace(asked, landing="pr", finish=asked.finish or context.settings.issues.plan)
        return start_run(caller, context, plan, asked, here=here)


def _read_words(caller: Caller, context: RepositoryContext, request: StartRequest) -> tuple[str, Options]:
    """The plan, which may be left out where only one is open, and the options of the request."""
    plan = request.plan if request.issue is None else ""
    if request.issue is None and (not plan or plan.lower() in WORDS):
        views, _ = read_plans(context, "", SystemClock().now(), warn=caller.warn)
        plans = [view for view in views if view.state is not PlanState.PAGE and not view.plan.startswith(names.WATCHES)]
        if not any(names.is_named(plan, view.plan) for view in plans):  # a plan may be called finish.md
            unfinished = [view.plan for view in plans if view.status == PlanStatus.ACTIVE]
            if len(unfinished) != 1:
                listed = f"{len(unfinished)} plans are open, name one: {', '.join(unfinished)}"
                put_off = describe_put_off(plans) or '; have one written: runplan plan "GOAL"'
                none = f"no plan under {context.settings.paths.plans}/ is open{put_off}"
                raise NotFound(listed if unfinished else none)
            plan = unfinished[0]
    asked = parse_words(request.options if plan == request.plan else (*filter(None, [request.plan]), *request.options))
    return plan, replace(asked, model=request.model, effort=request.effort, memory=not request.no_memory)


def _with_pull_requests(caller: Caller, context: RepositoryContext, asked: Options, option: str) -> RepositoryContext:
    """The context of runs that land by pr, after the checks of a start."""
    if asked.landing not in ("", "pr"):
        raise UsageError(f"{asked.landing} with {option}: the plan of an issue lands by pr; leave out {asked.landing}")
    context = runs.with_landing(context, "pr")
    runs.complete_landings(caller, context)
    context = runs.with_target_settings(context, "pr")
    planner = PhaseSettings(agent=context.settings.agents.planner)
    return preflight.with_agents_of(context, [planner]) if context.settings.issues.plan else context


def start_run(
    caller: Caller,
    context: RepositoryContext,
    word: str,
    asked: Options,
    *,
    here: bool,
    again: bool = False,
    like: RunStarted | None = None,
    review: tuple[ReviewItem, ...] = (),
) -> Answer:
    """Begin the run that the options ask for, in the daemon or `here`, in this process.

    `again`: as a retry of the plan's last run, which was `like`.
    """
    ready = runs.resolve_start(caller, context, word, asked, like=like, review=review)
    if not isinstance(ready, runs.Ready):
        return ready
    context = ready.context
    if asked.auto and (signed := _list_sign_offs(ready)):
        waits = f"{'phase' if len(signed) == 1 else 'phases'} {', '.join(phase.id for phase in signed)}"
        caller.say(f"{waits} will wait for your sign-off{_describe_others(ready, signed)}")
    if asked.every and asked.phase:
        caller.say(f"phase {asked.phase} is not chosen: a schedule works on the next phase each time")
    request = replace(ready.request, again=again)
    if here:
        return runs.run_here(caller, context, request)
    runs.admit_agents(caller, context)
    return runs.submit_run(caller, context, request, runs.timing_of(asked, context.settings.run))


def _list_sign_offs(ready: runs.Ready) -> list[Phase]:
    return [phase for phase in ready.plan.phases if phase.id in ready.phases and phase.sign_off]


def _describe_others(ready: runs.Ready, signed: Sequence[Phase]) -> str:
    """What the phases do that are not among those that wait for a sign-off."""
    others = [phase for phase in ready.plan.phases if phase.id in ready.phases and phase not in signed]
    if any(not any(paths_overlap(phase.touches, waiting.touches) for waiting in signed) for phase in others):
        return "; independent phases go on meanwhile"
    return "; no other phase goes on meanwhile: `Touches:` overlap or are missing" if others else ""


def preview_start(caller: Caller, request: StartRequest) -> str:
    if request.issue is not None:
        raise UsageError(
            "--dry-run with --issue: an issue is worked on once, and has no plan yet; leave out one of them"
        )
    with caller.open() as context:
        plan, asked = _read_words(caller, context, request)
        context = runs.with_target_settings(runs.with_landing(context, asked.landing), asked.landing)
        ready = runs.resolve_request(caller, context, runs.resolve_plan(context, plan), asked)
        if isinstance(ready, str):
            return ready
        if note := settings_note(context):
            caller.say(note)
        in_dollars = context.settings.limits.in_dollars
        try:
            if context.fleet is None:  # else they run on other machines
                require_agents(context.settings.agents, root=context.root, caller=context.env, in_dollars=in_dollars)
        except RefusedEarly as error:
            caller.warn(f"a start would be refused: {error}")
        started = ready.request.started
        forecast = _forecast_start(context, [phase for phase in ready.plan.phases if phase.id in ready.phases])
        after = assume_done(ready.plan, *ready.phases)
        worked: list[str] = []
        others: list[str] = []
        for phase in ready.plan.phases:
            if phase.id in ready.phases:
                worked.append(_describe_phase(context, started, phase))
            elif asked.finish and phase.status is not Status.DONE:
                others.append(f"phase {phase.id:<5} is not worked: it {describe_hindrance(after, phase)}")
    agents = context.settings.agents
    signed = _list_sign_offs(ready)
    pauses = f"before the landing of {', '.join(phase.id for phase in signed)}" if signed else "none"
    lines = [
        f"plan        {started.plan} ({started.title})",
        f"target      {started.target}, landing by {started.landing}",
        f"pauses      {pauses if started.auto else 'before each landing'}",
        f"agents      {agents.implementer} implements, verified by {' and '.join(agents.judges)}",
        f"tests       {context.settings.tests.command or 'none'}",
        f"forecast    {forecast}",
        "",
        *worked,
        *others,
        "",
        "Nothing was changed.",
    ]
    return "\n".join(lines)


def forecast_open_phases(caller: Caller, plan: Plan) -> str:
    with caller.open(lenient=True) as context:
        return _forecast_start(context, [phase for phase in plan.phases if phase.status is not Status.DONE])


def _forecast_start(context: RepositoryContext, phases: Iterable[Phase]) -> str:
    usual = context.settings.agents.implementer
    outlook = [Outlook(phase.own.agent or usual, len(phase.items)) for phase in phases]
    return forecast_phases(outlook, list_landed(context.store()))


def check_start(caller: Caller, plan: str) -> None:
    """Refuse what a start of the whole plan would refuse; nothing is changed."""
    with caller.open() as context:
        context = runs.with_target_settings(runs.with_landing(context, ""), "")
        modes.require_ready(context.repository, context.settings, context.env)
        ready = runs.resolve_request(caller, context, runs.resolve_plan(context, plan), Options(finish=True))
        if isinstance(ready, runs.Ready):
            runs.admit_agents(caller, ready.context)


def _describe_phase(context: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    head = f"phase {phase.id:<5} {phase.title}"
    if phase.execution.kind in (ExecutionKind.PLAN, ExecutionKind.DELEGATE):
        return f"{head}\n  {phase.execution.text}"
    branch = names.branch(context.settings.run.branch_prefix, started.slug, phase.id)
    read = choose_phase(phase, tip="")
    brief = prompts.Brief(
        plan=started.plan, chosen=read, worktree="", branch=branch, test_command=context.settings.tests.command
    )
    size = len(prompts.implement_prompt(preflight.require_prompts(context)[Role.IMPLEMENT].text, brief).encode())
    return f"{head}\n  branch {branch}; prompt of {size} bytes with {counted(len(phase.items), 'item')}"


@operation
def watch_issues(caller: Caller, request: WatchIssuesRequest) -> Answer:
    asked = in_plan(parse_words(request.options), ())
    label = request.label
    if not asked.every:
        raise UsageError("watch-issues needs a schedule, such as: every 10m")
    if not label.strip() or "," in label or not names.is_plain(label):
        raise RefusedEarly("the label is empty, or has a comma or control characters; a watch has one label")
    with caller.open() as context:
        context = _with_pull_requests(caller, context, asked, "watch-issues")
        asked = replace(asked, finish=context.settings.issues.plan)
        preflight.require_test_command(context)
        runs.admit_agents(caller, context)
        started = runs.run_started(context, f"{names.WATCH}{label}", f"Issues with the label {label}", asked)
        return runs.submit_run(
            caller, context, RunRequest(started=started), runs.timing_of(asked, context.settings.run)
        )
