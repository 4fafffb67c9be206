"""Reads what an agent handed back in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runplan.app.world import World


def return_text(world: World, id: str) -> str | None:
    """What the agent returned, without secrets, if it is a file at all and no larger than an answer can be."""
    told = world.dispatches.read(id, "return.json")
    return None if told is None else world.agents.redacted(told)
