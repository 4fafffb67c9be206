"""Finds what a landing has to wait for in a checkout: an operation under way, an edit, a file in the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.git.checkout import HEADS, read_line
from runplan.git.trees import SUBMODULE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from runplan.git.checkout import Checkouts, TargetCheckout
    from runplan.git.command import Git
    from runplan.gitfacts import Change

#: What lies in the git directory of a checkout while git waits there for a person to go on.
_MARKS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
}
#: Files that name the branch an operation will move or return to when it ends, wherever HEAD is meanwhile.
_NAMED_IN = {
    "rebase-merge/head-name": "rebase",
    "rebase-apply/head-name": "rebase",
    "rebase-merge/update-refs": "rebase",
    "BISECT_START": "bisect",
}


class InTheWay(Exception):
    """The landing has to wait; the text says for what and what to do."""


def require_idle(checkouts: Checkouts, ref: str) -> None:
    """Wait while git is in the middle of an operation on `ref`, in whichever worktree."""
    branch = ref.removeprefix(HEADS)
    for one in checkouts.all():
        for file, what in _NAMED_IN.items():
            if {ref, branch} & set(read_line(one.git_dir / file).split()):
                raise InTheWay(f"a {what} of {branch} is under way in {one.root}; finish or abort it")
        found = next((what for mark, what in _MARKS.items() if (one.git_dir / mark).exists()), None)
        if found and one.root.is_dir() and checkouts.branch(one) == ref:
            raise InTheWay(f"a {found} is under way in {one.root}, which has {branch} checked out; finish or abort it")


def the_only(having: Sequence[TargetCheckout], ref: str) -> TargetCheckout:
    """The checkout that has `ref` out; wait when there are two, or it cannot be reached."""
    branch = ref.removeprefix(HEADS)
    if len(having) > 1:
        roots = " and ".join(str(one.root) for one in having)
        raise InTheWay(f"{branch} is checked out in {roots}; switch all but one to another branch")
    if not having[0].root.is_dir():
        raise InTheWay(
            f"{having[0].root} has {branch} checked out, is locked, and cannot be reached; mount it, or unlock it"
        )
    return having[0]


def require_unedited(git: Git, changes: Sequence[Change], *, env: Mapping[str, str], staged: bool) -> None:
    """Wait for the first path of `changes` that the user has edited, deleted or, if that counts, `staged`.

    The status refreshes the index that `env` names, so a file that was only touched counts as clean afterwards.
    """
    paths = {change.path for change in changes}
    words = ("--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
    ran = git.run("status", *words, env={**env, "GIT_OPTIONAL_LOCKS": "1"})
    for record in os.fsdecode(ran.out).split("\0"):
        if record[3:] in paths and (staged or record[1] != " "):
            raise InTheWay(f"{record[3:]} is {_state(record[:2])} in {git.cwd}; commit that change or undo it")


def _state(code: str) -> str:
    if "U" in code or code in ("AA", "DD"):
        return "in conflict"
    if code == " D":
        return "deleted"
    return "edited" if code[1] != " " else "staged"


def require_room(root: Path, changes: Sequence[Change]) -> None:
    """Wait for a file that git does not track where the landing adds a file or needs a directory."""
    leaving = {change.path for change in changes if change.kind == "D"}
    for change in changes:
        is_new = change.kind == "A" or (change.kind == "T" and change.old_mode == SUBMODULE)
        if is_new and (found := _blocker(root, change.path, leaving)):
            raise InTheWay(
                f"{found} is in the way in {root}: git does not track it and the landing would overwrite it; "
                "move it elsewhere"
            )


def _blocker(root: Path, path: str, leaving: Collection[str]) -> str:
    names = path.split("/")
    for count in range(1, len(names) + 1):
        here = "/".join(names[:count])
        try:
            mode = (root / here).lstat().st_mode
        except FileNotFoundError:
            return ""
        if not stat.S_ISDIR(mode):
            return "" if here in leaving else here
    return _stray(root, path, leaving)


def _stray(root: Path, directory: str, leaving: Collection[str]) -> str:
    """A file in a directory that has to make room for a file, unless the landing removes it."""
    for parent, folders, files in os.walk(root / directory):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = (Path(parent) / name).relative_to(root).as_posix()
            if path not in leaving:
                return path
    return ""
