"""Lands on a local branch. Where it is checked out, files, index and ref move together; elsewhere the ref alone.

A checkout is updated together with its branch: stage, swap by rename, commit the ref.

1. stage: git writes the new files and the new index into a box. Filters, conversions and a full disk fail here.
2. write the plan of the swap to the disk
3. prepare the ref transaction and take index.lock: nothing can switch, stage or commit any more
4. swap: each old file is moved into the box, each new one linked into its place. Nothing is ever replaced or
   written to, so an edit in that instant is noticed and kept.
5. move the new index into its place, then commit the ref: the landing has happened

A landing that was killed is completed when its ref has moved, and rolled back otherwise. Files are compared by
signature, never by content: only a file with the signature in the plan is removed, and a former file returns only to
a free path. A file that cannot return is moved to `KEPT`, with a note for the user.
"""

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from runplan.adapters.clock import until
from runplan.adapters.git import objects
from runplan.adapters.git.command import ANY, CALLS, STREAMED, Git, Ran, close_process, exchange, one_line
from runplan.adapters.git.repository import Checkouts, TargetCheckout, remove_stale_lock
from runplan.adapters.git.zones import Zones
from runplan.adapters.store.files import is_directory, lock_descriptor, make_below, publish, read_file
from runplan.domain.decoding import parse_json, to_json
from runplan.domain.errors import GitFailed
from runplan.domain.gitfacts import Change, Oid
from runplan.domain.names import HEADS
from runplan.domain.run.events import LandingStarted
from runplan.domain.text import command
from runplan.engine.landing.lander import Landed, LandingAnswer, Pending, TargetMoved, find_landing

BOX = "runplan-swap"  #: in the common git directory
LOCK = "runplan/landing.flock"
KEPT = "runplan/parked-files"
WAIT_S = 20.0  #: for the git processes of a killed landing to end
INDEX_S = 0.2  #: for index.lock; git's own commands hold it for milliseconds

Signature = tuple[int, int, int, int] | None  #: inode, size, mtime and mode of a file; None when there is none
#: The ref is on the disk before the landing is recorded; git waits so many milliseconds for a locked ref.
_SETTINGS = ("-c", "core.fsync=committed,loose-object,reference", "-c", "core.filesRefLockTimeout=500")
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
_MOST_LOOKED_FOR = 100  #: ids in the index, or paths; beyond that git looks at all files
_LARGE = 200_000  #: bytes of the index of some 2,000 files
TRIES = 5  #: how often a landing is staged while the user stages files
SWITCHING_S = 10.0  #: a `git switch` takes less from reading the branch to locking the index
#: Files in the git directory of a checkout while an operation of git waits there for the user.
_MARKS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
}


class Hold(Exception):
    """The landing has to wait. The text says for what, and what to do."""


class IndexChanged(Exception):
    """The user staged something since the index was copied: stage again."""


class Ended(Struct, frozen=True):
    id: str  #: empty when there was none
    landed: bool = False
    note: str = ""  #: the files that were kept, and where
    waits: str = ""  #: why it could not be ended yet


@contextmanager
def ref_transaction(git: Git, landing: LandingStarted, *, name: str, fd: int) -> Iterator[Callable[[], None]]:
    """Lock the ref `name`; the function that moves it. Without that call, or when this process dies, it stays."""
    process = git.start(*_SETTINGS, "update-ref", "-m", f"runplan: land {landing.id}", "--stdin", fds=(fd,))
    prepare = f"start\nupdate {name} {landing.new} {landing.old}\nprepare\n"

    def commit() -> None:
        if not exchange(process, b"commit\n"):
            raise GitFailed(f"git could not move {name}: {close_process(process)}")

    try:
        if not exchange(process, prepare.encode(), b"prepare: ok\n"):
            raise Hold(f"git cannot lock {name}: {close_process(process)}")
        yield commit
    finally:
        close_process(process)


class SwapPlan(Struct, frozen=True, kw_only=True):
    """A landing under way and its files before and after. Without a root it moves a ref alone."""

    landing: LandingStarted
    root: str = ""
    git_dir: str = ""
    files: str = ""  #: the directory of the new and the old files
    was: Mapping[str, Signature] = {}
    staged: Mapping[str, Signature] = {}

    @property
    def old_files(self) -> Path:
        return Path(self.files) / "old"


