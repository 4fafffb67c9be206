"""Ends the landings that were killed half-way, before anybody looks at a checkout or works in it.

The note of a hold tells what its landing was. One of an earlier version names only its id: then the commits do, which
name it too and which the candidate's ref keeps; unless a run will end it itself, from its journal.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.checkout import Checkouts
from runplan.adapters.heldindex import holder, lives, notes, read_note
from runplan.adapters.landers.ending import end_dead
from runplan.adapters.landers.observing import find
from runplan.core.errors import RefusedEarly
from runplan.core.gitfacts import Landing
from runplan.core.names import candidate_ref, run_of
from runplan.core.trailers import LANDING, read_trailers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout
    from runplan.adapters.git import Git


def settle_lost(
    git: Git, *, root: Path, common_dir: Path, target: str, known: Collection[str], point: Callable[[str], None]
) -> list[str]:
    """Bring each to one of its two ends, and give the ids of those that no journal knows; `known` are runs it knows.

    To be called by whoever has the landing lock.
    """
    checkouts = Checkouts(git, root=root, common_dir=common_dir)
    ended = end_dead(git, checkouts.all(), common_dir, point=point)
    for checkout in checkouts.all():
        for note in notes(checkout):
            told = read_note(note)
            if run_of(_mark(told.id)) in known:
                continue  # its run goes on with it, and says what is in the way
            if told.landing is None and told.id:
                lost = Landing(id=told.id, ref=checkouts.branch(checkout) or target, old="", new="", locks=())
                places = (candidate_ref(_mark(told.id)), lost.ref, target)
                ended += end_dead(git, [checkout], common_dir, known=_intent(git, lost, places), point=point)
            if note.exists():
                raise _left_to_a_person(checkout, note)
    return [name for name in ended if name and run_of(_mark(name)) not in known]


def _mark(landing: str) -> str:
    return landing.rpartition(".")[0]


def _left_to_a_person(checkout: TargetCheckout, note: Path) -> RefusedEarly:
    """Nobody knows the commits: after anything was written only a person can tell."""
    if lives(note):
        return RefusedEarly(f"a landing in {checkout.root} has not ended ({note}); wait for it, or end its process")
    if holder(checkout) is None:
        return RefusedEarly(
            f"another git command is at work in {checkout.root}; if there is none, remove {checkout.lock}"
        )
    locks = " ".join(shlex.quote(str(path)) for path in (checkout.lock, note))
    return RefusedEarly(
        f"a landing was killed while it wrote files in {checkout.root}, and neither journal nor git knows it any more; "
        f"free the index, then look at `git status` there: rm {locks}"
    )


def _intent(git: Git, landing: Landing, places: Collection[str]) -> Landing | None:
    """The landing as its commits tell it: the newest, and what the oldest was built on."""
    tips = (tip for place in places if (tip := git.tip(place)))
    new = next((found for tip in tips if (found := find(git, landing, tip))), None)
    if new is None:
        return None
    old = new
    while read_trailers(git.commit(old).message).get(LANDING) == landing.id:
        old = git.commit(old).parents[0]
    return replace(landing, old=old, new=new)
