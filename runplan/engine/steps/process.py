"""Starts a process: an agent with its prompt, budget and worktree, or a command of the project or of a phase.

The command of a phase runs with the user's rights in the main checkout, and lands by itself.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents import prompts
from runplan.adapters.agents.adapter import Agent
from runplan.adapters.agents.budgets import Cost, GivenOut, Left, UsedUp, remaining_budget, sum_usage
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.endings import FARTHEST_S
from runplan.adapters.agents.invocation import list_known
from runplan.adapters.configuration.places import state_directory
from runplan.adapters.git.objects import KEEPER
from runplan.adapters.git.zones import Extra
from runplan.adapters.store.files import is_directory
from runplan.adapters.supervise.dispatches import claim_ports
from runplan.domain.checks import results, returns
from runplan.domain.checks.guarded import find_altered
from runplan.domain.errors import RunplanError, Unreachable
from runplan.domain.gitfacts import LANDING, committing_as, read_trailers
from runplan.domain.names import as_utf8, context_files
from runplan.domain.run import dispatch as d, events as e
from runplan.domain.run.attempt_parts import CommandAltered, SetupReused
from runplan.domain.run.attempts import Attempt, PlanningAttempt, WorkAttempt
from runplan.domain.run.kinds import Access, Mode, Reason, Role, WaitKind
from runplan.domain.run.state import RunState
from runplan.domain.settings.schema import FILES
from runplan.domain.times import CLOCK_ERROR, closed_between, iso, parse_iso, zone
from runplan.engine.steps import gates, proof
from runplan.engine.steps.context import RunContext

CHANGE = "change.diff"  #: that a fixer continues or a verifier judges
FINGERPRINT = "fingerprint.json"  #: of the user's repository before the dispatch
RETRY = timedelta(minutes=1)  #: wait while running agents may use all that is left
EARLIER = timedelta(days=2)  #: an agent that was started this long before midnight may still run
SAVE_S = 60.0  #: for an agent whose context is full to write its notes, unless it was told to before


class Prepared(Struct, frozen=True, kw_only=True):
    started: e.DispatchStarted
    launches: tuple[d.Launch, ...]  #: the second and further ones only read
    diff: str = ""  #: the change that a fixer continues or a verifier judges
    commit: str = ""  #: with the files that it sees; "" for those of the dispatch's tree


Prepare: TypeAlias = Callable[[e.DispatchStarted, RunState, RunContext], Prepared]


def start_dispatch(
    dispatch: e.DispatchStarted, state: RunState, context: RunContext, prepare: Prepare
) -> Iterator[e.Event]:
    name = f"{context.mark}.{state.dispatches + 1}"
    previous = f"{context.mark}.{state.dispatches}"
    # Never two processes in one worktree: the previous one is ended, even if its end is recorded.
    if state.dispatches and context.dispatches.standing(previous) == d.Running():
        context.dispatches.end([previous], grace_s=d.GRACE_S)
        if context.dispatches.standing(previous) == d.Running():
            raise still_running(previous)
    context.dispatches.expect_new(name)
    wanted = replace(dispatch, id=name, phase=state.current.chosen.phase, at=context.iso())
    chosen = _choose_agent(wanted, state.current, state.options, context) if wanted.role.agent else wanted
    if not isinstance(chosen, e.DispatchStarted):
        yield chosen
        return
    prepared = prepare(chosen, state, context)
    started = prepared.started
    is_delegated = started.role is Role.DELEGATE  # it is to change the repository
    files = () if is_delegated else ((FINGERPRINT, context.fingerprints.take_fingerprint()),)
    if prepared.diff:
        context.dispatches.write(started.id, CHANGE, prepared.diff)
    yield started
    try:
        fault = _fill_worktree(prepared, state, context)
    except (RunplanError, OSError):
        yield without_result(started)
        raise
    if fault:  # it is due again after run.setup
        yield without_result(started, fault)
    else:
        launches = [replace(prepared.launches[0], files=files), *prepared.launches[1:]]
        if not is_delegated:
            numbers = number_lane(context, is_for_agents=is_for_writers(started))
            memory = context.settings.limits.memory
            launches = [replace(launch, env=launch.env | numbers, memory=memory) for launch in launches]
        for launch in launches:
            context.dispatches.start(launch)


def still_running(id: str) -> Unreachable:
    """The process could not be killed, so no replacement starts."""
    return Unreachable(f"the process {id} cannot be killed; its processes have RUNPLAN_DISPATCH={id} set")


def place_of(started: e.DispatchStarted, context: RunContext) -> tuple[Path, tuple[Path, ...]]:
    if started.role is Role.DELEGATE:
        return context.root, ()
    if is_for_writers(started):
        return context.zone.path, context.zone.writable
    proof = context.proof
    writable = {Access.PRODUCTS: proof.writable, Access.SCRATCH: (proof.path,)}
    return proof.path, writable.get(started.role.access, ())


def number_lane(context: RunContext, *, is_for_agents: bool) -> dict[str, str]:
    """The number of the lane, and the first of the ports that are its worktree's own."""
    lane = context.zone_lane if is_for_agents else context.proof_lane
    path = context.zone.path if is_for_agents else context.proof.path
    return {"RUNPLAN_LANE": lane or "0", "RUNPLAN_PORT": str(claim_ports(state_directory(context.env), path))}


