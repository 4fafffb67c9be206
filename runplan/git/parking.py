"""Keeps work that would be lost under `refs/runplan/parked/…` of the user's repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.repository import refs_snapshot
from runplan.core.names import parked_under

if TYPE_CHECKING:
    from runplan.core.gitfacts import Oid
    from runplan.git.workspace import Workspace

_TRIES = 50


def park(workspace: Workspace, oid: Oid, *, under: str, without: Oid = "") -> str:
    """Keep a commit under the next free number below `under`, `<plan>/<phase>`; the same commit gets the same ref."""
    home = parked_under(*under.split("/")[-2:])
    keep = workspace.copy_to_user([oid], without=[without] if without else [])
    for left in reversed(range(_TRIES)):
        refs = refs_snapshot(workspace.common_dir, workspace.user)
        kept = {ref: held for ref, held in refs.items() if ref.startswith(home)}
        if oid in kept.values():
            ref = next(ref for ref, held in kept.items() if held == oid)
            break
        numbers = [int(name) for ref in kept if (name := ref.removeprefix(home)).isdigit()]
        ref = f"{home}{max(numbers, default=0) + 1}"
        # An empty old value means that the ref must not exist: two processes that park at once get two numbers.
        if workspace.user.run("update-ref", "--no-deref", ref, oid, "", ok=(0, 128) if left else (0,)).code == 0:
            break
    if keep:
        Path(keep).unlink(missing_ok=True)
    return ref
