"""Reads tree objects in this process, through the kept `cat-file`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed

if TYPE_CHECKING:
    from runplan.git.command import Git
    from runplan.gitfacts import Oid

TREE = "040000"
SYMLINK = "120000"
SUBMODULE = "160000"
NO_MODE = "000000"


class Entry(Struct, frozen=True):
    """One name in a tree."""

    mode: str
    oid: Oid


def entries(git: Git, tree: Oid) -> dict[str, Entry]:
    """The names of one tree object, not of the trees below it."""
    stored = git.known(tree)
    if stored is None or stored.kind != "tree":
        raise GitFailed(f"{tree} is not a tree in {git.cwd}")
    width = len(stored.oid) // 2
    found: dict[str, Entry] = {}
    at = 0
    while at < len(stored.content):
        end = stored.content.index(b"\0", at)
        mode, _, name = stored.content[at:end].partition(b" ")
        at = end + 1 + width
        found[os.fsdecode(name)] = Entry(mode.decode().zfill(6), stored.content[end + 1 : at].hex())
    return found


def find(git: Git, tree: Oid, path: str) -> tuple[str, Entry | None]:
    """How far `path` leads into the tree, and what stands there; None when the way or the name is free."""
    here = ""
    entry: Entry | None = Entry(TREE, tree)
    for name in path.split("/"):
        if entry is None or entry.mode != TREE:
            break
        here = f"{here}/{name}" if here else name
        entry = entries(git, entry.oid).get(name)
    return here, entry
