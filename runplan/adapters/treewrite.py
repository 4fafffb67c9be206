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


def with_files(git: Git, objects: LooseObjects, tree: Oid | None, files: Mapping[str, Entry], *, like: Oid) -> Oid:
    """The tree with each path of `files` holding its entry; trees on the way are made where there are none."""
    found = dict(entries(git, tree)) if tree else {}
    below: dict[str, dict[str, Entry]] = {}
    for path, entry in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        else:
            found[name] = entry
    for name, inner in below.items():
        there = found.get(name)
        inside = there.oid if there is not None and there.mode == TREE else None
        found[name] = Entry(TREE, with_files(git, objects, inside, inner, like=like))
    return objects.write("tree", _raw(found), like=like)


def _raw(found: Mapping[str, Entry]) -> bytes:
    """Sorted as git sorts: a directory as if its name ended in a slash."""
    order = sorted(found.items(), key=lambda one: os.fsencode(one[0]) + (b"/" if one[1].mode == TREE else b""))
    return b"".join(
        f"{entry.mode.lstrip('0')} ".encode() + os.fsencode(name) + b"\0" + bytes.fromhex(entry.oid)
        for name, entry in order
    )
