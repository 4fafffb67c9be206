"""Checks before a run. Everything that can be refused is refused before any work."""

import contextlib
import functools
import itertools
import json
import posixpath
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from runplan.adapters.agents import invocation
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.environment import agent_environment
from runplan.adapters.agents.prompts import PLACEHOLDERS, Template
from runplan.adapters.configuration.places import user_file, worktree_root
from runplan.adapters.git import objects as trees
from runplan.adapters.git.remote import require as require_remote
from runplan.adapters.git.repository import pull_command
from runplan.adapters.processes import marked_inside, run_program
from runplan.adapters.sandbox.container import Container, find_engine, find_image, list_built_images, try_image
from runplan.adapters.sandbox.engines import CONTAINER, require_sandbox
from runplan.adapters.sandbox.view import Places
from runplan.adapters.store.claims import landing_lock
from runplan.domain import names
from runplan.domain.checks import tamper
from runplan.domain.checks.guarded import list_scripts
from runplan.domain.checks.runners.naming import foresee_unnamed
from runplan.domain.errors import NotFound, RefusedEarly, RunplanError, UsageError
from runplan.domain.plan.marks import ExecutionKind, NoWorkKind, PhaseSettings, PlanStatus, Status, id_key
from runplan.domain.plan.model import Phase, Plan, Remark, parse_plan
from runplan.domain.plan.proposal import describe_unrevisable
from runplan.domain.plan.reading import list_done
from runplan.domain.plan.tracker import NoPhase, choose_phase, list_workable
from runplan.domain.run.events import Chosen, CompletionChosen, NoWork
from runplan.domain.run.kinds import Mode, Reason
from runplan.domain.settings import toolchain
from runplan.domain.settings.options import Options
from runplan.domain.settings.schema import FILES, AgentsSettings, AgentTable, uses_remote
from runplan.domain.text import command, committing
from runplan.engine.landing import modes
from runplan.engine.landing.swap import BOX, CherryPick
from runplan.engine.loop.context import RepositoryContext, is_stored, known_plans, read_checkout, task_folder
from runplan.engine.steps.lease import describe_refusal
from runplan.engine.steps.read_plan import choose_work

PROMPTS = "config/prompts"  #: where a repository has prompts of its own
PATIENCE_S = 20.0  #: a landing here takes less, a push may take longer
MAX_DEPTH = 3  #: sub-plans below each other


def settle_lost_landings(context: RepositoryContext) -> list[str]:
    if not (context.common_dir / BOX).exists():
        return []
    store = context.store()
    with context.git.at(context.root) as git, contextlib.ExitStack() as closing:
        closing.callback(store.close)
        try:
            closing.enter_context(landing_lock(context.state / "locks").acquire(timeout=PATIENCE_S))
        except TimeoutError:
            return []  # another landing runs, and completes these as well
        known = {row.id for row in store.list_unfinished_runs()}
        settled = CherryPick(git, ref=context.local_target, common_dir=context.common_dir).recover()
    is_known = names.run_of(settled.id.rpartition(".")[0]) in known
    if settled.waits and not is_known:  # else its run says so itself
        raise RefusedEarly(settled.waits)
    note = f"completed the interrupted landing {settled.id} of an unknown run" if settled.id and not is_known else ""
    return ["; ".join(part for part in (note, settled.note) if part)] if note or settled.note else []


