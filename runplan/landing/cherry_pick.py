"""Lands on a local branch: where it is checked out, files, index and ref move in one step; else the ref alone."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from runplan.errors import GitFailed
from runplan.git import objects as treediff
from runplan.git.checkout import HEADS, Checkouts
from runplan.landing.holds import InTheWay, require_idle, the_only
from runplan.landing.lander import Landed, Landing, Pending, Refused, TargetMoved, do_nothing, find
from runplan.landing.recovery import Box, Ended, Plan
from runplan.landing.swap import IndexChanged, RefTransaction, Swap
from runplan.polling import until
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runplan.git.checkout import TargetCheckout
    from runplan.git.command import Git
    from runplan.gitfacts import Change, Oid
    from runplan.landing.lander import LandingAnswer

#: The instants of a landing that the kill matrix names; where the target is not checked out, the last two.
POINTS = ("land.staged", "land.prepared", "land.swapped", "land.committed")
TRIES = 5  #: how often a landing is staged while the user stages files
SWITCHED_S = 1.0  #: how long a `git switch` that began before the landing is waited for
_LOOK_S = 0.02


class CherryPick:
    """Moves a branch of this repository."""

    def __init__(
        self, git: Git, *, ref: str, root: Path, common_dir: Path, point: Callable[[str], None] = do_nothing
    ) -> None:
        self._git = git
        self.ref = ref
        self._checkouts = Checkouts(git, root=root, common_dir=common_dir)
        self._point = point

    def tip(self) -> Oid | None:
        """Where the branch stands."""
        return self._git.tip(self.ref)

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        return Landing(id=id, ref=self.ref, old=old, new=new)

    def land(self, landing: Landing, deliver: Callable[[], None] = do_nothing) -> LandingAnswer:
        """Move the branch, its checkout with it; or say why not, with nothing changed."""
        deliver()
        try:
            with Box(self._git, self._checkouts).entered() as box:
                for _ in range(TRIES):
                    with contextlib.suppress(IndexChanged):
                        return self._land(landing, box)
        except InTheWay as waits:
            return self._moved(landing) or Pending(why=str(waits))
        return Pending(why=f"files are being staged again and again where {self.ref} is checked out; let that end")

    def observe(self, landing: Landing) -> Landed | None:
        """Whether a commit with the landing's id lies between the old tip and the branch; changes nothing."""
        tip = self._git.tip(landing.ref)
        return Landed(tip=tip) if tip and find(self._git, landing, tip) else None

    def recover(self, landing: Landing | None = None) -> None:  # noqa: ARG002
        """Complete or roll back a landing that was killed here, of whichever plan; one that has to wait stays."""
        self.settle()

    def settle(self) -> Ended:
        """The same, with what became of it; no process is started when none was killed."""
        box = Box(self._git, self._checkouts)
        plan = box.read()
        try:
            if box.path.exists():
                with box.entered():
                    return box.found
        except InTheWay as waits:
            return Ended(plan.landing.id if plan else "", waits=str(waits))
        return Ended("")

    # --- the steps --------------------------------------------------------------------------------------

    def _land(self, landing: Landing, box: Box) -> LandingAnswer:
        if moved := self._moved(landing):
            return moved
        require_idle(self._checkouts, landing.ref)
        having = self._checkouts.having(landing.ref)
        if not having:
            return self._move_ref(landing, box)
        return Landed(tip=landing.new, note=self._swap(landing, the_only(having, landing.ref), box))

    def _swap(self, landing: Landing, checkout: TargetCheckout, box: Box, *, behind: bool = False) -> str:
        swap = Swap(self._git, self._checkouts, checkout, box, self._point)
        try:
            return swap.land(landing, self._changes(landing), behind=behind)
        except OSError as error:  # a full disk or a read-only directory: the user has to mend it
            raise InTheWay(f"git cannot update {checkout.root}: {error.strerror}: {error.filename}") from error

    def _move_ref(self, landing: Landing, box: Box) -> LandingAnswer:
        """No checkout has the branch; none can switch to it while we hold their index locks."""
        box.write(Plan(landing=landing, was={}, staged={}))
        try:
            for one in self._checkouts.reachable():
                box.lock_index(one)
            if self._checkouts.having(landing.ref):
                raise IndexChanged  # a checkout has switched to it: begin again
            with RefTransaction(self._git, landing, name=landing.ref, old=landing.old, fd=box.fd) as ref:
                ref.prepare()
                self._point("land.swapped")
                ref.commit()
        finally:
            box.end()
        self._point("land.committed")
        return Landed(tip=landing.new, note=self._catch_up(landing, box))

    def _catch_up(self, landing: Landing, box: Box) -> str:
        """A `git switch` to the branch that read its old tip just before has checked out the old files: swap them."""
        time.sleep(_LOOK_S)
        until(lambda: not any(one.lock.exists() for one in self._checkouts.reachable()), within_s=SWITCHED_S)
        for one in self._checkouts.having(landing.ref):
            if one.root.is_dir() and self._shows_old(one, landing):
                try:
                    self._swap(landing, one, box, behind=True)
                except (InTheWay, IndexChanged):
                    update = command("git", "-C", str(one.root), "read-tree", "-m", "-u", landing.old, landing.new)
                    return f"{one.root} still shows the files before the landing; to update it: {update}"
        return ""

    def _shows_old(self, checkout: TargetCheckout, landing: Landing) -> bool:
        """Whether the index has each path of the landing as it was before."""
        ran = self._git.at(checkout.root).run("diff-index", "--cached", "--name-only", "-z", landing.old)
        return {change.path for change in self._changes(landing)}.isdisjoint(ran.text.split("\0"))

    def _changes(self, landing: Landing) -> tuple[Change, ...]:
        old, new = self._git.commit(landing.old).tree, self._git.commit(landing.new).tree
        return treediff.changes(self._git, old, new)

    def _moved(self, landing: Landing) -> Landed | Refused | None:
        """What to answer when the branch is not where the candidate was built."""
        tip = self._git.tip(landing.ref)
        if tip is None:
            branch = landing.ref.removeprefix(HEADS)
            raise GitFailed(
                f"the branch {branch} is gone; make it again: {command('git', 'branch', branch, landing.old)}"
            )
        return None if tip == landing.old else self.observe(landing) or Refused(reason=TargetMoved(tip=tip))
