"""Starts commands: those of the project, in the worktrees of agents and of checks, and that of a phase.

The command of a phase runs with the user's rights in the main checkout, and lands by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from shlex import join, quote

from msgspec.structs import replace

from runplan.adapters.git.objects import KEEPER
from runplan.domain.checks.guarded import find_altered
from runplan.domain.gitfacts import LANDING, Commit, committing_as, read_trailers
from runplan.domain.run import dispatch as d, events as e
from runplan.domain.run.actions import Action, Start
from runplan.domain.run.attempt_parts import CommandAltered
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.kinds import Reason, Role
from runplan.domain.run.state import RunState
from runplan.engine.steps import gates, process, proof, setup
from runplan.engine.steps.context import RunContext


def _prepare_command(started: e.DispatchStarted, state: RunState, context: RunContext) -> process.Prepared:
    phase = state.work
    launch = _launch_command(started, phase, context)
    started = replace(started, seconds=launch.wall_s, argv=launch.argv, environment=context.agents.digest)
    if started.role is Role.SETUP:
        started = replace(started, why=setup.describe_reason(started, phase, context))
    return process.Prepared(started=started, launch=launch, fill=partial(fill_files, started, phase, context))


def start_command(action: Start, state: RunState, context: RunContext) -> Iterator[e.Event]:
    """Start a command, unless its result is known."""
    known = _find_result(action, state, context) if context.reuses_results else ()
    yield from known or process.start_dispatch(action, state, context, prepare=_prepare_command)


def _find_result(action: Start, state: RunState, context: RunContext) -> tuple[e.Event, ...]:
    """The result of the same command on the same code. That of a phase is not repeated when the target has moved."""
    if action.dispatch.role is Role.SETUP:
        return gates.known_baselines(action, state, context) or setup.reuse_products(
            action.dispatch, state.work, context
        )
    if action.dispatch.role is not Role.DELEGATE:
        return proof.already_known(action, state, context)
    phase = state.work
    newest = phase.dispatches.newest
    if newest is None or newest.role is not Role.DELEGATE:
        altered = _find_altered(phase, context)
        return (altered,) if altered is not None and altered.tree != phase.delivery.approved else ()
    taken = _look_at_target(phase, context)
    return taken if len(taken) > 1 else ()


def _find_altered(phase: WorkAttempt, context: RunContext) -> CommandAltered | None:
    """The files of the command that landings have changed since the plan began; None for none."""
    assert isinstance(phase.chosen, e.DelegateChosen)
    base = context.find_plan_base(phase)
    tip = context.tip()
    changed = (change.path for change in context.candidates.changes(base, tip))
    files = tuple(find_altered(phase.chosen.command, changed, partial(context.read_file, tip)))
    if not files:
        return None
    versions = {path: context.candidates.entry(tip, path) for path in files}
    tree = context.candidates.tree_with(context.objects.commit(base).tree, versions)
    message = f"What `{phase.chosen.command}` would run\n"
    commit = context.candidates.commit(tree, onto=base, message=message, by=KEEPER)
    return CommandAltered(onto=base, commit=commit, tree=tree, files=files)


def take_delegated(action: Action, state: RunState, context: RunContext) -> Iterator[e.Event]:  # noqa: ARG001
    yield from _look_at_target(state.work, context)


def _look_at_target(phase: WorkAttempt, context: RunContext) -> tuple[e.Event, ...]:
    """The work and the candidate: all commits that the target got since the phase began; or that it got none."""
    base = phase.base
    tip = context.tip()
    tree = context.objects.commit(tip).tree
    if not context.objects.is_ancestor(base, tip):
        return (e.WorkRefused(reason=Reason.OFF_BASE, detail=f"the target does not contain {base[:12]} any more"),)
    commits = context.candidates.commits(base, tip)
    if not phase.is_last and not _lands_something(phase, commits, context):
        return (e.WorkTaken(head=tip, tree=tree, commits=0),)
    oids = tuple(commit.oid for commit in commits) if commits else (tip,)
    files = tuple(change.path for change in context.candidates.changes(base, tip))
    onto_tree = context.objects.commit(base).tree
    built = e.CandidateBuilt(onto=base, onto_tree=onto_tree, commits=oids, tree=tree, patch=tree)
    return e.WorkTaken(head=tip, tree=tree, commits=len(oids), files=files), built


def _lands_something(phase: WorkAttempt, commits: tuple[Commit, ...] | None, context: RunContext) -> bool:
    """Whether a commit is not one of runplan's own landings; a merge is not."""
    if commits is None:
        return True
    ours = {fact.event.id for fact in context.store.list_facts(e.Landed, since=phase.dispatches.began)}
    return any(read_trailers(commit.message).get(LANDING) not in ours for commit in commits)


# --- the process and its files --------------------------------------------------------------------------


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
    if fault := worktree.reuse(commit, clean=is_read, extra=extra):
        worktree.forget_products(fault)
    return fault


def _launch_command(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> d.Launch:
    path, writable = process.place_of(started, context)
    name = started.id
    directory = context.dispatches.directory(started.id)
    build = proof.command_line if started.role is Role.PROVE else gates.command_line
    line, wall_s = build(started, phase, context)
    if started.role is Role.DELEGATE:
        argv, env = context.agents.delegate(line, started)
    else:
        argv, env = context.agents.command(line, started, directory=directory, cwd=path, writable=writable)
        env = env | committing_as(name)
        if started.agents:
            argv = _also_in_zone(argv, line, started, context)
    logs = tuple(gates.own_logs(started.gates).values())
    boxed = context.agents.confines_checks and started.role is not Role.DELEGATE
    return d.Launch(id=name, argv=argv, boxed=boxed, cwd=str(path), env=env, wall_s=wall_s, logs=logs)


def _also_in_zone(argv: Sequence[str], line: str, started: e.DispatchStarted, context: RunContext) -> tuple[str, ...]:
    """A command, and the same line in the agents' worktree and sandbox at the same time; it fails when one does."""
    zone = context.zone
    directory = context.dispatches.directory(started.id)
    other, _ = context.agents.command(line, started, directory=directory, cwd=zone.path, writable=zone.writable)
    numbers = (f"{name}={value}" for name, value in process.number_lane(context, is_for_agents=True).items())
    other_line = f"cd {quote(str(zone.path))} && {join(('env', *numbers, *other))}"
    return ("/bin/sh", "-c", f"{{ {other_line}; }} & {join(argv)}; code=$?; wait $! && exit $code")