class Box:
    """The directory of the one landing in a repository. Its lock is inherited by every git of the landing."""

    def __init__(self, git: Git, checkouts: Checkouts) -> None:
        self._git = git
        self.checkouts = checkouts
        self.path = checkouts.common_dir / BOX
        self.index, self.old_index, self.installed = (self.path / name for name in ("index", "index.old", "index.new"))
        self._mark = self.path / "mark"  #: index.lock is a hard link to it
        self._plan = self.path / "plan"
        self.fd = -1

    @contextmanager
    def locked(self) -> Iterator[Ended]:
        lock = self.checkouts.common_dir / LOCK
        make_below(self.checkouts.common_dir, lock.parent)
        self.fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not lock_descriptor(self.fd, within_s=WAIT_S):
                raise Hold(f"another landing is running in {self.path.parent}; wait for it, then retry")
            try:
                ended = self.end_landing()
            except OSError as error:  # a full disk
                why = f"{error.strerror}: {error.filename}"
                raise Hold(f"a landing was interrupted and cannot be ended: {why}") from error
            yield ended
        finally:
            os.close(self.fd)

    def write_plan(self, plan: SwapPlan) -> None:
        """Store the plan durably: from here on a killed landing can be ended."""
        self.path.mkdir(exist_ok=True)
        self._mark.touch()
        publish(self._plan, to_json(plan).encode(), sync=True)
        directory = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read_plan(self) -> SwapPlan | None:
        content = read_file(self._plan)
        return None if content is None else parse_json(content, SwapPlan)

    def lock_index(self, checkout: TargetCheckout) -> None:
        """Take the checkout's index.lock, unless it is ours already."""

        def try_link() -> bool:
            with suppress(FileExistsError):
                os.link(self._mark, checkout.lock)
            return is_same(self._mark, checkout.lock)

        if not until(try_link, within_s=INDEX_S):
            raise Hold(f"another git command is running in {checkout.root}; if there is none, remove {checkout.lock}")

    def end_landing(self) -> Ended:
        """Complete or roll back the landing in the box, and remove the box."""
        plan = self.read_plan()
        if plan is None:
            shutil.rmtree(self.path, ignore_errors=True)
            return Ended("")
        landing = plan.landing
        since = self._plan.stat().st_mtime_ns
        remove_stale_lock(self.checkouts.common_dir / f"{landing.ref}.lock", since_ns=since, content=("", landing.new))
        tip = self._git.tip(landing.ref)
        landed = tip is not None and find_landing(self._git, landing, tip) == landing.new
        note = self._end_swap(plan, landed=landed, since=since) if plan.root else ""
        for checkout in self.checkouts.all():
            if is_same(self._mark, checkout.lock):
                checkout.lock.unlink(missing_ok=True)
        if plan.files and plan.files != str(self.path):
            shutil.rmtree(plan.files, ignore_errors=True)
        self._plan.unlink()
        shutil.rmtree(self.path)
        return Ended(landing.id, landed, note)

    def _end_swap(self, plan: SwapPlan, *, landed: bool, since: int) -> str:
        checkout = TargetCheckout(root=Path(plan.root), git_dir=Path(plan.git_dir))
        if not checkout.root.is_dir() and (checkout.git_dir / "locked").exists():
            raise Hold(f"{checkout.root} cannot be reached, and a landing was killed there; mount it")
        remove_stale_lock(checkout.git_dir / "HEAD.lock", since_ns=since, content=("",))
        if landed:
            late = [path for path in plan.was if read_signature(plan.old_files / path) != plan.was[path]]
            return self._keep_files(plan, late, "was written to while the landing replaced it")
        is_there = checkout.root.is_dir() and self.checkouts.branch_of(checkout) == plan.landing.ref
        if not is_there or self._git.tip(plan.landing.ref) != plan.landing.old:
            return self._keep_files(plan, plan.was, "was replaced by a landing that was killed")
        if not (plan.old_files.exists() or self.old_index.exists() or is_same(self._mark, checkout.lock)):
            return ""
        self.lock_index(checkout)
        if self.old_index.exists() and is_same(self.installed, checkout.git_dir / "index"):
            self.old_index.rename(checkout.git_dir / "index")
        for path, ours in plan.staged.items():
            if read_signature(checkout.root / path) == ours:
                (checkout.root / path).unlink()
        remove_empty_parents(checkout.root, plan.staged)
        foreign = []  #: paths that hold a file of the user's
        for path in plan.was:
            if read_signature(plan.old_files / path) is not None:
                try:
                    move_into_place(plan.old_files / path, checkout.root / path)
                except (FileExistsError, NotADirectoryError):
                    foreign.append(path)
        return self._keep_files(plan, foreign, "could not be put back after a landing was killed")

    def _keep_files(self, plan: SwapPlan, paths: Iterable[str], why: str) -> str:
        """Move files from the box to `KEPT`; a note that names the place."""
        kept = [path for path in paths if read_signature(plan.old_files / path) is not None]
        if not kept:
            return ""
        place = self.checkouts.common_dir / KEPT / f"{plan.landing.id}.{self._plan.stat().st_mtime_ns}"
        for path in kept:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(plan.old_files / path, place / path)
        return f"{', '.join(kept)} {why}; the former content is in {place}"


