"""Compares trees in this process, through the kept `cat-file`: a diff costs no process."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from runplan.adapters.trees import NO_MODE, TREE, Entry, entries
from runplan.core.gitfacts import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid


def changes(git: Git, old: Oid, new: Oid) -> tuple[Change, ...]:
    """What differs between two trees, sorted by path, without looking for renames."""
    return tuple(sorted(_differences(git, old, new, ""), key=lambda change: change.path))


def _differences(git: Git, old: Oid | None, new: Oid | None, prefix: str) -> Iterator[Change]:
    before = entries(git, old) if old else {}
    after = entries(git, new) if new else {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        below_was = was.oid if was and was.mode == TREE else None
        below_now = now.oid if now and now.mode == TREE else None
        if below_was or below_now:
            yield from _differences(git, below_was, below_now, f"{prefix}{name}/")
        was = None if below_was else was
        now = None if below_now else now
        if was or now:
            yield _change(f"{prefix}{name}", was, now)


def _change(path: str, was: Entry | None, now: Entry | None) -> Change:
    nothing = Entry(NO_MODE, "0" * len((was or now or Entry("", "")).oid))
    old, new = was or nothing, now or nothing
    return Change(path=path, kind=_kind(old, new), old_mode=old.mode, new_mode=new.mode, old=old.oid, new=new.oid)


def _kind(old: Entry, new: Entry) -> str:
    if old.mode == NO_MODE:
        return "A"
    if new.mode == NO_MODE:
        return "D"
    # Regular files share their first three digits, whether executable or not.
    return "M" if old.mode[:3] == new.mode[:3] else "T"


def key_without(git: Git, tree: Oid, without: Sequence[str]) -> str:
    """A hash that two trees share when they differ in the paths `without` only.

    Reads only the trees along those paths; a directory that holds nothing else counts as absent.
    """
    return _key(git, tree, [path.split("/") for path in without]) or sha256(b"").hexdigest()


def _key(git: Git, tree: Oid, without: list[list[str]]) -> str:
    digest = sha256()
    kept = 0
    for name, entry in sorted(entries(git, tree).items()):
        below = [path[1:] for path in without if path[0] == name]
        if [] in below:
            continue
        oid = _key(git, entry.oid, below) if below and entry.mode == TREE else entry.oid
        if oid:
            kept += 1
            digest.update(f"{entry.mode} {oid} ".encode() + os.fsencode(name) + b"\0")
    return digest.hexdigest() if kept else ""