def find_removed(started: e.DispatchStarted, context: RunContext) -> Path | None:
    """The worktree of a command or a reader that is gone, so that its result says nothing."""
    places = (place_of(started, context)[0], *([context.zone.path] if started.agents else []))
    return None if started.role.is_writer else next((path for path in places if not is_directory(path)), None)


def is_for_writers(started: e.DispatchStarted) -> bool:
    """Whether it runs in the worktree of implementers and fixers; else in the proof worktree."""
    return started.role.is_writer or (started.role is Role.SETUP and not started.tree)


def prepare_writer(started: e.DispatchStarted, state: RunState, context: RunContext) -> Prepared:
    phase = state.work
    diff = ""
    if started.role is Role.FIX:
        head = context.objects.tip(phase.leased.branch) or phase.base
        diff = context.agents.redacted(context.candidates.diff(phase.base, head))  # it may have to remove a secret
    kept = phase.leased.kept
    failed, outputs = phase.proof.failed_items, phase.proof.red_checks
    if kept is not None and not phase.proof.gates and started.complaint == kept.complaint:  # of the last attempt
        failed, outputs = kept.failed, kept.red
    checks = context.settings.checks
    red = [(checks[name].command, output) for name, output in outputs if name in checks]
    brief = write_brief(started, phase, context, tip=phase.base)
    template = prompts.told_note([told.text for told in context.list_told()]) + context.prompts[started.role]
    if started.role is Role.IMPLEMENT:
        text = prompts.implement_prompt(template, brief)
    else:
        text = prompts.fix_prompt(template, brief, failed=failed, why=started.complaint, gates=red, diff=diff)
    rejections = [why for failure in context.failures(phase.chosen.phase) if (why := failure.event.rejected)]
    handover = f"\n{phase.handovers[-1].note}" if phase.handovers else ""
    answers = context.answers(phase.chosen.phase)
    memory = prompts.memory_note(context.choose_lessons(state.options))
    begun = kept if started.role is Role.IMPLEMENT else None
    text += as_utf8(prompts.history_notes(begun, [*rejections, *phase.rejections], answers) + handover + memory)
    if phase.handovers or phase.dispatches.questions or started.again:  # it continues the notes of its predecessor
        context.dispatches.write(started.id, d.NOTES, context.dispatches.read(phase.written, d.NOTES) or "")
    launch = launch_agent(started, context, text, base=phase.base, attempt=phase.leased.attempt)
    return Prepared(started=started, launches=(launch,), diff=diff)


