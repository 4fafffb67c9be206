"""Looks at the checkouts of a repository: who has the target out, and what in there must not be touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import read_file
from runplan.adapters.trees import SUBMODULE
from runplan.core.commands import command
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Change

HEADS = "refs/heads/"
#: What lies in the git directory of a checkout while git waits there for a person to go on.
_MARKS = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
}
#: Files that name the branch an operation will move or return to when it ends, wherever HEAD is meanwhile.
_NAMED_IN = {
    "rebase-merge/head-name": "rebase",
    "rebase-apply/head-name": "rebase",
    "rebase-merge/update-refs": "rebase",
    "BISECT_START": "bisect",
}
#: Beyond this many paths one look at the whole checkout is cheaper than a command line that long.
_MOST_PATHS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCheckout:
    """A working tree with its own HEAD and index."""

    root: Path
    git_dir: Path  #: where its HEAD and index lie; the common directory for the main checkout

    @property
    def lock(self) -> Path:
        return self.git_dir / "index.lock"


class Checkouts:
    """Every checkout of one repository, read from the files: asking git would cost a process each landing."""

    def __init__(self, git: Git, *, root: Path, common_dir: Path) -> None:
        self._git = git
        self._root = root
        self._common = common_dir

    def all(self) -> Iterator[TargetCheckout]:
        """The main checkout first; also those whose directory is gone."""
        if _is_main(self._root, self._common):
            yield TargetCheckout(root=self._root, git_dir=self._common)
        for link in sorted(self._common.glob("worktrees/*/gitdir")):
            named = _read(link)
            if named:  # absolute, or since git 2.48 relative to where it is written
                yield TargetCheckout(root=Path(os.path.normpath(link.parent / named)).parent, git_dir=link.parent)

    def branch(self, checkout: TargetCheckout) -> str | None:
        """The full name of the branch that is out, or None."""
        if (self._common / "reftable").is_dir():
            return self._git.at(checkout.root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or None
        head = checkout.git_dir / "HEAD"
        if head.is_symlink():
            return str(head.readlink())
        text = _read(head)
        return text.removeprefix("ref: ") if text.startswith("ref: ") else None

    def having(self, ref: str) -> tuple[TargetCheckout, ...]:
        """Those that have `ref` out; one whose directory is gone counts only while it is locked."""
        return tuple(
            one
            for one in self.all()
            if (one.root.is_dir() or (one.git_dir / "locked").exists()) and self.branch(one) == ref
        )

    def pull(self, ref: str, remote: str, *, how: str = "--ff-only") -> str:
        """The command that lets a local branch follow the remote's, whichever checkout has it out, if any."""
        branch = ref.removeprefix(HEADS)
        place = next((one.root for one in self.having(ref) if one.root.is_dir()), None)
        if place is not None:
            return command("git", "-C", str(place), "pull", how, remote, branch)
        if how == "--ff-only":
            return command("git", "fetch", remote, f"{branch}:{branch}")
        return f"{command('git', 'switch', branch)} && {command('git', 'pull', how, remote, branch)}"

    def under_way(self, ref: str) -> str:
        """What git is in the middle of, anywhere, that has to do with `ref`; empty when nothing."""
        branch = ref.removeprefix(HEADS)
        for one in self.all():
            for file, what in _NAMED_IN.items():
                if {ref, branch} & set(_read(one.git_dir / file).split()):
                    return f"a {what} of {branch} is under way in {one.root}; finish or abort it"
            found = next((what for mark, what in _MARKS.items() if (one.git_dir / mark).exists()), None)
            if found and one.root.is_dir() and self.branch(one) == ref:
                return f"a {found} is under way in {one.root}, which has {branch} checked out; finish or abort it"
        return ""


def _is_main(root: Path, common: Path) -> bool:
    """Whether `root` is the main checkout; behind linked worktrees a bare repository may lie."""
    dot_git = root / ".git"
    if dot_git.is_file():
        dot_git = root / _read(dot_git).removeprefix("gitdir: ")
    return dot_git.is_dir() and dot_git.samefile(common)


def _read(path: Path) -> str:
    return os.fsdecode(read_file(path, follow=True) or b"").strip()


# --- what must not be touched -------------------------------------------------------------------------


def edited(git: Git, changes: Sequence[Change], *, env: Mapping[str, str]) -> tuple[str, str] | None:
    """The first path of `changes` the user has edited or staged, and which of the two.

    One status, which also writes what it learns to the index named by `env`: a file that was merely touched
    counts as clean, here and for the `read-tree` that follows.
    """
    paths = {change.path for change in changes}
    named = sorted(paths) if len(paths) <= _MOST_PATHS else []
    told = git.run(
        *("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames"),
        *("--ignore-submodules=dirty", "--", *named),
        env={**env, "GIT_OPTIONAL_LOCKS": "1", "GIT_LITERAL_PATHSPECS": "1"},
    )
    for record in os.fsdecode(told.out).split("\0"):
        if record[3:] in paths:
            return record[3:], _word(record[:2])
    return None


def _word(code: str) -> str:
    if "U" in code or code in ("AA", "DD"):
        return "in conflict"
    if code == " D":
        return "deleted"
    return "edited" if code[1] != " " else "staged"


def in_the_way(root: Path, changes: Sequence[Change]) -> str:
    """The first path that git does not track and that would be overwritten or stands in for a directory.

    `read-tree` looks after untracked files, but overwrites ignored ones.
    """
    leaving = {change.path for change in changes if change.kind == "D"}
    for change in changes:
        if change.kind == "A" or (change.kind == "T" and change.old_mode == SUBMODULE):
            found = _blocker(root, change.path, leaving)
            if found:
                return found
    return ""


def _blocker(root: Path, path: str, leaving: Collection[str]) -> str:
    names = path.split("/")
    for count in range(1, len(names) + 1):
        here = "/".join(names[:count])
        try:
            mode = (root / here).lstat().st_mode
        except FileNotFoundError:
            return ""
        if not stat.S_ISDIR(mode):
            return "" if here in leaving else here
    return _stray(root, path, leaving)


def _stray(root: Path, directory: str, leaving: Collection[str]) -> str:
    """A file in a directory that has to make room for a file, unless the landing removes it."""
    for parent, links, files in os.walk(root / directory):
        inner = [name for name in links if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *inner]):
            path = (Path(parent) / name).relative_to(root).as_posix()
            if path not in leaving:
                return path
    return ""
