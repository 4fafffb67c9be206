"""One status of a checkout, read whole: head, branch, what changed, what is not tracked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runplan.core.gitfacts import Untracked, WorktreeState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
