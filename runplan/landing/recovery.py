"""The box: the directory of the landing under way, and the recovery of a landing that was killed.

A landing whose ref has moved is completed; any other is rolled back. Files are compared by signature, never by
content: only a file with the signature in the plan is removed, and a former file returns only to a free path. A
file that cannot return is moved to `KEPT`, with a note for the user.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, convert, to_builtins

from runplan.clock import until
from runplan.git.repository import TargetCheckout, remove_stale_lock
from runplan.landing.lander import Landing, find
from runplan.store.files import lock_descriptor, publish, read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.git.command import Git
    from runplan.git.repository import Checkouts

BOX = "runplan-swap"  #: in the common git directory
LOCK = "runplan/landing.flock"
KEPT = "runplan/parked-files"
WAIT_S = 20.0  #: for the git processes of a killed landing to end
INDEX_S = 0.2  #: for index.lock; git's own commands hold it for milliseconds

Signature = tuple[int, int, int, int] | None  #: inode, size, mtime and mode of a file; None when there is none


class Hold(Exception):
    """The landing has to wait. The text says for what, and what to do."""


class Plan(Struct, frozen=True, kw_only=True):
    """A landing under way and its files before and after.

    Without a root it moves a ref alone. With `old` equal to `new` the ref has moved, and only the checkout follows.
    """

    landing: Landing
    root: str = ""
    git_dir: str = ""
    files: str = ""  #: the directory of the new and the old files
    was: Mapping[str, Signature] = {}
    staged: Mapping[str, Signature] = {}

    @property
    def checkout(self) -> TargetCheckout:
        return TargetCheckout(root=Path(self.root), git_dir=Path(self.git_dir))

    @property
    def old_files(self) -> Path:
        return Path(self.files) / "old"


class Ended(Struct, frozen=True):
    """The end of an interrupted landing."""

    id: str  #: empty when there was none
    landed: bool = False
    note: str = ""  #: the files that were kept, and where
    waits: str = ""  #: why it could not be ended yet


class Box:
    """The directory of the one landing in a repository. Its lock is inherited by every git of the landing."""

    def __init__(self, git: Git, checkouts: Checkouts) -> None:
        self._git = git
        self._checkouts = checkouts
        self.path = checkouts.common_dir / BOX
        self.index, self.old_index, self.installed = (self.path / name for name in ("index", "index.old", "index.new"))
        self._mark = self.path / "mark"  #: index.lock is a hard link to it
        self._plan = self.path / "plan"
        self.fd = -1

    @contextmanager
    def entered(self) -> Iterator[Ended]:
        """Take the lock and end the landing before, if it was interrupted."""
        lock = self._checkouts.common_dir / LOCK
        lock.parent.mkdir(exist_ok=True)
        self.fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not lock_descriptor(self.fd, within_s=WAIT_S):
                raise Hold(f"another landing is running in {self.path.parent}; wait for it, then retry")
            yield self.end()
        finally:
            os.close(self.fd)

    def write(self, plan: Plan) -> None:
        """Store the plan durably: from here on a killed landing can be ended."""
        self.path.mkdir(exist_ok=True)
        self._mark.touch()
        publish(
            self._plan, json.dumps(to_builtins(plan)).encode(), sync=True
        )  # msgspec refuses names that are not UTF-8
        directory = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self) -> Plan | None:
        content = read_file(self._plan)
        return None if content is None else convert(json.loads(content), Plan)

    def lock_index(self, checkout: TargetCheckout) -> None:
        """Take the checkout's index.lock, unless it is ours already."""

        def linked() -> bool:
            with suppress(FileExistsError):
                os.link(self._mark, checkout.lock)
            return is_same(self._mark, checkout.lock)

        if not until(linked, within_s=INDEX_S):
            raise Hold(f"another git command is running in {checkout.root}; if there is none, remove {checkout.lock}")

    def end(self) -> Ended:
        """Complete or roll back the landing in the box, and remove the box."""
        plan = self.read()
        if plan is None:
            shutil.rmtree(self.path, ignore_errors=True)
            return Ended("")
        landing, since = plan.landing, self._plan.stat().st_mtime_ns
        remove_stale_lock(self._checkouts.common_dir / f"{landing.ref}.lock", since_ns=since, content=("", landing.new))
        landed = self._has_landed(plan)
        note = ""
        if plan.root:
            if not plan.checkout.root.is_dir() and (plan.checkout.git_dir / "locked").exists():
                raise Hold(f"{plan.root} cannot be reached, and a landing was killed there; mount it")
            remove_stale_lock(plan.checkout.git_dir / "HEAD.lock", since_ns=since, content=("",))
            note = self._complete(plan) if landed else self._roll_back(plan)
        for one in self._checkouts.all():
            if is_same(self._mark, one.lock):
                one.lock.unlink(missing_ok=True)
        if plan.files and plan.files != str(self.path):
            shutil.rmtree(plan.files, ignore_errors=True)
        self._plan.unlink()
        shutil.rmtree(self.path)
        return Ended(landing.id, landed, note)

    def _has_landed(self, plan: Plan) -> bool:
        landing = plan.landing
        if landing.old == landing.new:
            return is_same(self.installed, plan.checkout.git_dir / "index")
        tip = self._git.tip(landing.ref)
        return tip is not None and find(self._git, landing, tip) == landing.new

    def _complete(self, plan: Plan) -> str:
        late = [path for path in plan.was if signature(plan.old_files / path) != plan.was[path]]
        return self._keep(plan, late, "was written to while the landing replaced it")

    def _roll_back(self, plan: Plan) -> str:
        checkout, landing = plan.checkout, plan.landing
        is_there = checkout.root.is_dir() and self._checkouts.branch(checkout) == landing.ref
        if not is_there or self._git.tip(landing.ref) != landing.old:
            return self._keep(plan, plan.was, "was replaced by a landing that was killed")
        if not (plan.old_files.exists() or self.old_index.exists() or is_same(self._mark, checkout.lock)):
            return ""
        self.lock_index(checkout)
        if self.old_index.exists() and is_same(self.installed, checkout.git_dir / "index"):
            self.old_index.rename(checkout.git_dir / "index")
        return self._keep(plan, _unswap(plan), "could not be put back after a landing was killed")

    def _keep(self, plan: Plan, paths: Iterable[str], why: str) -> str:
        """Move files from the box to `KEPT`; a note that names the place."""
        kept = [path for path in paths if signature(plan.old_files / path) is not None]
        if not kept:
            return ""
        place = self._checkouts.common_dir / KEPT / f"{plan.landing.id}.{self._plan.stat().st_mtime_ns}"
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(plan.old_files / path, place / path)
        return f"{', '.join(kept)} {why}; the former content is in {place}"


