"""Lands on a local branch: where it is checked out, files, index and ref move in one step; else the ref alone."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters import treediff
from runplan.adapters.checkout import HEADS, Checkouts
from runplan.adapters.git import in_a_line
from runplan.core.commands import command
from runplan.core.errors import GitFailed
from runplan.core.quickclass import NamedTuple
from runplan.landing.box import REF, Box, remove_stale
from runplan.landing.holds import InTheWay, require_idle, the_only
from runplan.landing.lander import Landed, Landing, Pending, Refused, TargetMoved
from runplan.landing.observe import find
from runplan.landing.recovery import Recovery, box_of
from runplan.landing.refswap import RefSwap
from runplan.landing.swap import IndexChanged, RefNotPrepared, Swap, shows_old

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runplan.adapters.checkout import TargetCheckout
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Change, Oid
    from runplan.landing.lander import LandingAnswer

#: The instants of a landing that the kill matrix names; where the target is not checked out, the last two.
POINTS = ("land.staged", "land.prepared", "land.swapped", "land.committed")
TRIES = 5  #: how often a landing is staged while the user stages files
SWITCHED_S = 1.0  #: how long a `git switch` that began before the landing is waited for
_LOOK_S = 0.02


def _pass(_point: str) -> None:
    return


class Settled(NamedTuple):
    """What became of a landing that was killed."""

    id: str  #: empty when it had not begun
    waits: str  #: why it could not be brought to its end yet; empty when it was
    note: str  #: which files were kept aside, and where


class CherryPick:
    """Moves a branch of this repository."""

    def __init__(
        self,
        git: Git,
        *,
        ref: str,
        root: Path,
        common_dir: Path,
        lanes: Path | None = None,
        point: Callable[[str], None] = _pass,
    ) -> None:
        self._git = git
        self.ref = ref
        self._common = common_dir
        self._checkouts = Checkouts(git, root=root, common_dir=common_dir)
        self._lanes = lanes.resolve() if lanes else None  #: where runplan's own worktrees are: agents use git there
        self._point = point

    def tip(self) -> Oid | None:
        """Where the branch stands."""
        tip = self._git.tip(self.ref)
        if tip is None:
            self._require_its_commit(self.ref)
        return tip

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        return Landing(id=id, ref=self.ref, old=old, new=new)

    def land(self, landing: Landing) -> LandingAnswer:
        """Move the branch, its checkout with it; or say why not, with nothing changed."""
        self.recover(landing)
        try:
            for _ in range(TRIES):
                with contextlib.suppress(IndexChanged):
                    return self._land(landing)
        except InTheWay as waits:
            return Pending(why=str(waits))
        return Pending(why=f"files are being staged again and again where {self.ref} is checked out; let that end")

    def observe(self, landing: Landing) -> Landed | None:
        """Whether a commit with the landing's id lies between the old tip and the branch; changes nothing."""
        tip = self._git.tip(landing.ref)
        return Landed(tip=tip) if tip and find(self._git, landing, tip) else None

    def recover(self, landing: Landing | None = None) -> None:  # noqa: ARG002
        """Complete or roll back every landing that was killed here, of whichever plan; one that has to wait stays."""
        self.settle()

    def settle(self) -> list[Settled]:
        """The same, with what became of each; without a box there is nothing to do, and no process is started."""
        boxes = [(box_of(one), one) for one in self._checkouts.all() if one.root.is_dir()]
        settled = []
        for box, checkout in [*boxes, (Box(self._common / REF), None)]:
            if box.path.exists():
                settled.append(self._settle(box, checkout))
        return settled

    def _settle(self, box: Box, checkout: TargetCheckout | None) -> Settled:
        id_ = (box.read_plan() or {}).get("id", "")
        try:
            with box:
                if checkout is None:
                    self._recover_ref(box)
                    return Settled(id_, "", "")
                return Settled(id_, "", Recovery(self._git, self._checkouts, checkout, box).run().note)
        except InTheWay as waits:
            return Settled(id_, str(waits), "")

    # --- the steps --------------------------------------------------------------------------------------

    def _land(self, landing: Landing) -> LandingAnswer:
        if self._tip(landing) != landing.old:
            return self._not_there(landing)
        require_idle(self._checkouts, landing.ref)
        having = self._checkouts.having(landing.ref)
        if not having:
            return self._move_ref(landing)
        return self._follow(landing, the_only(having, landing.ref))

    def _follow(self, landing: Landing, checkout: TargetCheckout, *, behind: bool = False) -> LandingAnswer:
        with box_of(checkout) as box:
            Recovery(self._git, self._checkouts, checkout, box).run()
            swap = Swap(self._git, self._checkouts, checkout, box, self._point)
            try:
                note = swap.land(landing, self._changes(landing), behind=behind)
            except RefNotPrepared as refused:
                return self._not_there(landing, str(refused))
            except OSError as error:
                if (path := self._users_path(error, checkout)) is None:
                    raise
                # A full disk or a read-only directory under the user's files is theirs to mend.
                raise InTheWay(f"git cannot update {checkout.root}: {error.strerror}: {path}") from error
        return Landed(tip=landing.new, note=note)

    def _users_path(self, error: OSError, checkout: TargetCheckout) -> Path | None:
        """The path outside of git's directories at which it failed, if it did there."""
        named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if name is not None]
        return next((one for one in named if not {self._common, checkout.git_dir} & set(one.parents)), None)

    def _move_ref(self, landing: Landing) -> LandingAnswer:
        """No checkout has the branch; none can switch to it while we hold their index locks."""
        with Box(self._common / REF) as box:
            box.write_plan(landing)
            try:
                for one in self._users_checkouts():
                    box.lock_index(one)
                if self._checkouts.having(landing.ref):
                    raise IndexChanged  # a checkout has switched to it: begin again
                with RefSwap(
                    self._git, landing.ref, new=landing.new, old=landing.old, id=landing.id, fds=(box.fd,)
                ) as ref:
                    if not ref.prepare():
                        return self._not_there(landing, ref.said)
                    self._point("land.swapped")
                    ref.commit()
            finally:
                self._recover_ref(box)
        self._point("land.committed")
        return Landed(tip=landing.new, note=self._catch_up(landing))

    def _recover_ref(self, box: Box) -> None:
        if plan := box.read_plan():
            lock = self._common / f"{plan['ref']}.lock"
            remove_stale(lock, holding=("", plan["new"]), since_ns=box.planned_ns)
        for one in self._checkouts.all():
            box.unlock_index(one)
        box.clear()

    def _catch_up(self, landing: Landing) -> str:
        """A `git switch` to the branch that read its old tip just before has checked out the old files: swap them."""
        deadline = time.monotonic() + SWITCHED_S
        time.sleep(_LOOK_S)
        while any(one.lock.exists() for one in self._users_checkouts()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        for one in self._checkouts.having(landing.ref):
            if one.root.is_dir() and shows_old(one.git_dir / "index", self._changes(landing)):
                try:
                    self._follow(landing, one, behind=True)
                except (InTheWay, IndexChanged):
                    update = command("git", "-C", str(one.root), "read-tree", "-m", "-u", landing.old, landing.new)
                    return f"{one.root} still shows the files before the landing; to update it: {update}"
        return ""

    def _users_checkouts(self) -> Iterator[TargetCheckout]:
        for one in self._checkouts.all():
            if one.root.is_dir() and (self._lanes is None or self._lanes not in one.root.resolve().parents):
                yield one

    def _changes(self, landing: Landing) -> tuple[Change, ...]:
        old, new = self._git.commit(landing.old).tree, self._git.commit(landing.new).tree
        return treediff.changes(self._git, old, new)

    # --- the branch -------------------------------------------------------------------------------------

    def _not_there(self, landing: Landing, said: str = "") -> LandingAnswer:
        """Why the branch could not be moved."""
        tip = self._tip(landing)
        if tip == landing.old:
            return Pending(why=f"git cannot lock {landing.ref}: {in_a_line(said)}")
        return self.observe(landing) or Refused(reason=TargetMoved(tip=tip))

    def _tip(self, landing: Landing) -> Oid:
        tip = self._git.tip(landing.ref)
        if tip is None:
            self._require_its_commit(landing.ref)
            branch = landing.ref.removeprefix(HEADS)
            again = command("git", "branch", branch, landing.old)
            raise GitFailed(f"the branch {branch} is gone; make it again: {again}")
        return tip

    def _require_its_commit(self, ref: str) -> None:
        """A branch whose commit is missing is not gone, and is not to be made again."""
        named = self._git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128)).text
        if named:
            raise GitFailed(
                f"the branch {ref.removeprefix(HEADS)} stands at {named[:12]}, but that commit is not in the "
                "repository any more; bring it back from a copy or a remote; to see what else is missing: git fsck"
            )
