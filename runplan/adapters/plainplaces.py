"""Finds what stands in git's own places and is neither plain file nor folder, and takes it away unopened.

An agent may write its worktree's entry, its branch and that branch's log. Through a link there our git would write
the user's files, a pipe it would wait at for ever. So nothing of ours goes there before this has looked; it looks
with `lstat` alone, and starts no process.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.anchored import make_below
from runplan.adapters.plainfiles import read_file, write_anew
from runplan.adapters.registry import directories_of
from runplan.adapters.restoring import PARKED_FILES
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LINK, FILE, FOLDER, UNREADABLE = "symbolic link", "file", "folder", "folder that cannot be read"
_KINDS = {
    stat.S_IFLNK: LINK,
    stat.S_IFDIR: FOLDER,
    stat.S_IFREG: FILE,
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}
#: Names that are files wherever git keeps them, in an entry or in the repository.
_FILES = re.compile(
    r"[A-Z_]+|index|config|config\.worktree|packed-refs|shallow|commondir|gitdir|locked|runplan-.*|.*\.lock"
)
_FOLDERS = frozenset({"logs", "refs"})
#: Of these git has many, or a worktree's submodules theirs; nothing of ours goes there.
_UNSEEN = frozenset({"modules", "lfs"})
_FAN_OUT = re.compile(r"[0-9a-f]{2}")
_OBJECT = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
TICK_NS = 20_000_000  #: by how much the kernel's clock for files may be behind
_DAEMON = "fsmonitor--daemon.ipc"  #: a socket of git's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    """Something that is not what its place is for."""

    path: str
    what: str  #: its kind, and where a link leads
    own: bool = True  #: not in a place that is another run's

    @property
    def has_content(self) -> bool:
        """Whether taking it away could lose something; links and pipes hold nothing themselves."""
        return self.what in (FILE, FOLDER, UNREADABLE)


class PlainPlaces:
    """The places of one repository in which there are plain files and folders only."""

    def __init__(self, common_dir: Path, *, prefix: str = "") -> None:
        self._common_dir = common_dir
        self._top = os.fspath(common_dir)
        self._prefix = prefix  #: full ref prefix of our branches

    def name(self, odd: Odd) -> str:
        """How a person is told of it: below the git directory, or in full."""
        return odd.path.removeprefix(f"{self._top}/")

    # --- looking -------------------------------------------------------------------------------------

    def around(self, worktree: Path, branch: str, *, since_ns: int | None = None) -> list[Odd]:
        """Everything a dispatch could have put in the way, its own places first.

        Of the objects, which are many, only the folders are looked into that have changed since.
        """
        found = [*self.worktree(worktree), *self.refs(branch), *self._anywhere(), *self._objects(since_ns)]
        return list({odd.path: odd for odd in reversed(found)}.values())[::-1]

    def worktree(self, worktree: Path) -> list[Odd]:
        """In the place of a worktree of ours, of its link, and in its entries."""
        found = [*_unless(os.fspath(worktree), FOLDER)]
        if not found:
            # A folder in this place is a repository that somebody made: not ours to take away.
            found += [odd for odd in _unless(os.fspath(worktree / ".git"), FILE) if odd.what != FOLDER]
        for entry in directories_of(self._common_dir, worktree):
            found += _entry(os.fspath(entry))
        return found

    def refs(self, branch: str = "") -> list[Odd]:
        """Among our refs and their logs: a link to a folder there has git go round for ever."""
        mine, ours = branch.rpartition("/")[0], self._prefix.rpartition("/")[0]
        tops = {"refs/runplan", *(name for name in (ours, mine) if name.count("/") > 1)}
        found = []
        for place, name in ((place, name) for name in sorted(tops) for place in ("", "logs/")):
            others, own = f"{self._top}/{place}{ours}/", f"{self._top}/{place}{mine}/"
            found += [
                Odd(path=odd.path, what=odd.what, own=f"{odd.path}/".startswith(own) or not odd.path.startswith(others))
                for odd in self._folder(f"{place}{name}")
                if place or not _is_symbolic_ref(odd)
            ]
        return found

    def _folder(self, name: str) -> Iterator[Odd]:
        """In a folder of refs or logs, and on the way to it from where the user's own are."""
        parts = name.split("/")
        for count in range(parts.index("refs") + 2, len(parts) + 1):
            # A plain file on the way is a branch, which is refused by its name.
            if found := [odd for odd in _unless(os.path.join(self._top, *parts[:count]), FOLDER) if odd.what != FILE]:
                yield from found
                return
        yield from _below(os.path.join(self._top, name))

    def _anywhere(self) -> Iterator[Odd]:
        """Pipes and devices where git looks; nobody has any there. A link may be the user's, and stays."""
        for name in ("info", "hooks", "objects/info"):
            yield from (odd for one in _listed(os.path.join(self._top, name)) for odd in _special(one))
        for entry in _listed(os.path.join(self._top, "worktrees")):
            found = (odd for one in _listed(entry.path) for odd in _special(one))
            yield from (Odd(path=odd.path, what=odd.what, own=False) for odd in found)
        yield from (odd for one in _listed(self._top) if _FILES.fullmatch(one.name) for odd in _special(one))
        for top in ("refs", "logs"):
            yield from (odd for odd in _below(os.path.join(self._top, top)) if not odd.what.startswith(LINK))

    def _objects(self, since_ns: int | None) -> Iterator[Odd]:
        for one in _listed(os.path.join(self._top, "objects")):
            if not _FAN_OUT.fullmatch(one.name):
                continue
            if not one.is_dir(follow_symlinks=False):
                yield _odd(one.path)
            elif since_ns is not None and one.stat(follow_symlinks=False).st_ctime_ns >= since_ns - TICK_NS:
                yield from _below(one.path)

    # --- taking away ---------------------------------------------------------------------------------

    def take(self, odd: Odd) -> str:
        """Take it away; the path where what may have content is kept."""
        if not odd.has_content:
            behind = self._objects_behind(odd)
            Path(odd.path).unlink(missing_ok=True)
            _put_objects(Path(odd.path), behind)
            return ""
        aside = self._common_dir / PARKED_FILES / f"{self.name(odd).strip('/').replace('/', '-')}.{time.time_ns()}"
        make_below(self._common_dir, aside.parent)
        if odd.what == UNREADABLE:
            Path(odd.path).chmod(stat.S_IRWXU)
        try:
            Path(odd.path).rename(aside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.move(odd.path, aside)
        return str(aside)

    def _objects_behind(self, odd: Odd) -> dict[str, bytes]:
        """What git has written through a link among the objects: it may be anybody's work."""
        path = Path(odd.path)
        if path.parent != self._common_dir / "objects" or not path.is_symlink():
            return {}
        names = [one.name for one in _listed(odd.path) if _OBJECT.fullmatch(one.name)]
        found = ((name, read_file(path / name)) for name in names)
        return {name: content for name, content in found if content is not None}

    def clear(self, found: list[Odd]) -> list[Odd]:
        """Take all of it away."""
        for odd in found:
            self.take(odd)
        return found


def _put_objects(folder: Path, objects: Mapping[str, bytes]) -> None:
    for name, content in objects.items():
        folder.mkdir(exist_ok=True)
        write_anew(folder / name, content)
        (folder / name).chmod(0o444)


def _entry(top: str) -> list[Odd]:
    """In a worktree's entry: also what is a folder in the place of a file, and the other way round."""
    if found := list(_unless(top, FOLDER)):
        return found
    odd: list[Odd] = []
    for one in _listed(top):
        folder = one.is_dir(follow_symlinks=False)
        if one.name == _DAEMON and not one.is_symlink():
            continue
        if (folder and _FILES.fullmatch(one.name)) or (one.name in _FOLDERS and not folder):
            odd.append(_odd(one.path))
        elif folder and one.name not in _UNSEEN:
            odd += _below(one.path)
        elif not one.is_file(follow_symlinks=False) and not folder:
            odd.append(_odd(one.path))
    odd += [one for one in _unless(os.path.join(top, "logs", "HEAD"), FILE) if one.what == FOLDER]
    return odd


def _below(top: str) -> Iterator[Odd]:
    """Whatever is neither plain file nor folder, in a folder and all below it."""
    left = [top]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as listed:
                ones = sorted(listed, key=lambda one: one.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            yield Odd(path=folder, what=UNREADABLE)
            continue
        for one in ones:
            if one.is_dir(follow_symlinks=False):
                left.append(one.path)
            elif not one.is_file(follow_symlinks=False):
                yield _odd(one.path)


def _listed(top: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(top) as listed:
            return sorted(listed, key=lambda one: one.name)
    except OSError:
        return []


def _special(one: os.DirEntry[str]) -> Iterator[Odd]:
    plain = one.is_symlink() or one.is_file(follow_symlinks=False) or one.is_dir(follow_symlinks=False)
    if not plain and one.name != _DAEMON:
        yield _odd(one.path)


def _unless(path: str, wanted: str) -> Iterator[Odd]:
    """What is at a path, unless that is as wanted or nothing."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return
    if _KINDS.get(stat.S_IFMT(mode)) != wanted:
        yield _odd(path)


def _odd(path: str) -> Odd:
    what = _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode), "device")
    return Odd(path=path, what=f"{what} to {Path(path).readlink()}" if what == LINK else what)


def _is_symbolic_ref(odd: Odd) -> bool:
    """Whether git takes a link for a symbolic ref, its oldest kind, and goes by its words alone."""
    target = odd.what.removeprefix(f"{LINK} to ")
    return target != odd.what and target.startswith("refs/") and ".." not in target and not Path(odd.path).is_dir()