def committed_plan(context: RepositoryContext, path: str, *, is_compared: bool) -> bytes:
    """The plan's bytes on the target; a plan that is edited in the checkout is refused if `is_compared`."""
    tip = context.tip()
    file = context.root / path
    if file.is_dir() and not task_folder(file):
        raise UsageError(f"{path} is a directory; name the plan file in it")
    blob = trees.read_plan(context.git, f"{tip}:{path}", path)
    is_there = file.exists()
    if blob is None and not is_there:
        hint = names.hint_at(path, known_plans(context, ()))  # it may have moved
        raise NotFound(f"{path}: no such plan on {context.target_name} ({tip[:12]}){hint}")
    git = context.git
    tree = git.commit(tip).tree
    place, entry = trees.find(git, tree, path)
    if entry is not None and entry.mode == trees.SYMLINK:  # a landing writes statuses into the file that was named
        link = (git.blob(tip, place) or b"").decode("utf-8", "replace")
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(place), link, posixpath.relpath(path, place)))
        name_it = f"name the file itself: {command('runplan', 'start', linked)}"
        remedy = "replace the link by the file" if trees.find(git, tree, linked)[1] is None else name_it
        raise RefusedEarly(f"{place} on {context.target_name} is a symbolic link to {names.shown(link)}; {remedy}")
    is_edited = False
    content = read_checkout(file, path) if is_compared and is_there and blob is not None else blob
    if content is not None and content != blob:
        for name, text in (names.split_files(content, path) or {path: content}).items():
            # The checkout may be behind the remote, or on another branch.
            stored = [context.git.object(f"{ref}:{name}") for ref in (context.target, context.local_target, "HEAD")]
            forms = itertools.chain([text], _converted(context, name, text))
            is_same = any(is_stored(form, other.content) for form in forms for other in stored if other)
            is_edited = is_edited or not is_same
    if blob is not None and not is_edited:
        return blob
    problem = "is not committed on" if blob is None else "in the checkout differs from"
    commit = committing(path, f"Plan {names.slug(path)}")
    raise RefusedEarly(f"{Reason.PLAN_NOT_COMMITTED}: {path} {problem} {context.target_name}; run: {commit}")


def _converted(context: RepositoryContext, path: str, content: bytes) -> Iterator[bytes]:
    """The content as git stores it by the attributes that need no program."""
    answer = context.git.at(context.root).run("check-attr", "-z", "ident", "working-tree-encoding", "--", path)
    _, _, ident, _, _, encoding, _ = answer.text.split("\0")
    with contextlib.suppress(LookupError, UnicodeError):
        text = content if encoding in ("unspecified", "unset", "set") else content.decode(encoding).encode()
        yield re.sub(rb"\$Id:[^$\n]*\$", b"$Id$", text) if ident == "set" else text


def needed_commit(context: RepositoryContext, path: str, name: str) -> str:
    """The command that commits the plan, as a person here names it; "" if the target has it as it is."""
    try:
        committed_plan(context, path, is_compared=True)
    except RunplanError:
        return committing(name, f"Plan {names.slug(path)}")
    return ""


def require_active(context: RepositoryContext, path: str) -> None:
    blob = trees.read_plan(context.git, f"{context.tip()}:{path}", path)
    choice = choose_phase(parse_plan(blob, path=path), wanted=None) if blob is not None else None
    if isinstance(choice, NoPhase) and choice.kind is NoWorkKind.INACTIVE:
        raise RefusedEarly(f"{path}: {choice.detail}")


def phases_to_work(plan: Plan, text: bytes, *, tip: str, options: Options, resuming: bool) -> list[str] | str:
    """The phases that a start is about, by the same choice that the run will make; a sentence when they are done."""
    if options.phase:
        require_phase(plan, options.phase)
    read = choose_work(plan, text, tip=tip, wanted=options.phase)
    if isinstance(read, CompletionChosen) and options.every:
        return f"{plan.path}: every phase is done; a schedule would have nothing to do"
    # An interrupted run may have landed the requested phase; it is completed first.
    if isinstance(read, NoWork) and not resuming:
        if options.every and read.kind in (NoWorkKind.BLOCKED, NoWorkKind.ELSEWHERE):
            return []  # a schedule fires again when a person has changed the statuses
        if read.kind in (NoWorkKind.COMPLETE, NoWorkKind.PHASE_DONE, NoWorkKind.ELSEWHERE):
            return f"{plan.path}: {read.detail}; nothing to do"
        raise RefusedEarly(read.detail if read.detail.startswith(plan.path) else f"{plan.path}: {read.detail}")
    if options.mode is Mode.FINISH:
        return list_workable(plan)
    return [read.phase] if isinstance(read, Chosen) and read.phase else []


