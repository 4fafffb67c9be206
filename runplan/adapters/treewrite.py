"""Makes a tree out of another one with some files put in their places."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.trees import TREE, Entry, entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.adapters.git import Git
    from runplan.adapters.looseobjects import LooseObjects
    from runplan.core.gitfacts import Oid


def with_files(
    git: Git, objects: LooseObjects, tree: Oid | None, files: Mapping[str, Entry | None], *, like: Oid
) -> Oid:
    """The tree with each path of `files` holding its entry, or nothing; trees on the way are made if there are none."""
    return objects.write("tree", _raw(_entries_with(git, objects, tree, files, like=like)), like=like)


def _entries_with(
    git: Git, objects: LooseObjects, tree: Oid | None, files: Mapping[str, Entry | None], *, like: Oid
) -> dict[str, Entry]:
    found: dict[str, Entry | None] = dict(entries(git, tree)) if tree else {}
    below: dict[str, dict[str, Entry | None]] = {}
    for path, entry in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        else:
            found[name] = entry
    for name, inner in below.items():
        there = found.get(name)
        inside = there.oid if there is not None and there.mode == TREE else None
        made = _entries_with(git, objects, inside, inner, like=like)
        found[name] = Entry(TREE, objects.write("tree", _raw(made), like=like)) if made else None
    return {name: entry for name, entry in found.items() if entry is not None}


def _raw(found: Mapping[str, Entry]) -> bytes:
    """Sorted as git sorts: a directory as if its name ended in a slash."""
    order = sorted(found.items(), key=lambda one: os.fsencode(one[0]) + (b"/" if one[1].mode == TREE else b""))
    return b"".join(
        f"{entry.mode.lstrip('0')} ".encode() + os.fsencode(name) + b"\0" + bytes.fromhex(entry.oid)
        for name, entry in order
    )
