"""Lands on a local branch. Where it is checked out, files, index and ref move together; elsewhere the ref alone."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from runplan.adapters.clock import until
from runplan.adapters.git import objects
from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import Checkouts
from runplan.adapters.git.zones import Zones
from runplan.domain.errors import GitFailed
from runplan.domain.gitfacts import Oid
from runplan.domain.names import HEADS
from runplan.domain.text import command
from runplan.engine.landing.lander import Landed, Landing, LandingAnswer, Pending, Refused, TargetMoved, find_landing
from runplan.engine.landing.swap import Box, Ended, Hold, IndexChanged, Swap, SwapPlan, ref_transaction

TRIES = 5  #: how often a landing is staged while the user stages files
SWITCHING_S = 10.0  #: a `git switch` takes less from reading the branch to locking the index
#: Files in the git directory of a checkout while an operation of git waits there for the user.
_MARKS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
}


class CherryPick:
    def __init__(self, git: Git, *, ref: str, common_dir: Path, zones: Zones | None = None) -> None:
        self._git = git
        self._zones = zones
        self.ref = ref
        self.checkouts = Checkouts(git, common_dir)
        self._box = Box(git, self.checkouts)

    @property
    def is_halfway(self) -> bool:
        """Whether a landing could be neither completed nor rolled back yet."""
        return self._box.path.exists()

    def tip(self) -> Oid | None:
        return self._git.tip(self.ref)

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        return Landing(id=id, ref=self.ref, old=old, new=new)

    def land(self, landing: Landing, deliver: Callable[[], object] = lambda: None) -> LandingAnswer:
        deliver()
        try:
            with self._box.locked():
                for _ in range(TRIES):
                    with suppress(IndexChanged):
                        return self._answer_if_moved(landing) or self._move_branch(landing)
        except Hold as hold:
            return self._answer_if_moved(landing) or Pending(why=str(hold))
        return Pending(why=f"the index changes again and again where {self.ref} is checked out; let that end")

    def observe(self, landing: Landing) -> Landed | None:
        tip = self._git.tip(landing.ref)
        return Landed(tip=tip) if tip and find_landing(self._git, landing, tip) else None

    def recover(self, landing: Landing | None = None) -> Ended:  # noqa: ARG002
        """Complete or roll back an interrupted landing of any plan, and say which; without one it starts no process."""
        plan = self._box.read_plan()
        try:
            if self._box.path.exists():
                with self._box.locked() as ended:
                    return ended
        except Hold as hold:
            return Ended(plan.landing.id if plan else "", waits=str(hold))
        return Ended("")

    def _answer_if_moved(self, landing: Landing) -> Landed | Refused | None:
        tip = self._git.tip(landing.ref)
        if tip is None:
            branch = landing.ref.removeprefix(HEADS)
            again = command("git", "branch", branch, landing.old)
            raise GitFailed(f"the branch {branch} is gone; create it again: {again}")
        return None if tip == landing.old else self.observe(landing) or Refused(reason=TargetMoved(tip=tip))

    def _move_branch(self, landing: Landing) -> Landed:
        branch = landing.ref.removeprefix(HEADS)
        for checkout in self.checkouts.all():
            if operation := checkout.operation_on(landing.ref):
                raise Hold(f"a {operation} of {branch} is under way in {checkout.root}; finish or abort it")
            operation = next((name for mark, name in _MARKS.items() if (checkout.git_dir / mark).exists()), "")
            if operation and checkout.root.is_dir() and self.checkouts.branch_of(checkout) == landing.ref:
                where = f"{checkout.root}, which has {branch} checked out"
                raise Hold(f"a {operation} is under way in {where}; finish or abort it")
        having = self.checkouts.with_branch(landing.ref)
        if not having:
            self._move_ref(landing)
            return Landed(tip=landing.new)
        if len(having) > 1:
            roots = " and ".join(str(checkout.root) for checkout in having)
            raise Hold(f"{branch} is checked out in {roots}; switch all but one to another branch")
        root = having[0].root
        if not root.is_dir():
            raise Hold(f"{root} has {branch} checked out, is locked, and cannot be reached; mount it, or unlock it")
        changes = objects.changes(self._git, *(self._git.commit(oid).tree for oid in (landing.old, landing.new)))
        try:
            swap = Swap(self._git, having[0], self._box, self._zones)
            return Landed(tip=landing.new, note=swap.land(landing, changes))
        except OSError as error:  # a full disk, a read-only directory, a file system without hard links
            raise Hold(f"git cannot update {root}: {error.strerror}: {error.filename}") from error

    def _move_ref(self, landing: Landing) -> None:
        """No checkout has the branch, and none can switch to it while we hold their index locks."""
        self._box.write_plan(SwapPlan(landing=landing))
        try:
            for checkout in self.checkouts.all():
                if checkout.root.is_dir():
                    self._box.lock_index(checkout)
            if self.checkouts.with_branch(landing.ref):
                raise IndexChanged  # a checkout has switched to it: begin again
            with ref_transaction(self._git, landing, name=landing.ref, fd=self._box.fd) as commit:
                commit()
            # One that has read the old tip would check out the old files; it fails at the lock.
            until(lambda: not self._is_switching(), within_s=SWITCHING_S)
        finally:
            self._box.end_landing()

    def _is_switching(self) -> bool:
        import psutil  # 33 ms, and only a branch in use needs it

        roots = [checkout.root for checkout in self.checkouts.all()]
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # psutil lets FileNotFoundError through while a process exits
                if process.name() == "git" and not {"switch", "checkout"}.isdisjoint(process.cmdline()):
                    place = Path(process.cwd())
                    if any(place.is_relative_to(root) for root in roots):
                        return True
        return False