def require_open(context: RepositoryContext, plan: Plan, tip: str) -> None:
    """Refuse a plan if its own document about progress marks a phase done that would be worked."""
    own = names.slug(plan.path)  # a document of another plan may count other phases
    documents = [remark.document.lstrip("/") for remark in plan.remarks if remark.document]
    slugs = {path: names.slug(path) for path in documents}
    named = [path for path, slug in slugs.items() if slug.startswith(own) or slug.endswith("progress-and-next-steps")]
    paths = (posixpath.normpath(f"{folder}/{name}") for name in named for folder in (posixpath.dirname(plan.path), "."))
    for path in (path for path in paths if not path.startswith("../")):
        done = list_done(context.git.blob(tip, path) or b"", path=path)
        for phase in (phase for phase in list_workable(plan) if id_key(phase) in done):
            why = f"{path}:{done[id_key(phase)]} says that phase {phase} is done, {plan.path} does not"
            start = command("runplan", "start", plan.path, phase)
            raise RefusedEarly(f"{why}; mark it done there and commit it, or have it worked: {start}")


def foresee_refusals(context: RepositoryContext, plan: Plan, tip: str) -> Plan:
    """The plan with warnings about open phases that name files which they may not change."""

    def read(path: str) -> str | None:
        return None if (content := context.git.blob(tip, path)) is None else content.decode("utf-8", "replace")

    commands = [check.command for check in context.settings.checks.values()]
    rules = invocation.list_instructions(context.settings.agents)
    paths = context.settings.tests.paths
    built = context.settings.agents.container.build
    setup = tuple(list_scripts(context.settings.run.setup))
    usual = tamper.Permit(text="", bookkeeping=FILES, test_paths=paths, built=built, setup=setup, instructions=rules)
    remarks = [*plan.remarks, *tamper.foresee_refusals(plan, commands, usual, read=read)]
    for phase in (phase for phase in plan.phases if phase.status is not Status.DONE):
        try:
            list_wanted_agents(context.settings.agents, phase.own)
        except RefusedEarly as error:
            remarks.append(Remark(phase.heading_line, f"phase {phase.id}: {error}", is_error=True))
        if phase.own.tests and not context.settings.tests.command:
            message = f"phase {phase.id}: Tests: has no effect, because tests.command is not set"
            remarks.append(Remark(phase.heading_line, message))
        if phase.pull_request and not context.settings.pull_request.stack:
            message = f"phase {phase.id}: Pull-request: has no effect, because pull_request.stack is not set"
            remarks.append(Remark(phase.heading_line, message))
    for group, phases in plan.stack.items() if context.settings.pull_request.stack else ():
        first, last = (plan.phases.index(phases[end]) for end in (0, -1))
        if between := [phase for phase in plan.phases[first:last] if phase not in phases]:
            message = f"phase {between[0].id} is between phases with Pull-request: `{group}`; group neighbours only"
            remarks.append(Remark(phases[-1].heading_line, message, is_error=True))
    return replace(plan, remarks=tuple(remarks))


def list_own(context: RepositoryContext, phases: Iterable[Phase]) -> list[PhaseSettings]:
    """What the open phases want of agents; one that is planned first wants the planner."""
    wanted = []
    for phase in (phase for phase in phases if phase.status is not Status.DONE):
        wanted.append(phase.own)
        if phase.execution.kind is ExecutionKind.PLAN_FIRST:
            wanted.append(PhaseSettings(agent=context.settings.agents.planner))
    return wanted


def with_agents_of(context: RepositoryContext, wanted: Iterable[PhaseSettings]) -> RepositoryContext:
    """The context that knows the agents of phases, too; names that are unknown are told elsewhere."""
    agents = context.settings.agents
    others: dict[AgentTable, None] = {}
    for settings in wanted:
        with contextlib.suppress(RefusedEarly):
            others |= dict.fromkeys(list_wanted_agents(agents, settings))
    agents = replace(agents, others=tuple(others))
    return replace(context, settings=replace(context.settings, agents=agents))


