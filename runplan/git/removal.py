"""Removes what is no longer needed: what is not provably elsewhere is parked first."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from copy import copy
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec import Struct

from runplan.errors import GitFailed, RefusedEarly
from runplan.git.checkout import Checkouts
from runplan.git.discovery import HEADS, refs_snapshot
from runplan.git.objects import changes
from runplan.git.trailers import PLAN, read_trailers
from runplan.git.workspace import KEEP
from runplan.gitfacts import Kept, Removed, is_agent
from runplan.names import BASES, CANDIDATES, PARKED, parked_under
from runplan.store.files import first_line, is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from runplan.git.command import Git
    from runplan.git.workspace import Workspace
    from runplan.git.worktrees import Worktrees
    from runplan.gitfacts import Oid


class OnTarget(StrEnum):
    """How the target holds a commit's content."""

    REACHABLE = "reachable"  #: the commit itself
    TREE = "tree"  #: a commit with the same files
    PATCH = "patch"  #: commits that make the same changes
    NO = "no"


class Remains(Struct, frozen=True, kw_only=True):
    """What is known about a thing that should go."""

    on_target: OnTarget  #: its commits
    used_by: str = ""  #: a checkout or run that stands on it


class Remove(Struct, frozen=True, kw_only=True):
    """Nothing is lost."""


class ParkFirst(Struct, frozen=True, kw_only=True):
    """Something would be lost: keep it aside, then remove."""


class Keep(Struct, frozen=True, kw_only=True):
    """Not now, and why."""

    why: str


RemovalDecision: TypeAlias = Remove | ParkFirst | Keep


def safe_to_remove(remains: Remains) -> RemovalDecision:
    """Keep what is in use, park what is nowhere else, remove the rest."""
    if remains.used_by:
        return Keep(why=f"in use by {remains.used_by}")
    if remains.on_target is OnTarget.NO:
        return ParkFirst()
    return Remove()


def delete_tree(path: Path) -> None:
    """Delete a directory, also one with directories that nobody may write to."""
    shutil.rmtree(path, ignore_errors=True)
    if path.is_dir():
        make_writable(path)
        shutil.rmtree(path, ignore_errors=True)


def make_writable(top: Path) -> None:
    """Let the owner into every directory below `top`."""
    top.chmod(top.stat().st_mode | stat.S_IRWXU)
    for directory, names, _ in os.walk(top):
        for below in (Path(directory, name) for name in names):
            if not below.is_symlink():
                below.chmod(below.stat().st_mode | stat.S_IRWXU)


_TRIES = 50


def park(workspace: Workspace, oid: Oid, *, under: str, without: Oid = "") -> str:
    """Keep a commit under the next free number below `under`, `<plan>/<phase>`; the same commit gets the same ref."""
    home = parked_under(*under.split("/")[-2:])
    keep = workspace.copy_to_user([oid], without=[without] if without else [])
    for left in reversed(range(_TRIES)):
        refs = refs_snapshot(workspace.common_dir, workspace.user)
        kept = {ref: held for ref, held in refs.items() if ref.startswith(home)}
        if oid in kept.values():
            ref = next(ref for ref, held in kept.items() if held == oid)
            break
        numbers = [int(name) for ref in kept if (name := ref.removeprefix(home)).isdigit()]
        ref = f"{home}{max(numbers, default=0) + 1}"
        # An empty old value means that the ref must not exist: two processes that park at once get two numbers.
        if workspace.user.run("update-ref", "--no-deref", ref, oid, "", ok=(0, 128) if left else (0,)).code == 0:
            break
    if keep:
        Path(keep).unlink(missing_ok=True)
    return ref


_LOCKED_S = 1.0  #: no git of ours locks anything for as long
_KEPT_S = 3600.0  #: nor takes as long to copy objects


