"""Start a plan, an issue or the ready plans of the queue, preview it, watch issues; retry a run, undo a phase."""

from collections.abc import Iterable
from contextlib import closing

from msgspec.structs import replace

from runplan.adapters.agents import prompts
from runplan.adapters.agents.invocation import require_agents
from runplan.adapters.clock import SystemClock
from runplan.adapters.store.protocol import Store, open_store
from runplan.app.operations import requests, runs
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, Where, operation
from runplan.app.views.plans import read_plans
from runplan.app.views.status import PlanState, describe_put_off
from runplan.domain import names
from runplan.domain.errors import Busy, NotFound, RefusedEarly, UsageError
from runplan.domain.globs import covers
from runplan.domain.plan.marks import ExecutionKind, PhaseSettings, PlanStatus, Status
from runplan.domain.plan.model import Phase, parse_plan
from runplan.domain.plan.tracker import assume_done, describe_hindrance
from runplan.domain.run.events import ReviewItem, RunStarted
from runplan.domain.run.kinds import Mode, Role, RunStatus
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rules.lanes import paths_overlap
from runplan.domain.settings.options import WORDS, Options, in_plan, parse_words
from runplan.domain.standing.queue import PINNED, move_plan
from runplan.domain.text import command, counted, plain
from runplan.engine.landing import modes
from runplan.engine.landing.conversation import find_due, list_comments
from runplan.engine.loop import issues, preflight
from runplan.engine.loop.context import RepositoryContext, newest_run, plan_path, read_queue, settings_note, slug_of
from runplan.engine.loop.runs import describe_busy, describe_success, state_of
from runplan.engine.report.summary import Outlook, forecast_phases, list_landed
from runplan.engine.steps.conclude import list_answers
from runplan.engine.steps.land import landing_to_undo
from runplan.engine.steps.read_plan import choose_execution

ONCE = "an issue is worked on once, and has no plan yet; leave out one of them"


@operation
def start(caller: Caller, request: requests.StartRequest) -> Answer:
    with caller.open() as context:
        plan, asked = _read_words(caller, context, request)
        here = caller.where is Where.HERE
        if request.issue is not None and asked.every:
            raise UsageError(f"every with --issue: {ONCE}")
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


def _read_words(caller: Caller, context: RepositoryContext, request: requests.StartRequest) -> tuple[str, Options]:
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
    context = runs.prepare_run(caller, context, "pr")
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
    """Begin the run that the options ask for, by the daemon or `here`; `again`: as a retry of the last run, `like`."""
    ready = runs.resolve_start(caller, context, word, asked, like=like, review=review)
    if not isinstance(ready, runs.Ready):
        return ready
    context = ready.context
    if asked.auto and (signed := _list_sign_offs(ready)):
        waits = f"{'phase' if len(signed) == 1 else 'phases'} {', '.join(phase.id for phase in signed)}"
        others = [phase for phase in ready.plan.phases if phase.id in ready.phases and phase not in signed]
        stuck = "; no other phase goes on meanwhile: `Touches:` overlap or are missing" if others else ""
        if any(not any(paths_overlap(phase.touches, waiting.touches) for waiting in signed) for phase in others):
            stuck = "; independent phases go on meanwhile"
        caller.say(f"{waits} will wait for your sign-off{stuck}")
    if asked.every and asked.phase:
        caller.say(f"phase {asked.phase} is not chosen: a schedule works on the next phase each time")
    request = replace(ready.request, again=again)
    if here:
        return runs.run_here(caller, context, request)
    runs.admit_agents(caller, context)
    return runs.submit_run(caller, context, request, runs.timing_of(asked, context.settings.run))


def _list_sign_offs(ready: runs.Ready) -> list[Phase]:
    """The phases that a person signs off: they say so, or touch what `run.sign_off` names."""
    paths = ready.context.settings.run.sign_off
    chosen = (phase for phase in ready.plan.phases if phase.id in ready.phases)
    return [phase for phase in chosen if phase.sign_off or any(covers(paths, path) for path in phase.touches)]


def preview_start(caller: Caller, request: requests.StartRequest) -> str:
    if request.issue is not None:
        raise UsageError(f"--dry-run with --issue: {ONCE}")
    with caller.open() as context:
        plan, asked = _read_words(caller, context, request)
        context = runs.with_target_settings(context, asked.landing)
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
        forecast = forecast_start(context, [phase for phase in ready.plan.phases if phase.id in ready.phases])
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


