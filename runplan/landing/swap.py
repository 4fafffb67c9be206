"""Updates the checkout of a branch together with the branch: stage aside, swap by rename, commit the ref.

1. stage: git writes the new files and the new index into a box. Filters, conversions and a full disk fail here.
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
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from runplan.errors import GitFailed
from runplan.git.command import answer, in_a_line
from runplan.git.trees import SUBMODULE
from runplan.landing.holds import InTheWay, require_room, require_unedited
from runplan.landing.recovery import Plan, is_file, put, remove_empty_parents, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runplan.git.checkout import Checkouts, TargetCheckout
    from runplan.git.command import Git
    from runplan.gitfacts import Change, Oid
    from runplan.landing.lander import Landing
    from runplan.landing.recovery import Box, Signature

#: The ref is on the disk before the landing is recorded; git waits so many milliseconds for a ref that is locked.
_SETTINGS = ("-c", "core.fsync=committed,loose-object,reference", "-c", "core.filesRefLockTimeout=500")
_ANY = range(-64, 256)
_MOST_LOOKED_FOR = 100  #: ids in the index; beyond that `git status` is quicker


class IndexChanged(Exception):
    """The user staged something since the index was copied: stage again."""


class RefTransaction(AbstractContextManager["RefTransaction"]):
    """One `update-ref --stdin`; left without `commit`, or when we die, it changes nothing."""

    def __init__(self, git: Git, landing: Landing, *, name: str, old: Oid, fd: int) -> None:
        words = ("update-ref", "-m", f"runplan: land {landing.id}", "--stdin")
        self._git = git.start(*_SETTINGS, *words, fds=(fd,))
        self._name, self._order = name, f"start\nupdate {name} {landing.new} {old}\nprepare\n"

    def prepare(self) -> None:
        """Lock the ref; refused when it is locked, or has another value than the old one."""
        if not self._say(self._order, b"start: ok\nprepare: ok\n"):
            raise InTheWay(f"git cannot lock {self._name}: {self.close()}")

    def commit(self) -> None:
        """The one instant at which the landing happens."""
        if not self._say("commit\n", b"commit: ok\n"):
            raise GitFailed(f"git could not move {self._name}: {self.close()}")

    def close(self) -> str:
        """End git; without a commit before, nothing was changed."""
        return in_a_line(os.fsdecode(self._git.communicate()[1])) if self._git.returncode is None else ""

    def _say(self, words: str, expected: bytes) -> bool:
        assert self._git.stdin is not None
        with suppress(BrokenPipeError):
            self._git.stdin.write(words.encode())
            self._git.stdin.flush()
        return answer(self._git, len(expected)) == expected

    def __exit__(self, *_: object) -> None:
        self.close()


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
        same_device = checkout.root.stat().st_dev == checkout.git_dir.stat().st_dev
        self._files = box.path if same_device else checkout.root / f".{box.path.name}"  #: files are moved by rename
        self._is_sparse = (checkout.git_dir / "info/sparse-checkout").exists()
        self._point = point

    def land(self, landing: Landing, changes: Sequence[Change], *, behind: bool = False) -> str:
        """Move files, index and ref; a note when a file was kept. `behind`: the ref is at `new` already."""
        seen = signature(self._index)
        # Before git is asked about them: a file that has another signature later was edited since.
        was = {one.path: found for one in changes if is_file(found := signature(self._root / one.path))}
        try:
            staged = self._stage(landing, changes, was, behind=behind)
        except BaseException:
            self._discard()
            raise
        place = {"root": str(self._root), "git_dir": str(self._checkout.git_dir), "files": str(self._files)}
        self._box.write(Plan(landing=landing, was=was, staged=staged, behind=behind, **place))
        self._point("land.staged")
        old = landing.new if behind else landing.old
        with RefTransaction(self._git, landing, name="HEAD", old=old, fd=self._box.fd) as ref:
            try:
                self._lock(ref, landing, seen)
                self._point("land.prepared")
                self._swap(changes, was, staged)
                self._install_index(seen)
                self._point("land.swapped")
                ref.commit()
            except BaseException:
                ref.close()
                if not (ended := self._box.end()).landed:
                    raise
                return ended.note
        self._point("land.committed")
        return self._box.end().note

    def _lock(self, ref: RefTransaction, landing: Landing, seen: Signature) -> None:
        """From here on the user's git can neither switch, stage nor commit."""
        ref.prepare()
        if self._checkouts.branch(self._checkout) != landing.ref:
            raise InTheWay(f"{self._root} is switching branches")
        self._box.lock_index(self._checkout)
        if signature(self._index) != seen:
            raise IndexChanged

    # --- staging ---------------------------------------------------------------------------------------

    def _stage(
        self, landing: Landing, changes: Sequence[Change], was: dict[str, Signature], *, behind: bool
    ) -> dict[str, Signature]:
        self._discard()  # of a landing that was killed while it staged
        self._box.path.mkdir()
        (self._files / "new").mkdir(parents=True)
        if self._index.exists():
            # With its times: git takes a file that is as young as the index for possibly changed.
            shutil.copy2(self._index, self._box.index)
        if self._is_doubtful(changes, was) or self._read_tree(landing):
            require_unedited(self._git, changes, env=self._env(), staged=not behind)
            if said := self._read_tree(landing):
                raise InTheWay(f"git cannot update {self._root}: {said}")
        require_room(self._root, changes)
        files = [one.path for one in changes if one.kind != "D" and SUBMODULE not in (one.old_mode, one.new_mode)]
        staged = {path: signature(self._files / "new" / path) for path in self._write_out(files)}
        if missing := next((path for path, found in staged.items() if found is None), None):
            raise InTheWay(f"git cannot update {self._root}: {missing} was not written")
        return staged

    def _discard(self) -> None:
        for place in (self._box.path, self._files):
            shutil.rmtree(place, ignore_errors=True)

    def _is_doubtful(self, changes: Sequence[Change], was: dict[str, Signature]) -> bool:
        """Whether `git status` has to be asked first.

        `read-tree` refuses a path that is edited, also one that git was told to overlook. It does not look at a file
        that is deleted, that lies behind a link, or whose entry in the index is as in `new` already: removed, or
        staged with that content.
        """
        if self._is_sparse or len(changes) > _MOST_LOOKED_FOR or any(self._index.parent.glob("sharedindex.*")):
            return True
        index = self._box.index.read_bytes() if self._box.index.exists() else b""
        return any(
            one.kind == "D"
            or bytes.fromhex(one.new) in index
            or (one.kind != "A" and not self._is_there(one.path, was))
            for one in changes
        )

    def _is_there(self, path: str, was: dict[str, Signature]) -> bool:
        parent = (self._root / path).parent
        return path in was and parent.resolve() == self._root.resolve() / parent.relative_to(self._root)

    def _env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": str(self._box.index)}

    def _read_tree(self, landing: Landing) -> str:
        """Put `new` into the staged index; git's words when it refuses."""
        said = self._said("read-tree", "-m", landing.old, landing.new)
        if self._is_sparse and not said:
            # Git decides what a sparse checkout leaves out only where it may write files: in an empty directory.
            empty = self._box.path / "empty"
            empty.mkdir(exist_ok=True)
            env = {"GIT_WORK_TREE": str(empty), "GIT_DIR": str(self._checkout.git_dir)}
            said = self._said("read-tree", "-m", "-u", landing.new, landing.new, env=env)  # what is staged stays
        return said

    def _write_out(self, paths: Sequence[str]) -> Sequence[str]:
        """Write the new files, but for those that a sparse checkout leaves out; the paths written."""
        if self._is_sparse:
            listed = self._git.run("ls-files", "-t", "-z", env=self._env()).out.split(b"\0")
            hidden = {os.fsdecode(one[2:]) for one in listed if one.startswith(b"S ")}
            paths = [path for path in paths if path not in hidden]
        named = b"".join(os.fsencode(path) + b"\0" for path in paths)
        prefix = f"--prefix={self._files / 'new'}/"
        if paths and (said := self._said("checkout-index", "-q", "-z", "--stdin", prefix, stdin=named)):
            raise InTheWay(f"git cannot update {self._root}: {said}")
        return paths

    def _said(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """Run git on the staged index; its words when it fails."""
        ran = self._git.run(*args, stdin=stdin, env=self._env() | dict(env or {}), ok=_ANY, fds=(self._box.fd,))
        return "" if ran.code == 0 else in_a_line(ran.err) or f"{args[0]}: exit code {ran.code}"

    # --- the swap --------------------------------------------------------------------------------------

    def _swap(self, changes: Sequence[Change], was: dict[str, Signature], staged: dict[str, Signature]) -> None:
        leaving = [one.path for one in changes if one.kind == "D"]
        for name in leaving:
            self._set_aside(name, was)
        remove_empty_parents(self._root, leaving)
        for one in changes:
            path = self._root / one.path
            if one.kind == "D" and one.old_mode == SUBMODULE:
                with suppress(OSError):  # a submodule with files stays, as with git
                    path.rmdir()
            if one.new_mode == SUBMODULE and one.old_mode != SUBMODULE:
                self._set_aside(one.path, was)
                path.mkdir(parents=True, exist_ok=True)
            elif one.path in staged:
                self._set_aside(one.path, was)
                try:
                    put(self._files / "new" / one.path, path)
                except (FileExistsError, NotADirectoryError):
                    raise self._edited(one.path) from None

    def _set_aside(self, name: str, was: dict[str, Signature]) -> None:
        if name in was:
            aside = self._files / "aside" / name
            aside.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                (self._root / name).rename(aside)  # whatever is there now
            if signature(aside) != was[name]:
                raise self._edited(name)

    def _edited(self, name: str) -> InTheWay:
        return InTheWay(f"{name} was edited just now in {self._root}; commit that change or undo it")

    def _install_index(self, seen: Signature) -> None:
        # Without the refresh git would read each new file again; it fails harmlessly.
        self._said("update-index", "-q", "--refresh")
        os.link(self._box.index, self._box.installed)
        if seen:
            os.link(self._index, self._box.old_index)
        self._box.index.rename(self._index)