class Removal:
    """What runplan made for one project, taken away again; every call may be repeated."""

    def __init__(self, workspace: Workspace, worktrees: Worktrees, *, targets: tuple[str, ...]) -> None:
        self._workspace = workspace
        self._worktrees = worktrees
        self._tool = workspace.git
        self._user = workspace.user
        self.targets = targets  #: full ref names of places where work lands; the first is the local branch

    def towards(self, targets: tuple[str, ...]) -> Removal:
        """The same, for work that lands at other places."""
        other = copy(self)
        other.targets = targets
        return other

    # --- worktrees -----------------------------------------------------------------------------------

    def worktree(self, name: str) -> Removed | Kept:
        """Delete the worktree `name` with its repository; what only they hold is parked."""
        lane = self._worktrees.lane(name)
        with self._worktrees.locked():
            inside = processes_inside(lane.path)
            if inside:
                return Kept(what=str(lane.path), why=f"process {inside[0]} works in it")
            try:
                parked = self._worktrees.rescue(lane, under=f"worktree/{name}", base=self._user.tip(self.targets[0]))
            except RefusedEarly as refused:
                return Kept(what=str(lane.path), why=str(refused))
            lane.remove()
        return Removed(what=str(lane.path), parked=parked)

    # --- branches and other refs ---------------------------------------------------------------------

    def ref(self, ref: str) -> Removed | Kept:
        """Delete a branch or candidate in both repositories; commits that the target does not hold are parked."""
        tips = {git: tip for git in (self._tool, self._user) if (tip := git.tip(ref)) is not None}
        parked = ""
        for tip in dict.fromkeys(tips.values()):
            match safe_to_remove(self._remains(ref, tip)):
                case Keep(why=why):
                    return Kept(what=ref, why=why)
                case ParkFirst():
                    parked = park(self._workspace, tip, under=ref)
                case Remove():
                    pass
                case unreachable:
                    assert_never(unreachable)
        for git, tip in tips.items():
            if git.run("update-ref", "--no-deref", "-d", ref, tip, ok=(0, 1, 128)).code != 0:
                return Kept(what=ref, why="it moved meanwhile")
        return Removed(what=ref, parked=parked)

    def free(self, refs: Collection[str]) -> None:
        """Delete locks that dead processes left on refs of ours; a lock that a process holds open stays.

        Other runs lock the list of packed refs and parked refs as well, each time for some milliseconds.
        """
        ours, theirs = self._workspace.path, self._workspace.common_dir
        shared = [lock for lock in (ours / "packed-refs.lock", *(theirs / PARKED).rglob("*.lock")) if lock.exists()]
        if shared:
            time.sleep(_LOCKED_S)
        for lock in (*shared, *(place / f"{ref}.lock" for place in (ours, theirs) for ref in refs)):
            if lock.exists() and not held_open(lock):
                lock.unlink(missing_ok=True)

    def landed(self, refs: Mapping[str, Oid], *, worktree: Path) -> None:
        """Delete refs whose landing was observed; what gates left in the worktree is nobody's work."""
        self._tool.update_refs(*(f"delete {ref} {tip}" for ref, tip in refs.items()))
        lane = self._worktrees.lane(worktree.name)
        if lane.exists:
            lane.note_shown()

    def _remains(self, ref: str, tip: Oid) -> Remains:
        held = self._held(self._work_of(tip) if ref.startswith(CANDIDATES) else tip)
        return Remains(on_target=held, used_by=self._used_by(ref))

    def _used_by(self, ref: str) -> str:
        """A checkout of the user's that stands on the ref."""
        if not ref.startswith(HEADS) or self._user.tip(ref) is None:
            return ""
        checkouts = Checkouts(self._user, root=self._user.cwd, common_dir=self._workspace.common_dir)
        return next((str(one.root) for one in checkouts.having(ref)), "")

    def _work_of(self, tip: Oid) -> Oid:
        """A candidate without the bookkeeping on top: of each phase the target keeps its own."""
        commit = self._tool.commit(tip)
        plan = read_trailers(commit.message).get(PLAN)
        if not plan or len(commit.parents) != 1:
            return tip
        changed = changes(self._tool, self._tool.commit(commit.parents[0]).tree, commit.tree)
        ours = all(one.path == plan or one.path.rpartition("/")[2].startswith("plan-") for one in changed)
        return commit.parents[0] if ours else tip

    def _held(self, tip: Oid) -> OnTarget:
        """How the targets hold a commit; asked in `tool.git`, which sees the objects of both."""
        now = (self._user.tip(target) for target in self.targets)
        found = (on_target(self._tool, tip, target) for target in now if target is not None)
        return next((held for held in found if held is not OnTarget.NO), OnTarget.NO)

    # --- logs ----------------------------------------------------------------------------------------

    def log(self, directory: Path, *, used_by: str, landed: bool, dry_run: bool) -> Removed | Kept:
        """Delete the records of one dispatch once its phase has landed and its run is over."""
        used_by = used_by or ("a process that still writes it" if is_held(directory / "lock") else "")
        if used_by:
            return Kept(what=str(directory), why=f"in use by {used_by}")
        if not landed:
            return Kept(what=str(directory), why="what it tells of has not landed")
        if not dry_run:
            delete_tree(directory)
        return Removed(what=str(directory))

    # --- everything that is left over ----------------------------------------------------------------

    def gc(
        self, *, dry_run: bool, prefix: str, active: Collection[str], known: Collection[str] = ()
    ) -> list[Removed | Kept]:
        """What ended runs left behind: removed, or with `dry_run` only listed, or kept and why.

        `active` names what live runs use: full ref names and worktree names; `known` the branches that runs have
        made. Another branch below the prefix goes only when an agent made its commits.
        """
        look = self._dry_worktree if dry_run else self.worktree
        names = (name for name in sorted(self._lanes()) if name not in active)
        found = [_answer(str(self._worktrees.path(name)), partial(look, name)) for name in names]
        refs = (ref for ref in self._own_refs(prefix) if ref not in active)
        found += [_answer(ref, partial(self._gc_ref, ref, dry_run=dry_run, known=ref in known)) for ref in refs]
        return found

    def _lanes(self) -> set[str]:
        """Every lane, by its repository or by a worktree that belongs to one."""
        home, root = self._workspace.lanes, self._workspace.root
        trees = (path.parent.name for path in root.glob("*/.git") if f"{home}/" in (first_line(path) or ""))
        return {*trees, *(path.name.removesuffix(".git") for path in home.glob("*.git"))}

    def sweep(self) -> None:
        """Delete what copies of objects that were killed left: half a pack here, a `.keep` file at the user's."""
        packs = (self._workspace.common_dir / "objects" / "pack").glob("*.keep")
        left = (path for path in packs if (first_line(path) or "").startswith(KEEP))
        for path in (*left, *(self._workspace.path / "objects" / "pack").glob("tmp_*")):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _KEPT_S:
                    path.unlink()

    def _own_refs(self, prefix: str) -> list[str]:
        # A branch of ours has a plan and a phase after the prefix; without a prefix none can be told from others.
        branches = f"{HEADS}{prefix}"
        refs = {
            *refs_snapshot(self._workspace.common_dir, self._user),
            *refs_snapshot(self._workspace.path, self._tool),
        }
        return [
            ref
            for ref in sorted(refs)
            if ref.startswith((CANDIDATES, PARKED, BASES))
            or (prefix and ref.startswith(branches) and "/" in ref.removeprefix(branches))
        ]

    def _dry_worktree(self, name: str) -> Removed | Kept:
        lane = self._worktrees.lane(name)
        if inside := processes_inside(lane.path):
            return Kept(what=str(lane.path), why=f"process {inside[0]} works in it")
        uncommitted = lane.is_orphan or (lane.exists and not lane.is_shown and not lane.state().clean)
        return Removed(what=str(lane.path), parked=PARKED if uncommitted else "")

    def _gc_ref(self, ref: str, *, dry_run: bool, known: bool) -> Removed | Kept:
        tip = self._tool.tip(ref) or self._user.tip(ref)
        if tip is None:
            return Kept(what=ref, why="it is no commit")
        if ref.startswith(BASES):  # only protects the base of a run that has ended
            if not dry_run:
                self._user.run("update-ref", "--no-deref", "-d", ref, tip, ok=(0, 1, 128))
            return Removed(what=ref)
        if ref.startswith(HEADS) and not known and not is_agent(self._tool.commit(tip).author):
            return Kept(what=ref, why="no run here has made it, so it may be somebody's own")
        match safe_to_remove(self._remains(ref, tip)):
            case Keep(why=why):
                return Kept(what=ref, why=why)
            case ParkFirst():
                if not dry_run:  # only from the user's repository does a person get at it
                    self._worktrees.hand_over(ref)
                return Kept(what=ref, why=self._unlanded(tip))
            case Remove():
                return Removed(what=ref) if dry_run else self.ref(ref)
            case unreachable:
                assert_never(unreachable)

    def _unlanded(self, tip: Oid) -> str:
        about = self._tool.text("log", "-1", "--no-show-signature", "--format=%cs %s", tip, "--")
        return f"{self.targets[0].removeprefix('refs/heads/')} does not hold it: {about}"


