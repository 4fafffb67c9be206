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

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import Sleep
    from runplan.core.config import AgentsSettings
    from runplan.core.endings import AgentEnding
    from runplan.core.events import Event
    from runplan.core.run import PhaseRun, RunState


def sleep(action: Sleep, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    if world.clock.now() >= parse_iso(action.until):
        yield Woke(kind=action.kind)


def paused_by(ending: AgentEnding, phase: PhaseRun, world: RunContext, *, agent: str, id: str) -> Iterator[Event]:
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
    despite: str = ""  #: a usage limit that a person does not wait for


def choose(role: str, phase: PhaseRun, world: RunContext) -> Chosen | Paused:
    """The role's agent, else the one that stands in for it; nobody whose quota is used up is started."""
    names = _candidates(role, phase, world.settings.agents)
    limits = _limits(world)
    waived = _waived(world, limits)
    free = next((name for name in names if name not in limits or name in waived), None)
    if free is not None:
        despite = f"usage limit until {limits[free].until}" if free in waived else ""
        return Chosen(agent=free, despite=despite)
    name = min(names, key=lambda one: limits[one].until)
    return Paused(kind="limit", until=limits[name].until, agent=name, words=limits[name].words)


def _candidates(role: str, phase: PhaseRun, agents: AgentsSettings) -> list[str]:
    """Who may do it, the first choice first; nobody judges what it wrote unless the settings want it so."""
    if role != "verify":
        return list(dict.fromkeys(name for name in (agents.implementer, agents.fallback) if name))
    own = agents.verifier == agents.implementer
    others = [name for name in (agents.fallback,) if name and name not in phase.authors]
    if own or agents.verifier not in phase.authors:
        return list(dict.fromkeys((agents.verifier, *others)))
    # It stood in for the implementer, who then judges in its place.
    others += [name for name in (agents.implementer,) if name not in phase.authors]
    return list(dict.fromkeys(others)) or [agents.verifier]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A usage limit, and where it was met."""

    until: str
    words: str
    seq: int
    run: str


def _limits(world: RunContext) -> dict[str, _Limit]:
    """The newest limit of each agent that has not ended, over all runs of the repository."""
    now = world.clock.now()
    since = iso(datetime.fromtimestamp(now.timestamp() - FARTHEST_S, UTC))
    newest: dict[str, _Limit] = {}
    for row in world.store.since("AgentLimited", since):
        body = json.loads(row.body)
        # Whatever was recorded, nobody waits for longer than a provider locks anybody out.
        last = _iso(parse_iso(row.at).timestamp() + FARTHEST_S)
        newest[body["agent"]] = _Limit(until=min(body["until"], last), words=body["words"], seq=row.seq, run=row.run)
    return {agent: one for agent, one in newest.items() if parse_iso(one.until) > now}


def _waived(world: RunContext, limits: dict[str, _Limit]) -> set[str]:
    """The agents whose limit a person does not wait for: the run was called on, or stopped, after it was met."""
    if not limits:
        return set()
    called = [row.seq for row in world.store.facts(world.plan, "RunResumed") if row.run == world.run]
    ended = {row.run: row for row in world.store.facts(world.plan, "RunEnded")}
    stopped = {run: row.seq for run, row in ended.items() if json.loads(row.body)["outcome"] == "stopped"}
    return {
        agent
        for agent, limit in limits.items()
        if max(called, default=0) > limit.seq or stopped.get(limit.run, 0) > limit.seq
    }


def _iso(moment: float) -> str:
    return iso(datetime.fromtimestamp(moment, UTC))