def write_brief(
    started: e.DispatchStarted, phase: WorkAttempt, context: RunContext, *, tip: str, asked: e.Rows = ()
) -> prompts.Brief:
    """The part that is in each prompt of a phase; `tip` is the commit that the agent sees."""
    checks = context.settings.checks
    known = ((name, event.results) for name, event in phase.proof.baselines.items() if name in checks and event.results)
    return prompts.Brief(
        plan=context.plan,
        chosen=replace(phase.chosen, items=(*phase.chosen.items, *asked)),
        worktree=str(place_of(started, context)[0]),
        branch=phase.leased.branch.removeprefix("refs/heads/"),
        test_command=context.settings.tests.command,
        context=[name for name in context_files(context.plan) if context.objects.blob(tip, name) is not None],
        baseline=[(checks[name].command, results.from_text(text)) for name, text in known],
    )


def launch_agent(started: e.DispatchStarted, context: RunContext, text: str, base: str, attempt: int = 1) -> d.Launch:
    """The process of an agent with this prompt; `base` is the commit that it begins on."""
    path, writable = place_of(started, context)
    directory = context.dispatches.directory(started.id)
    prompt = directory / "prompt.md"
    context.dispatches.write(started.id, prompt.name, text)
    context.dispatches.write(started.id, d.RETURN, returns.IN_PROGRESS)  # what an interrupted agent returns
    guarded = [name for name in (context.plan, *FILES) if context.objects.known(f"{base}:{name}") is not None]
    argv, env, reader = context.agents.launch(
        started, attempt=attempt, directory=directory, cwd=path, writable=writable, guarded=guarded
    )
    table = context.settings.agents.agent(started.agent)
    limits = context.settings.limits
    agent = agent_of(table.kind)
    return d.Launch(
        id=started.id,
        argv=argv,
        boxed=context.agents.is_sandboxed(started.agent),
        end=context.agents.end(started),
        hosts=context.agents.list_hosts(started),
        cwd=str(path),
        env=env,
        stdin=str(prompt),
        logs=(d.SERVER_LOG,) if started.role is Role.TRY else (),
        talks=bool(agent.encode_message(text)),
        reader=reader,
        wall_s=started.seconds,
        silence_s=limits.silence_s,
        tokens=started.tokens,
        usd=started.usd,
        prompt=sent_at_first(agent, text),
        save_s=SAVE_S if started.role.is_writer else 0,
        hand_over_at=limits.context_critical if started.role.is_writer else 0,
        warn_at=limits.context_warning if started.role.is_writer else 0,
        warning=prompts.SAVE_NOTES.format(limits.context_warning),
        window=table.context,
        model=started.model or table.model,
        usd_in=table.usd_per_mtok_in,
        usd_out=table.usd_per_mtok_out,
    )


def sent_at_first(agent: Agent, prompt: str) -> int:
    """The characters of the first request, for an estimate; an agent that prints its prompt shows them itself."""
    return 0 if agent.prompt_ends else len(prompt) + agent.overhead


