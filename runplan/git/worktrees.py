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
from runplan.git.objects import KEEPER, SYMLINK, Candidates, Entry, Signature, identity_env
from runplan.git.repository import refs_snapshot
from runplan.git.workspace import delete_tree, make_writable
from runplan.gitfacts import Identity, Untracked, is_agent
from runplan.names import HEADS, base_ref
from runplan.store.files import first_line, publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.git.workspace import Workspace
    from runplan.gitfacts import Oid

MANY = 100  #: from so many files on they are synced to the disk together
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching",
           "--ignore-submodules=dirty")  # fmt: skip
_SETTINGS = (*SETTINGS, "core.fsync=none,objects")  #: HEAD and index are made again when they are lost
_KEPT = frozenset({"commondir", "gitdir", "locked", "logs"})  #: of the agent's git directory, when it is renewed

#: Errors of the repository or the disk, not of a file.
_PLACE = re.compile(r"\.lock\b|No space left|quota|Read-only file system|Input/output error|database")
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
        if not _NAME.fullmatch(name):
            raise RefusedEarly(f"{name!r} cannot be the name of a worktree; use letters, digits, dot, dash, underscore")
        self.name = name
        self._workspace = workspace
        self._tool = workspace.git
        self.repository = workspace.lanes / f"{name}.git"
        self.path = workspace.root / name
        self._theirs = self.repository / "worktrees" / name
        self._ours = workspace.path / "worktrees" / name
        self._shown = self._ours / "shown"
        options = (f"--git-dir={self._ours}", f"--work-tree={self.path}")
        self._git = Git(self.path, env=workspace.env, options=options, settings=_SETTINGS, own_session=True)
        self._pristine = False  #: the last status found only the commit, and no process ran there since

    @property
    def exists(self) -> bool:
        """Whether its files are there. Under the sandbox `git worktree remove` leaves an empty mount point."""
        return self.path.is_dir() and any(self.path.iterdir()) and bool(self.base)

    @property
    def is_orphan(self) -> bool:
        """Whether files are there whose repository is gone: the state directory was deleted."""
        return not self.exists and self.path.is_dir() and any(one.name != ".git" for one in self.path.iterdir())

    @property
    def has_repository(self) -> bool:
        return (self.repository / "objects").is_dir()

    @property
    def base(self) -> Oid:
        """The commit that the files are compared with; empty when there is none."""
        return first_line(self._ours / "HEAD") or ""

    @property
    def head(self) -> str:
        """The agent's HEAD: a full ref name, or a commit when it is detached; empty when unreadable."""
        return (first_line(self._theirs / "HEAD") or "").removeprefix("ref: ")

    @property
    def is_disposable(self) -> bool:
        """Whether the files were put there for a check or a verifier, so that other files are not an agent's work."""
        return self._shown.exists()

    def mark_disposable(self) -> None:
        self._pristine = False
        self._shown.touch()

    # --- lending ------------------------------------------------------------------------------------------

    def lease(
        self, *, branch: str, base: Oid, pin: str, onto: Oid = "", clean: str = "ignored", keep: Sequence[str] = ()
    ) -> Path:
        """The worktree on a new branch with exactly the files of `base`; earlier work in it is parked.

        `pin` names the ref that protects `base` from the user's `git gc`. Where `base` is a commit of ours, `onto` is
        the user's commit below it.
        """
        self._workspace.user.update_refs(f"update {base_ref(pin)} {onto or base}")
        with self._workspace.lock():
            self.rescue(under=branch, base=base)
            if self.exists:
                self.mark_disposable()  # until the files are those of the base
            self._renew(base)
        self._tool.update_refs(f"update {branch} {base}")
        self._put(base, branch=branch, clean=clean, keep=keep)
        return self._give_to_agent()

    def attach(self, *, branch: str, clean: str = "ignored", keep: Sequence[str] = ()) -> Path:
        """The worktree on `branch`; uncommitted work of an interrupted agent stays in it."""
        tip = self._tool.tip(branch)
        if tip is None:
            raise RefusedEarly(f"the branch {branch.removeprefix(HEADS)} is gone; start the phase again")
        if self._require_whole(tip) or self.is_disposable:
            self._put(tip, branch=branch, clean=clean, keep=keep)
        else:
            self.stand_on(tip)
            self._sync_agent(tip, branch=branch)
        return self._give_to_agent()

    def show(self, commit: Oid, *, clean: str, keep: Sequence[str] = ()) -> None:
        """Exactly `commit`, detached, for a check or a verifier; every other file is deleted."""
        self._require_whole(commit)
        same_files = self._pristine and self._tool.commit(commit).tree == self._tool.commit(self.base).tree
        self.mark_disposable()
        if same_files:
            self._set_base(commit)
            self._sync_agent(commit)
        else:
            self._put(commit, clean=clean, keep=keep)

    def copy(self, names: Sequence[str], from_root: Path) -> None:
        for name in names:
            source, goal = from_root / name, self.path / name
            inside = goal.parent.resolve().is_relative_to(self.path.resolve()) and ".." not in goal.parts
            if not inside or Path(name).parts[:1] == (".git",):
                raise SettingsError(f"run.copy: {name} is not inside the repository; name files of the checkout")
            if not source.is_file():
                raise SettingsError(f"run.copy: there is no file {source}; create it, or remove it from run.copy")
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.unlink(missing_ok=True)
            shutil.copy2(source, goal)

    def _give_to_agent(self) -> Path:
        self._pristine = False
        self._shown.unlink(missing_ok=True)
        return self.path

    def _require_whole(self, commit: Oid) -> bool:
        """Make a missing or broken worktree again; whether that was necessary."""
        if self._is_whole():
            return False
        with self._workspace.lock():
            self._renew(commit)
        return True

    def _is_whole(self) -> bool:
        """Whether its files are there, and the agent's repository with the link to it."""
        linked = self.exists and first_line(self.path / ".git") == f"gitdir: {self._theirs}"
        return linked and (self._theirs / "commondir").is_file() and self.has_repository

    def _renew(self, base: Oid) -> None:
        """Write the refs and configuration of the agent's repository; nothing of an earlier phase stays."""
        if not self._is_whole():
            self.remove()
            self._workspace.make_bare(self.repository)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            git = Git(self.repository.parent, env=self._workspace.env, options=(f"--git-dir={self.repository}",))
            git.run("worktree", "add", "-q", "--lock", "--detach", "--no-checkout", str(self.path), base)
            self._ours.mkdir(parents=True)
            self.mark_disposable()  # it has no files yet, and that is not an agent's work
            self._link(base)
        self._workspace.refresh(self.repository)
        for name in ("refs", "hooks", "logs", "modules"):
            delete_tree(self.repository / name)
        (self.repository / "refs" / "heads").mkdir(parents=True)
        refs = sorted(self._workspace.mirrored().items())
        packed = "# pack-refs with: sorted \n" + "".join(f"{oid} {name}\n" for name, oid in refs)
        publish(self.repository / "packed-refs", os.fsencode(packed), sync=False)

    def _link(self, commit: Oid) -> None:
        """Make runplan's view of the files."""
        self._ours.mkdir(parents=True, exist_ok=True)
        (self._ours / "commondir").write_text("../..\n")
        (self._ours / "gitdir").write_bytes(os.fsencode(self.path / ".git") + b"\n")
        self._set_base(commit)

    def _set_base(self, commit: Oid) -> None:
        publish(self._ours / "HEAD", f"{commit}\n".encode(), sync=False)

    def remove(self) -> None:
        """Delete the worktree, the agent's repository and runplan's view of them."""
        self._pristine = False
        for place in (self.path, self.repository, self._ours):
            if place.is_dir() and not place.is_symlink():
                delete_tree(place)
            else:
                place.unlink(missing_ok=True)

    def _put(self, commit: Oid, *, branch: str = "", clean: str, keep: Sequence[str] = ()) -> None:
        """Make the files exactly `commit`, on `branch` or detached; `clean` says which other files go."""
        self._unlock()
        self._git.run("reset", "-q", "--hard", commit)
        if clean:
            excluded = ("--exclude=/" + re.sub(r"([\\*?[ ])", r"\\\1", name) for name in keep)
            words = ["clean", "-ffdq", *(["-x"] if clean == "ignored" else []), *excluded]
            if self._git.run(*words, ok=(0, 1, 128)).code != 0:
                make_writable(self.path)
                self._git.run(*words)
        self._sync_agent(commit, branch=branch)

    def _sync_agent(self, commit: Oid, *, branch: str = "") -> None:
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

    def _unlock(self) -> None:
        """Remove the lock of a git of ours that was killed; no other process works in this git directory."""
        for left in self._ours.glob("*.lock"):
            left.unlink(missing_ok=True)

    # --- an agent's work ----------------------------------------------------------------------------------

    def take(self, *, branch: str, base: Oid) -> Oid:
        """Copy the agent's commits into `tool.git`, once; the newest one.

        Where the given branch has not moved, the agent's HEAD counts: it may have made a branch of its own. Where
        neither has new commits, the commits taken before count; the files are still there.
        """
        tip = before = self._tool.tip(branch) or base
        if not self.has_repository:
            return before
        refs = refs_snapshot(self.repository)
        own, at_head = refs.get(branch, ""), refs.get(self.head, self.head)
        if own not in ("", before):
            tip = self._take(own, without=[base, before])
        elif _is_oid(at_head) and self._tool.object(at_head) is None:
            with suppress(ObjectsRefused):  # HEAD may lead to nothing
                tip = self._take(at_head, without=[base, before])
        if self.exists:
            if _is_oid(at_head) and at_head != tip and self._tool.object(at_head) is not None:
                self._compare_with(at_head)  # the agent left another commit checked out
                self._park_uncommitted(under=branch)
                self._put(tip, branch=branch, clean="")
            else:
                self.stand_on(tip)
        if tip != before:
            self._move(branch, tip)
        self._workspace.merge_packs()
        return tip

    def _take(self, tip: Oid, *, without: Sequence[Oid] = ()) -> Oid:
        self._workspace.take(self.repository / "objects", tip, without=without)
        return tip

    def _move(self, branch: str, tip: Oid) -> None:
        """The agent's branch follows first: as long as both agree, the agent has not moved it."""
        if self._is_whole():
            self._sync_agent(tip, branch=branch)
        self._tool.update_refs(f"update {branch} {tip}")

    def stand_on(self, tip: Oid) -> None:
        """Compare the files with the branch: a failure may have come between a commit of leftovers and its ref."""
        if self.base != tip:
            self._compare_with(tip)

    def _compare_with(self, commit: Oid) -> None:
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
        self._pristine = state.clean and not state.ignored
        return state

    def commit_leftovers(self, paths: Sequence[str], *, branch: str, message: str, by: Signature) -> Oid:
        """Commit exactly the named files, as they are in the worktree (also their deletion)."""
        made = self._commit(paths, by, message=message)
        self._move(branch, made)
        return made

    def _commit(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid:
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
        self._set_base(new)
        return new

    def _commit_verbatim(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid:
        """A commit of the named files byte for byte, when git cannot convert them as their attributes say."""
        writer = Candidates(self._tool, common_dir=self._workspace.path)
        files: dict[str, Entry | None] = dict.fromkeys(paths)
        for name in (name for name in paths if os.path.lexists(self.path / name)):
            place = self.path / name
            linked = place.is_symlink()
            content = os.fsencode(os.readlink(place)) if linked else place.read_bytes()  # noqa: PTH115
            mode = SYMLINK if linked else "100755" if os.access(place, os.X_OK) else "100644"
            files[name] = Entry(mode, writer.write("blob", content, self.base))
        tree = writer.tree_with(self._tool.commit(self.base).tree, files)
        return writer.commit(tree, onto=self.base, message=message, by=by)

    # --- parking ------------------------------------------------------------------------------------------

    def rescue(self, *, under: str, base: Oid | None) -> str:
        """Park commits and uncommitted files that only this lane holds; the last ref made.

        Files whose repository is gone are compared with `base`.
        """
        parked = ""
        refs = refs_snapshot(self.repository) if self.has_repository else {}
        if _is_oid(self.head):
            refs["HEAD"] = self.head
        for ref, oid in refs.items():
            if self._tool.object(oid) is None:
                with suppress(ObjectsRefused):  # git cannot keep objects that it cannot read
                    self._take(oid)
                    suffix = "" if ref.startswith(HEADS) else f"-{ref.rpartition('/')[2]}"
                    parked = self._workspace.park(oid, under=f"{under}{suffix}")
        known: list[str] = []
        if base and self.is_orphan:
            self._link(base)
            self._compare_with(base)
            known = self._tool.text("log", "--format=%T", base).split()
        if not self.exists or self.is_disposable:
            return parked
        return self._park_uncommitted(under=under, known=known) or parked

    def _park_uncommitted(self, *, under: str, known: Sequence[str] = ()) -> str:
        """Park the differences from the commit it stands on, unless the files are one of the `known` trees."""
        state = self.state()
        if nested := next((one.path for one in state.untracked if one.path.endswith("/")), ""):
            raise RefusedEarly(f"{self.path / nested} is a git repository inside a worktree; move it somewhere else")
        if state.clean:
            return ""
        paths = [*state.changed, *(file.path for file in state.untracked)]
        message = f"Uncommitted work found in {under}\n"
        try:
            made = self._commit(paths, KEEPER, message=message)
        except GitFailed:  # an attribute or filter of the project's fails; the content counts
            made = self._commit_verbatim(paths, KEEPER, message=message)
        return "" if known and self._tool.commit(made).tree in known else self._workspace.park(made, under=under)


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


class Worktrees:
    """The worktrees of one project."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._lanes: dict[str, Lane] = {}

    def lane(self, name: str) -> Lane:
        if name not in self._lanes:
            self._lanes[name] = Lane(self.workspace, name)
        return self._lanes[name]

    def path(self, name: str) -> Path:
        return self.lane(name).path


def is_users_own(git: Git, branch: str, base: Oid) -> bool:
    """Whether a branch has commits that no agent of ours made, or only lacks commits of the base."""
    tip = git.tip(branch)
    if tip in (None, base):
        return False
    behind, ahead = map(int, git.text("rev-list", "--left-right", "--count", f"{base}...{tip}").split())
    made = git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
    people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
    return not all(map(is_agent, people)) if ahead else behind > 0


def _is_oid(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is not None