class Swap:
    def __init__(self, git: Git, checkout: TargetCheckout, box: Box, zones: Zones | None = None) -> None:
        self._git = git.at(checkout.root)
        self._checkout = checkout
        self._root = checkout.root
        self._index = checkout.git_dir / "index"
        self._box = box
        same_device = checkout.root.stat().st_dev == checkout.git_dir.stat().st_dev
        self._files = box.path if same_device else checkout.root / f".{BOX}"  #: files are moved by rename
        self._zones = zones
        self._converting = self._git  #: may run filters
        self._is_sparse = (checkout.git_dir / "info/sparse-checkout").exists()

    def land(self, landing: LandingStarted, changes: Sequence[Change]) -> str:
        """Move files, index and ref; a note when a file was kept."""
        seen = read_signature(self._index)
        # Before git is asked about them: a file that has another signature later was edited since.
        signatures = {change.path: read_signature(self._root / change.path) for change in changes}
        was = {path: old for path, old in signatures.items() if old is not None and not stat.S_ISDIR(old[3])}
        try:
            staged = self._stage_files(landing, changes, was)
        except BaseException:
            self._discard_staged()
            raise
        place = {"root": str(self._root), "git_dir": str(self._checkout.git_dir), "files": str(self._files)}
        self._box.write_plan(plan := SwapPlan(landing=landing, was=was, staged=staged, **place))
        try:
            with ref_transaction(self._git, landing, name="HEAD", fd=self._box.fd) as commit:
                self._lock_checkout(landing, seen)
                self._swap_files(changes, plan)
                # The new files' times in the index, so that git need not read them again. A failure is harmless.
                if self._box.index.stat().st_size < _LARGE or len(staged) > _MOST_LOOKED_FOR:
                    self._on_staged("update-index", "-q", "--refresh")
                elif staged:  # only these: in a large repository that takes a quarter of the time
                    env = {"GIT_LITERAL_PATHSPECS": "1", "GIT_OPTIONAL_LOCKS": "1"}
                    self._on_staged(*_STATUS, "--", *staged, env=env)
                os.link(self._box.index, self._box.installed)
                if seen:
                    os.link(self._index, self._box.old_index)
                self._box.index.rename(self._index)
                commit()
        except BaseException:
            if not (ended := self._box.end_landing()).landed:
                raise
            return ended.note
        return self._box.end_landing().note

    def _lock_checkout(self, landing: LandingStarted, seen: Signature) -> None:
        """From here on the user's git can neither switch, stage nor commit."""
        if self._box.checkouts.branch_of(self._checkout) != landing.ref:
            raise Hold(f"{self._root} is switching branches")
        self._box.lock_index(self._checkout)
        if read_signature(self._index) != seen:
            raise IndexChanged

    def _stage_files(
        self, landing: LandingStarted, changes: Sequence[Change], was: Mapping[str, Signature]
    ) -> dict[str, Signature]:
        self._discard_staged()  # of a landing that was killed while it staged
        self._box.path.mkdir()
        (self._files / "new").mkdir(parents=True)
        if self._zones:
            self._converting = self._zones.converting(self._root, self._box.path)
        if self._index.exists():
            # With its times: git checks the content of a file that is as young as the index.
            shutil.copy2(self._index, self._box.index)
        if self._needs_status(changes, was) or self._read_tree(landing).code:
            paths = {change.path for change in changes}
            ran = self._require_success(self._on_staged(*_STATUS, env={"GIT_OPTIONAL_LOCKS": "1"}))
            # The status has refreshed the staged index, so a file that was only touched counts as clean from here on.
            if self._index.exists():
                shutil.copystat(self._index, self._box.index)  # else git trusts an edit of the same second and size
            for record in os.fsdecode(ran.out).split("\0"):
                if record[3:] in paths:  # edited, deleted or staged
                    raise Hold(f"{record[3:]} is edited in {self._root}; commit that change or undo it")
            self._require_success(self._read_tree(landing))
        leaving = {change.path for change in changes if change.kind == "D"}
        for change in changes:
            is_new = change.kind == "A" or (change.kind == "T" and change.old_mode == objects.SUBMODULE)
            if is_new and (obstacle := find_obstacle(self._root, change.path, leaving)):
                untracked = "git does not track it and the landing would overwrite it"
                raise Hold(f"{obstacle} is in the way in {self._root}: {untracked}; move it elsewhere")
        written = (change for change in changes if change.kind != "D")
        files = [change.path for change in written if objects.SUBMODULE not in (change.old_mode, change.new_mode)]
        if self._is_sparse:  # git does not write the files that it leaves out
            listed = self._on_staged("ls-files", "-t", "-z").out.split(b"\0")
            hidden = {os.fsdecode(record[2:]) for record in listed if record.startswith(b"S ")}
            files = [path for path in files if path not in hidden]
        named = b"".join(os.fsencode(path) + b"\0" for path in files)
        prefix = f"--prefix={self._files / 'new'}/"
        if files:
            self._require_success(self._on_staged("checkout-index", "-q", "-z", "--stdin", prefix, stdin=named))
        staged = {path: read_signature(self._files / "new" / path) for path in files}
        if missing := next((path for path in files if staged[path] is None), None):
            raise Hold(f"git cannot update {self._root}: {missing} was not written")
        return staged

    def _discard_staged(self) -> None:
        for place in (self._box.path, self._files):
            shutil.rmtree(place, ignore_errors=True)

    def _needs_status(self, changes: Sequence[Change], was: Mapping[str, Signature]) -> bool:
        """Whether `read-tree` alone could overlook an edit."""
        # It refuses an edited path, also an assume-unchanged one. It does not look at a file that is deleted, that lies
        # behind a link, or whose index entry is as in `new` already: removed, or staged with that content.
        if self._is_sparse or len(changes) > _MOST_LOOKED_FOR or any(self._index.parent.glob("sharedindex.*")):
            return True
        index = self._box.index.read_bytes() if self._box.index.exists() else b""
        for change in changes:
            parent = (self._root / change.path).parent
            if change.kind == "D" or bytes.fromhex(change.new) in index:
                return True
            is_moved = parent.resolve() != self._root.resolve() / parent.relative_to(self._root)
            if change.kind != "A" and (change.path not in was or is_moved):
                return True
        return False

    def _read_tree(self, landing: LandingStarted) -> Ran:
        ran = self._on_staged("read-tree", "-m", landing.old, landing.new)
        if self._is_sparse and ran.code == 0:
            # Git decides what a sparse checkout leaves out only where it may write files: in an empty directory.
            empty = self._box.path / "empty"
            empty.mkdir(exist_ok=True)
            env = {"GIT_WORK_TREE": str(empty), "GIT_DIR": str(self._checkout.git_dir)}
            ran = self._on_staged("read-tree", "-m", "-u", landing.new, landing.new, env=env)  # staged changes stay
        return ran

    def _on_staged(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
        """Run git on the staged index; it never locks the user's."""
        on_index = {**STREAMED, "GIT_INDEX_FILE": str(self._box.index), **(env or {})}
        return self._converting.run(*args, stdin=stdin, env=on_index, ok=ANY, fds=(self._box.fd,), among=CALLS)

    def _require_success(self, ran: Ran) -> Ran:
        if ran.code:
            raise Hold(f"git cannot update {self._root}: {one_line(ran.err) or f'exit code {ran.code}'}")
        return ran

    def _swap_files(self, changes: Sequence[Change], plan: SwapPlan) -> None:
        leaving = [change.path for change in changes if change.kind == "D"]
        for name in leaving:
            self._take_out(name, plan)
        remove_empty_parents(self._root, leaving)
        for change in changes:
            path = self._root / change.path
            if change.kind == "D" and change.old_mode == objects.SUBMODULE:
                with suppress(OSError):  # a submodule with files stays, as with git
                    path.rmdir()
            if change.new_mode == objects.SUBMODULE and change.old_mode != objects.SUBMODULE:
                self._take_out(change.path, plan)
                path.mkdir(parents=True, exist_ok=True)
            elif change.path in plan.staged:
                self._take_out(change.path, plan)
                try:
                    move_into_place(self._files / "new" / change.path, path)
                except (FileExistsError, NotADirectoryError):
                    raise self._hold_for_edit(change.path) from None

    def _take_out(self, name: str, plan: SwapPlan) -> None:
        if name in plan.was:
            old = plan.old_files / name
            old.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                (self._root / name).rename(old)
            if read_signature(old) != plan.was[name]:
                raise self._hold_for_edit(name)

    def _hold_for_edit(self, name: str) -> Hold:
        return Hold(f"{name} was edited just now in {self._root}; commit that change or undo it")


def find_obstacle(root: Path, path: str, leaving: Collection[str]) -> str:
    """An untracked file at the path, above it, or below it, that the landing does not remove."""
    for here in (*map(str, reversed(PurePosixPath(path).parents[:-1])), path):
        if not os.path.lexists(root / here):
            return ""
        if not is_directory(root / here):
            return "" if here in leaving else here
    files = (file.relative_to(root).as_posix() for file in (root / path).rglob("*") if not is_directory(file))
    return next((file for file in sorted(files) if file not in leaving), "")


def read_signature(path: Path) -> Signature:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def is_same(path: Path, other: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), other.lstat())
    return False


