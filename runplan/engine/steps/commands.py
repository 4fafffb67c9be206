"""Starts commands: those of the project, in the worktrees of agents and of checks, and that of a phase.

The command of a phase runs with the user's rights in the main checkout, and lands by itself.
"""

from collections.abc import Iterable
from functools import partial
from shlex import join, quote

from msgspec.structs import replace

from runplan.adapters.git.objects import KEEPER
from runplan.domain.checks.guarded import find_altered
from runplan.domain.gitfacts import LANDING, committing_as, read_trailers
from runplan.domain.run import dispatch as d, events as e
from runplan.domain.run.actions import Action, Start
from runplan.domain.run.attempt_parts import CommandAltered, SetupReused
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.kinds import Reason, Role
from runplan.domain.run.state import RunState
from runplan.engine.steps import gates, process, proof, setup
from runplan.engine.steps.context import RunContext


def start_command(action: Start, state: RunState, context: RunContext) -> Iterable[e.Event]:
    known = _find_result(action, state, context) if context.reuses_results else ()
    return known or process.start_dispatch(action, state, context, prepare=_prepare_command)


def _find_result(action: Start, state: RunState, context: RunContext) -> tuple[e.Event, ...]:
    """The result of the same command on the same code. That of a phase is not repeated when the target has moved."""
    phase = state.work
    if action.dispatch.role is Role.SETUP:
        base = phase.delivery.candidate.onto_tree if phase.delivery.candidate else phase.base_tree
        unknown = tuple(name for name in context.settings.checks if name not in phase.proof.baselines)
        checks = replace(action.dispatch, role=Role.BASELINE, gates=unknown)  # known ones need no set-up
        known = gates.already_known(replace(action, dispatch=checks), state, context) if checks.tree == base else ()
        place = context.proof if action.dispatch.tree else context.zone
        if known or action.dispatch.again or place.inputs != setup.find_inputs(action.dispatch, phase, context):
            return known
        return (SetupReused(tree=action.dispatch.tree),)
    if action.dispatch.role is not Role.DELEGATE:
        return proof.already_known(action, state, context)
    if phase.dispatches.newest is not None and phase.dispatches.newest.role is Role.DELEGATE:
        taken = take_delegated(action, state, context)
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


def take_delegated(action: Action, state: RunState, context: RunContext) -> tuple[e.Event, ...]:  # noqa: ARG001
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


def fill_files(
    started: e.DispatchStarted, phase: WorkAttempt, context: RunContext, *, diff: str = "", commit: str = ""
) -> str:
    """Put the files right, those of `commit` or of the tree; why the products of run.setup cannot be used, or ""."""
    if started.role is Role.DELEGATE:
        return ""
    run = context.settings.run
    extra = process.extra_files(started, context, diff=diff)
    if process.is_for_writers(started) or started.agents:
        process.lend_worktree(started, phase, context, extra)
    if process.is_for_writers(started):
        return ""
    commit = commit or setup.commit_of(started, phase, context)
    worktree, is_protected = context.proof, context.agents.protects_proof
    if started.role is Role.SETUP or not run.setup:
        keeps_nothing = started.role is Role.SETUP or worktree.inputs
        clean = "ignored" if keeps_nothing else "none" if is_protected else run.clean
        worktree.checkout_exact_tree(commit, clean=clean, extra=extra)
        return ""
    if worktree.inputs != setup.find_inputs(started, phase, context):
        return "the products of run.setup are those of other inputs"
    is_read = started.role is Role.VERIFY and not is_protected  # a new file would count as the verifier's
    if fault := worktree.reuse(commit, clean=is_read, is_protected=is_protected, extra=extra):
        worktree.forget_products(fault)
    return fault


def _prepare_command(started: e.DispatchStarted, state: RunState, context: RunContext) -> process.Prepared:
    phase = state.work
    path, writable = process.place_of(started, context)
    directory = context.dispatches.directory(started.id)
    is_delegated = started.role is Role.DELEGATE
    build = proof.command_line if started.role is Role.PROVE else gates.command_line
    line, wall_s = build(started, phase, context)
    if is_delegated:
        argv, env = context.agents.delegate(line, started)
    else:
        argv, env = context.agents.command(line, started, directory=directory, cwd=path, writable=writable)
        env = env | committing_as(started.id)
        if started.agents:  # the same line runs in the agents' worktree and sandbox too, and fails when one does
            zone = context.zone
            other, _ = context.agents.command(line, started, directory=directory, cwd=zone.path, writable=zone.writable)
            numbers = (f"{name}={value}" for name, value in process.number_lane(context, is_for_agents=True).items())
            other_line = f"cd {quote(str(zone.path))} && {join(('env', *numbers, *other))}"
            argv = ("/bin/sh", "-c", f"{{ {other_line}; }} & {join(argv)}; code=$?; wait $! && exit $code")
    logs = tuple(gates.own_logs(started.gates).values())
    boxed = context.agents.confines_checks and not is_delegated
    launch = d.Launch(id=started.id, argv=argv, boxed=boxed, cwd=str(path), env=env, wall_s=wall_s, logs=logs)
    if boxed:
        launch = replace(launch, end=context.agents.end(started), hosts=context.agents.list_hosts(started))
    started = replace(started, seconds=wall_s, argv=launch.argv, environment=context.agents.digest)
    if started.role is Role.SETUP:
        place = context.proof if started.tree else context.zone
        why = started.again or place.read_note("outdated") or "first use of the worktree"
        if place.inputs and not started.again:
            why = setup.describe_change(place.inputs, setup.find_inputs(started, phase, context))
        started = replace(started, why=why)
    return process.Prepared(started=started, launch=launch, fill=partial(fill_files, started, phase, context))
