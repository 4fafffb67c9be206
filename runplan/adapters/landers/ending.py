"""Ends a landing, the living one's own or a dead one's, by what has happened: the branch was swapped, or it was not.

Whoever lands, and whoever comes by, ends all that the dead have left, of whatever plan: their notes tell how. One
landing at a time goes on in a repository, so what is met is never one that somebody else is about to end.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from runplan.adapters import treediff, trees
from runplan.adapters.git import failure
from runplan.adapters.heldindex import HeldIndex, note_of, notes
from runplan.adapters.landers.observing import find
from runplan.adapters.landers.undo import undo
from runplan.core.errors import GitFailed
from runplan.core.gitfacts import Landing
from runplan.core.trailers import LANDING, read_trailers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Change

#: Every exit code, death by a signal included.
ANY = range(-64, 256)
BORN = time.time()  #: when this process began to know about landings


def end_dead(
    git: Git,
    checkouts: Iterable[TargetCheckout],
    common_dir: Path,
    *,
    point: Callable[[str], None],
    known: Landing | None = None,
) -> list[str]:
    """Bring what dead landings left in checkouts to one of its two ends; costs no process when they left nothing.

    `known` tells of a landing whose note does not. The ids of those that were ended.
    """
    ended = []
    for checkout in checkouts:
        for note in notes(checkout):
            held = HeldIndex.adopt(checkout, note)
            if held is None:
                continue
            landing = held.note.landing
            if landing is None and known is not None and note == note_of(checkout, known.id):
                landing = known
            if held.writing and (landing is None or not _is_whole(git, landing)):
                held.close()  # nobody here knows what was written
                continue
            if landing is not None:
                _free_ref(landing, checkout, common_dir)
            end(git, landing, held, point)
            ended.append(held.note.id)
    return ended


def end(git: Git, landing: Landing | None, held: HeldIndex, point: Callable[[str], None]) -> None:
    """Let the checkout be whole, and give its index back; a landing that wrote nothing need not be known."""
    try:
        if held.writing and landing is not None:
            _finish(git, landing, held)
        point("land.install.after")
    except BaseException:
        held.close()
        raise
    held.release()


def remove_lock(lock: Path, *, holding: tuple[str, ...]) -> None:
    """Remove a lock of git if it holds one of these."""
    try:
        content = lock.read_bytes()
    except FileNotFoundError:
        return
    if content.decode(errors="replace").strip() in holding:
        lock.unlink(missing_ok=True)


def free_unlanded(git: Git, ref: str, common_dir: Path) -> None:
    """Remove the lock of a branch that was to be moved to a candidate of ours which is not on it: nobody else does.

    To be called by whoever lands, so that no other lander lives. A lock that is younger than this process is left all
    the same: if it is ours, the landing that left it takes it away.
    """
    lock = common_dir / f"{ref}.lock"
    try:
        wanted = lock.read_text(encoding="ascii", errors="replace").strip()
        if lock.stat().st_mtime >= BORN:
            return
    except FileNotFoundError:
        return
    found, tip = git.tip(wanted) if wanted.isalnum() else None, git.tip(ref)
    if found is None or found != wanted or tip is None:
        return
    landing = read_trailers(git.commit(found).message).get(LANDING)
    if landing and find(git, Landing(id=landing, ref=ref, old="", new=found, locks=()), tip) is None:
        remove_lock(lock, holding=(found,))


def changes_of(git: Git, landing: Landing) -> tuple[Change, ...]:
    return treediff.changes(git, git.commit(landing.old).tree, git.commit(landing.new).tree)


def _is_whole(git: Git, landing: Landing) -> bool:
    return git.tip(landing.old) is not None and git.tip(landing.new) is not None


def _free_ref(landing: Landing, checkout: TargetCheckout, common_dir: Path) -> None:
    """The note proves that our git held these when it died, and its lock that it is dead.

    Only a lock that git had no time to write into is empty.
    """
    remove_lock(common_dir / f"{landing.ref}.lock", holding=("", landing.new))
    remove_lock(checkout.git_dir / "HEAD.lock", holding=("",))


def _finish(git: Git, landing: Landing, held: HeldIndex) -> None:
    tip = git.tip(landing.ref)
    found = find(git, landing, tip) if tip else None
    if found is None:
        _take_back(git, landing, held)
    elif not held.adopted:
        held.install()
    elif found == landing.new:
        _install_again(git.at(held.checkout.root), landing, held, moved=tip != landing.new)


def _install_again(git: Git, landing: Landing, held: HeldIndex, *, moved: bool) -> None:
    """The index may be old, or new, or changed by a user who took our lock away: then git refuses."""
    if moved and _same(git, held, "HEAD"):
        return  # somebody has gone on from there, with all that they staged
    held.copy()
    ran = git.run("read-tree", "-i", "-m", landing.old, landing.new, env=held.env, ok=ANY)
    if ran.code == 0:
        git.run("update-index", "-q", "--refresh", env=held.env, ok=(0, 1))
        held.install()
    elif _same(git, held, landing.old):
        # Nobody is seen to have changed it, git just could not: given back, it would be a staged revert.
        raise GitFailed(failure(("read-tree",), ran, held.checkout.root))


def _same(git: Git, held: HeldIndex, commit: str) -> bool:
    """Whether the index is not seen to differ from a commit."""
    held.copy()
    return git.run("diff-index", "--cached", "--quiet", commit, env=held.env, ok=ANY).code != 1


def _take_back(git: Git, landing: Landing, held: HeldIndex) -> None:
    """Put back what was written, but for paths that somebody has staged or committed since: they are theirs."""
    changes = changes_of(git, landing)
    here = git.at(held.checkout.root)
    if held.adopted:
        changes = tuple(_untouched(git, here, changes))
    undo(here, held, changes)


def _untouched(git: Git, here: Git, changes: Sequence[Change]) -> Iterator[Change]:
    """Those whose path is in the index and in HEAD as it was when the landing began."""
    head = here.run("rev-parse", "-q", "--verify", "HEAD^{tree}", ok=(0, 1)).text
    paths = {change.path for change in changes}
    staged = dict(_staged(here, paths))
    nothing = trees.Entry(trees.NO_MODE, "")
    for change in changes:
        where, entry = trees.find(git, head, change.path) if head else ("", None)
        committed = entry if where == change.path and entry is not None and entry.mode != trees.TREE else None
        old = nothing if change.kind == "A" else trees.Entry(change.old_mode, change.old)
        if (committed or nothing) == staged.get(change.path, nothing) == old:
            yield change


def _staged(here: Git, paths: Collection[str]) -> Iterator[tuple[str, trees.Entry]]:
    for record in os.fsdecode(here.run("ls-files", "--stage", "-z").out).split("\0"):
        entry, _, path = record.partition("\t")
        if path in paths:
            mode, oid, _ = entry.split(" ")
            yield path, trees.Entry(mode, oid)
