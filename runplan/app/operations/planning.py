"""Plan and edit: from a goal to a proposed plan, and a person's own version of it."""

from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.invocation import require_agent
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.adapters.store.files import make_below
from runplan.app.operations import runs
from runplan.app.operations.commands import continue_run
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, Where, operation
from runplan.app.operations.requests import EditRequest, PlanRequest
from runplan.domain import names
from runplan.domain.checks.planning import StepFacts, check_plan
from runplan.domain.decoding import to_json
from runplan.domain.errors import Busy, Exit, NotFound, RefusedEarly, UsageError
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.proposal import describe_unrevisable, set_plan_status, slug_of_title, title_of_goal
from runplan.domain.run.attempt_parts import ProposalMade
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.events import Planning, RunStarted
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.domain.settings.options import Options, parse_words
from runplan.domain.settings.schema import MAX_ROUNDS
from runplan.domain.text import command
from runplan.engine.landing import modes
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, known_plans, plan_path
from runplan.engine.loop.runs import state_of
from runplan.engine.steps.planning import list_paths, make_proposal

LONGEST_GOAL = 100_000  #: bytes
SPEC_TEXTS = ("proposal.md", "requirements.md", "spec.md", "design.md")  #: the files of a spec folder that are a goal


class Goal(Struct, frozen=True, kw_only=True):
    text: str
    title: str
    is_quoted: bool = False  #: from a file or an issue
    issues: tuple[int, ...] = ()
    plan: str = ""  #: that is revised
    phase: str = ""  #: of it that is revised


