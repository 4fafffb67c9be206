"""Removes the worktrees, refs and logs of ended runs; those of unfinished runs stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan import names
from runplan.agents.invocation import Agents, Sandbox
from runplan.engine.rehearsal import LOCK, SLUG
from runplan.git.remote import Taken
from runplan.git.removal import Kept, Removal, Removed
from runplan.git.repository import Checkouts
from runplan.git.workspace import Workspace
from runplan.git.zones import Zones
from runplan.landing import modes
from runplan.run import events as e
from runplan.settings.places import remove_unused_root, worktree_root
from runplan.store.files import is_held
from runplan.store.journal import list_records

if TYPE_CHECKING:
    from runplan.engine.context import RepositoryContext
    from runplan.run.recorded import Recorded
    from runplan.store.protocol import Store


def collect_leftovers(
    context: RepositoryContext, *, dry_run: bool
) -> tuple[list[Removed | Kept], list[Removed | Kept]]:
    """Worktrees and refs; and logs."""
    prefix = context.settings.run.branch_prefix
    store = context.store()
    prefixes = ("refs/runplan/", *([f"refs/heads/{prefix}"] if prefix else []))
    refs = context.git.list_refs(context.common_dir)
    if not context.fleet and not context.state.is_dir() and not any(ref.startswith(prefixes) for ref in refs):
        return [], []
    root = worktree_root(context.root, context.settings, context.env)
    workspace = Workspace(
        context.git, common_dir=context.common_dir, state=context.state, root=root, mirror=context.mirrored
    )
    workspace.prepare()
    try:
        sandbox = Sandbox(Checkouts(context.git, context.common_dir), worktrees=root, env=context.env)
        agents = Agents(context.settings.agents, root=root, plan="", run="", caller=context.env, sandbox=sandbox)
        removal = Removal(Zones(workspace, agents.confine, env=agents.script_env), targets=context.targets)
        active = set(_in_use(store, str(context.root), context.state))
        known = {fact.event.branch for fact in store.list_facts(e.Leased)}
        answers = removal.remove_leftovers(dry_run=dry_run, prefix=prefix, active=active, known=known)
        answers += _collect_pushed(context, workspace.path, dry_run=dry_run) if context.fleet else ()
        if not dry_run:
            removal.remove_partial_packs()
        return answers, list(_collect_logs(context, removal, dry_run=dry_run))
    finally:
        workspace.close()
        remove_unused_root(root, context.settings)


def _collect_pushed(context: RepositoryContext, tool: Path, *, dry_run: bool) -> Iterator[Removed | Kept]:
    """Work on the remote; it may go when the run has ended and the phase has landed."""
    store = context.store()
    remote = modes.open_target(context.repository, context.settings, context.env)
    unfinished = {row.id for row in store.list_unfinished_runs()}
    landed = {(fact.run, fact.event.phase): fact.seq for fact in store.list_facts(e.Landed)}
    leases = {names.wip_ref(fact.event.branch): fact for fact in store.list_facts(e.Leased)}
    for ref, oid in remote.list_refs(f"{names.WIP}*").items():
        lease = leases.get(ref)
        if lease is None or landed.get((lease.run, lease.event.phase), 0) < lease.seq:
            yield Kept(what=f"{ref} on {remote.name}", why="its phase has not landed")
        elif lease.run not in unfinished:
            answer = remote.push("", old=oid, source=tool, ref=ref) if not dry_run else Taken()
            what = f"{ref} on {remote.name}"
            yield Removed(what=what) if isinstance(answer, Taken) else Kept(what=what, why=answer.said)


def _collect_logs(context: RepositoryContext, removal: Removal, *, dry_run: bool) -> Iterator[Removed | Kept]:
    """The logs of dispatches; they may go when the run has ended and the phase has landed."""
    home = context.state / "dispatch"
    store = context.store()
    stored = store.outputs
    local = {directory for directory in home.iterdir() if directory.is_dir()} if home.is_dir() else set()
    directories = sorted(local | {home / dispatch for dispatch in (stored.list_dispatches() if stored else ())})
    runs = {names.run_of(directory.name.rpartition(".")[0]) for directory in directories}
    dispatched = dict(_list_dispatches(store, runs)) if runs else {}
    for directory in directories:
        used_by, landed = dispatched.get(directory.name, ("", False))
        answer = removal.remove_log(directory, used_by=used_by, landed=landed, dry_run=dry_run)
        if stored and isinstance(answer, Removed) and not dry_run:
            stored.drop(directory.name)
        yield answer


def _list_dispatches(store: Store, runs: set[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The directory of each dispatch, the run that still needs it, and whether its phase has landed since."""
    unfinished = {row.id for row in store.list_unfinished_runs()}
    for plan in {row.plan for run in runs if (row := store.get_run(run)) is not None}:
        landed = {record.event.phase: record.seq for record in store.list_facts(e.Landed, plan=plan)}
        phases: dict[tuple[str, str], str] = {}  # by run and lane
        records: list[Recorded[Any]] = [
            record
            for kind in (e.PhaseChosen, e.RepairChosen, e.MergeChosen)
            for record in store.list_facts(kind, plan=plan)
        ]
        records += store.list_facts(e.DispatchStarted, plan=plan)
        for record in sorted(records, key=lambda record: record.seq):
            lane = (record.run, record.event.lane)
            if isinstance(record.event, e.Chosen):
                phases[lane] = record.event.phase
            else:
                used_by = f"the run {record.run}" if record.run in unfinished else ""
                yield record.event.id, (used_by, landed.get(phases.get(lane, ""), 0) > record.seq)


def _in_use(store: Store, root: str, state: Path) -> Iterator[str]:
    """Branches and worktrees of runs that have not ended, and of a rehearsal."""
    if is_held(state / LOCK):
        yield names.worktree_name(root, SLUG)
    for row in store.list_unfinished_runs():
        slug = ""
        yield names.base_ref(row.id)
        for fact in list_records(store, row.id):
            match fact.event:
                case e.RunStarted():
                    slug = fact.event.slug
                    yield names.worktree_name(root, slug)
                case e.LanesChosen(lanes=lanes):
                    for lane, *_ in lanes:
                        yield names.base_ref(row.id, lane)
                        yield names.worktree_name(root, slug, lane)
                case e.Leased(branch=branch):
                    yield branch
