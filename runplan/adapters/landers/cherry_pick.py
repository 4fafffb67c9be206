"""Lands on a local branch: one compare-and-swap, which the checkout that has the branch out follows.

The order is what makes every instant safe to die in:

1. hold the index (`heldindex`): nobody stages or commits in there, and the index records how to go back
2. look: anything of the user's in the way holds the landing, with nothing changed
3. prepare the swap: git checks the old value and locks the branch
4. write the files (`read-tree -m -u`), the new index going to a copy
5. commit the swap: the landing has happened
6. let the copy become the index, and give it back

Dead before 4: the locks go, nothing has happened. Dead in 4 or before 5: what was written is taken back
(`undo`). Dead after 5: step 6 is all that is missing, since 5 comes after 4 was whole. `recover` looks at the
notes of holds and at the branch, and does one of these (`ending`); the living end their landing by the same code.
Swapping first would show the user a staged revert of the phase after a crash, writing first without
the lock on the branch a half-applied one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.checkout import HEADS, Checkouts, edited, in_the_way
from runplan.adapters.git import in_a_line
from runplan.adapters.heldindex import HeldIndex, holder
from runplan.adapters.landers.ending import ANY, changes_of, end, end_dead, free_unlanded, remove_lock
from runplan.adapters.landers.observing import find
from runplan.adapters.landers.undo import set_aside
from runplan.adapters.refswap import RefSwap
from runplan.core.commands import command
from runplan.core.errors import GitFailed
from runplan.core.gitfacts import Held, Landed, Landing, Moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.adapters.checkout import TargetCheckout
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import LandingAnswer, Oid

#: The instants of a landing, in their order; crash tests die at each.
POINTS = (
    "land.hold.after",
    "land.prepare.before",
    "land.prepare.after",
    "land.read-tree.before",
    "land.commit.before",
    "land.commit.after",
    "land.install.after",
    "land.release.after",
)


def _pass(_point: str) -> None:
    return


def _there(_new: Oid, _old: Oid) -> None:
    """The objects are in the repository already."""


class CherryPick:
    """Moves a branch of this repository."""

    def __init__(
        self,
        git: Git,
        *,
        ref: str,
        root: Path,
        common_dir: Path,
        point: Callable[[str], None] = _pass,
        deliver: Callable[[Oid, Oid], None] = _there,
    ) -> None:
        self._git = git
        self.ref = ref
        self._common = common_dir
        self._checkouts = Checkouts(git, root=root, common_dir=common_dir)
        self._point = point
        self._deliver = deliver

    def tip(self) -> Oid | None:
        """Where the branch stands."""
        tip = self._git.tip(self.ref)
        if tip is None:
            self._require_its_commit(self.ref)
        return tip

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        dirs = [one.git_dir for one in self._checkouts.having(self.ref)]
        locks = [path / name for path in dirs for name in ("index.lock", "HEAD.lock")]
        locks.append(self._common / f"{self.ref}.lock")
        return Landing(id=id, ref=self.ref, old=old, new=new, locks=tuple(map(str, locks)))

    def land(self, landing: Landing) -> LandingAnswer:
        """Swap the branch, its checkout with it; or say why not, with nothing changed."""
        self.recover(landing)
        self._deliver(landing.new, landing.old)
        if self._tip(landing) != landing.old:
            return self._not_there(landing)
        if why := self._checkouts.under_way(landing.ref):
            return Held(why=why)
        having = self._checkouts.having(landing.ref)
        if not having:
            with RefSwap(self._git, landing) as swap:
                return self._swap(self._git, landing, None, swap)
        if why := _not_one(having, landing):
            return Held(why=why)
        return self._follow(landing, having[0])

    def observe(self, landing: Landing) -> Landed | None:
        """Whether a commit with the landing's id lies between the old tip and the branch; changes nothing."""
        tip = self._git.tip(landing.ref)
        return Landed(tip=tip) if tip and find(self._git, landing, tip) else None

    def recover(self, landing: Landing) -> None:
        """Bring what this landing, or another one that is dead, left to one of its two ends.

        To be called when an intent is found without an outcome, before `observe` is believed.
        """
        end_dead(self._git, self._checkouts.all(), self._common, known=landing, point=self._point)
        for lock in map(Path, landing.locks):
            # Nobody else moves a ref to this very commit.
            remove_lock(lock, holding=(landing.new,))
        free_unlanded(self._git, self.ref, self._common)

    # --- the steps --------------------------------------------------------------------------------------

    def _follow(self, landing: Landing, checkout: TargetCheckout) -> LandingAnswer:
        held = HeldIndex.take(checkout, landing)
        if held is None:
            return Held(why=_at_work(checkout))
        try:
            self._point("land.hold.after")
            git = self._git.at(checkout.root)
            with RefSwap(git, landing, fds=(held.fd,)) as swap:  # it starts while we look
                return self._write(git, landing, held, swap)
        finally:
            end(self._git, landing, held, self._point)
            self._point("land.release.after")

    def _write(self, git: Git, landing: Landing, held: HeldIndex, swap: RefSwap) -> LandingAnswer:
        checkout = held.checkout
        if self._checkouts.branch(checkout) != landing.ref:
            return Held(why=f"{checkout.root} is switching branches")
        changes = changes_of(self._git, landing)
        if found := edited(git, changes, env=held.env):
            path, how = found
            return Held(why=f"{path} is {how} in {checkout.root}; commit that change or undo it")
        if path := in_the_way(checkout.root, changes):
            return Held(
                why=f"{path} is in the way in {checkout.root}: git does not track it and the landing would "
                "overwrite it; move it elsewhere"
            )
        return self._swap(git, landing, held, swap)

    def _swap(self, git: Git, landing: Landing, held: HeldIndex | None, swap: RefSwap) -> LandingAnswer:
        self._point("land.prepare.before")
        if not swap.prepare():
            return self._not_there(landing, swap.said)
        self._point("land.prepare.after")
        if held and (refused := self._read_tree(git, landing, held)):
            return Held(why=refused)
        self._point("land.commit.before")
        swap.commit()
        self._point("land.commit.after")
        return Landed(tip=landing.new)

    def _read_tree(self, git: Git, landing: Landing, held: HeldIndex) -> str:
        set_aside(held, changes_of(self._git, landing))
        held.will_write()
        self._point("land.read-tree.before")
        ran = git.run(
            # Linking a file changes its ctime, and nothing else.
            *("-c", "core.trustctime=false", "read-tree", "-m", "-u", landing.old, landing.new),
            env=held.env,
            ok=ANY,  # a git that was killed as well: whatever it wrote is taken back
            fds=(held.fd,),
        )
        said = " / ".join(ran.err.splitlines())
        return f"git cannot update {held.checkout.root}: {said or ran.code}" if ran.code else ""

    def _not_there(self, landing: Landing, said: str = "") -> LandingAnswer:
        """Why the branch could not be swapped."""
        tip = self._tip(landing)
        if tip == landing.old:
            return Held(why=f"git cannot lock {landing.ref}: {in_a_line(said)}")
        return self.observe(landing) or Moved(tip=tip)

    def _tip(self, landing: Landing) -> Oid:
        tip = self._git.tip(landing.ref)
        if tip is None:
            self._require_its_commit(landing.ref)
            branch = landing.ref.removeprefix(HEADS)
            again = command("git", "branch", branch, landing.old)
            raise GitFailed(f"the branch {branch} is gone; make it again: {again}")
        return tip

    def _require_its_commit(self, ref: str) -> None:
        """A branch that is there and leads nowhere is not gone, and is not to be made again."""
        named = self._git.run("rev-parse", "--quiet", "--verify", ref, ok=(0, 1, 128)).text
        if named:
            raise GitFailed(
                f"the branch {ref.removeprefix(HEADS)} stands at {named[:12]}, but that commit is not in the "
                "repository any more; bring it back from a copy or a remote; to see what else is missing: git fsck"
            )


def _not_one(having: tuple[TargetCheckout, ...], landing: Landing) -> str:
    branch = landing.ref.removeprefix(HEADS)
    if len(having) > 1:
        roots = " and ".join(str(one.root) for one in having)
        return f"{branch} is checked out in {roots}; switch all but one to another branch"
    if not having[0].root.is_dir():
        return f"{having[0].root} has {branch} checked out, is locked, and cannot be reached; mount it, or unlock it"
    return ""


def _at_work(checkout: TargetCheckout) -> str:
    """Who has the index; a lock of ours is nobody's to remove."""
    if ours := holder(checkout):
        return f"the landing {ours.id} in {checkout.root} has not ended; wait for its process, then retry its plan"
    return f"another git command is at work in {checkout.root}; if there is none, remove {checkout.lock}"
