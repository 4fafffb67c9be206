"""Waits for agents that cannot go on now, and chooses who is sent instead."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runplan.core.events import AgentLimited, Paused, Woke
from runplan.core.limittext import FARTHEST_S
from runplan.core.quickclass import dataclass
from runplan.core.times import iso, parse_iso
from runplan.core.waits import MOST_BUSY, busy_ends, limit_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.world import World
    from runplan.core.actions import Sleep
    from runplan.core.endings import AgentEnding
    from runplan.core.events import Event
    from runplan.core.run import PhaseRun, RunState


def sleep(action: Sleep, state: RunState, world: World) -> Iterator[Event]:  # noqa: ARG001
    if world.clock.now() >= parse_iso(action.until):
        yield Woke(kind=action.kind)


def paused_by(ending: AgentEnding, phase: PhaseRun, world: World, *, agent: str, id: str) -> Iterator[Event]:
    """What an ending that time will mend leads to; `phase` is as it was while the agent ran."""
    now = world.clock.now().timestamp()
    if ending.kind == "limit":
        until = limit_ends(ending.resets, now=now, times=phase.limited + 1, seed=id)
        yield AgentLimited(agent=agent, until=_iso(until), words=ending.words)
    elif ending.kind == "overloaded" and phase.busy < MOST_BUSY:
        until = busy_ends(now=now, times=phase.busy + 1, seed=id)
        yield Paused(kind="overloaded", until=_iso(until), agent=agent, words=ending.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who is sent."""

    agent: str


def choose(role: str, world: World) -> Chosen | Paused:
    """The role's agent, else the one that stands in for it; nobody whose quota is used up is started."""
    agents = world.settings.agents
    first = agents.verifier if role == "verify" else agents.implementer
    names = list(dict.fromkeys(name for name in (first, agents.fallback) if name))
    limits = _limits(world)
    free = next((name for name in names if name not in limits), None)
    if free is not None:
        return Chosen(agent=free)
    name = min(names, key=lambda one: limits[one].until)
    return Paused(kind="limit", until=limits[name].until, agent=name, words=limits[name].words)


def _limits(world: World) -> dict[str, AgentLimited]:
    """The newest limit of each agent that has not ended, over all runs of the repository."""
    now = world.clock.now()
    since = iso(datetime.fromtimestamp(now.timestamp() - FARTHEST_S, UTC))
    told = (AgentLimited(**json.loads(row.body)) for row in world.store.since("AgentLimited", since))
    newest = {one.agent: one for one in told}
    return {agent: one for agent, one in newest.items() if parse_iso(one.until) > now}


def _iso(moment: float) -> str:
    return iso(datetime.fromtimestamp(moment, UTC))
