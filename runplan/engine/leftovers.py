"""Finds and removes what ended runs left; what an unfinished run uses stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan import names
from runplan.git.removal import Removal
from runplan.git.repository import refs_snapshot
from runplan.git.workspace import Workspace
from runplan.git.worktrees import Worktrees
from runplan.settings.places import worktree_root
from runplan.supervise.files import directory_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.engine.context import RepositoryContext
    from runplan.git.removal import Kept, Removed
    from runplan.store.sqlite import Store

_OF_RUN = """
SELECT plan, seq, type, body FROM events WHERE run=? AND type IN ('PlanRead', 'DispatchStarted') ORDER BY seq
"""


def collect(at: RepositoryContext, *, dry_run: bool) -> tuple[list[Removed | Kept], list[Removed | Kept]]:
    """Worktrees and refs; and logs."""
    root = worktree_root(at.repository.root, at.settings, at.env)
    workspace = Workspace(at.repository.git, common_dir=at.repository.common_dir, state=at.state, root=root)
    if not at.state.is_dir() and not _has_refs(at):
        return [], []
    workspace.prepare()
    try:
        worktrees = Worktrees(workspace, lock_dir=at.state / "locks", mirror=at.mirrored)
        removal = Removal(workspace, worktrees, targets=at.targets)
        found = removal.gc(
            dry_run=dry_run, prefix=at.settings.run.branch_prefix, active=set(_in_use(at)), known=set(_made(at))
        )
        if not dry_run:
            removal.sweep()
        return found, list(_logs(at, removal, dry_run=dry_run))
    finally:
        workspace.close()


def _has_refs(at: RepositoryContext) -> bool:
    """Whether the user's repository has refs of ours; the state directory may have been deleted."""
    prefix = at.settings.run.branch_prefix
    own = ("refs/runplan/", *([f"refs/heads/{prefix}"] if prefix else []))
    return any(ref.startswith(own) for ref in refs_snapshot(at.repository.common_dir, at.repository.git))


def _logs(at: RepositoryContext, removal: Removal, *, dry_run: bool) -> Iterator[Removed | Kept]:
    """The records of each dispatch: they may go when its run is over and the phase it worked on has landed since."""
    home = at.state / "dispatch"
    directories = sorted(one for one in home.iterdir() if one.is_dir()) if home.is_dir() else []
    store = at.store()
    runs = {names.run_of(one.name.rpartition(".")[0]) for one in directories}
    dispatched = dict(_dispatched(store, runs)) if store and runs else {}
    for one in directories:
        used_by, landed = dispatched.get(one.name, ("", False))
        yield removal.log(one, used_by=used_by, landed=landed, dry_run=dry_run)


def _dispatched(store: Store, runs: Iterable[str]) -> Iterator[tuple[str, tuple[str, bool]]]:
    """The directory of each dispatch, the run that still needs it, and whether its phase has landed since."""
    going = {row.id for row in store.unfinished()}
    landings: dict[tuple[str, str], int] = {}  # by plan and phase, the row of the last one
    for plan, seq, body in store.query("SELECT plan, seq, body FROM events WHERE type='Landed' ORDER BY seq"):
        landings[str(plan), json.loads(str(body))["phase"]] = int(str(seq))
    for run in runs:
        phases: dict[str, str] = {}  # by lane
        for plan, seq, kind, body in store.query(_OF_RUN, run):
            told = json.loads(str(body))
            lane = told.get("lane", "")
            if kind == "PlanRead":
                phases[lane] = told["phase"]
            else:
                used_by = f"the run {run}" if run in going else ""
                landed = landings.get((str(plan), phases.get(lane, "")), 0) > int(str(seq))
                yield directory_name(told["id"]), (used_by, landed)


def _made(at: RepositoryContext) -> Iterator[str]:
    """Every branch that a run has made."""
    store = at.store()
    query = "SELECT DISTINCT json_extract(body, '$.branch') FROM events WHERE type='Leased'"
    yield from (str(branch) for (branch,) in (store.query(query) if store else []))


def _in_use(at: RepositoryContext) -> Iterator[str]:
    """Branches, candidates and worktrees of runs that have not ended."""
    store = at.store()
    for row in store.unfinished() if store else []:
        slug = ""
        yield from (names.candidate_ref(row.id), names.base_ref(row.id))
        for fact in store.events(row.id) if store else []:
            if fact.type == "RunStarted":
                slug = json.loads(fact.body)["slug"]
                yield names.worktree_name(str(at.repository.root), slug)
            elif fact.type == "LanesChosen":
                for lane, *_ in json.loads(fact.body)["lanes"]:
                    yield from (names.candidate_ref(row.id, lane), names.base_ref(row.id, lane))
                    yield names.worktree_name(str(at.repository.root), slug, lane)
            elif fact.type == "Leased":
                yield json.loads(fact.body)["branch"]
