"""Ends landings that were killed half-way and that no journal knows any more: git itself tells what they were.

The note of the hold names the landing, every commit of a landing names it too, and the candidate's ref keeps them:
together that is the intent, and `recover` needs nothing else.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.checkout import Checkouts
from runplan.adapters.heldindex import HeldIndex
from runplan.adapters.landers.cherry_pick import CherryPick
from runplan.adapters.landers.observing import find
from runplan.core.errors import RefusedEarly
from runplan.core.gitfacts import Landing
from runplan.core.trailers import LANDING, read_trailers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout
    from runplan.adapters.git import Git

_FIRST = "runplan landing "


def settle_lost(git: Git, *, root: Path, common_dir: Path, target: str, known: Collection[str]) -> list[str]:
    """Bring each to one of its two ends, and give their ids; `known` are the runs that will do it themselves."""
    checkouts = Checkouts(git, root=root, common_dir=common_dir)
    settled = []
    for checkout in checkouts.all():
        for note, name in _notes(checkout):
            run = name.rpartition(".")[0]
            if run in known:
                continue
            ref = checkouts.branch(checkout) or target
            lost = Landing(id=name, ref=ref, old="", new="", locks=())
            intent = _intent(git, lost, (f"refs/runplan/candidate/{run}", ref, target))
            if intent is not None:
                CherryPick(git, ref=ref, root=root, common_dir=common_dir).recover(intent)
            elif held := HeldIndex.adopt(checkout, name):
                _give_back(held, note)
            if note.exists():
                raise RefusedEarly(
                    f"a landing in {checkout.root} has not ended ({note}); wait for it, or end its process"
                )
            settled.append(name)
    return settled


def _notes(checkout: TargetCheckout) -> Iterator[tuple[Path, str]]:
    for note in sorted(checkout.git_dir.glob("runplan.hold.*")):
        first = note.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        if first.startswith(_FIRST):  # one that is not written yet holds nothing
            yield note, first.removeprefix(_FIRST)


def _give_back(held: HeldIndex, note: Path) -> None:
    """Nobody knows the commits: before anything was written that does not matter, after it only a person can tell."""
    if not held.writing:
        held.release()
        return
    held.close()
    root, locks = held.checkout.root, " ".join(shlex.quote(str(path)) for path in (held.checkout.lock, note))
    raise RefusedEarly(
        f"a landing was killed while it wrote files in {root}, and neither journal nor git knows it any more; "
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
