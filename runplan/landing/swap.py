"""Updates the checkout of a branch together with the branch: stage aside, swap by rename, commit the ref.

1. stage: git writes the new files and the new index into a box. Everything that can fail fails here.
2. write the plan of the swap to the disk
3. prepare the ref transaction and take index.lock: nothing can switch, stage or commit any more
4. swap: each old file is moved into the box, each new one linked into its place. Nothing is ever replaced or
   written to, so an edit in that instant is noticed and kept.
5. move the new index into its place, then commit the ref: the landing has happened

Killed before 5 has ended: `recovery` puts the files back. Killed after it: only the box is left to be removed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from runplan.adapters import indexfile
from runplan.adapters.plainfiles import read_file
from runplan.adapters.trees import SUBMODULE, Entry
from runplan.landing.files import inode, is_file, put, remove_empty_parents, remove_empty_tree, signature
from runplan.landing.holds import InTheWay, require_room, require_unedited
from runplan.landing.recovery import Recovery
from runplan.landing.refswap import RefSwap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runplan.adapters.checkout import Checkouts, TargetCheckout
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Change
    from runplan.landing.box import Box
    from runplan.landing.files import Signature
    from runplan.landing.lander import Landing

_ANY = range(-64, 256)


class IndexChanged(Exception):
    """The user staged something since the index was copied: stage again."""


class RefNotPrepared(Exception):
    """Git did not lock the branch: it moved, or is locked; the text is git's."""


def shows_old(index: Path, changes: Sequence[Change]) -> bool:
    """Whether an index has each path as it was before; False also where it cannot be read."""
    wanted = {one.path: None if one.kind == "A" else Entry(one.old_mode, one.old) for one in changes}
    return indexfile.staged(read_file(index) or b"", wanted) == wanted