@operation
def plan(caller: Caller, request: PlanRequest) -> Answer:
    options = (("--file", request.file), ("--issue", request.issue is not None), ("--revise", request.revises))
    named = [name for name, is_given in (("a goal", request.goal), *options) if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: a plan is written for one goal; leave out one of them")
    if request.why and not request.revises:
        raise UsageError("-m: only with --revise; else the goal says it")
    if not named:
        raise UsageError("the goal is empty; say what the plan is for")
    then = parse_words(request.then.split()) if request.then else None
    if then is not None and then.phase:
        raise UsageError(f"--then {then.phase}: the phases are not known yet; say finish, or nothing for the first")
    if request.rounds is not None and not 1 <= request.rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {request.rounds}: must be 1 to {MAX_ROUNDS}")
    with caller.open() as context:
        context = runs.prepare_run(caller, context, then.landing if then is not None else "")
        goal = _read_goal(context, request)
        context = _with_agents(context, request)
        store = context.store()
        for row in store.list_unfinished_runs():
            state = state_of(store, row)
            attempt = state.attempt
            chosen = attempt.chosen.planning if isinstance(attempt, PlanningAttempt) else None
            known = None if attempt is not None and attempt.cleaned else state.options.planning or chosen
            is_same = known is not None and known.goal == goal.text and not known.is_revision
            if known is not None and (row.plan == goal.plan if goal.plan else is_same):  # continue it instead
                caller.say(f"{row.plan} is already being planned ({row.id})")
                is_left = not row.daemon or not store.get_living_owner(row.plan)
                if is_left and not row.needs_person:
                    return continue_run(caller, context, RunRequest(started=state.options))
                return Accepted(plan=row.plan, run=row.id, is_ended=row.needs_person)
        run = _resolve_request(context, goal, request, then)
        left = runs.unfinished_run(context, run.started.plan)  # which does a revision of its plan itself
        if left is not None and (request.agent or request.critic):
            caller.warn("the run keeps its agents; --agent and --critic have no effect")
        if not left[0].daemon if left is not None else caller.where is Where.HERE:
            return runs.run_here(caller, context, run)
        runs.admit_agents(caller, context)
        return runs.submit_run(caller, context, run)


def _read_goal(context: RepositoryContext, request: PlanRequest) -> Goal:
    if request.revises:
        name = plan_path(context, request.revises)
        plan = parse_plan(preflight.committed_plan(context.for_plan(name), name, is_compared=False), path=name)
        if why_not := describe_unrevisable(plan):
            raise RefusedEarly(f"{name}: {why_not}")
        phase = request.phase
        if phase and plan.phase(phase) is None:
            raise NotFound(f"{name} has no phase {phase}; there are: {', '.join(row.id for row in plan.phases)}")
        why = request.why or f"Revise {f'phase {phase}' if phase else 'the plan'}: make it fit the code."
        text = require_size(why.encode())
        return Goal(text=text, title=plan.title or name, plan=name, phase=phase, issues=plan.issues)
    if request.issue is not None:
        issue = modes.open_forge(context.git, context.settings.run, context.env).read_issue(request.issue)
        text = require_size(f"{issue.title}\n\n{issue.body}".encode())
        return Goal(text=text, title=title_of_goal(issue.title), is_quoted=True, issues=(issue.number,))
    if not request.file:
        text = require_size(request.goal.encode("utf-8", "surrogateescape"))
        return Goal(text=text, title=title_of_goal(text))
    path = Path(context.cwd, request.file)
    files = [path]
    if path.is_dir():  # a spec folder that has no tasks yet
        if (path / names.PLAN_FILE).exists():
            start = command("runplan", "start", request.file)
            raise UsageError(f"{request.file} has a {names.PLAN_FILE}, which is a plan already; work on it: {start}")
        files = [path / name for name in SPEC_TEXTS if (path / name).is_file()]
        if not files:
            lacks = f"{request.file} is a folder without {', '.join(SPEC_TEXTS)}"
            raise UsageError(f"{lacks}; say the goal in more words, or name a file: --file")
    text = _read_text(*files)
    title = path.name.replace("-", " ") if path.is_dir() else text
    return Goal(text=text, title=title_of_goal(title), is_quoted=True)


def _read_text(*files: Path) -> str:
    try:
        return require_size(b"\n".join(file.read_bytes() for file in files))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None


def require_size(content: bytes) -> str:
    if len(content) > LONGEST_GOAL:
        raise UsageError(f"the goal has more than {LONGEST_GOAL:,} bytes; describe it more shortly")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("the goal is not UTF-8; convert it first") from None
    if not text.strip():
        raise UsageError("the goal is empty; say what the plan is for")
    return text


def _with_agents(context: RepositoryContext, request: PlanRequest) -> RepositoryContext:
    """The context whose agents are the planner and the critic; those of a run that follows are also given keys."""
    agents = context.settings.agents
    for option, name in (("--agent", request.agent), ("--critic", request.critic)):
        known = (*agents.tables, *list_agent_kinds())
        if name and name not in known:
            raise UsageError(f"{option} {name}: no such agent; there are: {', '.join(sorted(known))}")
    planner = request.agent or agents.planner
    critic = request.critic or agents.judges[0]
    for role, name in (("planner", planner), ("verifier", critic)):
        require_agent(agents, agents.agent(name), role, root=context.root, caller=context.env)
    others = {"implementer": agents.implementer, "verifiers": (critic, *agents.judges)} if request.then else {}
    agents = replace(agents, planner=planner, verifier=critic, **{"implementer": planner, "verifiers": (), **others})
    if request.model:
        agents = replace(agents, others=(replace(agents.agent(planner), model=request.model),))
    return replace(context, settings=replace(context.settings, agents=agents))


def _resolve_request(context: RepositoryContext, goal: Goal, request: PlanRequest, then: Options | None) -> RunRequest:
    """The request for a run that plans; a new plan gets a file that no file, branch or other planning run has."""
    settings = context.settings.plan
    plans = context.settings.paths.plans
    taken = {path.lower() for path in known_plans(context, context.store().list_active_plans())}
    if goal.plan:
        path = goal.plan
    elif request.out:
        file = Path(context.cwd, request.out)
        if not file.is_relative_to(context.root) or ".." in file.parts or not file.name.endswith(".md"):
            raise UsageError(f"--out {request.out}: must be a .md file inside the repository, such as {plans}/NAME.md")
        path = file.relative_to(context.root).as_posix()
        names.require_plain(path)
        if path.lower() in taken or file.exists() or context.git.blob(context.tip(), path) is not None:
            raise RefusedEarly(f"{path} exists already; choose another name")
    else:
        slug = slug_of_title(goal.title)
        numbered = (f"{slug}{f'-{number}' if number > 1 else ''}.md" for number in range(1, 10_000))
        paths = (PurePath(plans, name).as_posix() for name in numbered)
        path = next(path for path in paths if path.lower() not in taken)
    if not context.settings.tests.command:
        preflight.require_test_command(context)
    queued = None
    if then is not None:  # it begins when the plan has landed, and reads the settings then
        later = runs.for_daemon(context, runs.run_started(context, path, goal.title, then, issues=goal.issues))
        queued = RunRequest(started=later, timing=runs.timing_of(then, context.settings.run))
    planning = Planning(
        goal=goal.text,
        is_quoted=goal.is_quoted,
        is_revision=bool(goal.plan),
        revises=goal.phase,
        quick=request.quick or (settings.quick and request.rounds is None),
        steps=settings.roles,
        rounds=request.rounds or settings.rounds,
        explorers=settings.explorers,
        asks=request.ask,
        sources=tuple((name, _read_text(Path(context.cwd, name))) for name in request.sources),
        approval=settings.approval,
        then=to_json(queued) if queued is not None else "",
    )
    options = Options(model=request.model, memory=not request.no_memory)
    started = runs.run_started(context, path, goal.title, options, issues=goal.issues)
    started = replace(started, mode=Mode.PLAN, planning=planning)
    return RunRequest(started=context.record_settings(started))


def find_proposal(context: RepositoryContext, path: str) -> tuple[RunStarted, PlanningAttempt, ProposalMade]:
    left = runs.unfinished_run(context, path)
    attempt = left[1].attempt if left is not None else None
    if left is None or not isinstance(attempt, PlanningAttempt) or attempt.proposal is None:
        raise NotFound(f"no proposal of {path} waits for you; see: {command('runplan', 'status', path)}")
    return left[1].options, attempt, attempt.proposal


def open_draft(caller: Caller, word: str) -> tuple[ProposalMade, Path]:
    """The proposal that waits, and the file to edit it in, which is kept until the version is accepted."""
    with caller.open() as context:
        proposal = find_proposal(context, plan_path(context, word))[2]
        file = context.state / "edited" / f"{names.slug(proposal.path)}-{proposal.sha256[:12]}.md"
        make_below(context.common_dir, file.parent)
    return proposal, file


@operation
def edit(caller: Caller, request: EditRequest) -> Answer:
    """Propose a person's own version of the plan; it is checked as that of an agent is."""
    with caller.open() as context:
        path = plan_path(context, request.plan)
        options, attempt, proposal = find_proposal(context, path)
        if proposal.sha256 != request.sha256:
            raise Busy(f"{path} was replaced meanwhile; see: {command('runplan', 'diff', path)}")
        text = set_plan_status(request.text, PlanStatus.PROPOSED)
        if text == proposal.text:
            caller.say("nothing was changed")
            return Declined(exit=Exit.WAITING)
        facts = StepFacts(
            paths=list_paths(context.git, attempt.chosen.tip),
            before=attempt.chosen.before,
            path=path,
            test_command=(settings := context.for_run(options).settings).tests.command,
            sections=settings.plan.sections,
        )
        if problems := check_plan(text, facts).problems:
            raise RefusedEarly(f"the edited plan is not valid: {'; '.join(problems)}")
        edited = replace(make_proposal(text, context.store(), path=path), is_edited=True, replaces=proposal.sha256)
        return continue_run(caller, context, RunRequest(started=options, edited=edited))
