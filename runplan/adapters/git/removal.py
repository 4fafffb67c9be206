"""Removes worktrees, refs and logs of ended runs. Content that is not provably elsewhere is parked first."""

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runplan.adapters.git.command import Git, one_line
from runplan.adapters.git.handover import AgentZone
from runplan.adapters.git.objects import KEEPER, identity_env
from runplan.adapters.git.repository import Checkouts, remove_stale_lock
from runplan.adapters.git.workspace import KEEP
from runplan.adapters.git.zones import Zones
from runplan.adapters.store.files import first_line, is_held, remove_directory
from runplan.domain.errors import GitFailed, RefusedEarly
from runplan.domain.gitfacts import Kept, Oid, Removed, is_agent
from runplan.domain.names import BASES, HEADS, PARKED, is_worktree_name

_LOCKED_S = 1.0  #: other runs lock packed and parked refs as well, on a busy machine for less than this
_KEPT_S = 3600.0  #: no copy of objects takes as long


class Removal:
    """Removes what runplan made for one project; every call may be repeated."""

    def __init__(self, zones: Zones, *, targets: tuple[str, ...]) -> None:
        self._zones = zones
        self._workspace = zones.workspace
        self._tool = self._workspace.git
        self._user = self._workspace.user
        self.targets = targets  #: full names of the refs on which work lands; the first is the local branch

    def remove_worktree(self, name: str, *, dry_run: bool = False) -> Removed | Kept:
        """Delete the worktree `name` with its repository; content that only they hold is parked."""
        zone = AgentZone(self._zones, name)
        place = str(zone.path)
        with self._workspace.lock():
            if dry_run:
                return Removed(what=place, parked=PARKED if zone.may_hold_work else "")
            try:
                parked = zone.rescue(under=f"worktree/{name}", base=self._user.tip(self.targets[0]))
            except RefusedEarly as refused:
                return Kept(what=place, why=str(refused))
            zone.remove()
        return Removed(what=place, parked=parked)

    def remove_ref(self, ref: str, *, landed: Oid = "") -> Removed | Kept:
        """Delete a branch in both repositories; commits that neither a target nor `landed` holds are parked."""
        if used_by := self._used_by(ref):
            return Kept(what=ref, why=f"in use by {used_by}")
        tips = {git: tip for git in (self._tool, self._user) if (tip := git.tip(ref)) is not None}
        parked = ""
        for tip in dict.fromkeys(tips.values()):
            if tip != landed and not self._is_on_target(tip):
                parked = self._workspace.park(tip, under=ref)
        for git, tip in tips.items():
            ran = git.run("update-ref", "--no-deref", "-d", ref, tip, ok=(0, 1, 128))
            if ran.code != 0 and (now := git.tip(ref)) is not None:
                why = f"git cannot delete it: {one_line(ran.err)}" if now == tip else "it moved meanwhile"
                return Kept(what=ref, why=why)
        return Removed(what=ref, parked=parked)

    def remove_stale_locks(self, refs: Collection[str]) -> None:
        ours, theirs = self._workspace.path, self._workspace.common_dir
        named = (place / f"{ref}.lock" for place in (ours, theirs) for ref in refs)
        for lock in (ours / "packed-refs.lock", *(theirs / PARKED).rglob("*.lock"), *named):
            remove_stale_lock(lock, sure_s=_LOCKED_S)

    def _used_by(self, ref: str) -> str:
        if not ref.startswith(HEADS) or self._user.tip(ref) is None:
            return ""
        checkouts = Checkouts(self._user, self._workspace.common_dir)
        return next((str(checkout.root) for checkout in checkouts.using(ref)), "")

    def _is_on_target(self, tip: Oid) -> bool:
        """Whether a target holds the commit's content; asked in `tool.git`, which sees the objects of both."""
        targets = (self._user.tip(target) for target in self.targets)
        return any(is_on_target(self._tool, tip, target) for target in targets if target is not None)

    def remove_leftovers(
        self, *, dry_run: bool, prefix: str, active: Collection[str], known: Collection[str] = ()
    ) -> list[Removed | Kept]:
        """Remove what ended runs left behind, or with `dry_run` only list it."""
        # `active` has the refs and worktrees of live runs, `known` the branches that runs have made. Another branch
        # below the prefix goes only when an agent made its commits.
        answers: list[Removed | Kept] = []
        checkout = str(self._user.cwd)
        trees = (path.name for path in self._workspace.root.glob("[!.]*") if is_worktree_name(path.name, checkout))
        lanes = {*trees, *(path.name.removesuffix(".git") for path in self._workspace.lanes.glob("[!.]*.git"))}
        for name in sorted(lanes - set(active)):
            with _readable(str(AgentZone(self._zones, name).path), answers):
                answers.append(self.remove_worktree(name, dry_run=dry_run))
        refs = {*self._user.list_refs(self._workspace.common_dir), *self._tool.list_refs(self._workspace.path)}
        # A branch of ours has a plan and a phase after the prefix. Without a prefix no branch is known as ours.
        made_here = re.compile(rf"{PARKED}|{BASES}" + (rf"|{HEADS}{re.escape(prefix)}.*/" if prefix else ""))
        for ref in sorted(filter(made_here.match, refs)):  # also those just parked
            if ref not in active:
                with _readable(ref, answers):
                    answers.append(self._gc_ref(ref, dry_run=dry_run, known=ref in known))
        packs = (self._workspace.common_dir / "objects" / "pack").glob("*.keep")
        left = (path for path in packs if (first_line(path) or "").startswith(KEEP))
        for path in (*left, *(self._workspace.path / "objects" / "pack").glob("tmp_*")) if not dry_run else ():
            with suppress(FileNotFoundError):  # of a copy that was killed
                if time.time() - path.stat().st_mtime > _KEPT_S:
                    path.unlink()
        return answers

    def _gc_ref(self, ref: str, *, dry_run: bool, known: bool) -> Removed | Kept:
        tip = self._tool.tip(ref) or self._user.tip(ref)
        if tip is None:
            return Kept(what=ref, why="not a commit")
        if ref.startswith(BASES):  # only protects the base of a run that has ended
            if not dry_run:
                self._user.run("update-ref", "--no-deref", "-d", ref, tip, ok=(0, 1, 128))
            return Removed(what=ref)
        if ref.startswith(HEADS) and not known and not is_agent(self._tool.commit(tip).author):
            return Kept(what=ref, why="no run here has made it, so it may be your own")
        if used_by := self._used_by(ref):
            return Kept(what=ref, why=f"in use by {used_by}")
        if self._is_on_target(tip):
            return Removed(what=ref) if dry_run else self.remove_ref(ref)
        if not dry_run:  # the user finds it only in their own repository
            self._workspace.give_to_user(ref)
        return Kept(what=ref, why=f"{self.targets[0].removeprefix(HEADS)} does not hold it", tip=tip)


