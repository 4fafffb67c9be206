"""Tells of what stands in git's places without being a plain file, and puts back what had been there before."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import write_anew
from runplan.adapters.plainplaces import Odd
from runplan.adapters.userconfig import TOO_LARGE
from runplan.core.gitfacts import Finding
from runplan.core.guard import FileStamp, spelled, unspelled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.adapters.plainplaces import PlainPlaces

PLACE = "place"  #: the kind of such a finding; `new` tells what stands there
_MODE = 0o644
_UNKEPT = ("\0", TOO_LARGE)  #: stand in a stamp for what is not in it


def findings(places: PlainPlaces, worktree: Path, branch: str, before: Mapping[str, object]) -> tuple[Finding, ...]:
    """What is in the way; `before` is the guard's stamp, or nothing where there was none."""
    known = _known(before, branch) if before else {}
    entries = f"worktrees/{worktree.name}"
    told = []
    at = before.get("at")
    for odd in places.around(worktree, branch, since_ns=at if isinstance(at, int) else None):
        name = places.name(odd)
        if name.startswith(entries) and name.endswith("/HEAD") and name.count("/") == 2:
            old = spelled(FileStamp(text=f"ref: {branch}\n", mode=_MODE))
        else:
            old = known.get(name, "")
        if name == "HEAD" and not old:
            continue  # without any, git would know the repository no more
        told.append(Finding(kind=PLACE, name=name, old=old, new=odd.what, by_agent=odd.own))
    return tuple(told)


def undo(places: PlainPlaces, common_dir: Path, finding: Finding) -> Finding:
    """Take it away, and put back what is known to have been there."""
    path = common_dir / finding.name
    parked = places.take(Odd(path=os.fspath(path), what=finding.new)) if os.path.lexists(path) else ""
    old = unspelled(finding.old)
    if old is not None:
        write_anew(path, os.fsencode(old.text))
        path.chmod(old.mode)
    return replace(finding, restored=True, parked=parked)


def _known(before: Mapping[str, object], branch: str) -> dict[str, str]:
    """What files of the repository held before the agent came, as far as they are stamped."""
    refs, files = before["refs"], before["files"]
    symbolic, heads = before.get("symbolic", {}), before.get("heads", {})
    assert isinstance(heads, dict)
    assert isinstance(refs, dict)
    assert isinstance(files, dict)
    assert isinstance(symbolic, dict)
    plain = {name: oid for name, oid in refs.items() if name not in symbolic}
    texts = {name: f"{oid}\n" for name, oid in plain.items() if name != branch}
    texts["packed-refs"] = "".join(f"{oid} {name}\n" for name, oid in sorted(plain.items()))
    texts |= {name: f"{head}\n" for name, head in {**heads, "HEAD": before["head"]}.items()}
    known = {name: spelled(FileStamp(text=text, mode=_MODE)) for name, text in texts.items()}
    kept = {name: FileStamp(text=text, mode=mode) for name, (mode, text) in files.items() if text not in _UNKEPT}
    return known | {name: spelled(stamp) for name, stamp in kept.items()}