def forecast_start(context: RepositoryContext, phases: Iterable[Phase]) -> str:
    usual = context.settings.agents.implementer
    outlook = [Outlook(phase.own.agent or usual, len(phase.items)) for phase in phases]
    return forecast_phases(outlook, list_landed(context.store()))


def check_start(caller: Caller, plan: str) -> None:
    """Refuse what a start of the whole plan would refuse; nothing is changed."""
    with caller.open() as context:
        context = runs.with_target_settings(context, "")
        modes.require_ready(context, context.settings, context.env)
        ready = runs.resolve_request(caller, context, runs.resolve_plan(context, plan), Options(finish=True))
        if isinstance(ready, runs.Ready):
            runs.admit_agents(caller, ready.context)


def _describe_phase(context: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    head = f"phase {phase.id:<5} {phase.title}"
    if phase.execution.kind in (ExecutionKind.PLAN, ExecutionKind.DELEGATE):
        return f"{head}\n  {phase.execution.text}"
    branch = names.branch(context.settings.run.branch_prefix, started.slug, phase.id)
    read = choose_execution(phase, tip="")
    tests = context.settings.tests.command
    brief = prompts.Brief(plan=started.plan, chosen=read, worktree="", branch=branch, test_command=tests)
    size = len(prompts.implement_prompt(preflight.require_prompts(context)[Role.IMPLEMENT].text, brief).encode())
    return f"{head}\n  branch {branch}; prompt of {size} bytes with {counted(len(phase.items), 'item')}"


@operation
def watch_issues(caller: Caller, request: requests.WatchIssuesRequest) -> Answer:
    asked = in_plan(parse_words(request.options), ())
    label = request.label
    if not asked.every:
        raise UsageError("watch-issues needs a schedule, such as: every 10m")
    if not label.strip() or "," in label or not names.is_plain(label):
        raise RefusedEarly("the label is empty, or has a comma or control characters; a watch has one label")
    with caller.open() as context:
        context = _with_pull_requests(caller, context, asked, "watch-issues")
        asked = replace(asked, finish=context.settings.issues.plan)
        return _submit_watch(caller, context, f"{names.WATCH}{label}", asked)


def _submit_watch(caller: Caller, context: RepositoryContext, name: str, asked: Options) -> Answer:
    """Submit a watch of issues, or a work on the queue."""
    preflight.require_test_command(context)
    runs.admit_agents(caller, context)
    started = runs.run_started(context, name, names.describe_watch(name), asked)
    return runs.submit_run(caller, context, RunRequest(started=started), runs.timing_of(asked, context.settings.run))


@operation
def retry(caller: Caller, request: requests.RetryRequest) -> Answer:
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
            worked = next((started for started in options if started.mode.works_phases), None)
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
        is_all = last.mode is Mode.FINISH
        asked = Options(phase=last.wanted, finish=is_all, auto=last.auto, landing=last.landing, anew=request.fresh)
        if last.mode is not Mode.PLAN:  # whose model was for the planner
            asked = replace(asked, model=last.model, effort=last.effort, memory=last.memory)
        return start_run(caller, context, row.plan, asked, here=here, again=is_again, like=last, review=review)


def _new_comments(caller: Caller, context: RepositoryContext, last: RunStarted, store: Store) -> tuple[ReviewItem, ...]:
    """The comments on the plan's open pull request, or one of its stack, that no run has handled."""
    if not last.concludes:
        raise RefusedEarly(f"the last run of {last.plan} landed by {last.landing}; only a pull request has a review")
    forge = modes.open_forge(context.git, context.settings.run, context.env)
    text = preflight.committed_plan(context.for_plan(last.plan), last.plan, is_compared=False)
    pulls = list(modes.list_open(forge, context.settings, last.slug, parse_plan(text, path=last.plan)))
    if not pulls:
        raise NotFound(f"{last.plan} has no open pull request; see: {command('runplan', 'status', last.plan)}")
    handled = list_answers(store, last.plan)
    is_shown = context.settings.issues.trust == "all"
    for group, pull in pulls:
        messages = forge.read_activity(pull.number, pull.head).messages
        due = find_due(messages, handled=handled, login=forge.own_login, may_write=forge.may_write)
        if due.strangers:
            how = "are shown to the agent" if is_shown else "are left out (issues.trust)"
            authors = sorted({message.author for message in due.strangers})
            caller.warn(f"comments of accounts without write access {how}: {', '.join(authors)}")
        if due.requests:
            return list_comments(due, with_strangers=is_shown, group=group)
    caller.say(f"no new review comments on {', '.join(pull.name for _, pull in pulls)}; nothing to do")
    return ()


@operation
def undo(caller: Caller, request: requests.UndoRequest) -> Answer:
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
        merged = modes.fetch_merged(context, context.settings, slug, context.env, plan)
        landing_to_undo(context.tip(), plan, phase, target=context.target_name, objects=context.git, merged=merged)
    elif (unfinished.mode, unfinished.wanted) != (Mode.UNDO, phase.id):
        ways = f"continue it: {command('runplan', 'retry', path)}; or end it: {command('runplan', 'stop', path)}"
        raise RefusedEarly(f"a run of {path} has not ended; {ways}")
    context = runs.with_landing(context.with_committed_settings().for_plan(path), "")
    asked = runs.run_started(context, path, plan.title, Options(phase=phase.id, auto=True))
    return runs.run_here(caller, context, RunRequest(started=context.record_settings(replace(asked, mode=Mode.UNDO))))


def _read_count(context: RepositoryContext, request: requests.WorkRequest) -> tuple[str, Options]:
    """How many plans are asked for, and the words of start."""
    first = next(iter(request.options), "")
    is_count = first.lower() == "all" or (first.isascii() and first.isdigit() and len(first) < 5)
    count, *words = request.options if is_count else ("1", *request.options)
    asked = parse_words(words)
    if asked.phase:
        raise UsageError(f"{asked.phase}: work takes a number of plans or `all` first, then the words of start")
    if count.strip("0") == "":
        raise UsageError(f"work {count}: say how many plans to work on, or all")
    if context.fleet is not None:
        problem = "a fleet has no work on the queue, because its hosts take as many plans as they can"
        raise RefusedEarly(f"{problem}; start each one: runplan start PLAN finish")
    return "all" if count.lower() == "all" else str(int(count)), asked


def preview_work(caller: Caller, request: requests.WorkRequest) -> str:
    with caller.open() as context:
        count, asked = _read_count(context, request)
        context = runs.with_target_settings(context, asked.landing)
        preflight.require_test_command(context)
        entries = read_queue(context, context.store())
    ready = [f"{entry.plan}  {counted(entry.phases, 'open phase')}" for entry in entries if not entry.why]
    taken = ready if count == "all" else ready[: int(count)]
    lines = [
        f"target      {context.target_name}, landing by {context.settings.run.landing}",
        f"pauses      {'where a plan asks for it' if asked.auto else 'before each landing'}",
        "",
        *(taken or ["No plan is ready."]),
        *(f"{entry.plan}  not ready yet: {entry.why}" for entry in entries if entry.why),
    ]
    return "\n".join([*map(plain, lines), "", "Nothing was changed."])


@operation
def work(caller: Caller, request: requests.WorkRequest) -> Answer:
    with caller.open() as context:
        count, asked = _read_count(context, request)
        context = runs.prepare_run(caller, context, asked.landing)
        return _submit_watch(caller, context, f"{names.QUEUE}{count}", replace(asked, finish=True))


@operation
def queue(caller: Caller, request: requests.QueueRequest) -> Answer:
    with caller.open(lenient=True) as context:
        order = [entry.plan for entry in read_queue(context, context.store())]
        plan = names.find_plan(request.plan, order, place=" in the queue")
        with closing(open_store(context.journal)) as store:
            places = store.list_places()
            match request.action:
                case "pin":
                    places[plan] = PINNED
                case "unpin":
                    places.pop(plan, None)
                case "move" if request.to is not None and request.to > 0:
                    places = move_plan(order, places, plan, request.to)
                case _:
                    raise UsageError(f"queue: say move {plan} N, pin {plan} or unpin {plan}")
            store.put_places(places)
        now = [entry.plan for entry in read_queue(context, context.store())]
    caller.say(f"{plan} is number {now.index(plan) + 1} of {len(now)} in the queue")
    return Accepted(plan=plan)
