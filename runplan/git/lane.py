"""A lane: the repository and the worktree in which the agents of one line of phases work.

The agent sees `lanes/<name>.git` through a real `git worktree`. runplan looks at the same files through a git
directory of its own, `tool.git/worktrees/<name>`, with its own HEAD and index. So nothing an agent does to its
repository changes what runplan's git runs or sees. No process of an agent may live during these calls.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed
from runplan.git.command import SETTINGS, Git, configured, failure
from runplan.git.objects import SYMLINK, Entry, ObjectWriter, Signature, identity_env
from runplan.git.repository import refs_snapshot
from runplan.git.workspace import delete_tree, make_writable, write_whole
from runplan.gitfacts import Identity, Untracked
from runplan.store.files import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runplan.git.workspace import Workspace
    from runplan.gitfacts import Oid

MANY = 100  #: from so many files on they are synced to the disk together
_STATUS = ("status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching",
           "--ignore-submodules=dirty")  # fmt: skip
_SETTINGS = (*SETTINGS, "core.fsync=none,objects")  #: HEAD and index are made again when they are lost
_SHOWN, _TAKEN = "shown", "taken"  #: notes in runplan's git directory
_KEPT = frozenset({"commondir", "gitdir", "locked", "logs"})  #: of the agent's git directory, when it is renewed

_KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")
#: Of commits that only keep uncommitted files; the same content kept twice is the same commit.
KEEPER = Signature(author=_KEEPER, committer=_KEEPER, when="0 +0000")


class Unstored(Struct, frozen=True, kw_only=True):
    """Git cannot store this file as it is; nothing was committed."""

    path: str
    why: str  #: git's error, on one line
    filtered: bool = False  #: a filter of the user's failed on it


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
        write_whole(self.repository / "packed-refs", os.fsencode(packed))

    def adopt(self, commit: Oid) -> None:
        """Compare files whose repository is gone with `commit`."""
        self._link(commit)
        self.compare_with(commit)

    def _link(self, commit: Oid) -> None:
        self._ours.mkdir(parents=True, exist_ok=True)
        (self._ours / "commondir").write_text("../..\n")
        (self._ours / "gitdir").write_bytes(os.fsencode(self.path / ".git") + b"\n")
        write_whole(self._ours / "HEAD", f"{commit}\n".encode())

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
        write_whole(self._ours / "HEAD", f"{commit}\n".encode())
        self.sync_agent(commit)

    def sync_agent(self, commit: Oid, *, branch: str = "") -> None:
        """Set the agent's HEAD, branch and index to runplan's, and remove locks of a killed git."""
        for lock in (*self.repository.glob("*.lock"), *self.repository.glob("refs/**/*.lock")):
            lock.unlink()
        (self._ours / _TAKEN).unlink(missing_ok=True)
        for left in self._theirs.iterdir():
            if left.name not in _KEPT:
                delete_tree(left) if left.is_dir() else left.unlink()
        if branch:
            self._set_branch(branch, commit)
        write_whole(self._theirs / "HEAD", (f"ref: {branch}\n" if branch else f"{commit}\n").encode())
        shutil.copyfile(self._ours / "index", self._theirs / "index")

    def _set_branch(self, branch: str, commit: Oid) -> None:
        place = self.repository / branch
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, f"{commit}\n".encode())
        except OSError:  # another branch of the agent's is a file where a directory is needed, or the reverse
            delete_tree(self.repository / "refs" / "heads")
            place.parent.mkdir(parents=True)
            write_whole(place, f"{commit}\n".encode())

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
    def taken(self) -> str | None:
        """The agent's branch and HEAD when its commits were taken last."""
        return first_line(self._ours / _TAKEN)

    def note_taken(self, refs: str) -> None:
        if self._ours.is_dir():
            write_whole(self._ours / _TAKEN, f"{refs}\n".encode())

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
        return refs_snapshot(self.repository, self._git)

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
        if ran.code and unstored(ran.err):  # a required filter fails: compare the files without filters
            ran = self._git.run(*_STATUS, env=locks | configured(*self._workspace.without_filters()))
        elif ran.code:
            raise GitFailed(failure(_STATUS, ran, self.path))
        state = read_status(ran.out, self.path, head=self.base)
        self.pristine = state.clean and not state.ignored
        return state

    def commit(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid | Unstored:
        """Commit the named files as they are, and stand on the new commit."""
        self._unlock()
        names = b"\0".join(os.fsencode(name) for name in paths)
        env = configured("core.fsyncMethod=batch") if len(paths) > MANY else {}
        asked = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        ran = self._git.run(*asked, stdin=names, env=env, ok=(0, 128))
        if ran.code != 0:
            if refused := unstored(ran.err):
                return refused
            raise GitFailed(failure(asked, ran, self.path))
        return self._commit_index(message, by)

    def commit_verbatim(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid:
        """A commit of the named files byte for byte, when git cannot convert them as their attributes say."""
        tool = self._workspace.git
        writer = ObjectWriter(tool, self._workspace.path)
        files = {name: self._verbatim(writer, name) for name in paths}
        return writer.commit(writer.tree_with(tool.commit(self.base).tree, files), self.base, by, message)

    def _verbatim(self, writer: ObjectWriter, name: str) -> Entry | None:
        place = self.path / name
        if not os.path.lexists(place):
            return None
        linked = place.is_symlink()
        content = os.fsencode(os.readlink(place)) if linked else place.read_bytes()  # noqa: PTH115
        mode = SYMLINK if linked else "100755" if os.access(place, os.X_OK) else "100644"
        return Entry(mode, writer.write("blob", content, like=self.base))

    def _commit_index(self, message: str, by: Signature) -> Oid:
        tree, text = self._git.text("write-tree"), message.encode("utf-8", "surrogateescape")
        new = self._git.run("commit-tree", tree, "-p", self.base, stdin=text, env=identity_env(by)).text
        write_whole(self._ours / "HEAD", f"{new}\n".encode())
        return new


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
        untracked=tuple(Untracked(path=path, size=_size(top / path)) for path in sorted(found[b"?"])),
        ignored=bool(found[b"!"]),
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # deleted meanwhile


#: Errors of the repository or the disk, not of a file.
_PLACE = re.compile(
    r"\.lock\b|No space left|quota|Read-only file system|Input/output error|repository database|object database"
)
#: Git's errors about a file that it does not store; the group is its path.
_REFUSED = (
    r"failed to encode '(.+)' from \S+ to",
    r"BOM is (?:required|prohibited) in '(.+)' if encoded as",
    r"encoding '(.+)' from \S+ to \S+ and back is not the same",
    r"()true/false are no valid working-tree-encodings",
    r"C?R?LF would be replaced by \w+ in (.+)",
    r"fatal: (.+): '.*' is outside repository",
    r"Unable to process path (.+)",
)
_FILTER = r"(?:fatal|error): ([^:]+): clean filter '.*' failed"
_LONGEST = 8_192  #: characters at the end of git's output that are searched


def unstored(said: str) -> Unstored | None:
    """The file that git, by its error output, cannot store; None when it failed for another reason."""
    said = said[-_LONGEST:]
    if _PLACE.search(said):
        return None
    for pattern in (*_REFUSED, _FILTER):
        if found := re.search(pattern, said):
            lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("hint:")]
            why = " / ".join(re.sub("^(?:fatal|error): ", "", line) for line in lines)
            return Unstored(path=found[1] or "a file", why=why, filtered=pattern == _FILTER)
    return None
