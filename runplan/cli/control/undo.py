"""runplan undo: revert a landed phase with a new commit, and set its row to todo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    import argparse

    from runplan.engine.context import RepositoryContext
    from runplan.errors import Exit

EXAMPLES = """\
  runplan undo plans/X.md 3       revert what phase 3 landed; the phase can be worked again"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")
    parser.add_argument("phase", metavar="PHASE", help="the id of a phase that is done")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, plan_path, refuse_under_agent

    refuse_under_agent("undo")
    with open_context() as at:
        return undo(at, plan_path(at, args.plan), args.phase)


def undo(at: RepositoryContext, path: str, phase: str) -> Exit:
    """Revert the phase in this process, with the landing mode of the plan."""
    from runplan.cli.control import prepare
    from runplan.engine import admission
    from runplan.engine.acquire import Declined, interrupted
    from runplan.engine.preflight import living_owner, require_undoable
    from runplan.landing import modes
    from runplan.plan.model import parse
    from runplan.run.requests import RunRequest
    from runplan.settings import options

    at = at.for_plan(path)
    prepare.enter(at, path)
    blob = at.repository.git.blob(at.tip(), path)
    plan = parse(admission.committed_plan(path, at.tip(), blob, "absent", target=at.target_name), path=path)
    store = at.store()
    row = interrupted(store, path) if store is not None else None
    under_way = prepare.state_of(store, row).started if store is not None and row is not None else None
    if store is not None and under_way is not None and (owner := living_owner(store, path)):
        return prepare.declined(path, Declined(owner=owner, why="it is at work"))
    undone = admission.phase_to_undo(plan, phase, under_way=under_way)
    if under_way is None:
        require_undoable(at, plan, undone)
    at = at.with_committed_settings().for_plan(path)
    resolved = options.resolve(options.parse_words([], phases=None), at.settings)
    modes.require_allowed(resolved.landing, at.settings.run)
    asked = replace(prepare.started(at, path, plan, resolved), mode="undo", wanted=undone.id, auto=True, issues=())
    return prepare.run_here(at, RunRequest(started=asked))
