"""Takes a half-written landing back out of a checkout, path by path, and leaves alone what is not ours.

The index still describes every path as it was when the landing began, and each was clean then. What git writes
goes from there through "missing" and "the beginning of the new content" to the new content; a path in one of
these states is put back from the index, a path in any other was edited since by the user.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from runplan.adapters.trees import SUBMODULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.adapters.heldindex import HeldIndex
    from runplan.core.gitfacts import Change

_CHUNK = 1 << 20


def undo(git: Git, held: HeldIndex, changes: Sequence[Change]) -> None:
    """Put back what the landing wrote; safe to run again after dying in it."""
    root = held.checkout.root
    scratch = held.checkout.git_dir / "runplan.scratch"
    files = [one for one in changes if SUBMODULE not in (one.old_mode, one.new_mode)]
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        _write_new(git, files, scratch)
        ours = [one for one in files if _is_ours(root / one.path, scratch / "new" / one.path)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for one in ours:
        if one.kind == "A":
            _remove(root, one.path)
    held.copy()
    back = [one.path for one in ours if one.kind != "A" and _has_room(root, one.path)]
    _write_from_index(git, back, env=held.env)


def _write_new(git: Git, files: Iterable[Change], scratch: Path) -> None:
    """The new content of each file as git would write it here, filters and line ends included."""
    scratch.mkdir()
    lines = [f"{one.new_mode} {one.new}\t{one.path}" for one in files if one.kind != "D"]
    env = {"GIT_INDEX_FILE": str(scratch / "index")}
    git.run("update-index", "-z", "--index-info", stdin=_records(lines), env=env)
    _write_from_index(git, [line.partition("\t")[2] for line in lines], f"--prefix={scratch}/new/", env=env)


def _write_from_index(git: Git, paths: Iterable[str], *options: str, env: Mapping[str, str]) -> None:
    """Paths outside of a sparse checkout are passed over, which git counts as a failure."""
    git.run("checkout-index", "-q", "-f", "-z", "--stdin", *options, stdin=_records(paths), env=env, ok=(0, 1, 128))


def _records(lines: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(line) + b"\0" for line in lines)


def _is_ours(path: Path, new: Path) -> bool:
    """Whether the path is missing or holds the beginning, or the whole, of the new content."""
    mode = _mode(path)
    if not mode or stat.S_ISDIR(mode):
        return True  # a directory where a file was: made for files below it
    if stat.S_IFMT(mode) != stat.S_IFMT(_mode(new)):
        return False
    return path.readlink() == new.readlink() if stat.S_ISLNK(mode) else _begins(new, path)


def _begins(whole: Path, part: Path) -> bool:
    with whole.open("rb") as given, part.open("rb") as had:
        while chunk := had.read(_CHUNK):
            if given.read(len(chunk)) != chunk:
                return False
    return True


def _has_room(root: Path, path: str) -> bool:
    """Whether a file can be written without anything else making way: `checkout-index -f` spares nothing."""
    names = path.split("/")
    parents = (root / "/".join(names[:count]) for count in range(1, len(names)))
    return not stat.S_ISDIR(_mode(root / path)) and all(stat.S_ISDIR(mode) for mode in map(_mode, parents) if mode)


def _mode(path: Path) -> int:
    """Zero when there is nothing."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _remove(root: Path, path: str) -> None:
    """Remove a file the landing added, and the directories that were made for it."""
    here = root / path
    mode = _mode(here)
    if mode and not stat.S_ISDIR(mode):
        here.unlink()
    for parent in here.parents:
        if parent == root:
            return
        try:
            parent.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return  # not empty, or no directory
