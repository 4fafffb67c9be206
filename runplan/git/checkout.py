"""Reads the checkouts and the refs of a repository from their files, without a process."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.names import HEADS
from runplan.store.files import read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from runplan.git.command import Git
    from runplan.gitfacts import Oid


_SURE_S = 0.05  #: a git that is alive holds the lock of a ref for less
_OID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"  #: compiled when first needed; reading verbs do not need it


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
        return (one for one in self.all() if one.root.is_dir())

    def branch(self, checkout: TargetCheckout) -> str | None:
        """The full name of the branch that is out, or None."""
        if (self.common_dir / "reftable").is_dir():
            return self._git.at(checkout.root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or None
        text = read_line(checkout.git_dir / "HEAD")
        return text.removeprefix("ref: ") if text.startswith("ref: ") else None

    def with_branch(self, ref: str) -> tuple[TargetCheckout, ...]:
        """Those that have `ref` out; one whose directory is gone counts only while it is locked."""
        return tuple(
            one
            for one in self.all()
            if (one.root.is_dir() or (one.git_dir / "locked").exists()) and self.branch(one) == ref
        )

    def pull(self, ref: str, remote: str, *, how: str = "--ff-only") -> str:
        """The command that lets a local branch follow the remote's, in the checkout that has it out, if any."""
        from runplan.text import command  # only a message needs it

        branch = ref.removeprefix(HEADS)
        place = next((one.root for one in self.with_branch(ref) if one.root.is_dir()), None)
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


def remove_stale_lock(lock: Path, *, since_ns: int, content: Collection[str] | None = None) -> None:
    """Remove a lock file that a killed git of ours left: made since then, with such content, and not changing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = lock.lstat()
        if found.st_mtime_ns >= since_ns and (content is None or read_line(lock) in content):
            time.sleep(_SURE_S)
            if os.path.samestat(found, lock.lstat()):
                lock.unlink()


# --- refs ---------------------------------------------------------------------------------------------


def refs_snapshot(common_dir: Path, git: Git) -> dict[str, Oid]:
    """Every ref and its object, read from the files; git is asked only where refs are no files.

    A symbolic ref has the object of the ref it names; one that leads nowhere is left out.
    """
    stored = _stored_refs(common_dir, git)
    resolved = ((name, _resolve(stored, name)) for name in stored)
    return {name: oid for name, oid in sorted(resolved) if oid is not None}


def _stored_refs(common_dir: Path, git: Git) -> dict[str, str]:
    """Every ref as it is stored: an object, or `ref: ` and the name of another ref."""
    if (common_dir / "reftable").is_dir():
        lines = os.fsdecode(git.run("for-each-ref", "--format=%(objectname) %(refname)").out).splitlines()
        return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}
    # Loose first, as git does: a ref that is packed in between is then found in the packed file.
    loose = dict(_loose_refs(os.fspath(common_dir)))
    return dict(_packed_refs(common_dir)) | loose


def _loose_refs(top: str) -> Iterator[tuple[str, str]]:
    for directory, _, files in os.walk(os.path.join(top, "refs")):
        for file in files:
            if file.endswith(".lock"):
                continue
            path = os.path.join(directory, file)
            # None when it is deleted or packed while we look, or no file at all.
            content = (read_file(path) or b"").strip()
            if content.startswith(b"ref: ") or re.fullmatch(_OID, content):
                yield path[len(top) + 1 :], os.fsdecode(content)


def _packed_refs(common_dir: Path) -> Iterator[tuple[str, str]]:
    for line in (read_file(common_dir / "packed-refs") or b"").splitlines():
        oid, _, name = line.partition(b" ")
        if re.fullmatch(_OID, oid):
            yield os.fsdecode(name), oid.decode()


def _resolve(stored: Mapping[str, str], name: str) -> Oid | None:
    for _ in range(5):  # git's own limit on chains of symbolic refs
        value = stored.get(name)
        if value is None or not value.startswith("ref: "):
            return value
        name = value.removeprefix("ref: ").strip()
    return None
