"""Finds git's own files that an agent broke or removed, and puts them back before git is asked for anything.

Without a HEAD or a configuration it can read, git knows no repository any more, and nobody of ours could say a word.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.anchored import make_below
from runplan.adapters.plainfiles import open_plain, read_file, write_anew
from runplan.adapters.restoring import PARKED_FILES, head_text
from runplan.adapters.userconfig import TOO_LARGE
from runplan.core.gitfacts import Finding
from runplan.core.gitfiles import (
    CONFIG,
    GONE,
    HEAD,
    INDEX,
    PACKED,
    UNREADABLE,
    is_config,
    is_head,
    is_index,
    is_packed,
    packed as mended,
)
from runplan.core.guard import FileStamp, spelled, unspelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

BROKEN = "broken"  #: the kind of such a finding; `new` tells what it is now
_MODE = 0o644
_DRAFT = "runplan-draft"


def stamped(common_dir: Path) -> dict[str, object]:
    """What has to be known beforehand, besides what the guard stamps anyway."""
    return {"packed": _identity(common_dir / PACKED), "index": _identity(common_dir / INDEX) is not None}


def findings(common_dir: Path, before: Mapping[str, Any]) -> Iterator[Finding]:
    """What git cannot read any more, or misses; `before` is the guard's stamp."""
    yield from _heads(common_dir, before)
    kept = before["files"].get(CONFIG)
    if kept is not None and kept[1] != TOO_LARGE and (what := _config(common_dir / CONFIG, kept[1])):
        yield _broken(CONFIG, FileStamp(mode=kept[0], text=kept[1]), what)
    if what := _packed(common_dir / PACKED, before.get("packed")):
        known = {ref: oid for ref, oid in before["refs"].items() if ref not in before.get("symbolic", {})}
        text = mended(_read(common_dir / PACKED) or "", known)
        yield _broken(PACKED, FileStamp(mode=_MODE, text=text), what)
    if before.get("index") and (what := _index(common_dir / INDEX)):
        # Some remove it to begin it anew; of one that is none nothing is lost.
        yield Finding(kind=BROKEN, name=INDEX, old="", new=what, by_agent=what != GONE)


def undo(common_dir: Path, finding: Finding) -> Finding:
    """Put back what had been there; what stands there now is kept aside."""
    path, old = common_dir / finding.name, unspelled(finding.old)
    aside = _aside(common_dir, finding.name)
    parked = ""
    if os.path.lexists(path) and (old is None or not path.is_file() or path.is_symlink()):
        path.rename(aside)
        parked = str(aside)
    elif os.path.lexists(path):
        os.link(path, aside)
        parked = str(aside)
    if old is None:
        return replace(finding, parked=parked)
    # In one step: whoever dies between two would leave a repository without it.
    draft = path.with_name(_DRAFT)
    write_anew(draft, os.fsencode(old.text))
    draft.chmod(old.mode)
    draft.replace(path)
    return replace(finding, restored=True, parked=parked)


def _aside(common_dir: Path, name: str) -> Path:
    aside = common_dir / PARKED_FILES / f"{name.replace('/', '-')}.{time.time_ns()}"
    make_below(common_dir, aside.parent)
    return aside


def _broken(name: str, old: FileStamp, what: str) -> Finding:
    return Finding(kind=BROKEN, name=name, old=spelled(old), new=what, by_agent=True)


def _heads(common_dir: Path, before: Mapping[str, Any]) -> Iterator[Finding]:
    for name, said in {HEAD: before["head"], **before.get("heads", {})}.items():
        path = common_dir / name
        text = _head(path)
        if text == said or not is_head(said) or is_head(text):
            continue
        if text or path.is_file() or name == HEAD:  # else the worktree itself is gone, or going
            what = UNREADABLE if path.is_file() else GONE
            yield _broken(name, FileStamp(mode=_MODE, text=f"{said}\n"), what)


def _head(path: Path) -> str:
    try:
        return head_text(path)
    except PermissionError:
        return ""


def _config(path: Path, was: str) -> str:
    text = _read(path)
    if text is None:
        return UNREADABLE if path.is_file() else GONE
    return UNREADABLE if text != was and is_config(was) and not is_config(text) else ""


def _packed(path: Path, was: list[int] | None) -> str:
    if (now := _identity(path)) == was:
        return ""
    if now is None:
        return GONE
    return "" if is_packed(_read(path) or "") else UNREADABLE


def _index(path: Path) -> str:
    file = open_plain(path)
    if file is None:
        return UNREADABLE if os.path.lexists(path) else GONE
    with file:
        return "" if is_index(file.read(4)) else UNREADABLE


def _read(path: Path) -> str | None:
    try:
        content = read_file(path, follow=True)
    except PermissionError:
        return None
    return None if content is None else os.fsdecode(content)


def _identity(path: Path) -> list[int] | None:
    """What changes whenever a file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_ctime_ns]
