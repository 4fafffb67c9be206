"""Lands on a branch of a remote: one push without force, which the local branch of the same name follows.

The push is the one instant at which the landing happens: the server compares and swaps. Whatever became of it, a
fetch tells, so every answer but a clear one is followed by a look: the landing is there, or the branch has moved,
or nothing has happened. Dead at any instant: the next process looks as well (`recover`).

The local branch is the user's. It follows only from where it stood when the intent was made, only forwards, and by
the rules of a local landing (`cherry_pick`); when it cannot, the landing has happened all the same, with a note.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.checkout import HEADS, Checkouts
from runplan.adapters.landers.cherry_pick import CherryPick, _there
from runplan.adapters.landers.observing import find
from runplan.adapters.remote import NETWORK_S, Remote
from runplan.core.commands import command
from runplan.core.errors import Unreachable
from runplan.core.gitfacts import Held, Landed, Landing, Moved, Refused
from runplan.core.push import Declined, Taken, Uncertain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import LandingAnswer, Oid

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


def _pass(_point: str) -> None:
    return


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
        caller: Mapping[str, str],
        point: Callable[[str], None] = _pass,
        deliver: Callable[[Oid, Oid], None] = _there,
        timeout_s: float = NETWORK_S,
    ) -> None:
        self._git = git
        self._remote = Remote(
            git, name=remote, branch=branch, common_dir=common_dir, caller=caller, timeout_s=timeout_s
        )
        self._local = CherryPick(git, ref=f"{HEADS}{branch}", root=root, common_dir=common_dir, point=point)
        self._checkouts = Checkouts(git, root=root, common_dir=common_dir)
        self._point = point
        self._deliver = deliver
        self.ref = self._remote.ref

    def tip(self) -> Oid | None:
        """Where the branch stands on the remote, asked now; None when it has no such branch."""
        return self._fetch("")

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        """The intent, to be recorded before `land`."""
        local = self._local.prepare(id=id, old=old, new=new)
        locks = (*local.locks, str(self._remote.lock))
        return replace(local, ref=self.ref, locks=locks, follows=self._local.tip() or "")

    def land(self, landing: Landing) -> LandingAnswer:
        """Push, and let the local branch follow; or say why not, with nothing changed."""
        note = self._settle(landing)
        self._deliver(landing.new, landing.old)
        if (tip := self._seen()) != landing.old:
            return Landed(tip=tip, note=note) if find(self._git, landing, tip) else Moved(tip=tip)
        self._point("direct.push.before")
        answer = self._remote.push(landing.new, landing.id)
        self._point("direct.push.after")
        return self._taken(landing) if isinstance(answer, Taken) else self._not_taken(landing, answer)

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
        self._local.recover(self._here(landing))  # first, and also when the remote does not answer
        tip = self._fetch(landing.id)
        if tip is None:
            name, branch = self._remote.name, self._remote.branch
            push = command("git", "push", name, f"{landing.old}:{HEADS}{branch}")
            raise Unreachable(f"{name} has no branch {branch} any more; make it again: {push}")
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
        if self._git.tip(self.ref) == landing.old:  # git notes it only where the remote's fetch settings say so
            self._git.update_refs(f"update {self.ref} {landing.new} {landing.old}")
        self._point("direct.track.after")
        return Landed(tip=landing.new, note=self._follow(landing))

    def _not_taken(self, landing: Landing, answer: Declined | Uncertain) -> LandingAnswer:
        note = self._settle(landing)
        tip = self._seen()
        if find(self._git, landing, tip):
            return Landed(tip=tip, note=note)
        name, branch = self._remote.name, self._remote.branch
        if isinstance(answer, Declined):
            return Refused(why=f"{name} does not take a push to {branch}: {answer.said}")
        if tip != landing.old:
            return Moved(tip=tip)
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
            return "" if self._holds(here, landing.new) else self._stays(here, "it has moved meanwhile", how="--rebase")
        if here != landing.old and not self._holds(landing.new, here):
            return self._stays(here, "it has commits of its own", how="--rebase")
        self._point("direct.follow.before")
        answer = self._local.land(self._here(landing))
        self._point("direct.follow.after")
        match answer:
            case Landed():
                return ""
            case Held(why=why) | Refused(why=why):
                return self._stays(here, why)
            case Moved(tip=tip):
                return self._stays(tip, "it has moved meanwhile", how="--rebase")

    def _holds(self, tip: Oid, commit: Oid) -> bool:
        return self._git.run("merge-base", "--is-ancestor", commit, tip, ok=(0, 1)).code == 0

    def _stays(self, at: Oid, why: str = "", *, how: str = "--ff-only") -> str:
        if not at:
            return ""
        settled = f": {why}; when that is settled" if why else "; to let it follow"
        pull = self._checkouts.pull(self._local.ref, self._remote.name, how=how)
        return f"{self._remote.branch} here stays at {at:.7}{settled}: {pull}"
