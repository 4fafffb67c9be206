"""Commits files by name onto the branch a worktree stands on: those, as they are there, and nothing else.

Git reads the files, for only git knows how they are stored; the tree and the commit are made here. Its own
`commit --only` reads every file a second time, and compares each with every name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.git import failure
from runplan.adapters.gitenv import configured
from runplan.adapters.hiding import IN_ONE_PIECE
from runplan.adapters.indexfile import staged
from runplan.adapters.looseobjects import LooseObjects
from runplan.adapters.plainfiles import read_file
from runplan.adapters.treewrite import commit_content, with_files
from runplan.core.errors import GitFailed
from runplan.core.gitfacts import Unstored
from runplan.core.storing import unstored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runplan.adapters import trees
    from runplan.adapters.git import Git
    from runplan.adapters.registry import Entry
    from runplan.core.gitfacts import Identity, Oid

#: From so many files on they are brought to the disk together: one by one takes four milliseconds each.
MANY = 100
_TOGETHER = "core.fsyncMethod=batch"


class Leftovers:
    """What lies about in the worktrees of one repository."""

    def __init__(self, git: Git, common_dir: Path) -> None:
        self._git = git
        self._objects = LooseObjects(common_dir)

    def commit(
        self, entry: Entry, paths: Sequence[str], *, message: str, author: Identity, committer: Identity, when: str
    ) -> Oid | Unstored:
        """The new tip of the branch; the old one when the files are what it holds."""
        branch = entry.attached
        old = self._git.tip(branch) if branch else None
        if old is None:
            raise GitFailed(f"the worktree {entry.worktree} stands on no branch")
        stored = self._stored(entry, paths)
        if isinstance(stored, Unstored):
            return stored
        before = self._git.commit(old).tree
        tree = with_files(self._git, self._objects, before, stored, like=old)
        if tree == before:
            return old
        told = message if message.endswith("\n") else f"{message}\n"
        content = commit_content(tree, old, author=author, authored=when, committer=committer, when=when, message=told)
        new = self._objects.write("commit", content, like=old)
        self._git.update_refs(f"update {branch} {new} {old}")
        return new

    def _stored(self, entry: Entry, paths: Sequence[str]) -> dict[str, trees.Entry | None] | Unstored:
        """Have git store the files; what stands in its index for each of them then."""
        names = b"\0".join(os.fsencode(name) for name in paths)
        # What a sparse checkout leaves out is not removed; what is staged there is as good as a file.
        how = ("--no-split-index", "--ignore-skip-worktree-entries", "--add", "--remove", "--replace")
        env = configured(*IN_ONE_PIECE, *([_TOGETHER] if len(paths) > MANY else []))
        there = self._git.within(entry.worktree)
        ran = there.run("update-index", *how, "-z", "--stdin", stdin=names, env=env, ok=(0, 128))
        if ran.code != 0:
            if refused := unstored(ran.err):
                return refused
            raise GitFailed(failure(("update-index",), ran, entry.worktree))
        found = staged(read_file(entry.directory / "index") or b"", paths)
        if found is None:
            raise GitFailed(f"{entry.directory / 'index'} cannot be read; remove it")
        return found