def list_wanted_agents(agents: AgentsSettings, chosen: PhaseSettings) -> list[AgentTable]:
    """The agents that the lines of a phase, or the options of a start, want besides those of the settings."""
    known = invocation.list_known(agents)
    for name in filter(None, (chosen.agent, chosen.verifier)):
        if name not in known:
            raise RefusedEarly(f"there is no agent {name}; there are: {', '.join(known)}")
    name = chosen.agent or agents.implementer
    table = agents.agent(name)
    agent = agent_of(table.kind)
    if chosen.effort and agent.program and not agent.effort_arguments:
        raise RefusedEarly(f"{name} has no setting for effort; leave it out, or name another agent")
    changed = replace(table, model=chosen.model or table.model, effort=chosen.effort or table.effort)
    wanted = [changed] if chosen.agent or changed != table else []
    return [*wanted, *([agents.agent(chosen.verifier)] if chosen.verifier else [])]


def require_clear(plan: Plan) -> None:
    """Refuse a plan with an error in it, such as open work outside of its phases; one that says complete is over."""
    for remark in plan.refusals(strict=False) if plan.status is not PlanStatus.COMPLETE else ():
        raise RefusedEarly(f"{plan.path}:{remark.line}: {remark.text}")


def require_landable(context: RepositoryContext, plan: Plan) -> None:
    """Refuse phases and settings that the way of landing excludes."""
    settings = context.settings
    for phase in (phase for phase in plan.phases if phase.status is not Status.DONE):
        place = f"{plan.path}:{phase.execution.line}: phase {phase.id}"
        if phase.execution.kind is ExecutionKind.DELEGATE and settings.run.concludes:
            why = "a command lands on the target, and the run lands by pr on a branch; land by cherry-pick or direct"
            raise RefusedEarly(f"{place}: {why}")
        if phase.execution.kind is ExecutionKind.PLAN_FIRST and (why := describe_unrevisable(plan)):
            raise RefusedEarly(f"{place}: {why}")
        if phase.execution.kind is ExecutionKind.DIRECT and settings.run.concludes:
            why = "the run lands by pr; remove `Execution: direct`, or land by cherry-pick or direct"
            raise RefusedEarly(f"{place}: {why}")
        if phase.execution.kind is ExecutionKind.DIRECT:
            try:
                modes.require_allowed("direct", settings.run)
                require_remote(modes.open_target(context, settings, context.env))
            except RefusedEarly as error:
                raise RefusedEarly(f"{place}: {error}") from None
    is_stacked = settings.pull_request.stack and settings.run.concludes
    if is_stacked and settings.run.parallel > 1:  # the branches of a stack grow phase by phase, and only grow
        raise RefusedEarly("pull_request.stack needs phases one by one; set run.parallel to 1, or stack to false")
    if is_stacked and settings.pull_request.bookkeeping == "squash":
        why = "pull_request.bookkeeping = squash makes a branch anew, and the pull requests of a stack build on it"
        raise RefusedEarly(f'{why}; set bookkeeping to "phase", or stack to false')


def require_phase(plan: Plan, wanted: str) -> Phase:
    phase = plan.phase(wanted)
    if phase is None:
        raise NotFound(f"{plan.path} has no phase {wanted}; there are: {', '.join(phase.id for phase in plan.phases)}")
    return phase


