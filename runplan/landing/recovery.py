"""The box of a landing, and how a landing that was killed is brought to its end by the plan in it.

A landing whose ref has moved is completed, any other is rolled back. Nothing is compared by content: a file is ours
when it has the signature in the plan, and only then it is removed. A former file returns only to a free place. A file
that cannot return is kept in `KEPT`, and the user is told.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins

from runplan.git.checkout import TargetCheckout
from runplan.landing.holds import InTheWay
from runplan.landing.lander import Landing, find
from runplan.polling import until
from runplan.store.files import lock_descriptor, read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.git.checkout import Checkouts
    from runplan.git.command import Git

BOX = "runplan-swap"  #: in the common git directory
LOCK = "runplan/landing.flock"
KEPT = "runplan/parked-files"
WAIT_S = 20.0  #: for a git of a killed landing to end
INDEX_S = 0.2  #: for index.lock; git's own commands hold it for milliseconds
_SURE_S = 0.05

Signature = list[int] | None  #: inode, size, time of change and mode of a file, fit for JSON; None for nothing


class Plan(Struct, frozen=True, kw_only=True):
    """A landing under way: where, and the files before and after it. Without a root it moves a ref alone."""

    landing: Landing
    root: str = ""
    git_dir: str = ""
    files: str = ""  #: the directory of the files staged and set aside
    was: dict[str, Signature]
    staged: dict[str, Signature]
    behind: bool = False  #: the ref is at `new` already, and only the checkout follows

    @property
    def checkout(self) -> TargetCheckout:
        return TargetCheckout(root=Path(self.root), git_dir=Path(self.git_dir))


class Ended(Struct, frozen=True):
    """What became of a landing."""

    id: str  #: empty when none was under way
    landed: bool = False
    note: str = ""  #: which files were kept, and where
    waits: str = ""  #: why a landing that was killed could not be brought to its end yet


class Box:
    """The directory of the one landing in a repository; whoever enters it ends the landing before.

    Every git of the landing inherits the lock, so a free lock means that all of them are dead.
    """

    def __init__(self, git: Git, checkouts: Checkouts) -> None:
        self._git = git
        self._checkouts = checkouts
        self.path = checkouts.common_dir / BOX
        self.index, self.old_index, self.installed = (self.path / name for name in ("index", "index.old", "index.new"))
        self._mark = self.path / "mark"  #: index.lock is a hard link to it
        self._plan = self.path / "plan"
        self.fd = -1
        self.found = Ended("")  #: what became of the landing before

    @contextmanager
    def entered(self) -> Iterator[Box]:
        """Hold the lock; a box with a plan stays for the next landing."""
        lock = self._checkouts.common_dir / LOCK
        lock.parent.mkdir(exist_ok=True)
        self.fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not lock_descriptor(self.fd, within_s=WAIT_S):
                raise InTheWay(f"a landing is at work in {self.path.parent}; wait for it, then retry")
            self.found = self.end()
            yield self
        finally:
            os.close(self.fd)

    def write(self, plan: Plan) -> None:
        """Put the plan on the disk: from here on a killed landing can be ended."""
        self.path.mkdir(exist_ok=True)
        self._mark.touch()
        draft = self.path / "plan.new"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(to_builtins(plan), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._plan)
        directory = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read(self) -> Plan | None:
        content = read_file(self._plan)
        if content is None:
            return None
        fields = json.loads(content)
        return Plan(landing=Landing(**fields.pop("landing")), **fields)

    def lock_index(self, checkout: TargetCheckout) -> None:
        """Take the checkout's index.lock, or keep it when it is ours already."""

        def linked() -> bool:
            if is_same(self._mark, checkout.lock):
                return True
            with suppress(FileExistsError):
                os.link(self._mark, checkout.lock)
                return True
            return False

        if not until(linked, within_s=INDEX_S):
            raise InTheWay(
                f"another git command is at work in {checkout.root}; if there is none, remove {checkout.lock}"
            )

    # --- the end of a landing ----------------------------------------------------------------------------

    def end(self) -> Ended:
        """End the landing that there is a plan of, and remove the box."""
        plan = self.read()
        if plan is None:
            shutil.rmtree(self.path, ignore_errors=True)
            return Ended("")
        landing, since = plan.landing, self._plan.stat().st_mtime_ns
        _remove_stale(self._checkouts.common_dir / f"{landing.ref}.lock", ("", landing.new), since_ns=since)
        if plan.root:
            _remove_stale(plan.checkout.git_dir / "HEAD.lock", ("",), since_ns=since)
        landed = self._has_landed(plan)
        ended = Ended(landing.id, landed, self._finish(plan, landed=landed) if plan.root else "")
        for one in self._checkouts.all():
            if is_same(self._mark, one.lock):
                one.lock.unlink(missing_ok=True)
        if plan.files and plan.files != str(self.path):
            shutil.rmtree(plan.files, ignore_errors=True)
        self._plan.unlink()
        shutil.rmtree(self.path)
        return ended

    def _has_landed(self, plan: Plan) -> bool:
        tip = self._git.tip(plan.landing.ref)
        if tip is None or find(self._git, plan.landing, tip) != plan.landing.new:
            return False
        return not plan.behind or is_same(self.installed, plan.checkout.git_dir / "index")

    def _finish(self, plan: Plan, *, landed: bool) -> str:
        checkout, landing = plan.checkout, plan.landing
        aside, index = Path(plan.files) / "aside", checkout.git_dir / "index"
        if not checkout.root.is_dir() and (checkout.git_dir / "locked").exists():
            raise InTheWay(f"{checkout.root} cannot be reached, and a landing was killed there; mount it")
        if landed:
            late = [path for path in plan.was if signature(aside / path) != plan.was[path]]
            return self._keep(plan, late, "was written to while the landing replaced it")
        before = landing.new if plan.behind else landing.old
        is_there = checkout.root.is_dir() and self._checkouts.branch(checkout) == landing.ref
        if not is_there or self._git.tip(landing.ref) != before:
            return self._keep(plan, plan.was, "was replaced by a landing that was killed")
        if not (aside.exists() or self.old_index.exists() or is_same(self._mark, checkout.lock)):
            return ""
        self.lock_index(checkout)
        if self.old_index.exists() and is_same(self.installed, index):
            self.old_index.rename(index)
        return self._keep(plan, _unswap(plan, aside), "could not be put back after a landing was killed")

    def _keep(self, plan: Plan, paths: Iterable[str], why: str) -> str:
        """Move files out of the box to a place where they stay; a sentence that names it."""
        aside = Path(plan.files) / "aside"
        kept = [path for path in paths if signature(aside / path) is not None]
        if not kept:
            return ""
        place = self._checkouts.common_dir / KEPT / f"{plan.landing.id}.{self._plan.stat().st_mtime_ns}"
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(aside / path, place / path)
        return f"{', '.join(kept)} {why}; the former content is in {place}"


