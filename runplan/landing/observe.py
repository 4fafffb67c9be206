"""Looks for a landing in the history of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.rawobjects import read_commit
from runplan.core.trailers import LANDING, read_trailers

if TYPE_CHECKING:
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid
    from runplan.landing.lander import Landing

#: How far back a landing is looked for when the user has worked on top of it or rewritten the branch.
DEEPEST = 2_000


def find(git: Git, landing: Landing, tip: Oid) -> Oid | None:
    """The newest commit between the old tip and this one that is the landing's, by its id; costs no process."""
    seen = {landing.old}
    queue = [tip]
    while queue and len(seen) < DEEPEST:
        oid = queue.pop(0)
        if oid in seen:
            continue
        seen.add(oid)
        stored = git.object(oid)
        if stored is None:
            continue  # where a shallow clone ends
        commit = read_commit(oid, stored.content)
        if oid == landing.new or read_trailers(commit.message).get(LANDING) == landing.id:
            return oid
        queue += commit.parents
    return None


def is_built_on(git: Git, new: Oid, old: Oid) -> bool:
    """Whether `old` is an ancestor of `new`, along first parents as candidates are built; costs no process."""
    at = new
    for _ in range(DEEPEST):
        if at == old:
            return True
        parents = git.commit(at).parents
        if not parents:
            return False
        at = parents[0]
    return False