@contextmanager
def _readable(name: str, answers: list[Removed | Kept]) -> Iterator[None]:
    """Keep a thing that git cannot read; it does not stop the others."""
    try:
        yield
    except GitFailed as error:
        answers.append(Kept(what=name, why=f"cannot read its content: {error}"))


def is_on_target(git: Git, tip: Oid, target: str) -> bool:
    """Whether `target` has the commit, a commit with the same files, or commits with the same changes."""
    if git.tip(target) is None:
        return False
    base = git.run("merge-base", target, tip, ok=(0, 1)).text
    if base in (tip, ""):
        return base == tip
    tree = git.commit(tip).tree
    if tree in git.text("log", "--format=%T", f"{base}..{target}", "--").split() or tree == git.commit(base).tree:
        return True
    is_line = git.text("rev-list", "--merges", "--count", f"{base}..{tip}", "--") == "0"
    if is_line and _is_picked(git, target, tip):
        return True
    # A squash, or a branch with merges, lands as one commit of the net diff.
    squashed = git.run("commit-tree", "--no-gpg-sign", "-p", base, "-m", "-", tree, env=identity_env(KEEPER)).text
    return _is_picked(git, target, squashed)


def _is_picked(git: Git, target: str, tip: Oid) -> bool:
    marks = git.text("cherry", target, tip).splitlines()
    return bool(marks) and all(mark.startswith("-") for mark in marks)


def remove_log(directory: Path, *, used_by: str, landed: bool, dry_run: bool) -> Removed | Kept:
    used_by = used_by or ("a process that still writes it" if is_held(directory / "lock") else "")
    if used_by or not landed:
        return Kept(what=str(directory), why=f"in use by {used_by}" if used_by else "its phase has not landed")
    if not dry_run:
        remove_directory(directory)
    return Removed(what=str(directory))
