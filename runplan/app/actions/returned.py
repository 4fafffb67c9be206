"""Reads what an agent handed back in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.dispatch import RETURN
from runplan.core.returns import Unusable

if TYPE_CHECKING:
    from runplan.app.runcontext import RunContext


_ODD = Unusable(why="the return file is no plain file, or larger than 8 MiB", found=True)


def return_text(world: RunContext, id: str) -> str | Unusable | None:
    """What the agent returned, without secrets; None when there is no file, and why where it cannot be read."""
    told = world.dispatches.read(id, RETURN)
    if told is not None:
        return world.agents.redacted(told)
    path = world.dispatches.directory(id) / RETURN
    return _ODD if path.is_symlink() or path.exists() else None
