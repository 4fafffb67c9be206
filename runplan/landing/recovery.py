"""Ends a landing in a checkout by its plan: completes one whose ref has moved, rolls any other back.

Nothing is compared by content. A file is ours when it has the signature that the plan names, and only then removed; a
former file returns only to a place that is free. What cannot return is kept aside and told.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from runplan.core.quickclass import NamedTuple
from runplan.landing.box import SWAP, Box, remove_stale
from runplan.landing.files import inode, put, remove_empty_parents, remove_empty_tree, signature
from runplan.landing.lander import Landing
from runplan.landing.observe import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.adapters.checkout import Checkouts, TargetCheckout
    from runplan.adapters.git import Git
    from runplan.landing.files import Signature

KEPT = "runplan/parked-files"


class Ended(NamedTuple):
    """How a landing was brought to its end."""

    landed: bool
    note: str  #: which files were kept aside, and where


def box_of(checkout: TargetCheckout) -> Box:
    """In the git directory; its files in the checkout's root where that is on another device."""
    path = checkout.git_dir / SWAP
    if checkout.root.is_dir() and checkout.root.stat().st_dev != checkout.git_dir.stat().st_dev:
        return Box(path, files=checkout.root / f".{SWAP}")
    return Box(path)


class Recovery:
    """The recovery of one checkout, in an entered box."""

    def __init__(self, git: Git, checkouts: Checkouts, checkout: TargetCheckout, box: Box) -> None:
        self._git = git
        self._checkouts = checkouts
        self._checkout = checkout
        self._root = checkout.root
        self._box = box
        self._index = checkout.git_dir / "index"
        self._staged_index, self._old_index = box.path / "index", box.path / "index.old"
        self._aside = box.files / "aside"

    def run(self) -> Ended:
        """Bring the landing that the box has a plan of to its end."""
        plan = self._box.read_plan()
        ended = Ended(False, "")
        if plan is not None:
            since = self._box.planned_ns
            common = self._checkouts.common_dir
            remove_stale(common / f"{plan['ref']}.lock", holding=("", plan["new"]), since_ns=since)
            remove_stale(self._checkout.git_dir / "HEAD.lock", holding=("",), since_ns=since)
            landed = self._has_landed(plan)
            ended = Ended(landed, self._finish(plan, landed=landed))
        self._box.unlock_index(self._checkout)
        self._box.clear()
        return ended

    def _finish(self, plan: dict[str, Any], *, landed: bool) -> str:
        was = plan["was"]
        if landed:
            late = [path for path in was if signature(self._aside / path) != was[path]]
            return self._keep(plan, late, "was written to while the landing replaced it")
        if self._git.tip(plan["ref"]) != plan["new" if plan["behind"] else "old"] or (
            self._checkouts.branch(self._checkout) != plan["ref"]
        ):
            return self._keep(plan, list(was), "was replaced by a landing that was killed")
        if not (self._aside.exists() or self._old_index.exists() or self._box.has_locked(self._checkout)):
            return ""
        self._box.lock_index(self._checkout)
        if self._is_index_ours(plan):
            self._old_index.rename(self._index)
        return self._keep(plan, self._unswap(plan["staged"], was), "could not be put back after a landing was killed")

    def _has_landed(self, plan: dict[str, Any]) -> bool:
        tip = self._git.tip(plan["ref"])
        landing = Landing(id=plan["id"], ref=plan["ref"], old=plan["old"], new=plan["new"])
        if tip is None or find(self._git, landing, tip) != plan["new"]:
            return False
        return not plan["behind"] or inode(self._index) == plan["index"]

    def _is_index_ours(self, plan: dict[str, Any]) -> bool:
        """Whether the new index was installed and nobody has changed it since."""
        return self._old_index.exists() and not self._staged_index.exists() and inode(self._index) == plan["index"]

    def _unswap(self, staged: dict[str, Signature], was: dict[str, Signature]) -> list[str]:
        """Put the old files back; the paths at which the user's own file stays."""
        for path, ours in staged.items():
            if signature(self._root / path) == ours:
                (self._root / path).unlink()
        remove_empty_parents(self._root, staged)
        foreign = []
        for path in was:
            aside = self._aside / path
            if signature(aside) is None:
                continue
            try:
                (self._root / path).parent.mkdir(parents=True, exist_ok=True)
                remove_empty_tree(self._root / path)
                back = put(aside, self._root / path)
            except (FileExistsError, NotADirectoryError):
                back = False
            if not back:
                foreign.append(path)
        return foreign

    def _keep(self, plan: dict[str, Any], paths: Sequence[str], why: str) -> str:
        """Move files out of the box to a place where they stay; a sentence that names it."""
        kept = [path for path in paths if signature(self._aside / path) is not None]
        if not kept:
            return ""
        place = self._checkouts.common_dir / KEPT / f"{plan['id']}.{self._box.planned_ns}"
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(self._aside / path, place / path)
        return f"{', '.join(kept)} {why}; the former content is in {place}"
