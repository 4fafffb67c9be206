"""When run.setup runs: its inputs, and the products of an earlier one that serve as well."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.adapters.git.zones import Extra
from runplan.adapters.store.files import read_bounded
from runplan.domain.run.kinds import ProofKind, Role
from runplan.domain.settings.toolchain import list_inputs

if TYPE_CHECKING:
    from runplan.adapters.git.command import Git
    from runplan.domain.run.attempts import WorkAttempt
    from runplan.domain.run.events import DispatchStarted
    from runplan.engine.steps.context import RunContext

NAMED = 3  #: changed inputs named in one line
LARGEST_COPY = 16 * 1024 * 1024  #: bytes of a file of run.copy that are compared
SUBMODULE = "160000"  #: the mode of its entry in a tree


def describe_change(before: str, now: str) -> str:
    differing = {name for name, _ in json.loads(before).items() ^ json.loads(now).items()}
    return f"{', '.join(sorted(differing)[:NAMED])} changed"


def keep_products(started: DispatchStarted, phase: WorkAttempt, context: RunContext) -> None:
    """Keep what the set-up that has ended has made, for later trees and phases."""
    if started.tree:
        extra = Extra(copies=context.copied, root=context.root)
        commit = commit_of(started, phase, context)
        context.proof.keep_worktree(commit, is_protected=context.agents.protects_proof, extra=extra)
    for setup in (started, replace(started, tree="")) if started.agents else (started,):
        place = context.proof if setup.tree else context.zone
        place.keep_products(find_inputs(setup, phase, context))


def commit_of(started: DispatchStarted, phase: WorkAttempt, context: RunContext) -> str:
    """The commit with the tree of a dispatch; that of the branch for the worktree of agents."""
    if not started.tree:
        return context.objects.tip(phase.leased.branch) or phase.base
    # Kept work whose base has landed otherwise has the target as its baseline.
    base = phase.base if context.objects.commit(phase.base).tree == started.tree else phase.chosen.tip
    if (built := phase.delivery.candidate) is None:
        return base
    proofs = {proof.tree: proof.commit for proof in built.proofs}
    return (proofs | {built.onto_tree: built.onto, built.tree: built.commits[-1]}).get(started.tree, base)


def find_inputs(started: DispatchStarted, phase: WorkAttempt, context: RunContext) -> str:
    """What decides the products of the set-up for a dispatch: the content of each input by its name, as JSON."""
    run = context.settings.run
    tree = started.tree or context.objects.commit(commit_of(started, phase, context)).tree
    if started.role is Role.PROVE:  # only tests, or bodies of functions, differ from the code that it runs on
        tree = phase.built.onto_tree if started.scope == ProofKind.NEW_TESTS else phase.built.tree
    files = _list_inputs(context.objects, tree, run.setup, run.setup_inputs, context.bookkeeping)
    contents = {name: read_bounded(context.root / name, largest=LARGEST_COPY) or b"" for name in run.copy}
    copies = {name: sha256(content).hexdigest() for name, content in contents.items()}
    others = {"its command": run.setup, "a variable of tests.env": context.agents.named_digest}
    if context.agents.places and (image := context.agents.places.image):
        others["the image"] = image
    return json.dumps({**files, **copies, **others}, sort_keys=True)  # msgspec rejects names that are not UTF-8


@lru_cache(maxsize=8)
def _list_inputs(
    git: Git, tree: str, command: str, patterns: tuple[str, ...], without: tuple[str, ...]
) -> dict[str, str]:
    """The mode and id of each file and submodule that decides what run.setup makes."""
    records = (record.partition("\t") for record in git.run("ls-tree", "-rz", tree).text.split("\0") if record)
    entries = {path: meta for meta, _, path in records if path not in without}
    modules = (path for path, meta in entries.items() if meta.startswith(SUBMODULE))
    return {path: entries[path] for path in (*list_inputs(entries, command, patterns), *modules)}