def require_places(context: RepositoryContext, *, plan: str, slug: str, phases: Iterable[str], tip: str) -> None:
    """Refuse a target that lacks landed phases, an unwritable report, a used worktree, and branches of the user."""
    git = context.git
    there = context.for_plan(plan)
    landed = git.tip(there.target) if there.target != context.target else None
    is_same_branch = there.settings.run.target == context.settings.run.target  # another one may lack the landed phases
    if landed and is_same_branch and not git.is_ancestor(landed, context.target):
        run = context.settings.run
        pull = pull_command(git, context.common_dir, run.target, run.remote)
        push = command("git", "push", run.remote, run.target)
        why = f"{plan} has landed work on {there.target_name} that {context.target_name} lacks"
        raise RefusedEarly(f"{why}; first run: {pull if uses_remote(there.settings.run.landing) else push}")
    trees.find_writable(git, git.commit(tip).tree, names.report_path(context.settings.paths.reports, slug))
    place = worktree_root(context.root, context.settings, context.env) / names.worktree_name(str(context.root), slug)
    agents = list(map(str, marked_inside(place.resolve()))) if place.is_dir() else []
    store = context.store()
    newest = store.get_newest_run(plan)
    # The run of such an agent is unknown when the journal was deleted; another start may have begun it just now.
    if agents and (newest is None or not newest.is_active):
        remedy = f"wait for it, or end it: kill {' '.join(agents)}"
        raise RefusedEarly(f"an agent of an unknown run still works in {place}; {remedy}")
    branches = [f"refs/heads/{names.branch(context.settings.run.branch_prefix, slug, phase)}" for phase in phases]
    for branch in (branch for branch in branches if git.tip(branch) is not None):
        if refusal := describe_refusal(git, branch, tip, known=store.count_leases(plan, branch) > 0):
            raise RefusedEarly(refusal)


def require_test_command(context: RepositoryContext) -> str:
    """Refuse tests without a test command; a note where the command probably names no tests."""
    tests = context.settings.tests
    if tests.command:
        return foresee_unnamed(tests.command, tests.junit, functools.partial(context.git.blob, context.tip()))
    tools = toolchain.detect(*project_files(context))
    if tools.shown_by:
        hint = f"; for example: command = {json.dumps(tools.tests)}" if tools.tests else ""
        why = f"the repository has tests ({tools.shown_by}) but tests.command is empty"
        raise RefusedEarly(f"{why}; set it in runplan.toml under [tests]{hint}")
    return ""


def project_files(context: RepositoryContext) -> tuple[list[str], dict[str, str]]:
    tip = context.tip()
    top = trees.entries(context.git, context.git.commit(tip).tree)
    files = list(top)
    for name in toolchain.FOLDERS:
        if (entry := top.get(name)) is not None and entry.mode == trees.TREE:
            files += sorted(trees.list_files(context.git, entry.oid, f"{name}/"))
    manifests = {name: context.git.blob(tip, name) or b"" for name in toolchain.manifests(files)}
    return files, {name: content.decode("utf-8", "replace") for name, content in manifests.items()}


def prepare_image(context: RepositoryContext, *, may_be_old: bool = False) -> str:
    """The id of the image of containers; "" for a run without them. It may have to be built from the target's tip."""
    agents = context.settings.agents
    if not agents.has_containers:
        return ""

    def export(place: Path) -> None:
        index = place / ".runplan"
        written = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(place)}
        context.git.run("read-tree", "--reset", "-u", "--no-sparse-checkout", context.tip(), env=written)
        index.unlink()

    engine, owner = find_engine(agents.container, context.env), str(context.common_dir)
    built = list_built_images(engine, owner, context.env) if may_be_old and agents.container.build else []
    if built:
        return built[0]
    tree = context.git.commit(context.tip()).tree
    return find_image(engine, agents.container, context.env, tree, export, owner=owner)


