"""Lands on a branch of a remote: one push with a lease on the old tip; the local branch of the same name follows.

The push goes out from `tool.git`, so the user's repository gets nothing before the remote has accepted it. The server
compares the old tip and moves the branch: that is the landing. The lease alone would also allow a commit that is not
built on the old tip, so that is checked here. A fetch settles every unclear answer, and every interrupted landing.

The local branch is the user's. It follows only from where it stood when the intent was made, only forwards, and by
the rules of a local landing (`swap`). When it cannot, the landing has happened all the same, with a note.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from runplan.adapters.git import remote as push
from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import pull_command
from runplan.domain.errors import GitFailed, Unreachable
from runplan.domain.gitfacts import Oid
from runplan.domain.names import HEADS
from runplan.domain.run.events import LandingStarted
from runplan.domain.run.kinds import Reason
from runplan.domain.text import command
from runplan.engine.landing.lander import Failed, Landed, LandingAnswer, Pending, Refused, TargetMoved, find_landing
from runplan.engine.landing.swap import BOX, CherryPick

#: Fetches: the landing when the remote holds it, or the tip to push from; "" for a branch to be made.
Look: TypeAlias = Callable[[LandingStarted], Landed | Refused | Oid]
#: Acts on a landing, of which it is told whether the branch is new; a note for the user.
Finish: TypeAlias = Callable[[LandingStarted, bool], str]


class RemoteLander:
    pull = ""  #: number and address of the pull request, once it is known

    def __init__(self, git: Git, remote: push.Remote, tool: Path, look: Look, finish: Finish) -> None:
        self._git = git
        self._remote = remote
        self._tool = tool  #: the repository that holds the candidate
        self._look = look
        self._finish = finish
        self.ref = remote.ref
        self.branch = remote.branch

    def land(self, landing: LandingStarted, deliver: Callable[[], object] = lambda: None) -> LandingAnswer:
        old = self._look(landing)
        if not isinstance(old, str):
            return old
        base = landing.since or landing.old
        if not self._git.at(self._git.cwd, f"--git-dir={self._tool}").is_ancestor(base, landing.new):
            raise GitFailed(f"{landing.new:.12} is not built on {base:.12}; it is not pushed to {self.ref}")
        answer = self._remote.push(landing.new, old=old, source=self._tool)
        if not isinstance(answer, push.Taken):
            seen = self._look(landing)
            if isinstance(seen, Landed):
                return seen
            if isinstance(answer, push.PushDeclined):
                why = f"{self._remote.name} does not accept a push to {self.branch}: {answer.said}"
                return Failed(Reason.PROTECTED, why)
            if isinstance(seen, Refused):
                return seen
            failed = f"the push to {self.branch} on {self._remote.name} failed and changed nothing"
            raise Unreachable(f"{failed}: {answer.said}")
        deliver()
        if self._git.tip(self.ref) in (None, old):  # else the user has just fetched
            self._git.update_refs(f"update {self.ref} {landing.new}")
        return Landed(tip=landing.new, note=self._finish(landing, not old), pull=self.pull)

    def prepare(self, *, id: str, old: Oid, new: Oid) -> LandingStarted:
        return LandingStarted(id=id, ref=self.ref, old=old, new=new)

    def observe(self, landing: LandingStarted) -> Landed | None:
        tip = self._git.tip(self.ref)
        return Landed(tip=tip) if tip is not None and find_landing(self._git, landing, tip) else None

    def recover(self, landing: LandingStarted) -> None:
        """A fetch shows the result of an interrupted push."""
        self._look(landing)

    def delete_branch(self, merged: Oid) -> str:
        """Delete the branch, unless somebody pushed to it after the merge; a note when it stays."""
        if self._git.tip(self.ref) is None:
            return ""
        self.drop_tracking_refs()  # before the push: a run that is killed after it may never look at the branch again
        answer = self._remote.push("", old=merged, source=self._tool)
        if isinstance(answer, push.Taken) or (tip := self._remote.fetch()) is None:
            self.drop_tracking_refs()  # a fetch beside the push makes them again
            return ""
        stays = f"the branch {self.branch} stays on {self._remote.name}"
        drop = command("git", "push", self._remote.name, "--delete", self.branch)
        if tip != merged:
            later = f"commits were pushed to it after the merge, up to {tip:.12}"
            return f"{stays}: {later}; open a pull request for them, or drop them: {drop}"
        if isinstance(answer, push.Uncertain):
            raise Unreachable(f"the branch {self.branch} was not deleted: {answer.said}")
        return f"{stays}: {answer.said}"

    def drop_tracking_refs(self) -> None:
        """Delete the tracking refs of a branch that is gone from the remote; a push makes one in its repository."""
        with self._git.at(self._git.cwd, f"--git-dir={self._tool}") as tool:
            for git in (self._git, tool):
                if git.tip(self.ref) is not None:
                    git.run("update-ref", "-d", self.ref)

    def advance(self, head: Oid, *, old: Oid | None) -> None:
        """Bring the branch to a commit that was landed elsewhere."""
        answer = self._remote.push(head, old=old or "", source=self._tool)
        if not isinstance(answer, push.Taken):
            raise Unreachable(f"the branch {self.branch} was not pushed: {answer.said}")
        self._git.update_refs(f"update {self.ref} {head}")

    def merge_base(self, oid: Oid, other: Oid) -> Oid:
        return self._git.run("merge-base", oid, other, ok=(0, 1)).text

    def push_work(self, ref: str, new: Oid, *, old: Oid, is_owner: Callable[[], bool]) -> str:
        """Push work that has not landed; why the remote lacks it, or ""."""
        # Where the ref is not at `old`, an earlier attempt has left it, or a push was not recorded. Only the owner of
        # the run replaces that, or pushes at all: the one who took it over may have landed the work and deleted the
        # ref.
        try:
            if not is_owner():
                return "another host has taken over the plan"
            answer = self._remote.push(new, old=old, source=self._tool, ref=ref)
            there = self._remote.list_refs(ref).get(ref, "") if not isinstance(answer, push.Taken) else new
            if there not in (old, new) and is_owner():
                answer = self._remote.push(new, old=there, source=self._tool, ref=ref)
        except Unreachable as error:
            return str(error)
        return "" if there == new or isinstance(answer, push.Taken) else answer.said

    def fetch_work(self, ref: str, objects: Git) -> Oid | None:
        """The newest such work on the remote, in the repository of candidates from now on; None when it has none."""
        pushed = objects.tip(ref) if self._remote.fetch_ref(f"+{ref}:{ref}", into=self._tool) else None
        if pushed:
            objects.update_refs(f"delete {ref}")
        return pushed

    def drop_work(self, ref: str) -> None:
        """Delete such work on the remote; `gc` deletes what stays."""
        with suppress(Unreachable):
            if there := self._remote.list_refs(ref).get(ref):
                self._remote.push("", old=there, source=self._tool, ref=ref)


class Direct(RemoteLander):
    """Moves the target on a remote; `on_local` is for a phase that is built on the local branch."""

    def __init__(self, git: Git, remote: push.Remote, *, tool: Path, on_local: bool = False) -> None:
        super().__init__(git, remote, tool, self._look_for_landing, lambda landing, _: self.follow_remote(landing))
        self._local = CherryPick(git, ref=f"{HEADS}{remote.branch}", common_dir=remote.common_dir)
        self._on_local = on_local

    def tip(self) -> Oid | None:
        return self._local.tip() if self._on_local else self._remote.fetch()

    def land(self, landing: LandingStarted, deliver: Callable[[], object] = lambda: None) -> LandingAnswer:
        answer = super().land(landing, deliver)
        if not self._on_local or not isinstance(answer, TargetMoved):
            return answer
        if not self._git.is_ancestor(answer.tip, landing.old):
            return Pending(why=self.describe_missing())
        push_own = command("git", "push", self._remote.name, self.branch)
        lacks = f"{self._remote.name} lacks commits of your {self.branch}, on which the phase is built"
        return Pending(why=f"{lacks}; push them: {push_own}")

    def describe_missing(self) -> str:
        """Why a phase cannot be built on the local branch: the remote has commits that it lacks; "" for none."""
        there = self._remote.fetch() if self._on_local else None
        here = self._local.tip()
        if there is None or here is None or self._git.is_ancestor(there, here):
            return ""
        pull = pull_command(self._git, self._remote.common_dir, self.branch, self._remote.name)
        return f"your {self.branch} lacks commits of {self._remote.name}, to which the phase is pushed; run: {pull}"

    def prepare(self, *, id: str, old: Oid, new: Oid) -> LandingStarted:
        return LandingStarted(id=id, ref=self.ref, old=old, new=new, follows=self._local.tip() or "")

    def observe(self, landing: LandingStarted) -> Landed | None:
        seen = super().observe(landing)
        if seen and landing.follows and self._local.tip() == landing.follows:
            return replace(seen, note=self._explain_stay(landing.follows))
        return seen

    def _look_for_landing(self, landing: LandingStarted) -> Landed | Refused | Oid:
        self._local.recover()  # first, and also when the remote does not answer
        tip = self._remote.fetch()
        if tip is None:
            again = command("git", "push", self._remote.name, f"{landing.old}:{HEADS}{self.branch}")
            raise Unreachable(f"{self._remote.name} has no branch {self.branch} any more; create it again: {again}")
        landed_commit = find_landing(self._git, landing, tip)
        if landed_commit is None:
            return tip if tip == landing.old else TargetMoved(tip=tip)
        if landed_commit == landing.new:
            return Landed(tip=tip, note=self.follow_remote(landing))
        # Another commit with this landing's id: an earlier push was slow to arrive, and the candidate was rebuilt.
        return Landed(tip=tip, note=self._explain_stay(landing.follows))

    def follow_remote(self, landing: LandingStarted) -> str:
        """Let the local branch follow; a note when it stays."""
        here = self._local.tip()
        if not landing.follows or here in (None, landing.new):
            return ""
        if here != landing.follows or here != landing.old:
            if self._git.is_ancestor(landing.new, here):
                return ""
            if here != landing.follows or not self._git.is_ancestor(here, landing.new):
                return self._explain_stay(here, "it has moved meanwhile, or has commits of its own")
        answer = self._local.land(replace(landing, ref=self._local.ref, old=here))
        if isinstance(answer, Landed):
            return answer.note
        is_halfway = (self._remote.common_dir / BOX).exists()  # neither completed nor rolled back
        if isinstance(answer, Pending) and is_halfway:
            raise Unreachable(f"{answer.why}; the files there are half replaced, and put right when it is tried again")
        return self._explain_stay(here, answer.why if isinstance(answer, Pending) else "it has moved meanwhile")

    def _explain_stay(self, tip: Oid, why: str = "") -> str:
        if not tip:
            return ""
        pull = pull_command(self._git, self._remote.common_dir, self.branch, self._remote.name)
        return f"your local {self.branch} stays at {tip:.7}{f': {why}' if why else ''}; to update it: {pull}"
