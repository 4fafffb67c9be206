"""Makes a tree out of another one with some files put in their places, and the content of a commit that holds it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.adapters.trees import TREE, Entry, entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.adapters.git import Git
    from runplan.adapters.looseobjects import LooseObjects
    from runplan.core.gitfacts import Identity, Oid


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
        if there is not None and there.mode != TREE and not any(inner.values()):
            continue  # a file in the place of a directory: what was inside is gone with that
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


def commit_content(
    tree: Oid, parent: Oid, *, author: Identity, authored: str, committer: Identity, when: str, message: str
) -> bytes:
    """A commit as git stores it."""
    head = f"tree {tree}\nparent {parent}\nauthor {_person(author)} {authored}\n"
    head += f"committer {_person(committer)} {when}\n"
    return f"{head}\n{message}".encode("utf-8", "surrogateescape")


def _person(identity: Identity) -> str:
    """Name and address without the signs that end them; git's own commands drop those silently, too."""
    clean = str.maketrans("", "", "<>\n\0")
    return f"{identity.name.translate(clean)} <{identity.email.translate(clean)}>"