class Swap:
    """One landing in one checkout, in an entered box."""

    def __init__(
        self, git: Git, checkouts: Checkouts, checkout: TargetCheckout, box: Box, point: Callable[[str], None]
    ) -> None:
        self._git = git.at(checkout.root)
        self._checkouts = checkouts
        self._checkout = checkout
        self._root = checkout.root
        self._index = checkout.git_dir / "index"
        self._box = box
        self._new, self._aside = box.files / "new", box.files / "aside"
        self._staged_index = box.path / "index"
        self._old_index = box.path / "index.old"
        self._env = {"GIT_INDEX_FILE": str(self._staged_index)}
        self._places: dict[str, indexfile.Place] = {}
        self._recovery = Recovery(git, checkouts, checkout, box)
        self._point = point

    def land(self, landing: Landing, changes: Sequence[Change], *, behind: bool = False) -> str:
        """Move files, index and ref; a note when a file was kept aside. `behind`: the ref is at `new` already."""
        files = [one for one in changes if SUBMODULE not in (one.old_mode, one.new_mode)]
        was, staged, seen = self._stage(landing, changes, files)
        files_before = {path: found for path, found in was.items() if is_file(found)}
        plan = {"was": files_before, "staged": staged, "index": inode(self._staged_index), "behind": behind}
        self._box.write_plan(landing, **plan)
        self._point("land.staged")
        old = landing.new if behind else landing.old
        with RefSwap(self._git, "HEAD", new=landing.new, old=old, id=landing.id, fds=(self._box.fd,)) as ref:
            try:
                self._lock(ref, landing, seen)
                self._point("land.prepared")
                self._swap(changes, was, staged)
                self._restamp(staged)
                if seen:
                    os.link(self._index, self._old_index)
                self._staged_index.rename(self._index)
                self._point("land.swapped")
                ref.commit()
            except BaseException:
                ref.close()
                if not (ended := self._recovery.run()).landed:
                    raise
                return ended.note
        self._point("land.committed")
        return self._recovery.run().note

    def _lock(self, ref: RefSwap, landing: Landing, seen: Signature) -> None:
        """From here on the user's git can neither switch, stage nor commit."""
        if not ref.prepare():
            raise RefNotPrepared(ref.said)
        if self._checkouts.branch(self._checkout) != landing.ref:
            raise InTheWay(f"{self._root} is switching branches")
        self._box.lock_index(self._checkout)
        if signature(self._index) != seen:
            raise IndexChanged

    # --- staging ---------------------------------------------------------------------------------------

    def _stage(
        self, landing: Landing, changes: Sequence[Change], files: Sequence[Change]
    ) -> tuple[dict[str, Signature], dict[str, Signature], Signature]:
        was = {one.path: signature(self._root / one.path) for one in changes}  # before git is asked about them
        seen = signature(self._index)
        self._copy_index()
        if not self._is_as_old(changes, was) or self._read_tree(landing):  # staged, edited, or only touched
            require_unedited(self._git, changes, env=self._env)
            if said := self._read_tree(landing):
                raise InTheWay(f"git cannot update {self._root}: {said}")
        require_room(self._root, changes)
        kept = self._located([one.path for one in files if one.kind != "D"])
        self._write_out(kept)
        staged = {path: signature(self._new / path) for path in kept}
        if missing := next((path for path, found in staged.items() if found is None), None):
            raise InTheWay(f"git cannot update {self._root}: {missing} was not written")
        return was, staged, seen

    def _copy_index(self) -> None:
        if self._index.exists():
            # With its times: git takes a file that is as young as the index for possibly changed.
            shutil.copy2(self._index, self._staged_index)

    def _is_as_old(self, changes: Sequence[Change], was: dict[str, Signature]) -> bool:
        """Whether index and tree certainly hold each path as `old` does, but for edits; saves a `git status`."""
        if any(was[one.path] is None and one.kind != "A" for one in changes):
            return False
        return shows_old(self._staged_index, changes)

    def _read_tree(self, landing: Landing) -> str:
        """Put `new` into the staged index; git refuses it where a path is edited, even one it was told to overlook."""
        ran = self._git.run("read-tree", "-m", landing.old, landing.new, env=self._env, ok=_ANY, fds=(self._box.fd,))
        if ran.code == 0 and (self._checkout.git_dir / "info/sparse-checkout").exists():
            # Git decides what a sparse checkout leaves out only where it may write files: in an empty directory.
            empty = self._box.path / "empty"
            empty.mkdir(exist_ok=True)
            env = {**self._env, "GIT_WORK_TREE": str(empty), "GIT_DIR": str(self._checkout.git_dir)}
            same = (landing.new, landing.new)  # so that what is staged stays
            ran = self._git.run("read-tree", "-m", "-u", *same, env=env, ok=_ANY, fds=(self._box.fd,))
        return "" if ran.code == 0 else " / ".join(ran.err.splitlines()) or f"exit code {ran.code}"

    def _located(self, paths: list[str]) -> list[str]:
        """The paths that the checkout shows: a sparse one leaves some out."""
        self._places = indexfile.places(self._staged_index.read_bytes(), paths) or {}
        return [path for path in paths if path not in self._places or not self._places[path].skipped]

    def _write_out(self, paths: Sequence[str]) -> None:
        self._new.mkdir(parents=True)
        if not paths:
            return
        ran = self._git.run(
            *("checkout-index", "-q", "-z", "--stdin", f"--prefix={self._new}/"),
            stdin=b"".join(os.fsencode(path) + b"\0" for path in paths),
            env=self._env,
            ok=_ANY,
            fds=(self._box.fd,),
        )
        if ran.code:
            said = " / ".join(ran.err.splitlines()) or f"checkout-index: exit code {ran.code}"
            raise InTheWay(f"git cannot update {self._root}: {said}")

    # --- the swap --------------------------------------------------------------------------------------

    def _swap(self, changes: Sequence[Change], was: dict[str, Signature], staged: dict[str, Signature]) -> None:
        leaving = [one.path for one in changes if one.kind == "D"]
        for name in leaving:
            self._set_aside(name, was[name])
        remove_empty_parents(self._root, leaving)
        for one in changes:
            path = self._root / one.path
            if one.kind == "D" and one.old_mode == SUBMODULE:
                with suppress(OSError):  # a submodule with files stays, as with git
                    path.rmdir()
            if one.new_mode == SUBMODULE and one.old_mode != SUBMODULE:
                self._set_aside(one.path, was[one.path])
                path.mkdir(parents=True, exist_ok=True)
            elif one.path in staged:
                self._set_aside(one.path, was[one.path])
                remove_empty_tree(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                if not put(self._new / one.path, path):
                    raise InTheWay(f"{one.path} was edited just now in {self._root}; commit that change or undo it")

    def _set_aside(self, name: str, was: Signature) -> None:
        if not is_file(was):
            return
        aside = self._aside / name
        aside.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (self._root / name).rename(aside)  # whatever is there now
        if signature(aside) != was:
            raise InTheWay(f"{name} was edited just now in {self._root}; commit that change or undo it")

    def _restamp(self, staged: dict[str, Signature]) -> None:
        """Note the final times of the new files in the staged index, so that git need not read them again."""
        found = {
            self._places[path].at: (self._root / path).lstat()
            for path in staged
            if path in self._places and signature(self._root / path) == staged[path]
        }
        if found:
            content = indexfile.restamped(self._staged_index.read_bytes(), found)
            with self._staged_index.open("r+b") as file:
                file.write(content)
