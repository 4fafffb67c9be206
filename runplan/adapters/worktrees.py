"""Leases one kept worktree per run and puts it on the branch or commit that is wanted."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.gitenv import configured
from runplan.adapters.hiding import SPARSE, honest_status
from runplan.adapters.leftovers import Leftovers
from runplan.adapters.mending import Mender
from runplan.adapters.ownindex import OwnIndexes
from runplan.adapters.ownrefs import drop_broken, leads, own_tip
from runplan.adapters.parking import Parking
from runplan.adapters.plainplaces import PlainPlaces
from runplan.adapters.registry import (
    Entry,
    calm,
    entries,
    entry_of,
    linked_to,
    note_shown,
    note_worked,
    worktrees_locked,
)
from runplan.adapters.status import nested_repository
from runplan.adapters.trash import Trash, make_writable
from runplan.core.commands import command
from runplan.core.errors import GitFailed, RefusedEarly, SettingsError
from runplan.core.gitfacts import Absent, Ahead, Identity, Poisoned, Stale
from runplan.core.guard import is_agent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import BranchStanding, Oid, Unstored, WorktreeState

HEADS = "refs/heads/"
#: Whatever is configured: an index in one piece, and files that are what their times and sizes say.
_WHOLE = ("core.splitIndex=false", "core.trustctime=true", "core.checkStat=default")
_ATTRIBUTES = ":(glob)**/.gitattributes"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Worktrees:
    """The worktrees of one repository under one root. Agents must have ended before any of its calls."""

    def __init__(self, git: Git, *, root: Path, common_dir: Path, lock_dir: Path) -> None:
        self._git = git
        # Git records real paths; `root` may be relative to the checkout or lie behind a link.
        self.root = (git.cwd / root.expanduser()).resolve()
        self._common_dir = common_dir
        self._lock_dir = lock_dir
        self._parking = Parking(git, common_dir)
        self._trash = Trash(self.root)
        self._places = PlainPlaces(common_dir)
        self._mender = Mender(git, common_dir, self._trash)
        self._indexes = OwnIndexes()
        self._leftovers = Leftovers(git, common_dir)

    def close(self) -> None:
        """Wait for what is deleted in the background."""
        self._trash.close()

    def path(self, name: str) -> Path:
        """Where the worktree `name` is or would be."""
        if not _NAME.fullmatch(name):
            raise RefusedEarly(f"{name!r} is no name for a worktree; use letters, digits, dot, dash, underscore")
        return self.root / name

    def tip(self, branch: str) -> Oid | None:
        """The commit a branch of ours holds; None when it is gone, or stands for another ref."""
        return own_tip(self._common_dir, self._git, branch)

    def standing(self, branch: str, base: Oid) -> BranchStanding:
        """What a branch (a full ref name) holds compared with `base`."""
        tip = self.tip(branch)
        if tip is None:
            return Absent()
        if tip == base:
            return Stale(tip=tip)
        counts = self._git.text("rev-list", "--left-right", "--count", f"{base}...{tip}")
        behind, ahead = map(int, counts.split())
        if not ahead:
            return Poisoned(tip=tip, behind=behind)
        made = self._git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
        people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
        return Ahead(tip=tip, ahead=ahead, by_agents=all(is_agent(who) for who in people))

    # --- taking a worktree ---------------------------------------------------------------------------

    def lease(self, name: str, *, branch: str, base: Oid, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree `name` with a new `branch` (a full ref name) at `base`, its files exactly those of `base`.

        Uncommitted work found there is parked first. A branch that holds anything else than `base` is refused.
        """
        path = self.path(name)
        with worktrees_locked(self._lock_dir):
            self._places.clear(self._places.refs(branch))
            tip = self.tip(branch)
            if tip is None:
                drop_broken(self._common_dir, self._git, branch)
            if tip not in (None, base):
                name = _short(branch)
                rename = command("git", "branch", "-m", name, f"{name}-kept")
                raise RefusedEarly(f"the branch {name} already holds {tip}; look at it, then: {rename}")
            self._require_free(branch, path)
            entry = self._mender.mended(path, head=base)
            if entry is None:
                self._add(path, "--no-track", "-B", _short(branch), str(path), base)
            else:
                calm(entry)
                self._salvage(entry)
                self._renew(entry, "--no-track", "-B", _short(branch), base, clean=clean, keep=keep)
                note_worked(entry)
        return path

    def attach(self, name: str, *, branch: str, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree `name` on `branch` at its tip, with whatever uncommitted work lies in it.

        What was left where we had put it to be looked at is nobody's work, and is swept.
        """
        path = self.path(name)
        with worktrees_locked(self._lock_dir):
            self._places.clear(self._places.refs(branch))
            if self.tip(branch) is None:
                raise RefusedEarly(f"the branch {_short(branch)} is gone; start the phase again")
            self._require_free(branch, path)
            entry = self._mender.mended(path, head=branch)
            if entry is None:
                self._add(path, str(path), _short(branch))
            elif entry.shown:
                calm(entry)
                self._renew(entry, _short(branch), clean=clean, keep=keep)
            elif entry.attached != branch:
                self._take_up(entry, branch)
            if entry is not None:
                note_worked(entry)
        return path

    def _take_up(self, entry: Entry, branch: str) -> None:
        # Without force git carries uncommitted work over, or refuses when it is in the way.
        moved = self._git.within(entry.worktree).run("checkout", "-q", _short(branch), "--", ok=(0, 1, 128))
        if moved.code != 0:
            self._salvage(entry)
            self._indexes.forget(entry)
            self._indexes.put_back(entry)
            self._put(entry, _short(branch))

    def _require_free(self, branch: str, path: Path) -> None:
        """Refuse a branch that a person has checked out: it would move under them."""
        places = [Entry(directory=self._common_dir, worktree=self._git.cwd), *entries(self._common_dir)]
        for place in places:
            if place.worktree != path and place.attached == branch and place.worktree.is_dir():
                raise RefusedEarly(
                    f"the branch {_short(branch)} is checked out in {place.worktree}; switch that to another branch"
                )

    def _add(self, path: Path, *args: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._git.run("worktree", "add", "-q", *args)
        entry = entry_of(self._common_dir, path)
        if entry is None:
            raise GitFailed(f"git made no worktree at {path}")
        self._indexes.keep(entry)

    def _salvage(self, entry: Entry) -> None:
        """Park what an interrupted attempt left."""
        if entry.shown:
            return
        state = self.state(entry.worktree)
        if nested := nested_repository(state):
            raise RefusedEarly(
                f"{entry.worktree / nested} is a git repository inside a worktree; move it somewhere else"
            )
        self._parking.salvage(entry, uncommitted=not state.clean)

    # --- using it ------------------------------------------------------------------------------------

    def state(self, path: Path) -> WorktreeState:
        """One status of a worktree; costs one scan of its files."""
        return honest_status(self._git, self._entry(path))

    def intact(self, path: Path) -> bool:
        """Whether the directory is there and still belongs to this repository; reads three files."""
        entry = entry_of(self._common_dir, path)
        return entry is not None and linked_to(path) == entry.directory and entry.at_home

    def head(self, path: Path) -> Oid:
        """The commit a worktree stands on."""
        found = self._git.tip(f"worktrees/{self._entry(path).directory.name}/HEAD")
        if found is None:
            raise GitFailed(f"the worktree {path} stands on no commit")
        return found

    def stands(self, path: Path) -> bool:
        """Whether HEAD of a worktree leads to a commit, or to a branch that has none yet."""
        return leads(self._common_dir, self._git, self._entry(path))

    def commit_leftovers(
        self, path: Path, paths: Sequence[str], *, message: str, author: Identity, committer: Identity, when: str
    ) -> Oid | Unstored:
        """Commit exactly the named files, as they are in the worktree (also their deletion)."""
        entry = self._entry(path)
        calm(entry)
        return self._leftovers.commit(entry, paths, message=message, author=author, committer=committer, when=when)

    def show(self, path: Path, commit: Oid, *, clean: str, keep: Sequence[str] = ()) -> None:
        """Make the worktree exactly `commit`, detached; what is uncommitted there is thrown away."""
        with worktrees_locked(self._lock_dir):
            entry = self._mender.mended(path, head=commit)
            if entry is None:  # somebody emptied the place; the commits are all in git
                self._add(path, "--detach", str(path), commit)
                entry = self._entry(path)
        calm(entry)
        if os.path.lexists(entry.directory / SPARSE):
            self._indexes.forget(entry)
        self._renew(entry, "--detach", commit, clean=clean, keep=keep, sparse=False)
        note_shown(entry, commit)
        if clean != "ignored":  # by the rules of this commit, not by those of whoever was here before
            self._clean(path, clean, keep)

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

    def _entry(self, path: Path) -> Entry:
        entry = entry_of(self._common_dir, path)
        if entry is None:
            raise GitFailed(f"{path} is not a worktree of this repository any more")
        return entry

    def _renew(self, entry: Entry, *args: str, clean: str, keep: Sequence[str], sparse: bool = True) -> None:
        """Make the files exactly what a commit says, from an index of ours.

        Swept before the files are written: what lies about can hide them, or tell git to write them otherwise
        (.gitattributes). And once a branch is out again, what lies about counts as its agent's work.
        """
        self._indexes.put_back(entry)
        self._clean(entry.worktree, clean, keep)
        if clean != "ignored":
            self._sweep(entry.worktree, "-x", *_excluding(keep), "--", _ATTRIBUTES)
        self._put(entry, *args, sparse=sparse)
        self._indexes.keep(entry)

    def _put(self, entry: Entry, *args: str, sparse: bool = True) -> None:
        """Check out by force; when something is in the way even of that, clear the way first."""
        git = self._git.within(entry.worktree)
        checkout = ("checkout", "-q", "--force", *args, "--")
        env = configured(*_WHOLE) if sparse else configured(*_WHOLE, "core.sparseCheckout=false")
        if git.run(*checkout, ok=(0, 1, 128), env=env).code != 0:
            self._clean(entry.worktree, "ignored", ())
            (entry.directory / "index").unlink(missing_ok=True)
            git.run(*checkout, env=env)

    def _clean(self, path: Path, clean: str, keep: Sequence[str]) -> None:
        if clean:
            self._sweep(path, *(["-x"] if clean == "ignored" else []), *_excluding(keep))

    def _sweep(self, path: Path, *words: str) -> None:
        git = self._git.within(path)
        if git.run("clean", "-ffdq", *words, ok=(0, 1, 128)).code != 0:
            make_writable(path)
            git.run("clean", "-ffdq", *words)


def _excluding(keep: Sequence[str]) -> list[str]:
    return [f"--exclude=/{_literal(name)}" for name in keep]


def _literal(name: str) -> str:
    """A name as an ignore pattern that means only itself."""
    return re.sub(r"([\\*?[ ])", r"\\\1", name)


def _short(branch: str) -> str:
    return branch.removeprefix(HEADS)