def _unswap(plan: Plan) -> list[str]:
    """Put the old files back; the paths that hold a file of the user's."""
    root = Path(plan.root)
    for path, ours in plan.staged.items():
        if signature(root / path) == ours:
            (root / path).unlink()
    remove_empty_parents(root, plan.staged)
    foreign = []
    for path in plan.was:
        if signature(plan.old_files / path) is not None:
            try:
                put(plan.old_files / path, root / path)
            except (FileExistsError, NotADirectoryError):
                foreign.append(path)
    return foreign


# --- steps with files: none replaces a file, and none writes to one -----------------------------------------


def signature(path: Path) -> Signature:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def is_same(one: Path, other: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(one.lstat(), other.lstat())
    return False


def put(source: Path, path: Path) -> None:
    """Move a file to a free path, or to that of an empty directory; FileExistsError when something is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        for parent, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                Path(parent).rmdir()
    if source.is_dir() and not source.is_symlink():  # the user replaced the file by a directory
        if signature(path) is not None:
            raise FileExistsError(path)
        source.rename(path)
        return
    if not is_same(source, path):  # else a landing was killed between the next two calls
        os.link(source, path, follow_symlinks=False)
    source.unlink()


def remove_empty_parents(root: Path, names: Iterable[str]) -> None:
    """Remove the directories above these paths, below `root`, that have become empty."""
    for name in names:
        for parent in Path(name).parents[:-1]:
            with suppress(OSError):
                (root / parent).rmdir()
