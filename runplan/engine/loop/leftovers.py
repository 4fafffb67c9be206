"""Removes the worktrees, refs and logs of ended runs; those of unfinished runs stay."""

from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec.structs import replace

from runplan.adapters.agents.invocation import Agents
from runplan.adapters.configuration.places import remove_unused_root
from runplan.adapters.git.command import one_line
from runplan.adapters.git.remote import Taken
from runplan.adapters.git.removal import Removal, remove_log
from runplan.adapters.git.zones import Zones
from runplan.adapters.sandbox.container import find_engine, list_built_images
from runplan.adapters.sandbox.view import Places
from runplan.adapters.store.files import is_held
from runplan.adapters.store.journal import list_records
from runplan.adapters.store.protocol import Store
from runplan.domain import names
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.run import events as e
from runplan.engine.landing import modes
from runplan.engine.loop.advance import LOCK, SLUG
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.preflight import prepare_image
from runplan.engine.loop.repository import open_workspace


def collect_leftovers(context: RepositoryContext, *, dry_run: bool) -> tuple[list[Removed | Kept], ...]:
    """Worktrees and refs; and logs, which may go when the run has ended and the phase has landed."""
    prefix = context.settings.run.branch_prefix
    store = context.store()
    prefixes = ("refs/runplan/", *([f"refs/heads/{prefix}"] if prefix else []))
    refs = context.git.list_refs(context.common_dir)
    if not context.fleet and not context.state.is_dir() and not any(ref.startswith(prefixes) for ref in refs):
        return [], []
    workspace = open_workspace(context)
    workspace.prepare()
    try:
        needed = (context.root, context.common_dir, workspace.root)
        image = prepare_image(context, may_be_old=True)
        places = Places(workspace.homes, needed, workspace.hide_secrets(), image, context.state)
        agents = Agents(
            context.settings.agents, root=workspace.root, plan="", run="", caller=context.env, places=places
        )
        zones = Zones(workspace, agents.confine, context.settings.limits, agents.script_env)
        removal = Removal(zones, targets=context.targets)
        active = set(_in_use(store, str(context.root), context.state))
        known = {fact.event.branch for fact in store.list_facts(e.Leased)}
        answers = removal.remove_leftovers(dry_run=dry_run, prefix=prefix, active=active, known=known)
        answers += _collect_pushed(context, workspace.path, dry_run=dry_run) if context.fleet else ()
        answers += remove_built_images(context, newest=1, dry_run=dry_run)
    finally:
        workspace.close()
        remove_unused_root(workspace.root, context.settings)
    local = _list_logs(context.state)
    in_database = store.outputs.list_dispatches() if store.outputs else set()
    dispatched = dict(_list_dispatches(store, {*local, *in_database}))
    logs = []
    for name in sorted({*local, *in_database}):
        used_by, landed = dispatched.get(name, ("", False))
        answer = remove_log(context.state / "dispatch" / name, used_by=used_by, landed=landed, dry_run=dry_run)
        if store.outputs and isinstance(answer, Removed) and not dry_run:
            store.outputs.drop(name)
        logs.append(answer if name in local else replace(answer, what=f"the database/{name}"))
    return answers, logs


def remove_built_images(context: RepositoryContext, *, newest: int, dry_run: bool) -> Iterator[Removed | Kept]:
    """Remove the images that were built for this repository, except for so many of the newest."""
    if not context.settings.agents.has_containers:
        return
    engine = find_engine(context.settings.agents.container, context.env)
    for name in list_built_images(engine, str(context.common_dir), context.env)[newest:]:
        image = f"the image {name}"
        if context.store().list_unfinished_runs():
            yield Kept(what=image, why="a run has not ended")
            continue
        code, _, error = (0, "", "") if dry_run else engine.run("rmi", name, env=context.env)
        yield Kept(what=image, why=one_line(error)) if code else Removed(what=image)


def _collect_pushed(context: RepositoryContext, tool: Path, *, dry_run: bool) -> Iterator[Removed | Kept]:
    """Work on the remote; it may go when the run has ended and the phase has landed."""
    store = context.store()
    remote = modes.open_target(context, context.settings, context.env)
    unfinished = {row.id for row in store.list_unfinished_runs()}
    landed = {(fact.run, fact.event.phase): fact.seq for fact in store.list_facts(e.Landed)}
    leases = {names.wip_ref(fact.event.branch): fact for fact in store.list_facts(e.Leased)}
    for ref, oid in remote.list_refs(f"{names.WIP}*").items():
        lease = leases.get(ref)
        place = f"{ref} on {remote.name}"
        if lease is None or landed.get((lease.run, lease.event.phase), 0) < lease.seq:
            yield Kept(what=place, why="its phase has not landed")
        elif lease.run not in unfinished:
            answer = remote.push("", old=oid, source=tool, ref=ref) if not dry_run else Taken()
            yield Removed(what=place) if isinstance(answer, Taken) else Kept(what=place, why=answer.said)


def remove_dropped_logs(context: RepositoryContext, store: Store) -> None:
    """Remove the logs of this host that `gc`, on another one, has removed from the database of a fleet."""
    local = _list_logs(context.state)
    dropped = local.keys() - (store.outputs.list_dispatches() if store.outputs else local.keys())
    for name, (used_by, landed) in _list_dispatches(store, dropped):
        if name in dropped:
            remove_log(local[name], used_by=used_by, landed=landed, dry_run=False)


def _list_logs(state: Path) -> dict[str, Path]:
    home = state / "dispatch"
    return {path.name: path for path in home.iterdir() if path.is_dir()} if home.is_dir() else {}


def _list_dispatches(store: Store, dispatches: Collection[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """Each dispatch of the plans of these, the run that still needs it, and whether its phase has landed since."""
    if not dispatches:
        return
    runs = {names.run_of(dispatch.rpartition(".")[0]) for dispatch in dispatches}
    unfinished = {row.id for row in store.list_unfinished_runs()}
    for plan in {row.plan for run in runs if (row := store.get_run(run)) is not None}:
        landed = {record.event.phase: record.seq for record in store.list_facts(e.Landed, plan=plan)}
        phases: dict[tuple[str, str], str] = {}  # by run and lane
        for record in store.list_facts(e.PhaseChosen, e.RepairChosen, e.MergeChosen, e.DispatchStarted, plan=plan):
            lane = (record.run, record.event.lane)
            if isinstance(record.event, e.Chosen):
                phases[lane] = record.event.phase
            elif isinstance(record.event, e.DispatchStarted):
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
