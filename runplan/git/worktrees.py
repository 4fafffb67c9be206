"""Lends worktrees to agents and checks, and takes agents' commits into `tool.git`.

The agent of a lane sees `lanes/<name>.git` through a real `git worktree`. runplan looks at the same files through a
git directory of its own, `tool.git/worktrees/<name>`, with its own HEAD and index. So nothing an agent does to its
repository changes what runplan's git runs or sees. No process of an agent may live during these calls.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed, ObjectsRefused, RefusedEarly, SettingsError
from runplan.git.command import SETTINGS, Git, configured, failure, one_line
from runplan.git.objects import SYMLINK, Candidates, Entry, Signature, identity_env
from runplan.git.repository import refs_snapshot
from runplan.git.workspace import LANDING_KEEP, delete_tree, make_writable
from runplan.gitfacts import Identity, Untracked, is_agent
from runplan.names import HEADS, base_ref, parked_under
from runplan.store.files import file_lock, first_line, make_below, publish, read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from filelock import FileLock

    from runplan.git.workspace import Workspace
    from runplan.gitfacts import Oid

MANY = 100  #: from so many files on they are synced to the disk together
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching",
           "--ignore-submodules=dirty")  # fmt: skip
_SETTINGS = (*SETTINGS, "core.fsync=none,objects")  #: HEAD and index are made again when they are lost
_SHOWN = "shown"  #: a file in runplan's git directory
_KEPT = frozenset({"commondir", "gitdir", "locked", "logs"})  #: of the agent's git directory, when it is renewed

_KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")
#: Of commits that only keep uncommitted files; the same content kept twice is the same commit.
KEEPER = Signature(author=_KEEPER, committer=_KEEPER, when="0 +0000")
#: Errors of the repository or the disk, not of a file.
_PLACE = re.compile(
    r"\.lock\b|No space left|quota|Read-only file system|Input/output error|repository database|object database"
)
MOST_NAMES = 1000
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class WorktreeState(Struct, frozen=True, kw_only=True):
    """One status of a worktree."""

    head: Oid
    changed: tuple[str, ...]  #: tracked paths that differ from HEAD, staged or not
    untracked: tuple[Untracked, ...]
    ignored: bool  #: whether there are ignored files

    @property
    def clean(self) -> bool:
        return not self.changed and not self.untracked


class Lane:
    """One worktree and its two views: the agent's and runplan's."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.name = name
        self._workspace = workspace
        self.repository = workspace.lanes / f"{name}.git"
        self.path = workspace.root / name
        self._theirs = self.repository / "worktrees" / name
        self._ours = workspace.path / "worktrees" / name
        options = (f"--git-dir={self._ours}", f"--work-tree={self.path}")
        self._git = Git(self.path, env=workspace.env, options=options, settings=_SETTINGS, own_session=True)
        self.pristine = False  #: the last status found only the commit, and no process ran there since

    # --- making it ---------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether its files are there. Under the sandbox `git worktree remove` leaves an empty mount point."""
        return self.path.is_dir() and any(self.path.iterdir()) and bool(self.base)

    @property
    def is_whole(self) -> bool:
        """Whether its files are there, and the agent's repository with the link to it."""
        linked = self.exists and first_line(self.path / ".git") == f"gitdir: {self._theirs}"
        return linked and (self._theirs / "commondir").is_file() and self.has_repository

    @property
    def has_repository(self) -> bool:
        return (self.repository / "objects").is_dir()

    @property
    def is_orphan(self) -> bool:
        """Whether files are there whose repository is gone: the state directory was deleted."""
        return not self.exists and self.path.is_dir() and any(one.name != ".git" for one in self.path.iterdir())

    def renew(self, base: Oid, *, mirror: Sequence[str]) -> None:
        """Write the refs and configuration of the agent's repository; nothing of an earlier phase stays."""
        if not self.is_whole:
            self._make(base)
        self._workspace.refresh(self.repository)
        for name in ("refs", "hooks", "logs", "modules"):
            delete_tree(self.repository / name)
        (self.repository / "refs" / "heads").mkdir(parents=True)
        refs = sorted(self._workspace.mirrored(mirror).items())
        packed = "# pack-refs with: sorted \n" + "".join(f"{oid} {name}\n" for name, oid in refs)
        publish(self.repository / "packed-refs", os.fsencode(packed), sync=False)

    def adopt(self, commit: Oid) -> None:
        """Compare files whose repository is gone with `commit`."""
        self._link(commit)
        self.compare_with(commit)

    def _link(self, commit: Oid) -> None:
        self._ours.mkdir(parents=True, exist_ok=True)
        (self._ours / "commondir").write_text("../..\n")
        (self._ours / "gitdir").write_bytes(os.fsencode(self.path / ".git") + b"\n")
        publish(self._ours / "HEAD", f"{commit}\n".encode(), sync=False)

    def _make(self, base: Oid) -> None:
        self.remove()
        self._workspace.make_bare(self.repository)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        git = Git(self.repository.parent, env=self._workspace.env, options=(f"--git-dir={self.repository}",))
        git.run("worktree", "add", "-q", "--lock", "--detach", "--no-checkout", str(self.path), base)
        self._ours.mkdir(parents=True)
        self.mark_disposable()  # it has no files yet, and that is not an agent's work
        self._link(base)

    def remove(self) -> None:
        """Delete the worktree, the agent's repository and runplan's view of them."""
        self.pristine = False
        for place in (self.path, self.repository, self._ours):
            if place.is_dir() and not place.is_symlink():
                delete_tree(place)
            else:
                place.unlink(missing_ok=True)

    # --- putting it on a commit ---------------------------------------------------------------------------

    def put(self, commit: Oid, *, branch: str = "", clean: str, keep: Sequence[str] = ()) -> None:
        """Make the files exactly `commit`, on `branch` or detached; `clean` says which other files go."""
        self._unlock()
        self._git.run("reset", "-q", "--hard", commit)
        if clean:
            self._clean(clean, keep)
        self.sync_agent(commit, branch=branch)

    def move_to(self, commit: Oid) -> None:
        """Stand on another commit with the same files, detached."""
        publish(self._ours / "HEAD", f"{commit}\n".encode(), sync=False)
        self.sync_agent(commit)

    def sync_agent(self, commit: Oid, *, branch: str = "") -> None:
        """Set the agent's HEAD, branch and index to runplan's, and remove locks of a killed git."""
        for lock in (*self.repository.glob("*.lock"), *self.repository.glob("refs/**/*.lock")):
            lock.unlink()
        for left in self._theirs.iterdir():
            if left.name not in _KEPT:
                delete_tree(left) if left.is_dir() else left.unlink()
        if branch:
            (self.repository / branch).parent.mkdir(parents=True, exist_ok=True)
            publish(self.repository / branch, f"{commit}\n".encode(), sync=False)
        publish(self._theirs / "HEAD", (f"ref: {branch}\n" if branch else f"{commit}\n").encode(), sync=False)
        shutil.copyfile(self._ours / "index", self._theirs / "index")

    def _clean(self, clean: str, keep: Sequence[str]) -> None:
        excluded = ("--exclude=/" + re.sub(r"([\\*?[ ])", r"\\\1", name) for name in keep)
        words = ["clean", "-ffdq", *(["-x"] if clean == "ignored" else []), *excluded]
        if self._git.run(*words, ok=(0, 1, 128)).code != 0:
            make_writable(self.path)
            self._git.run(*words)

    def _unlock(self) -> None:
        """Remove the lock of a git of ours that was killed; no other process works in this git directory."""
        for left in self._ours.glob("*.lock"):
            left.unlink(missing_ok=True)

    # --- whose files are there ----------------------------------------------------------------------------

    @property
    def is_disposable(self) -> bool:
        """Whether the files were put there for a check or a verifier, so that other files are not an agent's work."""
        return (self._ours / _SHOWN).exists()

    def mark_disposable(self) -> None:
        self.pristine = False
        (self._ours / _SHOWN).touch()

    def mark_work(self) -> None:
        self.pristine = False
        (self._ours / _SHOWN).unlink(missing_ok=True)

    @property
    def base(self) -> Oid:
        """The commit that the files are compared with; empty when there is none."""
        return first_line(self._ours / "HEAD") or ""

    # --- an agent's work ----------------------------------------------------------------------------------

    @property
    def head(self) -> str:
        """The agent's HEAD: a full ref name, or a commit when it is detached; empty when unreadable."""
        return (first_line(self._theirs / "HEAD") or "").removeprefix("ref: ")

    def refs(self) -> dict[str, Oid]:
        return refs_snapshot(self.repository)

    def take(self, tip: Oid, *, without: Sequence[Oid] = ()) -> Oid:
        self._workspace.take(self.repository / "objects", tip, without=without)
        return tip

    def compare_with(self, commit: Oid) -> None:
        """Compare the files with `commit` from now on; the files stay as they are. The next status looks at them."""
        self._unlock()
        self._git.run("reset", "-q", "--mixed", "--no-refresh", commit)

    def state(self) -> WorktreeState:
        """The differences from the commit it stands on; one scan of the files."""
        self._unlock()
        locks = {"GIT_OPTIONAL_LOCKS": "1"}
        ran = self._git.run(*_STATUS, env=locks, ok=(0, 128))
        if ran.code:  # a required filter may have failed: compare the files without filters
            ran = self._git.run(*_STATUS, env=locks | configured(*self._workspace.without_filters()))
        state = read_status(ran.out, self.path, head=self.base)
        self.pristine = state.clean and not state.ignored
        return state

    def commit(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid:
        """Commit the named files as they are, and stand on the new commit; `ObjectsRefused` if git cannot store one."""
        self._unlock()
        names = b"\0".join(os.fsencode(name) for name in paths)
        env = configured("core.fsyncMethod=batch") if len(paths) > MANY else {}
        asked = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        ran = self._git.run(*asked, stdin=names, env=env, ok=(0, 128))
        if ran.code and _PLACE.search(ran.err):
            raise GitFailed(failure(asked, ran, self.path))
        if ran.code:
            raise ObjectsRefused(f"a file cannot be committed: {one_line(ran.err)}")
        tree, text = self._git.text("write-tree"), message.encode("utf-8", "surrogateescape")
        new = self._git.run("commit-tree", tree, "-p", self.base, stdin=text, env=identity_env(by)).text
        publish(self._ours / "HEAD", f"{new}\n".encode(), sync=False)
        return new

    def commit_verbatim(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid:
        """A commit of the named files byte for byte, when git cannot convert them as their attributes say."""
        tool = self._workspace.git
        writer = Candidates(tool, common_dir=self._workspace.path)
        files: dict[str, Entry | None] = dict.fromkeys(paths)
        for name in (name for name in paths if os.path.lexists(self.path / name)):
            place = self.path / name
            linked = place.is_symlink()
            content = os.fsencode(os.readlink(place)) if linked else place.read_bytes()  # noqa: PTH115
            mode = SYMLINK if linked else "100755" if os.access(place, os.X_OK) else "100644"
            files[name] = Entry(mode, writer.write("blob", content, self.base))
        tree = writer.tree_with(tool.commit(self.base).tree, files)
        return writer.commit(tree, onto=self.base, message=message, by=by)


#: How many blank-separated fields precede the path: changed, unmerged, untracked, ignored.
_FIELDS = {b"1": 8, b"u": 10, b"?": 1, b"!": 1}


def read_status(output: bytes, top: Path, *, head: Oid) -> WorktreeState:
    """Read porcelain v2; sizes are taken from the files under `top`."""
    found: dict[bytes, set[str]] = {kind: set() for kind in _FIELDS}
    for record in output.split(b"\0"):
        if record[:1] in _FIELDS:
            found[record[:1]].add(os.fsdecode(record.split(b" ", _FIELDS[record[:1]])[-1]))
    return WorktreeState(
        head=head,
        changed=tuple(sorted(found[b"1"] | found[b"u"])),
        untracked=tuple(Untracked(path=path, size=(top / path).lstat().st_size) for path in sorted(found[b"?"])),
        ignored=bool(found[b"!"]),
    )


class BranchStanding(Struct, frozen=True, kw_only=True):
    """A branch compared with a base."""

    ahead: int = 0  #: commits of its own
    behind: int = 0  #: commits of the base that it lacks
    by_agents: bool = False  #: whether agents of ours made every commit of its own


class Worktrees:
    """The worktrees of one project. The processes of a worktree's last dispatch must have ended before each call."""

    def __init__(self, workspace: Workspace, *, lock_dir: Path, mirror: Sequence[str]) -> None:
        self._workspace = workspace
        self._lock_dir = lock_dir
        self._mirror = tuple(mirror)  #: full names of the user's refs that agents see besides tags
        self._lanes: dict[str, Lane] = {}

    def lock(self) -> FileLock:
        """Worktrees are made and removed by one process at a time."""
        make_below(self._workspace.common_dir, self._lock_dir)
        return file_lock(self._lock_dir / "worktrees.lock")

    def lane(self, name: str) -> Lane:
        if not _NAME.fullmatch(name):
            raise RefusedEarly(f"{name!r} cannot be the name of a worktree; use letters, digits, dot, dash, underscore")
        if name not in self._lanes:
            self._lanes[name] = Lane(self._workspace, name)
        return self._lanes[name]

    def path(self, name: str) -> Path:
        return self.lane(name).path

    def tip(self, branch: str) -> Oid | None:
        """The newest commit of a branch that was taken from an agent."""
        return self._workspace.git.tip(branch)

    def standing(self, branch: str, base: Oid) -> BranchStanding:
        return standing(self._workspace.user, branch, base)

    # --- lending ------------------------------------------------------------------------------------------

    def lease(
        self,
        name: str,
        *,
        branch: str,
        base: Oid,
        pin: str,
        onto: Oid = "",
        clean: str = "ignored",
        keep: Sequence[str] = (),
    ) -> Path:
        """A worktree on a new branch with exactly the files of `base`; earlier work in it is parked.

        `pin` names the ref that protects `base` from the user's `git gc`. Where `base` is a commit of ours, `onto` is
        the user's commit below it.
        """
        lane = self.lane(name)
        self._workspace.user.update_refs(f"update {base_ref(pin)} {onto or base}")
        with self.lock():
            self.rescue(lane, under=branch, base=base)
            if lane.exists:
                lane.mark_disposable()  # until the files are those of the base
            lane.renew(base, mirror=self._mirror)
        self._workspace.git.update_refs(f"update {branch} {base}")
        lane.put(base, branch=branch, clean=clean, keep=keep)
        lane.mark_work()
        return lane.path

    def attach(self, name: str, *, branch: str, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree on `branch`; uncommitted work of an interrupted agent stays in it."""
        lane = self.lane(name)
        tip = self.tip(branch)
        if tip is None:
            raise RefusedEarly(f"the branch {branch.removeprefix(HEADS)} is gone; start the phase again")
        if self._require_whole(lane, tip) or lane.is_disposable:
            lane.put(tip, branch=branch, clean=clean, keep=keep)
        else:
            if lane.base != tip:
                lane.compare_with(tip)
            lane.sync_agent(tip, branch=branch)
        lane.mark_work()
        return lane.path

    def show(self, path: Path, commit: Oid, *, clean: str, keep: Sequence[str] = ()) -> None:
        """Exactly `commit`, detached, for a check or a verifier; every other file is deleted."""
        lane = self.lane(path.name)
        self._require_whole(lane, commit)
        trees = self._workspace.git
        same_files = lane.pristine and trees.commit(commit).tree == trees.commit(lane.base).tree
        lane.mark_disposable()
        if same_files:
            lane.move_to(commit)
        else:
            lane.put(commit, clean=clean, keep=keep)

    def _require_whole(self, lane: Lane, commit: Oid) -> bool:
        """Make a missing or broken worktree again; whether that was necessary."""
        if lane.is_whole:
            return False
        with self.lock():
            lane.renew(commit, mirror=self._mirror)
        return True

    def copy(self, path: Path, names: Sequence[str], from_root: Path) -> None:
        for name in names:
            source, goal = from_root / name, path / name
            inside = goal.parent.resolve().is_relative_to(path.resolve()) and ".." not in goal.parts
            if not inside or Path(name).parts[:1] == (".git",):
                raise SettingsError(f"run.copy: {name} is not inside the repository; name files of the checkout")
            if not source.is_file():
                raise SettingsError(f"run.copy: there is no file {source}; create it, or remove it from run.copy")
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.unlink(missing_ok=True)
            shutil.copy2(source, goal)

    # --- taking -------------------------------------------------------------------------------------------

    def take(self, name: str, *, branch: str, base: Oid) -> Oid:
        """Copy the agent's commits into `tool.git`, once; the newest one.

        Where the given branch has not moved, the agent's HEAD counts: it may have made a branch of its own. Where
        neither has new commits, the commits taken before count; the files are still there.
        """
        lane = self.lane(name)
        before = self.tip(branch) or base
        if not lane.has_repository:
            return before
        refs = lane.refs()
        own, at_head = refs.get(branch, ""), refs.get(lane.head, lane.head)
        tip = before
        if own not in ("", before):
            tip = lane.take(own, without=[base, before])
        elif _is_oid(at_head) and self._workspace.git.object(at_head) is None:
            with suppress(ObjectsRefused):  # HEAD may lead to nothing
                tip = lane.take(at_head, without=[base, before])
        if lane.exists:
            self._check_out(lane, tip, at_head, branch=branch)
        if tip != before:
            self._move(lane, branch, tip)
        self._workspace.merge_packs()
        return tip

    def _move(self, lane: Lane, branch: str, tip: Oid) -> None:
        """The agent's branch follows first: as long as both agree, the agent has not moved it."""
        if lane.is_whole:
            lane.sync_agent(tip, branch=branch)
        self._workspace.git.update_refs(f"update {branch} {tip}")

    def _check_out(self, lane: Lane, tip: Oid, at_head: str, *, branch: str) -> None:
        """Compare the files with `tip`; where the agent left another commit checked out, check out `tip`."""
        if _is_oid(at_head) and at_head != tip and self._workspace.git.object(at_head) is not None:
            lane.compare_with(at_head)
            self._park_uncommitted(lane, under=branch)
            lane.put(tip, branch=branch, clean="")
        elif lane.base != tip:
            lane.compare_with(tip)

    def state(self, path: Path) -> WorktreeState:
        return self.lane(path.name).state()

    def commit_leftovers(self, path: Path, paths: Sequence[str], *, branch: str, message: str, by: Signature) -> Oid:
        """Commit exactly the named files, as they are in the worktree (also their deletion)."""
        lane = self.lane(path.name)
        made = lane.commit(paths, by, message=message)
        self._move(lane, branch, made)
        return made

    # --- giving commits to the user -----------------------------------------------------------------------

    def published(self, branch: str) -> bool:
        return self._workspace.user.tip(branch) is not None

    def publish(self, branch: str, *, base: Oid = "") -> str:
        """Copy a branch with work into the user's repository; its full name there, or empty when it has no work.

        A name that is taken by other commits gets a number. Published work keeps its name.
        """
        tip = self.tip(branch)
        if tip is None or tip == base:
            return ""
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_NAMES))]
        return self._keep_at(names, tip, without=[base] if base else [])

    def give_to_user(self, branch: str, *, base: Oid = "") -> None:
        self.publish(branch, base=base)
        if tip := self.tip(branch):
            self._workspace.git.update_refs(f"delete {branch} {tip}")

    def unpin(self, pin: str) -> None:
        """Stop protecting the base from the user's `git gc`.

        A git that is killed while it deletes a ref leaves packed-refs.lock in the user's repository. So git does it
        only where the ref is not just one file.
        """
        ref, common = base_ref(pin), self._workspace.common_dir
        if ref.encode() in (read_file(common / "packed-refs") or b""):
            self._workspace.user.run("update-ref", "--no-deref", "-d", ref)
        else:
            (common / ref).unlink(missing_ok=True)

    def deliver(self, new: Oid, *, without: Oid) -> None:
        """Copy the candidate into the user's repository, checked by git's own fsck."""
        self._workspace.copy_to_user(new, without=[without], keep=LANDING_KEEP)

    def end_delivery(self) -> None:
        self._workspace.release_landed()

    # --- parking ------------------------------------------------------------------------------------------

    def park(self, oid: Oid, *, under: str) -> str:
        """Keep a commit below `refs/runplan/parked/<plan>/<phase>/`; the same commit gets the same ref."""
        home = parked_under(*under.split("/")[-2:])
        return self._keep_at([f"{home}{number}" for number in range(1, MOST_NAMES)], oid)

    def _keep_at(self, names: Sequence[str], oid: Oid, *, without: Sequence[Oid] = ()) -> str:
        """Make the first free of these refs in the user's repository, unless one of them has the commit already."""
        keep = self._workspace.copy_to_user(oid, without=without)
        refs = refs_snapshot(self._workspace.common_dir)
        ref = next((name for name in names if refs.get(name) == oid), "")
        if not ref:
            ref = next(name for name in names if name not in refs)
            self._workspace.user.update_refs(f"create {ref} {oid}")
        if keep:
            keep.unlink(missing_ok=True)
        return ref

    def rescue(self, lane: Lane, *, under: str, base: Oid | None) -> str:
        """Park commits and uncommitted files that only this lane holds; the last ref made.

        Files whose repository is gone are compared with `base`.
        """
        parked = ""
        refs = lane.refs() if lane.has_repository else {}
        if _is_oid(lane.head):
            refs["HEAD"] = lane.head
        for ref, oid in refs.items():
            if self._workspace.git.object(oid) is None:
                with suppress(ObjectsRefused):  # git cannot keep objects that it cannot read
                    lane.take(oid)
                    suffix = "" if ref.startswith(HEADS) else f"-{ref.rpartition('/')[2]}"
                    parked = self.park(oid, under=f"{under}{suffix}")
        history: list[str] = []
        if base and lane.is_orphan:
            lane.adopt(base)
            history = self._workspace.git.text("log", "--format=%T", base).split()
        if not lane.exists or lane.is_disposable:
            return parked
        return self._park_uncommitted(lane, under=under, known=history) or parked

    def _park_uncommitted(self, lane: Lane, *, under: str, known: Sequence[str] = ()) -> str:
        """Park the differences from the commit it stands on, unless the files are one of the `known` trees."""
        state = lane.state()
        if nested := next((one.path for one in state.untracked if one.path.endswith("/")), ""):
            raise RefusedEarly(f"{lane.path / nested} is a git repository inside a worktree; move it somewhere else")
        if state.clean:
            return ""
        paths = [*state.changed, *(file.path for file in state.untracked)]
        message = f"Uncommitted work found in {under}\n"
        try:
            made = lane.commit(paths, KEEPER, message=message)
        except GitFailed:  # an attribute or filter of the project's fails; the content counts
            made = lane.commit_verbatim(paths, KEEPER, message=message)
        return "" if known and self._workspace.git.commit(made).tree in known else self.park(made, under=under)


def standing(git: Git, branch: str, base: Oid) -> BranchStanding:
    tip = git.tip(branch)
    if tip in (None, base):
        return BranchStanding()
    behind, ahead = map(int, git.text("rev-list", "--left-right", "--count", f"{base}...{tip}").split())
    made = git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
    people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
    return BranchStanding(ahead=ahead, behind=behind, by_agents=all(is_agent(who) for who in people))


def _is_oid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