def _choose_agent(wanted: e.DispatchStarted, attempt: Attempt, options: e.RunStarted, context: RunContext) -> e.Event:
    """The dispatch with the agent of the role, or its fallback, and its budget; or why it has to wait or fails."""
    agents = context.settings.agents
    of_phase = attempt.chosen.own
    usual = context.agents.settings  # without what the phase sets
    authors = attempt.authors if isinstance(attempt, WorkAttempt) else ()
    verifier = wanted.agent or agents.judges[0]
    if wanted.role is Role.CRITIQUE:
        preferred = [verifier, *agents.fallbacks]
    elif wanted.role is Role.TRY and agents.trial:
        preferred = [agents.trial, *agents.fallbacks]
    elif wanted.role not in (Role.VERIFY, Role.TRY):
        preferred = [getattr(agents, wanted.role.agent), *agents.fallbacks]
    elif of_phase.verifier or (verifier == usual.implementer and not of_phase.agent) or verifier not in authors:
        preferred = [verifier, *(name for name in agents.fallbacks if name not in authors)]
    else:  # the verifier stood in for the implementer, which now verifies in its place: none verifies its own work
        preferred = [name for name in (*agents.fallbacks, usual.implementer) if name not in authors]
    names = list(dict.fromkeys(filter(None, preferred))) or [verifier]
    if names[0] in (of_phase.agent, of_phase.verifier) and names[0] not in (known := list_known(agents)):
        detail = f"the phase names the agent {names[0]}, and there are: {', '.join(known)}"
        return e.WorkRefused(reason=Reason.AGENT_MISSING, detail=detail)
    now = context.clock.now()
    farthest = timedelta(seconds=FARTHEST_S)
    resumed = [fact for fact in context.store.list_facts(e.RunResumed, plan=context.plan) if fact.run == context.run]
    # A person who resumes the run does not wait for earlier limits.
    since = max((fact.at for fact in resumed), default="")
    last = max((fact.seq for fact in resumed), default=0)
    run = context.settings.run
    if run.hours and (closed := closed_between(run.hours, now, run.timezone)) and since < iso(closed[0]):
        return e.Paused(kind=WaitKind.HOURS, until=iso(closed[1]), words=f"agents begin in run.hours, {run.hours}")
    latest = iso(now + CLOCK_ERROR)
    limits: dict[str, e.AgentLimited] = {}
    for fact in context.store.list_shared_facts(e.AgentLimited, since=iso(now - farthest)):
        is_own = fact.run == context.run  # its order does not depend on the clock
        if (fact.seq > last if is_own else fact.at > since) and fact.at <= latest:
            until = min(fact.event.until, iso(parse_iso(fact.at) + farthest))
            limits[fact.event.account] = replace(fact.event, until=until)
    limits = {account: limit for account, limit in limits.items() if parse_iso(limit.until) > now}
    limited = {name: limit for name in names if (limit := limits.get(agents.account_of(name)))}
    agent = next((name for name in names if name not in limited), None)
    if agent is None:
        first = min(names, key=lambda name: limited[name].until)
        return e.Paused(kind=WaitKind.LIMIT, until=limited[first].until, agent=first, words=limited[first].words)
    match _remaining_budget(wanted, context):
        case UsedUp(why=why):
            return e.WorkRefused(reason=Reason.BUDGET, detail=why)
        case GivenOut(why=why):
            return e.Paused(kind=WaitKind.BUDGET, until=iso(context.clock.now() + RETRY), words=why)
        case Left(tokens=tokens, usd=usd, seconds=seconds, bounds=bounds, near=near):
            wanted = replace(wanted, agent=agent, version=context.agents.version(agent))
            if wanted.role.agent in ("implementer", "planner") and agent == names[0]:  # a fallback has other models
                is_meant = (options.mode is Mode.PLAN) == isinstance(attempt, PlanningAttempt) and not of_phase.agent
                asked = options if is_meant else of_phase
                wanted = replace(wanted, model=of_phase.model or asked.model, effort=of_phase.effort or asked.effort)
            return replace(wanted, tokens=tokens, usd=usd, seconds=seconds, bounds=bounds, near=near)


def _remaining_budget(wanted: e.DispatchStarted, context: RunContext) -> Left | UsedUp | GivenOut:
    """What the dispatch may use. The journal is read only for scopes that have a limit."""
    limits = context.settings.limits
    store = context.store
    budgets = {
        "dispatch": Cost(tokens=limits.tokens, usd=limits.usd, seconds=limits.wall_of(wanted.role)),
        "phase": Cost(tokens=limits.phase_tokens, usd=limits.phase_usd, seconds=limits.phase_wall_s),
        "plan": Cost(tokens=limits.plan_tokens, usd=limits.plan_usd, seconds=limits.plan_wall_s),
        "day": Cost(tokens=limits.day_tokens, usd=limits.day_usd, seconds=limits.day_wall_s),
        "month": Cost(tokens=limits.month_tokens, usd=limits.month_usd, seconds=limits.month_wall_s),
    }
    spent: dict[str, Cost] = {}
    reserved: dict[str, Cost] = {}
    prefix, now = f"{context.mark}.", context.clock.now()
    if budgets["phase"] != Cost() or budgets["plan"] != Cost():
        started = store.list_facts(e.DispatchStarted, plan=context.plan)
        ended = store.list_facts(e.DispatchEnded, plan=context.plan)
        spent["plan"], reserved["plan"] = sum_usage(started, ended, prefix=prefix, now=now)
        spent["phase"], reserved["phase"] = sum_usage(started, ended, prefix=prefix, now=now, phase=wanted.phase)
    today = now.astimezone(zone(context.settings.run.timezone))
    midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
    for scope, begin in {"day": midnight, "month": midnight.replace(day=1)}.items():
        if budgets[scope] != Cost():
            begun = store.list_shared_facts(e.DispatchStarted, since=iso(begin - EARLIER))
            over = store.list_shared_facts(e.DispatchEnded, since=iso(begin - EARLIER))
            period = {"since": iso(begin), "until": iso(now + CLOCK_ERROR)}
            spent[scope], reserved[scope] = sum_usage(begun, over, prefix=prefix, now=now, **period)
    return remaining_budget(budgets, spent, reserved)


