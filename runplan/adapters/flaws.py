"""Looks at every commit of a branch for what git would choke on later, or would land unseen; costs no process.

Only trees that a commit changed are read, and only what it brings is held against it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.trees import SUBMODULE, TREE
from runplan.core.rawobjects import commit_flaw, is_refused, is_well_ordered, read_commit, tree_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.adapters.git import Git, Stored
    from runplan.adapters.looseobjects import LooseObjects
    from runplan.core.gitfacts import Commit, Oid


class Flaws:
    """The objects of one repository, looked at with suspicion."""

    def __init__(self, git: Git, objects: LooseObjects, *, longest: int) -> None:
        self._git = git
        self._objects = objects
        self._longest = longest  #: commits

    def between(self, base: Oid, head: Oid) -> str:
        """The first flaw of what lies between, a sentence for people; nothing when there is none."""
        line: list[Commit] = []
        at = head
        while at != base and len(line) < self._longest:
            stored = self._git.known(at)
            if stored is None or stored.kind != "commit":
                return f"commit {at[:12]} is not in the repository"
            if flaw := commit_flaw(stored.content):
                return f"commit {at[:12]} is malformed: {flaw}"
            commit = read_commit(at, stored.content)
            line.append(commit)
            if len(commit.parents) != 1:
                break  # what is not one line lands as the last tree alone
            at = commit.parents[0]
        if at != base:
            line = line[:1]
        was = self._git.commit(base).tree
        for commit in reversed(line):
            if flaw := next(self._in_tree(was, commit.tree, ""), ""):
                return f"commit {commit.oid[:12]} {flaw}"
            was = commit.tree
        return ""

    def _in_tree(self, old: Oid | None, new: Oid, prefix: str) -> Iterator[str]:
        if old == new:
            return
        stored = self._tree(new)
        if stored is None:
            yield f"holds {prefix or 'a tree'}, whose content is not in the repository"
            return
        before, width = self._entries(old), len(new) // 2
        if not is_well_ordered(stored.content, width):
            yield f"is malformed: {prefix or 'its tree'} holds a name twice, out of order, or none"
            return
        for mode, name, raw in tree_entries(stored.content, width):
            if before.get(name) == (mode, raw):
                continue
            path = prefix + os.fsdecode(name)
            if name not in before and is_refused(name):
                yield f"holds {path}, a name that git refuses"
            elif mode.zfill(6) == TREE.encode():
                was = before.get(name)
                below = was[1].hex() if was and was[0] == mode else None
                yield from self._in_tree(below, raw.hex(), f"{path}/")
            elif mode.decode() != SUBMODULE and not self._is_there(raw.hex()):
                yield f"holds {path}, whose content is not in the repository"

    def _entries(self, tree: Oid | None) -> dict[bytes, tuple[bytes, bytes]]:
        stored = self._tree(tree) if tree else None
        if tree is None or stored is None:
            return {}
        return {name: (mode, raw) for mode, name, raw in tree_entries(stored.content, len(tree) // 2)}

    def _tree(self, oid: Oid) -> Stored | None:
        stored = self._git.known(oid)
        return stored if stored is not None and stored.kind == "tree" else None

    def _is_there(self, oid: Oid) -> bool:
        return self._objects.holds(oid) or self._git.known(oid) is not None
