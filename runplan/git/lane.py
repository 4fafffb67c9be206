"""A lane: the repository and the worktree in which the agents of one line of phases work.

The agent sees `lanes/<name>.git` through a real `git worktree`. runplan looks at the same files through a git
directory of its own, `tool.git/worktrees/<name>`, with its own HEAD and index. So nothing an agent does to its
repository changes what runplan's git runs or sees. No process of an agent may live during these calls.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed
from runplan.git.checkout import read_status
from runplan.git.command import Git, configured, failure
from runplan.git.discovery import refs_snapshot
from runplan.git.removal import delete_tree, make_writable
from runplan.git.trailers import unstored
from runplan.git.workspace import write_whole
from runplan.gitfacts import Identity
from runplan.store.files import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.git.workspace import Workspace
    from runplan.gitfacts import Oid, Unstored, WorktreeState

HEADS = "refs/heads/"
MANY = 100  #: from so many files on they are brought to the disk together
_STATUS = ("status", "--porcelain=v2", "-z", "--branch", "--no-renames", "--untracked-files=all")
_SHOWN, _TAKEN = "shown", "taken"  #: notes in runplan's git directory
_KEPT = frozenset({"commondir", "gitdir", "locked", "logs"})  #: of the agent's git directory, when it is renewed


class Signature(Struct, frozen=True, kw_only=True):
    """Who makes a commit, and when."""

    author: Identity
    committer: Identity
    when: str


_KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")
#: Of commits that only keep uncommitted files; the same content kept twice is the same commit.
KEEPER = Signature(author=_KEEPER, committer=_KEEPER, when="0 +0000")


class Lane:
    """One worktree and its two views: the agent's and runplan's."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.name = name
        self._workspace = workspace
        self.repository = workspace.lanes / f"{name}.git"
        self.path = workspace.root / name
        self._theirs = self.repository / "worktrees" / name
        self._ours = workspace.path / "worktrees" / name
        words = (f"--git-dir={self._ours}", f"--work-tree={self.path}")
        self._git = Git(self.path, env=workspace.env, options=words, filters=True)
        self.pristine = False  #: the last status found nothing but the commit, and no process ran there since

    # --- making it ---------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether its files are there, seen with runplan's own git directory.

        Under the sandbox the directory is a mount: `git worktree remove` leaves it empty.
        """
        return self.path.is_dir() and any(self.path.iterdir()) and bool(self.standing)

    @property
    def intact(self) -> bool:
        """Whether the agent's view is in order: the link to its repository and the repository itself."""
        linked = first_line(self.path / ".git") == f"gitdir: {self._theirs}"
        return linked and (self._theirs / "commondir").is_file() and (self.repository / "objects").is_dir()

    def renew(self, base: Oid, *, mirror: Sequence[str]) -> None:
        """Give the agent's repository its refs and configuration anew; nothing of an earlier phase stays."""
        if not (self.exists and self.intact):
            self._make(base)
        self._workspace.refresh(self.repository)
        for name in ("refs", "hooks", "logs", "modules"):
            delete_tree(self.repository / name)
        (self.repository / "refs" / "heads").mkdir(parents=True)
        refs = sorted(self._workspace.mirrored(mirror).items())
        packed = "# pack-refs with: sorted \n" + "".join(f"{oid} {name}\n" for name, oid in refs)
        write_whole(self.repository / "packed-refs", os.fsencode(packed))

    @property
    def is_orphan(self) -> bool:
        """Whether files lie there whose repository is gone: the state directory was deleted."""
        return not self.exists and self.path.is_dir() and any(one.name != ".git" for one in self.path.iterdir())

    def adopt(self, commit: Oid) -> None:
        """See files whose repository is gone as changes of `commit`."""
        self._see(commit)
        self.stand_on(commit)

    def _see(self, commit: Oid) -> None:
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
        self.note_shown()  # it has no files yet, and that is nobody's work
        self._see(base)

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
        """Make the files exactly `commit`, on `branch` or detached; `clean` says what else may stay."""
        self._unlock()
        self._git.run("reset", "-q", "--hard", commit)
        if clean:
            self._sweep(clean, keep)
        self.show_agent(commit, branch=branch)

    def move_to(self, commit: Oid) -> None:
        """Stand on another commit with the same files, detached."""
        write_whole(self._ours / "HEAD", f"{commit}\n".encode())
        self.show_agent(commit)

    def show_agent(self, commit: Oid, *, branch: str = "") -> None:
        """Let the agent's HEAD, branch and index say the same as runplan's; locks of a killed git go."""
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
        except OSError:  # another branch of the agent's stands where a directory is needed, or the other way round
            delete_tree(self.repository / "refs" / "heads")
            place.parent.mkdir(parents=True)
            write_whole(place, f"{commit}\n".encode())

    def _sweep(self, clean: str, keep: Sequence[str]) -> None:
        words = [
            "clean",
            "-ffdq",
            *(["-x"] if clean == "ignored" else []),
            *(f"--exclude=/{_literal(one)}" for one in keep),
        ]
        if self._git.run(*words, ok=(0, 1, 128)).code != 0:
            make_writable(self.path)
            self._git.run(*words)

    def _unlock(self) -> None:
        """A git of ours that was killed leaves its lock; nobody else works in this git directory."""
        for left in self._ours.glob("*.lock"):
            left.unlink(missing_ok=True)

    # --- whose files lie there --------------------------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Whether the files were put there for a check or a verifier; what lies about is nobody's work."""
        return (self._ours / _SHOWN).exists()

    def note_shown(self) -> None:
        self.pristine = False
        (self._ours / _SHOWN).touch()

    def note_work(self) -> None:
        self.pristine = False
        (self._ours / _SHOWN).unlink(missing_ok=True)

    @property
    def taken(self) -> tuple[str, str] | None:
        """Where the agent's branch and HEAD stood when its commits were taken last."""
        own, _, head = (first_line(self._ours / _TAKEN) or "-").partition(" ")
        return None if own == "-" else (own, head)

    def note_taken(self, own: str, head: str) -> None:
        if self._ours.is_dir():
            write_whole(self._ours / _TAKEN, f"{own} {head}\n".encode())

    @property
    def standing(self) -> Oid:
        """The commit that the files are compared with; empty when there is none."""
        return first_line(self._ours / "HEAD") or ""

    # --- what an agent left -------------------------------------------------------------------------------

    @property
    def head(self) -> str:
        """Where the agent's HEAD stands: a full ref name, or a commit when it is detached; empty when unreadable."""
        return (first_line(self._theirs / "HEAD") or "").removeprefix("ref: ")

    def refs(self) -> dict[str, Oid]:
        """Every ref of the agent's repository."""
        return refs_snapshot(self.repository, self._git)

    def take(self, tips: Sequence[Oid], *, without: Sequence[Oid]) -> None:
        """Copy commits of the agent's into `tool.git`."""
        self._workspace.take(self.repository / "objects", tips, without=without)

    def stand_on(self, commit: Oid) -> None:
        """Take `commit` for what the files are compared with; the files stay as they are."""
        self._unlock()
        self._git.run("reset", "-q", "--mixed", commit)

    def state(self) -> WorktreeState:
        """What differs from the commit it stands on; one scan of the files."""
        self._unlock()
        asked = (*_STATUS, "--ignored=matching", "--ignore-submodules=dirty")
        locks = {"GIT_OPTIONAL_LOCKS": "1"}
        ran = self._git.run(*asked, env=locks, ok=(0, 128))
        if ran.code and unstored(ran.err):  # a filter that must succeed fails: compare the files without filters
            ran = self._git.run(*asked, env=locks | configured(*self._workspace.without_filters()))
        elif ran.code:
            raise GitFailed(failure(asked, ran, self.path))
        state = read_status(ran.out, self.path)
        self.pristine = state.clean and not state.ignored
        return state

    def commit(self, paths: Sequence[str], by: Signature, *, message: str) -> Oid | Unstored:
        """Commit the named files as they are, on the commit it stands on; it stands on the new one afterwards."""
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
        """The same byte for byte, for files that git cannot convert as their attributes say."""
        self._unlock()
        entries = b"".join(self._verbatim(name) for name in paths)
        self._git.run("update-index", "-z", "--index-info", stdin=entries)
        return self._commit_index(message, by)

    def _verbatim(self, name: str) -> bytes:
        place = self.path / name
        if not os.path.lexists(place):
            return b"0 " + b"0" * len(self.standing) + b"\t" + os.fsencode(name) + b"\0"
        linked = place.is_symlink()
        content = os.fsencode(os.readlink(place)) if linked else place.read_bytes()  # noqa: PTH115
        oid = self._git.run("hash-object", "-w", "--stdin", "--no-filters", stdin=content).text
        mode = "120000" if linked else "100755" if os.access(place, os.X_OK) else "100644"
        return f"{mode} {oid}\t".encode() + os.fsencode(name) + b"\0"

    def _commit_index(self, message: str, by: Signature) -> Oid:
        tree = self._git.text("write-tree")
        who = {
            f"GIT_{role}_{field}": value
            for role, one in (("AUTHOR", by.author), ("COMMITTER", by.committer))
            for field, value in (("NAME", one.name), ("EMAIL", one.email), ("DATE", f"@{by.when}"))
        }
        text = message.encode("utf-8", "surrogateescape")
        new = self._git.run("commit-tree", tree, "-p", self.standing, stdin=text, env=who).text
        write_whole(self._ours / "HEAD", f"{new}\n".encode())
        return new


def _literal(name: str) -> str:
    """A name as an ignore pattern that means only itself."""
    return "".join(f"\\{sign}" if sign in "\\*?[ " else sign for sign in name)
