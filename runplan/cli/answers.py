"""A person's answer to a candidate that waits: approve and reject."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.cli import prepare, progress, submit
from runplan.cli.diff import SHORT
from runplan.core.commands import command
from runplan.core.errors import Exit, NotFound
from runplan.core.events import Approved
from runplan.core.requests import RunRequest
from runplan.core.run import awaiting
from runplan.engine import context as places
from runplan.engine.acquire import interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runplan.core.events import Rejected
    from runplan.engine.context import RepositoryContext


def answer_waiting(
    at: RepositoryContext, plan_word: str, answer: Callable[[str], Approved | Rejected], *, waits: Sequence[str]
) -> Exit:
    """Give a person's answer to the candidate that waits for one of `waits`, and go on as the run was started."""
    path = places.plan_path(at, plan_word)
    store = at.store()
    row = interrupted(store, path) if store is not None else None
    if store is None or row is None or row.waiting_for not in waits:
        raise NotFound(
            f"no candidate of {path} waits for {' or '.join(waits)}; see: {command('runplan', 'status', path)}"
        )
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