def without_result(started: e.DispatchStarted, detail: str = "", ending: d.Ending = d.Ending.ENDED) -> e.DispatchEnded:
    return e.DispatchEnded(id=started.id, role=started.role, ending=ending, code=None, detail=detail)


def find_result(dispatch: e.DispatchStarted, state: RunState, context: RunContext) -> tuple[e.Event, ...]:
    """The result of the same command on the same code. That of a phase is not repeated when the target has moved."""
    phase = state.work
    if dispatch.role is Role.SETUP:
        base = phase.delivery.candidate.onto_tree if phase.delivery.candidate else phase.base_tree
        unknown = tuple(name for name in context.settings.checks if name not in phase.proof.baselines)
        checks = replace(dispatch, role=Role.BASELINE, gates=unknown)  # known ones need no set-up
        known = gates.already_known(checks, phase, context) if dispatch.tree == base else ()
        place = context.proof if dispatch.tree else context.zone
        if known or dispatch.again or place.inputs != gates.find_inputs(dispatch, phase, context):
            return known
        return (SetupReused(tree=dispatch.tree),)
    if dispatch.role is Role.PROVE:
        return proof.already_known(dispatch, phase, context)
    if dispatch.role is not Role.DELEGATE:
        return gates.already_known(dispatch, phase, context)
    if phase.dispatches.newest is not None and phase.dispatches.newest.role is Role.DELEGATE:
        taken = take_delegated(state, context)
        return taken if len(taken) > 1 else ()
    # The files of the command that landings have changed since the plan began.
    assert isinstance(phase.chosen, e.DelegateChosen)
    base = context.find_plan_base(phase)
    tip = context.tip()
    changed = (change.path for change in context.candidates.changes(base, tip))
    files = tuple(find_altered(phase.chosen.command, changed, partial(context.read_file, tip)))
    versions = {path: context.candidates.entry(tip, path) for path in files}
    tree = context.candidates.tree_with(context.objects.commit(base).tree, versions)
    if not files or tree == phase.delivery.approved:
        return ()
    commit = context.candidates.commit(tree, onto=base, message=f"What `{phase.chosen.command}` would run\n", by=KEEPER)
    return (CommandAltered(onto=base, commit=commit, tree=tree, files=files),)


def take_delegated(state: RunState, context: RunContext) -> tuple[e.Event, ...]:
    """The work and the candidate: all commits that the target got since the phase began; or that it got none."""
    phase = state.work
    base = phase.base
    tip = context.tip()
    tree = context.objects.commit(tip).tree
    if not context.objects.is_ancestor(base, tip):
        return (e.WorkRefused(reason=Reason.OFF_BASE, detail=f"the target does not contain {base[:12]} any more"),)
    commits = context.candidates.commits(base, tip)
    ours = {fact.event.id for fact in context.store.list_facts(e.Landed, since=phase.dispatches.began)}
    # A merge, and a commit that is not of our own landings, is the command's work.
    is_work = commits is None or any(read_trailers(commit.message).get(LANDING) not in ours for commit in commits)
    if not phase.is_last and not is_work:
        return (e.WorkTaken(head=tip, tree=tree, commits=0),)
    oids = tuple(commit.oid for commit in commits) if commits else (tip,)
    files = tuple(change.path for change in context.candidates.changes(base, tip))
    onto_tree = context.objects.commit(base).tree
    built = e.CandidateBuilt(onto=base, onto_tree=onto_tree, commits=oids, tree=tree, patch=tree)
    return e.WorkTaken(head=tip, tree=tree, commits=len(oids), files=files), built


