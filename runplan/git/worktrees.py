"""Lends worktrees to agents and checks, and takes what agents made there into `tool.git`."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from runplan.errors import GitFailed, ObjectsRefused, RefusedEarly, SettingsError
from runplan.git.checkout import nested_repository
from runplan.git.discovery import refs_snapshot
from runplan.git.lane import HEADS, KEEPER, Lane, Signature
from runplan.git.removal import park
from runplan.gitfacts import Absent, Ahead, Identity, Poisoned, Stale, Unstored, is_agent
from runplan.names import base_ref
from runplan.store.files import first_line, make_below, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from runplan.git.command import Git
    from runplan.git.workspace import Workspace
    from runplan.gitfacts import BranchStanding, Oid, WorktreeState

MOST_NAMES = 1000
LANDING_KEEP = "runplan landing"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Worktrees:
    """The worktrees of one project. The processes of a worktree's last dispatch must have ended before each call."""

    def __init__(self, workspace: Workspace, *, lock_dir: Path, mirror: Sequence[str]) -> None:
        self._workspace = workspace
        self._lock_dir = lock_dir
        self._mirror = tuple(mirror)  #: full names of the user's refs that agents see besides tags
        self._lanes: dict[str, Lane] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Worktrees are made and removed by one process at a time."""
        make_below(self._workspace.common_dir, self._lock_dir)
        place = self._lock_dir / "worktrees.lock"
        with FileLock(place, thread_local=False, fallback_to_soft=False, preserve_lock_file=True):
            yield

    def lane(self, name: str) -> Lane:
        if not _NAME.fullmatch(name):
            raise RefusedEarly(f"{name!r} is no name for a worktree; use letters, digits, dot, dash, underscore")
        if name not in self._lanes:
            self._lanes[name] = Lane(self._workspace, name)
        return self._lanes[name]

    def path(self, name: str) -> Path:
        """Where the worktree `name` is or would be."""
        return self.lane(name).path

    def tip(self, branch: str) -> Oid | None:
        """The newest commit of a branch that was taken from an agent."""
        return self._workspace.git.tip(branch)

    def standing(self, branch: str, base: Oid) -> BranchStanding:
        """What a branch of the user's repository holds compared with `base`."""
        return standing(self._workspace.user, branch, base)

    # --- lending ------------------------------------------------------------------------------------------

    def lease(
        self,
        name: str,
        *,
        branch: str,
        base: Oid,
        pin: str,
        onto: Oid = "",
        clean: str = "ignored",
        keep: Sequence[str] = (),
    ) -> Path:
        """A worktree on a new branch at `base`, its files exactly those of `base`; earlier work in it is parked.

        `pin` names the ref that keeps the user's `git gc` from removing `base`; where `base` is a commit of ours,
        `onto` is the user's commit below it.
        """
        lane = self.lane(name)
        self._workspace.user.update_refs(f"update {base_ref(pin)} {onto or base}")
        with self.locked():
            self.rescue(lane, under=branch, base=base)
            if lane.exists:
                lane.note_shown()  # until the files are those of the base
            lane.renew(base, mirror=self._mirror)
        self._workspace.git.update_refs(f"update {branch} {base}")
        lane.put(base, branch=branch, clean=clean, keep=keep)
        lane.note_work()
        return lane.path

    def attach(self, name: str, *, branch: str, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree on `branch`; uncommitted work of an agent that was interrupted stays in it."""
        lane = self.lane(name)
        tip = self.tip(branch)
        if tip is None:
            raise RefusedEarly(f"the branch {branch.removeprefix(HEADS)} is gone; start the phase again")
        whole = lane.exists and lane.intact
        if not whole:
            with self.locked():
                lane.renew(tip, mirror=self._mirror)
        if not whole or lane.is_shown:
            lane.put(tip, branch=branch, clean=clean, keep=keep)
        else:
            if lane.standing != tip:
                lane.stand_on(tip)
            lane.show_agent(tip, branch=branch)
        lane.note_work()
        return lane.path

    def show(self, path: Path, commit: Oid, *, clean: str, keep: Sequence[str] = ()) -> None:
        """Exactly `commit`, detached, for a check or a verifier; whatever else lies there is deleted."""
        lane = self.lane(path.name)
        if not (lane.exists and lane.intact):
            with self.locked():
                lane.renew(commit, mirror=self._mirror)
        is_there = lane.pristine and self._tree(commit) == self._tree(lane.standing)
        lane.note_shown()
        if is_there:
            lane.move_to(commit)
        else:
            lane.put(commit, clean=clean, keep=keep)

    def _tree(self, commit: Oid) -> Oid:
        return self._workspace.git.commit(commit).tree

    def copy(self, path: Path, names: Sequence[str], from_root: Path) -> None:
        """Take the files of run.copy over from the main checkout."""
        for name in names:
            source, goal = from_root / name, path / name
            if Path(name).is_absolute() or ".." in Path(name).parts or ".git" in Path(name).parts[:1]:
                raise SettingsError(f"run.copy: {name} is not inside the repository; name files of the checkout")
            if not source.is_file():
                raise SettingsError(f"run.copy: there is no file {source}; make it, or take it out of run.copy")
            if not goal.parent.resolve().is_relative_to(path.resolve()):
                raise SettingsError(f"run.copy: {goal} leads out of the worktree; take it out of run.copy")
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.unlink(missing_ok=True)
            shutil.copy2(source, goal)

    # --- taking -------------------------------------------------------------------------------------------

    def take(self, name: str, *, branch: str, base: Oid) -> Oid:
        """Copy the agent's commits into `tool.git`; the newest one. What was taken is not taken again.

        Where the given branch has not moved, the agent's HEAD counts: it may have made a branch of its own. Where
        neither leads to new commits, what was taken before counts; the files are still there.
        """
        lane = self.lane(name)
        before = self.tip(branch) or base
        if not (lane.repository / "objects").is_dir():
            return before
        refs = lane.refs()
        own, at_head = refs.get(branch, ""), refs.get(lane.head, lane.head)
        if lane.taken == (own, at_head):
            return before
        tip = self._take(lane, own, without=[base, before]) if own not in ("", before) else before
        if tip == before and _is_oid(at_head) and self._workspace.git.object(at_head) is None:
            with suppress(ObjectsRefused):  # HEAD may lead to nothing
                tip = self._take(lane, at_head, without=[base, before])
        if tip != before:
            self._workspace.git.update_refs(f"update {branch} {tip}")
        if lane.exists:
            self._stand_on(lane, tip, at_head, branch=branch)
        lane.note_taken(own, at_head)
        self._workspace.merge_packs()
        return tip

    def committed(self, name: str, *, branch: str, base: Oid) -> Oid:
        """The newest commit on the branch of an agent that may still be at work; its files are not looked at."""
        lane = self.lane(name)
        before = self.tip(branch) or base
        try:
            tip = lane.refs().get(branch, before)
            return before if tip == before else self._take(lane, tip, without=[base, before])
        except GitFailed:  # what it breaks is met at its end
            return before

    def _stand_on(self, lane: Lane, tip: Oid, at_head: str, *, branch: str) -> None:
        """Compare the files with `tip`; where the agent left another commit checked out, they become those of `tip`."""
        elsewhere = _is_oid(at_head) and at_head != tip and self._workspace.git.object(at_head) is not None
        if elsewhere:
            lane.stand_on(at_head)
            self._park_uncommitted(lane, under=branch)
            lane.put(tip, branch=branch, clean="")
        elif lane.standing != tip:
            lane.stand_on(tip)

    def _take(self, lane: Lane, tip: Oid, *, without: Sequence[Oid]) -> Oid:
        lane.take([tip], without=without)
        return tip

    def published(self, branch: str) -> bool:
        """Whether the user's repository has the branch."""
        return self._workspace.user.tip(branch) is not None

    def publish(self, branch: str, *, base: Oid = "") -> str:
        """Bring a branch with work into the user's repository; its full name there, or nothing when it has none.

        A name that is taken by other commits gets a number. Work that was published keeps the name it got then.
        """
        tip = self.tip(branch)
        if tip in (None, base):
            return ""
        refs = refs_snapshot(self._workspace.common_dir, self._workspace.user)
        names = (branch, *(f"{branch}-{number}" for number in range(2, MOST_NAMES)))
        name = next((name for name in names if refs.get(name) == tip), "")
        if not name:
            name = next(name for name in names if name not in refs)
            self._workspace.publish(f"update {name} {tip}", tips=[tip], without=[base] if base else [])
        return name

    def hand_over(self, branch: str, *, base: Oid = "") -> None:
        """Publish the branch, then delete runplan's own: from now on it is the user's."""
        self.publish(branch, base=base)
        if tip := self.tip(branch):
            self._workspace.git.update_refs(f"delete {branch} {tip}")

    def unpin(self, pin: str) -> None:
        """Let the user's `git gc` have the base again.

        A git that deletes a ref locks the user's packed refs; killed, it would leave that lock. So it does this only
        where there is more to delete than one file.
        """
        ref, common = base_ref(pin), self._workspace.common_dir
        packed = ref.encode() in (read_file(common / "packed-refs") or b"")
        if packed or (common / "reftable").is_dir():
            self._workspace.user.run("update-ref", "--no-deref", "-d", ref)
        else:
            (common / ref).unlink(missing_ok=True)

    def deliver(self, new: Oid, *, without: Oid) -> None:
        """Copy what is about to land into the user's repository, checked by git's own fsck."""
        self._workspace.copy_to_user([new], without=[without], keep=LANDING_KEEP)

    def delivered(self) -> None:
        """A ref holds what was delivered: nothing has to protect it from `git gc` any more."""
        packs = self._workspace.common_dir / "objects" / "pack"
        for file in packs.glob("*.keep"):
            if first_line(file) == LANDING_KEEP:
                file.unlink(missing_ok=True)

    def state(self, path: Path) -> WorktreeState:
        """One status of a worktree against the commit it stands on; costs one scan of its files."""
        return self.lane(path.name).state()

    def intact(self, path: Path) -> bool:
        """Whether the directory is there and still belongs to its repository."""
        lane = self.lane(path.name)
        return lane.exists and lane.intact

    def head(self, path: Path) -> Oid:
        """The commit a worktree stands on."""
        found = self.lane(path.name).standing
        if not found:
            raise GitFailed(f"the worktree {path} stands on no commit")
        return found

    def commit_leftovers(
        self,
        path: Path,
        paths: Sequence[str],
        *,
        branch: str,
        message: str,
        author: Identity,
        committer: Identity,
        when: str,
    ) -> Oid | Unstored:
        """Commit exactly the named files, as they are in the worktree (also their deletion)."""
        lane = self.lane(path.name)
        made = lane.commit(paths, Signature(author=author, committer=committer, when=when), message=message)
        if isinstance(made, str):
            self._workspace.git.update_refs(f"update {branch} {made}")
        return made

    # --- keeping ------------------------------------------------------------------------------------------

    def rescue(self, lane: Lane, *, under: str, base: Oid | None) -> str:
        """Park what only this lane holds: commits on refs of the agent's, and uncommitted files; the last ref made.

        Files whose repository is gone are compared with `base`.
        """
        parked = ""
        for ref, oid in self._strays(lane).items():
            try:
                lane.take([oid], without=[])
            except ObjectsRefused:  # what git cannot read it cannot keep
                continue
            parked = park(
                self._workspace, oid, under=under if ref.startswith(HEADS) else f"{under}-{ref.rpartition('/')[2]}"
            )
        history = frozenset[str]()
        if base and lane.is_orphan:
            lane.adopt(base)
            history = frozenset(self._workspace.git.text("log", "--format=%T", base).split())
        if not lane.exists or lane.is_shown:
            return parked
        return self._park_uncommitted(lane, under=under, known=history) or parked

    def _park_uncommitted(self, lane: Lane, *, under: str, known: Collection[str] = ()) -> str:
        """Keep what differs from the commit it stands on; nothing when the files are one of the `known` trees."""
        state = lane.state()
        if nested := nested_repository(state):
            raise RefusedEarly(f"{lane.path / nested} is a git repository inside a worktree; move it somewhere else")
        if state.clean:
            return ""
        paths = [*state.changed, *(file.path for file in state.untracked)]
        message = f"Uncommitted work found in {under}\n"
        try:
            made = lane.commit(paths, KEEPER, message=message)
        except GitFailed:  # a filter of the project's fails; the content counts
            made = Unstored(path="", why="")
        if isinstance(made, Unstored):
            made = lane.commit_verbatim(paths, KEEPER, message=message)
        if known and self._workspace.git.commit(made).tree in known:
            return ""
        return park(self._workspace, made, under=under)

    def _strays(self, lane: Lane) -> dict[str, Oid]:
        """Commits that only the agent's repository names, by ref."""
        if not (lane.repository / "objects").is_dir():
            return {}
        refs = lane.refs()
        if lane.head and not lane.head.startswith("refs/"):
            refs["HEAD"] = lane.head
        return {ref: oid for ref, oid in refs.items() if self._workspace.git.object(oid) is None}


def standing(git: Git, branch: str, base: Oid) -> BranchStanding:
    """What a branch holds compared with `base`."""
    tip = git.tip(branch)
    if tip is None:
        return Absent()
    if tip == base:
        return Stale(tip=tip)
    behind, ahead = map(int, git.text("rev-list", "--left-right", "--count", f"{base}...{tip}").split())
    if not ahead:
        return Poisoned(tip=tip, behind=behind)
    made = git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
    people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
    return Ahead(tip=tip, ahead=ahead, by_agents=all(is_agent(who) for who in people))


def _is_oid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
