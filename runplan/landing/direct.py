"""Lands on a branch of a remote: one push with a lease on the old tip, which the local branch of the same name follows.

The push goes out from `tool.git`, so the user's repository gets nothing before the remote has taken it.

The server compares the old tip and moves the branch: this is the landing. The lease alone would also allow a commit
that is not built on the old tip, so that is checked here. Every answer but a clear one is followed by a fetch, which
tells whether the landing is there, the branch has moved, or nothing has happened. So does the process after a kill.

The local branch is the user's. It follows only from where it stood when the intent was made, only forwards, and by
the rules of a local landing (`cherry_pick`); when it cannot, the landing has happened all the same, with a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.errors import GitFailed, Unreachable
from runplan.git import remote as push
from runplan.git.checkout import HEADS, Checkouts
from runplan.git.remote import NETWORK_S, Remote
from runplan.landing.cherry_pick import CherryPick
from runplan.landing.lander import Declined, Landed, Landing, Pending, Refused, TargetMoved, do_nothing, find
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.gitfacts import Oid
    from runplan.landing.lander import LandingAnswer

#: The instants of a landing, in their order; those of the local landing lie between the last two.
POINTS = (
    "direct.fetch.before",
    "direct.fetch.after",
    "direct.push.before",
    "direct.push.after",
    "direct.track.after",
    "direct.follow.before",
    "direct.follow.after",
)


class Direct:
    """Moves a branch of a remote."""

    def __init__(
        self,
        git: Git,
        *,
        remote: str,
        branch: str,
        root: Path,
        common_dir: Path,
        tool: Path,
        caller: Mapping[str, str],
        point: Callable[[str], None] = do_nothing,
        timeout_s: float = NETWORK_S,
    ) -> None:
        self._git = git
        self._remote = Remote(
            git, name=remote, branch=branch, common_dir=common_dir, caller=caller, timeout_s=timeout_s
        )
        self._local = CherryPick(git, ref=f"{HEADS}{branch}", root=root, common_dir=common_dir, point=point)
        self._tool = tool  #: the repository that holds the candidate
        self._checkouts = Checkouts(git, root=root, common_dir=common_dir)
        self._point = point
        self.ref = self._remote.ref

    def tip(self) -> Oid | None:
        """Where the branch stands on the remote, asked now; None when it has no such branch."""
        return self._fetch("")

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        return Landing(id=id, ref=self.ref, old=old, new=new, follows=self._local.tip() or "")

    def land(self, landing: Landing, deliver: Callable[[], None] = do_nothing) -> LandingAnswer:
        """Push, and let the local branch follow; or say why not, with nothing changed."""
        note = self._settle(landing)
        if (tip := self._seen()) != landing.old:
            return Landed(tip=tip, note=note) if find(self._git, landing, tip) else _moved(tip)
        tool = self._git.at(self._git.cwd, f"--git-dir={self._tool}")
        if not _holds(tool, landing.new, landing.old):
            raise GitFailed(f"{landing.new:.12} is not built on {landing.old:.12}; it is not pushed to {self.ref}")
        self._point("direct.push.before")
        answer = self._remote.push(landing.new, old=landing.old, owner=landing.id, source=self._tool)
        self._point("direct.push.after")
        if not isinstance(answer, push.Taken):
            return self._not_taken(landing, answer)
        deliver()
        return self._taken(landing)

    def observe(self, landing: Landing) -> Landed | None:
        """Whether the landing is in what was last seen of the remote; believed after `recover`; changes nothing."""
        tip = self._git.tip(self.ref)
        if tip is None or not find(self._git, landing, tip):
            return None
        left = landing.follows and self._local.tip() == landing.follows
        return Landed(tip=tip, note=self._stays(landing.follows) if left else "")

    def recover(self, landing: Landing) -> None:
        """Bring what a dead landing left to one of its ends, and ask the remote which one it is.

        To be called when an intent is found without an outcome, before `observe` is believed.
        """
        self._settle(landing)

    # --- the remote -------------------------------------------------------------------------------------

    def _fetch(self, owner: str) -> Oid | None:
        self._point("direct.fetch.before")
        tip = self._remote.fetch(owner)
        self._point("direct.fetch.after")
        return tip

    def _settle(self, landing: Landing) -> str:
        """Recover; the note is of the local branch, when the remote holds the landing."""
        self._local.recover()  # first, and also when the remote does not answer
        tip = self._fetch(landing.id)
        if tip is None:
            name, branch = self._remote.name, self._remote.branch
            again = command("git", "push", name, f"{landing.old}:{HEADS}{branch}")
            raise Unreachable(f"{name} has no branch {branch} any more; make it again: {again}")
        found = find(self._git, landing, tip)
        if found is None:
            return ""
        # The same landing as another commit: an earlier push was slow to arrive, and the candidate was built again.
        return self._follow(landing) if found == landing.new else self._stays(landing.follows)

    def _seen(self) -> Oid:
        tip = self._git.tip(self.ref)
        if tip is None:
            raise Unreachable(f"{self.ref} was just fetched and is gone; somebody removes refs in here")
        return tip

    def _taken(self, landing: Landing) -> Landed:
        if self._git.tip(self.ref) == landing.old:  # else the user has just fetched
            self._git.update_refs(f"update {self.ref} {landing.new} {landing.old}")
        self._point("direct.track.after")
        return Landed(tip=landing.new, note=self._follow(landing))

    def _not_taken(self, landing: Landing, answer: push.Declined | push.Uncertain) -> LandingAnswer:
        note = self._settle(landing)
        tip = self._seen()
        if find(self._git, landing, tip):
            return Landed(tip=tip, note=note)
        name, branch = self._remote.name, self._remote.branch
        if isinstance(answer, push.Declined):
            return Refused(reason=Declined(why=f"{name} does not take a push to {branch}: {answer.said}"))
        if tip != landing.old:
            return _moved(tip)
        raise Unreachable(f"{name} has not taken the push to {branch}, which stands where it stood: {answer.said}")

    # --- the local branch -------------------------------------------------------------------------------

    def _here(self, landing: Landing) -> Landing:
        return replace(landing, ref=self._local.ref, old=landing.follows)

    def _follow(self, landing: Landing) -> str:
        """Let the local branch follow; why it does not, when a person should know."""
        here = self._local.tip()
        if not landing.follows or here is None or here == landing.new:
            return ""
        if here != landing.follows:
            return (
                ""
                if _holds(self._git, here, landing.new)
                else self._stays(here, "it has moved meanwhile", how="--rebase")
            )
        if here != landing.old and not _holds(self._git, landing.new, here):
            return self._stays(here, "it has commits of its own", how="--rebase")
        self._point("direct.follow.before")
        answer = self._local.land(self._here(landing))
        self._point("direct.follow.after")
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
        settled = f": {why}; when that is settled" if why else "; to let it follow"
        pull = self._checkouts.pull(self._local.ref, self._remote.name, how=how)
        return f"{self._remote.branch} here stays at {at:.7}{settled}: {pull}"


def _holds(git: Git, tip: Oid, commit: Oid) -> bool:
    return git.run("merge-base", "--is-ancestor", commit, tip, ok=(0, 1)).code == 0


def _moved(tip: Oid) -> Refused:
    return Refused(reason=TargetMoved(tip=tip))
