"""Lands on a branch of a remote: one push with a lease on the old tip; the local branch of the same name follows.

The push goes out from `tool.git`, so the user's repository gets nothing before the remote has accepted it. The server
compares the old tip and moves the branch: that is the landing. The lease alone would also allow a commit that is not
built on the old tip, so that is checked here. A fetch settles every unclear answer, and every interrupted landing.

The local branch is the user's. It follows only from where it stood when the intent was made, only forwards, and by
the rules of a local landing (`cherry_pick`). When it cannot, the landing has happened all the same, with a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.errors import GitFailed, Unreachable
from runplan.git import remote as push
from runplan.landing.cherry_pick import CherryPick
from runplan.landing.lander import Declined, Landed, Landing, Pending, Refused, TargetMoved, do_nothing, find
from runplan.names import HEADS
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.git.remote import Remote
    from runplan.gitfacts import Oid
    from runplan.landing.lander import LandingAnswer


class Direct:
    """Moves a branch of a remote."""

    def __init__(self, git: Git, remote: Remote, *, root: Path, tool: Path) -> None:
        self._git = git
        self._remote = remote
        self._local = CherryPick(git, ref=f"{HEADS}{remote.branch}", root=root, common_dir=remote.common_dir)
        self._tool = tool  #: the repository that holds the candidate
        self.ref = remote.ref
        self.branch = remote.branch

    def tip(self) -> Oid | None:
        """The tip of the branch on the remote, fetched now; None when it has no such branch."""
        return self._remote.fetch()

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        return Landing(id=id, ref=self.ref, old=old, new=new, follows=self._local.tip() or "")

    def land(self, landing: Landing, deliver: Callable[[], None] = do_nothing) -> LandingAnswer:
        """Push, and let the local branch follow; or say why not, with nothing changed."""
        seen = self._settle(landing)
        if isinstance(seen, Landed):
            return seen
        if seen != landing.old:
            return Refused(reason=TargetMoved(tip=seen))
        if not self._git.at(self._git.cwd, f"--git-dir={self._tool}").is_ancestor(landing.old, landing.new):
            raise GitFailed(f"{landing.new:.12} is not built on {landing.old:.12}; it is not pushed to {self.ref}")
        answer = self._remote.push(landing.new, old=landing.old, source=self._tool)
        if not isinstance(answer, push.Taken):
            return self._not_taken(landing, answer)
        deliver()
        if self._git.tip(self.ref) == landing.old:  # else the user has just fetched
            self._git.update_refs(f"update {self.ref} {landing.new} {landing.old}")
        return Landed(tip=landing.new, note=self.follow(landing))

    def observe(self, landing: Landing) -> Landed | None:
        """Whether the last fetch showed the landing; reliable after `recover`; changes nothing."""
        tip = self._git.tip(self.ref)
        if tip is None or not find(self._git, landing, tip):
            return None
        left = landing.follows and self._local.tip() == landing.follows
        return Landed(tip=tip, note=self._stays(landing.follows) if left else "")

    def recover(self, landing: Landing) -> None:
        """Complete or roll back an interrupted landing; a fetch shows which."""
        self._settle(landing)

    # --- the remote -------------------------------------------------------------------------------------

    def _settle(self, landing: Landing) -> Landed | Oid:
        """Recover and fetch: the landing when the remote holds it, else the remote's tip."""
        self._local.recover()  # first, and also when the remote does not answer
        tip = self.tip()
        if tip is None:
            name, branch = self._remote.name, self._remote.branch
            again = command("git", "push", name, f"{landing.old}:{HEADS}{branch}")
            raise Unreachable(f"{name} has no branch {branch} any more; create it again: {again}")
        found = find(self._git, landing, tip)
        if found is None:
            return tip
        # Another commit with this landing's id: an earlier push was slow to arrive, and the candidate was rebuilt.
        return Landed(tip=tip, note=self.follow(landing) if found == landing.new else self._stays(landing.follows))

    def _not_taken(self, landing: Landing, answer: push.Declined | push.Uncertain) -> LandingAnswer:
        seen = self._settle(landing)
        if isinstance(seen, Landed):
            return seen
        name, branch = self._remote.name, self._remote.branch
        if isinstance(answer, push.Declined):
            return Refused(reason=Declined(why=f"{name} does not accept a push to {branch}: {answer.said}"))
        if seen != landing.old:
            return Refused(reason=TargetMoved(tip=seen))
        raise Unreachable(f"the push to {branch} on {name} failed and changed nothing: {answer.said}")

    # --- the local branch -------------------------------------------------------------------------------

    def local_tip(self) -> Oid | None:
        return self._local.tip()

    def follow(self, landing: Landing) -> str:
        """Let the local branch follow; a note when it does not."""
        here = self._local.tip()
        if not landing.follows or here is None or here == landing.new:
            return ""
        if here != landing.follows:
            up_to_date = self._git.is_ancestor(landing.new, here)
            return "" if up_to_date else self._stays(here, "it has moved meanwhile", how="--rebase")
        if here != landing.old and not self._git.is_ancestor(here, landing.new):
            return self._stays(here, "it has commits of its own", how="--rebase")
        answer = self._local.land(replace(landing, ref=self._local.ref, old=landing.follows))
        match answer:
            case Landed(note=note):
                return note
            case Pending(why=why):
                return self._stays(here, why)
            case Refused(reason=reason):
                tip = reason.tip if isinstance(reason, TargetMoved) else here
                return self._stays(tip, "it has moved meanwhile", how="--rebase")

    def _stays(self, at: Oid, why: str = "", *, how: str = "--ff-only") -> str:
        if not at:
            return ""
        pull = self._local.checkouts.pull(self._local.ref, self._remote.name, how=how)
        return f"your local {self._remote.branch} stays at {at:.7}{f': {why}' if why else ''}; to update it: {pull}"