def move_into_place(source: Path, path: Path) -> None:
    """Move a file to a free path, or to that of an empty directory; FileExistsError when something is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_directory(path):
        for parent, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                Path(parent).rmdir()
    if is_directory(source):  # the user replaced the file by a directory
        if read_signature(path) is not None:
            raise FileExistsError(path)
        source.rename(path)
        return
    if not is_same(source, path):  # else a landing was killed between the next two calls
        os.link(source, path, follow_symlinks=False)
    source.unlink()


def remove_empty_parents(root: Path, names: Iterable[str]) -> None:
    for name in names:
        for parent in Path(name).parents[:-1]:
            with suppress(OSError):
                (root / parent).rmdir()


class CherryPick:
    def __init__(self, git: Git, *, ref: str, common_dir: Path, zones: Zones | None = None) -> None:
        self._git = git
        self._zones = zones
        self.ref = ref
        self.checkouts = Checkouts(git, common_dir)
        self._box = Box(git, self.checkouts)

    def tip(self) -> Oid | None:
        return self._git.tip(self.ref)

    def prepare(self, *, id: str, old: Oid, new: Oid) -> LandingStarted:
        return LandingStarted(id=id, ref=self.ref, old=old, new=new)

    def land(self, landing: LandingStarted, deliver: Callable[[], object] = lambda: None) -> LandingAnswer:
        deliver()
        try:
            with self._box.locked():
                for _ in range(TRIES):
                    with suppress(IndexChanged):
                        return self._answer_if_moved(landing) or self._move_branch(landing)
        except Hold as hold:
            return self._answer_if_moved(landing) or Pending(why=str(hold))
        return Pending(why=f"the index changes again and again where {self.ref} is checked out; let that end")

    def observe(self, landing: LandingStarted) -> Landed | None:
        tip = self._git.tip(landing.ref)
        return Landed(tip=tip) if tip and find_landing(self._git, landing, tip) else None

    def recover(self, landing: LandingStarted | None = None) -> Ended:  # noqa: ARG002
        """Complete or roll back an interrupted landing of any plan, and say which; without one it starts no process."""
        plan = self._box.read_plan()
        try:
            if self._box.path.exists():
                with self._box.locked() as ended:
                    return ended
        except Hold as hold:
            return Ended(plan.landing.id if plan else "", waits=str(hold))
        return Ended("")

    def _answer_if_moved(self, landing: LandingStarted) -> Landed | TargetMoved | None:
        tip = self._git.tip(landing.ref)
        if tip is None:
            branch = landing.ref.removeprefix(HEADS)
            again = command("git", "branch", branch, landing.old)
            raise GitFailed(f"the branch {branch} is gone; create it again: {again}")
        return None if tip == landing.old else self.observe(landing) or TargetMoved(tip=tip)

    def _move_branch(self, landing: LandingStarted) -> Landed:
        branch = landing.ref.removeprefix(HEADS)
        for checkout in self.checkouts.all():
            if operation := checkout.operation_on(landing.ref):
                raise Hold(f"a {operation} of {branch} is under way in {checkout.root}; finish or abort it")
            operation = next((name for mark, name in _MARKS.items() if (checkout.git_dir / mark).exists()), "")
            if operation and checkout.root.is_dir() and self.checkouts.branch_of(checkout) == landing.ref:
                where = f"{checkout.root}, which has {branch} checked out"
                raise Hold(f"a {operation} is under way in {where}; finish or abort it")
        having = self.checkouts.with_branch(landing.ref)
        if not having:
            if named := self._git.run("symbolic-ref", "-q", landing.ref, ok=(0, 1)).text.removeprefix(HEADS):
                away = command("git", "symbolic-ref", "--delete", landing.ref)
                again = command("git", "branch", branch, named)
                raise Hold(f"{branch} is a symbolic ref to {named}; make it a branch: {away} && {again}")
            self._move_ref(landing)
            return Landed(tip=landing.new)
        if len(having) > 1:
            roots = " and ".join(str(checkout.root) for checkout in having)
            raise Hold(f"{branch} is checked out in {roots}; switch all but one to another branch")
        root = having[0].root
        if not root.is_dir():
            raise Hold(f"{root} has {branch} checked out, is locked, and cannot be reached; mount it, or unlock it")
        changes = objects.changes(self._git, *(self._git.commit(oid).tree for oid in (landing.old, landing.new)))
        try:
            swap = Swap(self._git, having[0], self._box, self._zones)
            return Landed(tip=landing.new, note=swap.land(landing, changes))
        except OSError as error:  # a full disk, a read-only directory, a file system without hard links
            raise Hold(f"git cannot update {root}: {error.strerror}: {error.filename}") from error

    def _move_ref(self, landing: LandingStarted) -> None:
        """No checkout has the branch, and none can switch to it while we hold their index locks."""
        self._box.write_plan(SwapPlan(landing=landing))
        try:
            for checkout in self.checkouts.all():
                if checkout.root.is_dir():
                    self._box.lock_index(checkout)
            if self.checkouts.with_branch(landing.ref):
                raise IndexChanged  # a checkout has switched to it: begin again
            with ref_transaction(self._git, landing, name=landing.ref, fd=self._box.fd) as commit:
                commit()
            # One that has read the old tip would check out the old files; it fails at the lock.
            until(lambda: not self._is_switching(), within_s=SWITCHING_S)
        finally:
            self._box.end_landing()

    def _is_switching(self) -> bool:
        import psutil  # 33 ms, and only a branch in use needs it

        roots = [checkout.root for checkout in self.checkouts.all()]
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # psutil lets FileNotFoundError through while a process exits
                if process.name() == "git" and not {"switch", "checkout"}.isdisjoint(process.cmdline()):
                    place = Path(process.cwd())
                    if any(place.is_relative_to(root) for root in roots):
                        return True
        return False