def _unswap(plan: Plan, aside: Path) -> list[str]:
    """Put the old files back; the paths at which the user's own file stays."""
    root = Path(plan.root)
    for path, ours in plan.staged.items():
        if signature(root / path) == ours:
            (root / path).unlink()
    remove_empty_parents(root, plan.staged)
    foreign = []
    for path in plan.was:
        if signature(aside / path) is not None:
            try:
                put(aside / path, root / path)
            except (FileExistsError, NotADirectoryError):
                foreign.append(path)
    return foreign


def _remove_stale(lock: Path, holding: tuple[str, ...], *, since_ns: int) -> None:
    """Remove a lock that a killed git of ours left: made since then, with this content, and not moving."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = lock.lstat()
        if found.st_mtime_ns >= since_ns and lock.read_text(encoding="ascii", errors="replace").strip() in holding:
            time.sleep(_SURE_S)  # a living git holds the lock of a ref for less
            if os.path.samestat(found, lock.lstat()):
                lock.unlink()


# --- steps with files: none replaces a file, and none writes to one -----------------------------------------


def signature(path: Path) -> Signature:
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode]


def is_file(found: Signature) -> bool:
    return found is not None and not stat.S_ISDIR(found[3])


def is_same(one: Path, other: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(one.lstat(), other.lstat())
    return False


def put(source: Path, path: Path) -> None:
    """Move a file to a free place, or to that of an empty directory; FileExistsError when something is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        for parent, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                Path(parent).rmdir()
    if source.is_dir() and not source.is_symlink():  # the user has put it in the place of a file
        if signature(path) is not None:
            raise FileExistsError(path)
        source.rename(path)
        return
    if not is_same(source, path):  # else a process that was killed in here has linked it
        os.link(source, path, follow_symlinks=False)
    source.unlink()


def remove_empty_parents(root: Path, names: Iterable[str]) -> None:
    """Remove the directories above these paths, below `root`, that have become empty."""
    for name in names:
        for parent in Path(name).parents[:-1]:
            with suppress(OSError):
                (root / parent).rmdir()