def _fill_worktree(prepared: Prepared, state: RunState, context: RunContext) -> str:
    """Put the files of its worktree right; why the products of run.setup cannot be used, or ""."""
    started = prepared.started
    if started.role is Role.DELEGATE:
        return ""
    change = context.dispatches.directory(started.id) / CHANGE if prepared.diff else None
    extra = Extra(copies=context.copied, root=context.root, diff=change)
    if isinstance(state.attempt, PlanningAttempt):
        context.proof.checkout_exact_tree(state.attempt.chosen.tip, clean="ignored", extra=extra)
        return ""
    phase = state.work
    run = context.settings.run
    if is_for_writers(started) or started.agents:
        # The products of run.setup stay until it runs again.
        clean = "untracked" if run.setup and started.role is not Role.SETUP else run.clean
        last = phase.dispatches.newest  # if only run.setup has used the worktree before, its repository is kept
        is_setup = last is not None and last.role is Role.SETUP and is_for_writers(last) == is_for_writers(started)
        context.zone.lend(branch=phase.leased.branch, clean=clean, extra=extra, keeps_repository=is_setup)
    if is_for_writers(started):
        return ""
    commit = prepared.commit or gates.commit_of(started, phase, context)
    worktree, is_protected = context.proof, context.agents.protects_proof
    if started.role is Role.SETUP or not run.setup:
        keeps_nothing = started.role is Role.SETUP or worktree.inputs
        clean = "ignored" if keeps_nothing else "none" if is_protected else run.clean
        worktree.checkout_exact_tree(commit, clean=clean, extra=extra)
        return ""
    if worktree.inputs != gates.find_inputs(started, phase, context):
        return "the products of run.setup are those of other inputs"
    is_read = started.role is Role.VERIFY and not is_protected  # a new file would count as the verifier's
    if fault := worktree.reuse(commit, clean=is_read, is_protected=is_protected, extra=extra):
        worktree.forget_products(fault)
    return fault


def prepare_command(started: e.DispatchStarted, state: RunState, context: RunContext) -> Prepared:
    path, writable = place_of(started, context)
    directory = context.dispatches.directory(started.id)
    is_delegated = started.role is Role.DELEGATE
    build = proof.command_line if started.role is Role.PROVE else gates.command_line
    line, wall_s = build(started, state.work, context)
    argv, env = context.agents.command(line, started, directory=directory, cwd=path, writable=writable)
    if not is_delegated:
        env = env | committing_as(started.id)
        if started.agents:  # the same line runs in the agents' worktree and sandbox too, and fails when one does
            zone = context.zone
            beside = directory / d.BESIDE
            other, _ = context.agents.command(line, started, directory=beside, cwd=zone.path, writable=zone.writable)
            numbers = (f"{name}={value}" for name, value in number_lane(context, is_for_agents=True).items())
            other_line = f"cd {quote(str(zone.path))} && {join(('env', *numbers, *other))}"
            argv = ("/bin/sh", "-c", f"{{ {other_line}; }} & {join(argv)}; code=$?; wait $! && exit $code")
    logs = tuple(gates.own_logs(started.gates).values())
    boxed = context.agents.confines_checks and not is_delegated
    launch = d.Launch(id=started.id, argv=argv, boxed=boxed, cwd=str(path), env=env, wall_s=wall_s, logs=logs)
    if boxed:
        hosts = context.agents.list_hosts(started)
        launch = replace(launch, is_double=started.agents, end=context.agents.end(started), hosts=hosts)
    started = replace(started, seconds=wall_s, argv=launch.argv, environment=context.agents.digest)
    if started.role is Role.SETUP:
        place = context.proof if started.tree else context.zone
        why = started.again or place.read_note("outdated") or "first use of the worktree"
        if place.inputs and not started.again:
            why = gates.describe_change(place.inputs, gates.find_inputs(started, state.work, context))
        started = replace(started, why=why)
    return Prepared(started=started, launches=(launch,))