def _answer(what: str, look: Callable[[], Removed | Kept]) -> Removed | Kept:
    """One thing that git cannot read is kept and does not stop the others."""
    try:
        return look()
    except GitFailed as error:
        return Kept(what=what, why=f"cannot read its content: {error}")


def held_open(path: Path) -> bool:
    """Whether any process of this user has the file open."""
    import psutil  # 33 ms

    name = str(path.resolve())
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # ended meanwhile, or of another user
            if any(file.path == name for file in process.open_files()):
                return True
    return False


def processes_inside(path: Path) -> tuple[int, ...]:
    """The processes whose working directory is `path` or below."""
    import psutil

    found = psutil.process_iter(["cwd"])
    return tuple(one.pid for one in found if one.info["cwd"] and Path(one.info["cwd"]).is_relative_to(path))


# --- whether the target holds a commit ------------------------------------------------------------------------

_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "runplan"), ("EMAIL", "runplan@runplan.invalid"), ("DATE", "1000000000 +0000"))
}


def on_target(git: Git, tip: Oid, target: str) -> OnTarget:
    """How `target` holds the content of `tip`: cheapest proof first."""
    if git.tip(target) is None:
        return OnTarget.NO
    base = git.run("merge-base", target, tip, ok=(0, 1)).text
    if base == tip:
        return OnTarget.REACHABLE
    if not base:
        return OnTarget.NO
    tree = git.commit(tip).tree
    if tree in git.text("log", "--format=%T", f"{base}..{target}", "--").split() or tree == git.commit(base).tree:
        return OnTarget.TREE
    if _linear(git, base, tip) and _picked(git, target, tip):
        return OnTarget.PATCH
    # The branch as one commit of its net diff: how a squash, or a branch with merges, lands.
    squashed = git.run("commit-tree", "--no-gpg-sign", "-p", base, "-m", "-", tree, env=_WHO).text
    return OnTarget.PATCH if _picked(git, target, squashed) else OnTarget.NO


def _linear(git: Git, base: Oid, tip: Oid) -> bool:
    return git.text("rev-list", "--merges", "--count", f"{base}..{tip}", "--") == "0"


def _picked(git: Git, target: str, tip: Oid) -> bool:
    """Whether every commit has one with the same patch on the target."""
    marks = git.text("cherry", target, tip).splitlines()
    return bool(marks) and all(mark.startswith("-") for mark in marks)