def require_agents(context: RepositoryContext) -> None:
    """Refuse agents that cannot run, files that a worktree would lack, and broken prompts."""
    agents = context.settings.agents
    in_dollars = context.settings.limits.in_dollars
    invocation.require_agents(agents, root=context.root, caller=context.env, in_dollars=in_dollars)
    require_sandbox(agents, context.settings.tests, context.env)
    if image := prepare_image(context):
        engine = find_engine(agents.container, context.env)
        container = Container(engine, agents.container, context.env, Places(image=image))
        if missing := try_image(container, ("git", "python3"))[1]:
            raise RefusedEarly(f"the image of agents.container lacks {' and '.join(missing)}; install it there")
    copied = {posixpath.normpath(name) for name in context.settings.run.copy}
    tree = context.git.commit(context.tip()).tree
    for role, name in agents.dispatched:
        table = agents.agent(name)
        program = invocation.program_of(table)
        named = (program if "/" in program else "", invocation.own_file(table))
        is_made = table.kind == "script" or context.settings.run.setup  # or the script is read from the checkout
        inside = (name for name in named if name and not name.startswith(("/", "../")) and not is_made)
        for file in map(posixpath.normpath, inside):
            on_target = trees.find(context.git, tree, file)[1] if file not in copied else None
            is_there = on_target is not None and on_target.mode not in (trees.TREE, trees.SUBMODULE)
            if file not in copied and not is_there:
                there = context.target_name
                why = f"{file} is not on {there}, so no worktree has it; commit it on {there}, or add it to run.copy"
                raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: {why}")
    require_prompts(context)


def require_prompts(context: RepositoryContext) -> dict[str, Template]:
    """The prompt of each role: the repository's, as committed on the target, else the user's, else the package's."""
    folder = context.git.object(f"{context.target}:{PROMPTS}")
    committed = trees.entries(context.git, folder.oid) if folder is not None and folder.kind == "tree" else {}
    package = Path(__file__).parents[2]
    # Installed, the templates are inside the package; in a checkout, next to it.
    folders = (user_file(context.env).parent / "prompts", package / PROMPTS, package.parent / PROMPTS)
    templates = {}
    for role in PLACEHOLDERS:
        entry = committed.get(f"{role}.md")
        stored = context.git.known(entry.oid) if entry is not None else None
        if stored is not None and stored.kind == "blob":
            text = stored.content.decode(errors="replace")
            origin = f"{PROMPTS}/{role}.md on {context.target_name}"
        else:
            path = next(path for folder in folders if (path := folder / f"{role}.md").exists())
            text = path.read_text(encoding="utf-8", errors="replace")
            origin = str(path)
        templates[role] = Template(role=role, text=text, origin=origin)
        templates[role].check()
    return templates


def missing_program(context: RepositoryContext, line: str) -> str:
    """The first program of a command that this machine lacks; "" for a command in an image."""
    if context.settings.agents.sandbox == CONTAINER:
        return ""
    run = context.settings.run
    path = context.env.get("PATH", "")
    for program in toolchain.programs_of(line):
        if "/" not in program:
            if shutil.which(program, path=path) is None:
                return program
        # run.setup may create it, and run.copy brings it.
        elif not (run.setup or run.copy or (program.startswith("/") and (context.root / program).exists())) and (
            context.git.object(f"{context.tip()}:{program.removeprefix('./')}") is None
        ):
            return program
    python, module = toolchain.module_of(line)
    if not module or run.setup:
        return ""
    # Asked from a directory without modules of the project.
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module.partition('.')[0]!r}) is None)"
    env = agent_environment(context.env, keep=(), settings={})
    has_module = run_program((python, "-I", "-c", look), env, within_s=invocation.VERSION_S)[0] == 0
    return "" if has_module else f"the module {module} of {python}"


def require_subplans(context: RepositoryContext, plan: Plan) -> None:
    """Refuse a plan with a sub-plan that is missing, cannot be worked, is nested too deep or waits for the plan."""
    tip = context.tip()

    def read(path: str) -> Plan:
        if path == plan.path:
            return plan
        text = trees.read_plan(context.git, f"{tip}:{path}", path)
        if text is None:
            raise RefusedEarly(f"{path}: no such plan on {context.target_name}")
        subplan = parse_plan(text, path=path)
        if subplan.status not in (PlanStatus.ACTIVE, PlanStatus.COMPLETE):
            raise RefusedEarly(f"{path}: the plan says status: {subplan.status}")
        require_clear(subplan)
        require_landable(context, subplan)
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
