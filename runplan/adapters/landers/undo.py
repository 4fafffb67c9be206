"""Takes a half-written landing back out of a checkout, path by path, and leaves alone what is not ours.

Before git writes, every file that will change is linked aside. Git never writes into a file, it removes it and
makes a new one; so the links keep what was there, to the byte and the second, whatever filters say. From there a
path goes through "missing" and "the beginning of the new content" to the new content; a path in one of these
states is put back, a path in any other was edited by the user.
"""

from __future__ import annotations

import os
import shutil
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

from runplan.adapters.trees import SUBMODULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.adapters.heldindex import HeldIndex
    from runplan.core.gitfacts import Change

_CHUNK = 1 << 20


def set_aside(held: HeldIndex, changes: Sequence[Change]) -> None:
    """Link what the landing will change or remove; to be done before the first write."""
    for change in _files(changes):
        path, kept = held.checkout.root / change.path, _old(held, change.path)
        if change.kind == "A" or not _mode(path):
            continue  # outside of a sparse checkout there is nothing
        held.aside.mkdir(exist_ok=True)
        try:
            os.link(path, kept, follow_symlinks=False)
        except OSError:  # another file system, or one without links
            shutil.copy2(path, kept, follow_symlinks=False)


def undo(git: Git, held: HeldIndex, changes: Sequence[Change]) -> None:
    """Put back what the landing wrote; safe to run again after dying in it."""
    root, new = held.checkout.root, held.aside / "new"
    files = _files(changes)
    _write_new(git, [one for one in files if _is_written(root / one.path, _old(held, one.path))], held.aside)
    ours = [one.path for one in files if _is_ours(root / one.path, new / one.path)]
    added = {one.path for one in files if one.kind == "A"}
    for path in ours:
        if path in added:
            _remove(root, path)
    for path in ours:
        if path not in added and _mode(_old(held, path)) and _has_room(root, path):
            _put_back(_old(held, path), root / path)


def _old(held: HeldIndex, path: str) -> Path:
    """Where the file that was at this path is kept; in one directory, since each has to be removed again."""
    return held.aside / sha256(os.fsencode(path)).hexdigest()


def _files(changes: Iterable[Change]) -> list[Change]:
    return [one for one in changes if SUBMODULE not in (one.old_mode, one.new_mode)]


def _is_written(path: Path, old: Path) -> bool:
    """Whether the file at this path is another than the one set aside."""
    mode = _mode(path)
    if not mode or stat.S_ISDIR(mode):
        return False
    return not _mode(old) or not os.path.samestat(path.lstat(), old.lstat())


def _is_ours(path: Path, new: Path) -> bool:
    """Whether the path is missing, or holds the beginning, or the whole, of the new content; `new` may be missing."""
    mode = _mode(path)
    if not mode or stat.S_ISDIR(mode):
        return True  # a directory where a file was: made for files below it
    if stat.S_IFMT(mode) != stat.S_IFMT(_mode(new)):
        return False
    return path.readlink() == new.readlink() if stat.S_ISLNK(mode) else _begins(new, path)


def _write_new(git: Git, files: Sequence[Change], aside: Path) -> None:
    """The new content of each file as git writes it here, filters and line ends included."""
    shutil.rmtree(aside / "new", ignore_errors=True)
    (aside / "index").unlink(missing_ok=True)
    kept = [one for one in files if one.kind != "D"]
    if not kept:
        return
    aside.mkdir(exist_ok=True)
    env = {"GIT_INDEX_FILE": str(aside / "index")}
    entries = _records(f"{one.new_mode} {one.new}\t{one.path}" for one in kept)
    git.run("update-index", "-z", "--index-info", stdin=entries, env=env)
    # A file whose filter fails is missing then, and the one in the checkout counts as the user's. A git that was killed
    # says nothing of any file: the hold stays, for the next process to do it again.
    git.run(
        *("checkout-index", "-q", "-z", "--stdin", f"--prefix={aside}/new/"),
        stdin=_records(one.path for one in kept),
        env=env,
        ok=range(256),
    )


def _records(lines: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(line) + b"\0" for line in lines)


def _put_back(old: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(old, path)


def _begins(whole: Path, part: Path) -> bool:
    with whole.open("rb") as given, part.open("rb") as had:
        while chunk := had.read(_CHUNK):
            if given.read(len(chunk)) != chunk:
                return False
    return True


def _has_room(root: Path, path: str) -> bool:
    """Whether a file can be written without anything else making way."""
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
