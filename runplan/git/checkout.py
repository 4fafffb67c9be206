"""The checkouts of a repository: which of them have a branch out, and one's status read whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.gitfacts import Untracked, WorktreeState
from runplan.store.files import read_file
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.git.command import Git


HEADS = "refs/heads/"


class TargetCheckout(Struct, frozen=True, kw_only=True):
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
        self.common_dir = common_dir

    def all(self) -> Iterator[TargetCheckout]:
        """The main checkout first; also those whose directory is gone."""
        if _is_main(self._root, self.common_dir):
            yield TargetCheckout(root=self._root, git_dir=self.common_dir)
        for link in sorted(self.common_dir.glob("worktrees/*/gitdir")):
            named = read_line(link)
            if named:  # absolute, or since git 2.48 relative to where it is written
                yield TargetCheckout(root=Path(os.path.normpath(link.parent / named)).parent, git_dir=link.parent)

    def reachable(self) -> Iterator[TargetCheckout]:
        """Those whose directory is there."""
        return (one for one in self.all() if one.root.is_dir())

    def branch(self, checkout: TargetCheckout) -> str | None:
        """The full name of the branch that is out, or None."""
        if (self.common_dir / "reftable").is_dir():
            return self._git.at(checkout.root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or None
        head = checkout.git_dir / "HEAD"
        if head.is_symlink():
            return str(head.readlink())
        text = read_line(head)
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


def _is_main(root: Path, common: Path) -> bool:
    """Whether `root` is the main checkout; behind linked worktrees a bare repository may lie."""
    dot_git = root / ".git"
    if dot_git.is_file():
        dot_git = root / read_line(dot_git).removeprefix("gitdir: ")
    return dot_git.is_dir() and dot_git.samefile(common)


def read_line(path: Path) -> str:
    return os.fsdecode(read_file(path) or b"").strip()


#: How many blank-separated fields stand before the path: changed, unmerged, untracked, ignored.
_FIELDS = {b"1": 8, b"u": 10, b"?": 1, b"!": 1}


def nested_repository(state: WorktreeState) -> str:
    """A repository that lies inside, if there is one: git names it with a slash and looks no further."""
    return next((one.path for one in state.untracked if one.path.endswith("/")), "")


def read_status(output: bytes, top: Path) -> WorktreeState:
    """Read porcelain v2; sizes are taken from the files under `top`."""
    records = [record for record in output.split(b"\0") if record]
    heads = dict(_header(record) for record in records if record.startswith(b"# "))
    named = [(record[:1], os.fsdecode(record.split(b" ", _FIELDS[record[:1]])[-1])) for record in records
             if record[:1] in _FIELDS]  # fmt: skip
    branch = heads.get("branch.head", "(detached)")
    return WorktreeState(
        head=heads.get("branch.oid", ""),
        branch=None if branch == "(detached)" else f"refs/heads/{branch}",
        changed=_sorted(path for kind, path in named if kind in (b"1", b"u")),
        untracked=tuple(
            Untracked(path=path, size=_size(top / path))
            for path in _sorted(path for kind, path in named if kind == b"?")
        ),
        ignored=any(kind == b"!" for kind, _ in named),
    )


def _header(record: bytes) -> tuple[str, str]:
    name, _, value = os.fsdecode(record).removeprefix("# ").partition(" ")
    return name, value


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(paths)))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # gone while we look
