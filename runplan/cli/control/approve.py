"""runplan approve: land a pending change and continue the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.errors import Exit
    from runplan.run.events import Approved, Rejected

EXAMPLES = """\
  runplan approve plans/X.md      land the change that was shown, then continue the run"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, refuse_under_agent
    from runplan.run.events import Approved

    refuse_under_agent("approve")
    with open_context() as at:
        return answer_pending(at, args.plan, lambda tree: Approved(tree=tree), waits=("approval",))


def answer_pending(
    at: RepositoryContext, plan_word: str, answer: Callable[[str], Approved | Rejected], *, waits: Sequence[str]
) -> Exit:
    """Record the answer to the change that waits for one of `waits`, and continue the run as it was started."""
    from runplan.cli.control import prepare, submit
    from runplan.cli.control.diff import SHORT
    from runplan.cli.show import progress
    from runplan.engine.acquire import interrupted
    from runplan.engine.context import plan_path
    from runplan.errors import NotFound
    from runplan.run.events import Approved
    from runplan.run.requests import RunRequest
    from runplan.run.state import awaiting
    from runplan.text import command

    path = plan_path(at, plan_word)
    store = at.store()
    row = interrupted(store, path) if store is not None else None
    if store is None or row is None or row.waiting_for not in waits:
        raise NotFound(f"no change of {path} waits for {' or '.join(waits)}; see: {command('runplan', 'status', path)}")
    state = prepare.state_of(store, row)
    phase = awaiting(state)
    tree = phase.candidate.tree if phase and phase.candidate else ""
    assert state.started is not None
    if phase is not None and phase.candidate is not None:
        commit, verb = phase.candidate.commits[-1], "approving" if isinstance(answer(tree), Approved) else "rejecting"
        named = f"commit {commit[:SHORT]}, tree {tree[:SHORT]}"
        progress.say(f"runplan: {verb} phase {phase.read.phase} of {path}: {named}")
    at = at.for_run(state.started)
    started = replace(state.started, auto=state.auto)
    request = RunRequest(started=started, answer=answer(tree))
    return submit.submit_run(at, request) if started.daemon else prepare.run_here(at, request)
