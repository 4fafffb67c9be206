"""Lends worktrees to agents and checks, and takes agents' commits into `tool.git`."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed, ObjectsRefused, RefusedEarly, SettingsError
from runplan.git.lane import KEEPER, Lane, Unstored
from runplan.git.repository import refs_snapshot
from runplan.git.workspace import LANDING_KEEP
from runplan.gitfacts import Identity, is_agent
from runplan.names import HEADS, base_ref, parked_under
from runplan.store.files import file_lock, make_below, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from filelock import FileLock

    from runplan.git.command import Git
    from runplan.git.lane import WorktreeState
    from runplan.git.objects import Signature
    from runplan.git.workspace import Workspace
    from runplan.gitfacts import Oid

MOST_NAMES = 1000
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_TRIES = 5


class BranchStanding(Struct, frozen=True, kw_only=True):
    """A branch compared with a base."""

    ahead: int = 0  #: commits of its own
    behind: int = 0  #: commits of the base that it lacks
    by_agents: bool = False  #: whether agents of ours made every commit of its own


class Worktrees:
    """The worktrees of one project. The processes of a worktree's last dispatch must have ended before each call."""

    def __init__(self, workspace: Workspace, *, lock_dir: Path, mirror: Sequence[str]) -> None:
        self._workspace = workspace
        self._lock_dir = lock_dir
        self._mirror = tuple(mirror)  #: full names of the user's refs that agents see besides tags
        self._lanes: dict[str, Lane] = {}

    def lock(self) -> FileLock:
        """Worktrees are made and removed by one process at a time."""
        make_below(self._workspace.common_dir, self._lock_dir)
        return file_lock(self._lock_dir / "worktrees.lock")

    def lane(self, name: str) -> Lane:
        if not _NAME.fullmatch(name):
            raise RefusedEarly(f"{name!r} cannot be the name of a worktree; use letters, digits, dot, dash, underscore")
        if name not in self._lanes:
            self._lanes[name] = Lane(self._workspace, name)
        return self._lanes[name]

    def path(self, name: str) -> Path:
        return self.lane(name).path

    def tip(self, branch: str) -> Oid | None:
        """The newest commit of a branch that was taken from an agent."""
        return self._workspace.git.tip(branch)

    def standing(self, branch: str, base: Oid) -> BranchStanding:
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
        """A worktree on a new branch with exactly the files of `base`; earlier work in it is parked.

        `pin` names the ref that protects `base` from the user's `git gc`. Where `base` is a commit of ours, `onto` is
        the user's commit below it.
        """
        lane = self.lane(name)
        self._workspace.user.update_refs(f"update {base_ref(pin)} {onto or base}")
        with self.lock():
            self.rescue(lane, under=branch, base=base)
            if lane.exists:
                lane.mark_disposable()  # until the files are those of the base
            lane.renew(base, mirror=self._mirror)
        self._workspace.git.update_refs(f"update {branch} {base}")
        lane.put(base, branch=branch, clean=clean, keep=keep)
        lane.mark_work()
        return lane.path

    def attach(self, name: str, *, branch: str, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree on `branch`; uncommitted work of an interrupted agent stays in it."""
        lane = self.lane(name)
        tip = self.tip(branch)
        if tip is None:
            raise RefusedEarly(f"the branch {branch.removeprefix(HEADS)} is gone; start the phase again")
        if self._require_whole(lane, tip) or lane.is_disposable:
            lane.put(tip, branch=branch, clean=clean, keep=keep)
        else:
            if lane.base != tip:
                lane.compare_with(tip)
            lane.sync_agent(tip, branch=branch)
        lane.mark_work()
        return lane.path

    def show(self, path: Path, commit: Oid, *, clean: str, keep: Sequence[str] = ()) -> None:
        """Exactly `commit`, detached, for a check or a verifier; every other file is deleted."""
        lane = self.lane(path.name)
        self._require_whole(lane, commit)
        trees = self._workspace.git
        same_files = lane.pristine and trees.commit(commit).tree == trees.commit(lane.base).tree
        lane.mark_disposable()
        if same_files:
            lane.move_to(commit)
        else:
            lane.put(commit, clean=clean, keep=keep)

    def _require_whole(self, lane: Lane, commit: Oid) -> bool:
        """Make a missing or broken worktree again; whether that was necessary."""
        if lane.is_whole:
            return False
        with self.lock():
            lane.renew(commit, mirror=self._mirror)
        return True

    def copy(self, path: Path, names: Sequence[str], from_root: Path) -> None:
        for name in names:
            source, goal, parts = from_root / name, path / name, Path(name).parts
            if Path(name).is_absolute() or ".." in parts or ".git" in parts[:1]:
                raise SettingsError(f"run.copy: {name} is not inside the repository; name files of the checkout")
            if not source.is_file():
                raise SettingsError(f"run.copy: there is no file {source}; create it, or remove it from run.copy")
            if not goal.parent.resolve().is_relative_to(path.resolve()):
                raise SettingsError(f"run.copy: {goal} leads out of the worktree; remove it from run.copy")
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.unlink(missing_ok=True)
            shutil.copy2(source, goal)

    # --- taking -------------------------------------------------------------------------------------------

    def take(self, name: str, *, branch: str, base: Oid) -> Oid:
        """Copy the agent's commits into `tool.git`, once; the newest one.

        Where the given branch has not moved, the agent's HEAD counts: it may have made a branch of its own. Where
        neither has new commits, the commits taken before count; the files are still there.
        """
        lane = self.lane(name)
        before = self.tip(branch) or base
        if not lane.has_repository:
            return before
        refs = lane.refs()
        own, at_head = refs.get(branch, ""), refs.get(lane.head, lane.head)
        if lane.taken == f"{own} {at_head}":
            return before
        tip = lane.take(own, without=[base, before]) if own not in ("", before) else before
        if tip == before and _is_oid(at_head) and self._workspace.git.object(at_head) is None:
            with suppress(ObjectsRefused):  # HEAD may lead to nothing
                tip = lane.take(at_head, without=[base, before])
        if tip != before:
            self._workspace.git.update_refs(f"update {branch} {tip}")
        if lane.exists:
            self._check_out(lane, tip, at_head, branch=branch)
        lane.note_taken(f"{own} {at_head}")
        self._workspace.merge_packs()
        return tip

    def _check_out(self, lane: Lane, tip: Oid, at_head: str, *, branch: str) -> None:
        """Compare the files with `tip`; where the agent left another commit checked out, check out `tip`."""
        if _is_oid(at_head) and at_head != tip and self._workspace.git.object(at_head) is not None:
            lane.compare_with(at_head)
            self._park_uncommitted(lane, under=branch)
            lane.put(tip, branch=branch, clean="")
        elif lane.base != tip:
            lane.compare_with(tip)

    def state(self, path: Path) -> WorktreeState:
        return self.lane(path.name).state()

    def commit_leftovers(
        self, path: Path, paths: Sequence[str], *, branch: str, message: str, by: Signature
    ) -> Oid | Unstored:
        """Commit exactly the named files, as they are in the worktree (also their deletion)."""
        made = self.lane(path.name).commit(paths, by, message=message)
        if isinstance(made, str):
            self._workspace.git.update_refs(f"update {branch} {made}")
        return made

    # --- giving commits to the user -----------------------------------------------------------------------

    def published(self, branch: str) -> bool:
        return self._workspace.user.tip(branch) is not None

    def publish(self, branch: str, *, base: Oid = "") -> str:
        """Copy a branch with work into the user's repository; its full name there, or empty when it has no work.

        A name that is taken by other commits gets a number. Published work keeps its name.
        """
        tip = self.tip(branch)
        if tip is None or tip == base:
            return ""
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_NAMES))]
        return self._keep_at(names, tip, without=[base] if base else [])

    def give_to_user(self, branch: str, *, base: Oid = "") -> None:
        self.publish(branch, base=base)
        if tip := self.tip(branch):
            self._workspace.git.update_refs(f"delete {branch} {tip}")

    def unpin(self, pin: str) -> None:
        """Stop protecting the base from the user's `git gc`.

        A git that is killed while it deletes a ref leaves packed-refs.lock in the user's repository. So git does it
        only where the ref is not just one file.
        """
        ref, common = base_ref(pin), self._workspace.common_dir
        packed = ref.encode() in (read_file(common / "packed-refs") or b"")
        if packed or (common / "reftable").is_dir():
            self._workspace.user.run("update-ref", "--no-deref", "-d", ref)
        else:
            (common / ref).unlink(missing_ok=True)

    def deliver(self, new: Oid, *, without: Oid) -> None:
        """Copy the candidate into the user's repository, checked by git's own fsck."""
        self._workspace.copy_to_user(new, without=[without], keep=LANDING_KEEP)

    def end_delivery(self) -> None:
        self._workspace.release_landed()

    # --- parking ------------------------------------------------------------------------------------------

    def park(self, oid: Oid, *, under: str) -> str:
        """Keep a commit below `refs/runplan/parked/<plan>/<phase>/`; the same commit gets the same ref."""
        home = parked_under(*under.split("/")[-2:])
        return self._keep_at([f"{home}{number}" for number in range(1, MOST_NAMES)], oid)

    def _keep_at(self, names: Sequence[str], oid: Oid, *, without: Sequence[Oid] = ()) -> str:
        """Make the first free of these refs in the user's repository, unless one of them has the commit already."""
        user = self._workspace.user
        keep = self._workspace.copy_to_user(oid, without=without)
        for left in reversed(range(_TRIES)):
            refs = refs_snapshot(self._workspace.common_dir, user)
            if ref := next((name for name in names if refs.get(name) == oid), ""):
                break
            ref = next(name for name in names if name not in refs)
            try:
                user.update_refs(f"create {ref} {oid}")
                break
            except GitFailed:  # another process may have made it
                if not left:
                    raise
        if keep:
            keep.unlink(missing_ok=True)
        return ref

    def rescue(self, lane: Lane, *, under: str, base: Oid | None) -> str:
        """Park commits and uncommitted files that only this lane holds; the last ref made.

        Files whose repository is gone are compared with `base`.
        """
        parked = ""
        for ref, oid in self._unsaved_commits(lane).items():
            with suppress(ObjectsRefused):  # git cannot keep objects that it cannot read
                lane.take(oid)
                parked = self.park(oid, under=under if ref.startswith(HEADS) else f"{under}-{ref.rpartition('/')[2]}")
        history: Iterable[str] = ()
        if base and lane.is_orphan:
            lane.adopt(base)
            history = self._workspace.git.text("log", "--format=%T", base).split()
        if not lane.exists or lane.is_disposable:
            return parked
        return self._park_uncommitted(lane, under=under, known=frozenset(history)) or parked

    def _park_uncommitted(self, lane: Lane, *, under: str, known: Collection[str] = ()) -> str:
        """Park the differences from the commit it stands on, unless the files are one of the `known` trees."""
        state = lane.state()
        if nested := next((one.path for one in state.untracked if one.path.endswith("/")), ""):
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
        return "" if known and self._workspace.git.commit(made).tree in known else self.park(made, under=under)

    def _unsaved_commits(self, lane: Lane) -> dict[str, Oid]:
        """Commits that only the agent's repository names, by ref."""
        refs = lane.refs() if lane.has_repository else {}
        if lane.has_repository and _is_oid(lane.head):
            refs["HEAD"] = lane.head
        return {ref: oid for ref, oid in refs.items() if self._workspace.git.object(oid) is None}


def standing(git: Git, branch: str, base: Oid) -> BranchStanding:
    tip = git.tip(branch)
    if tip in (None, base):
        return BranchStanding()
    behind, ahead = map(int, git.text("rev-list", "--left-right", "--count", f"{base}...{tip}").split())
    made = git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
    people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
    return BranchStanding(ahead=ahead, behind=behind, by_agents=all(is_agent(who) for who in people))


def _is_oid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
