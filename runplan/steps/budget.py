"""What agents have used and may use, and waits for those that cannot go on now."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.agents.budgets import Budget, Cost, GivenOut, Left, UsedUp, left
from runplan.agents.endings import EndingKind
from runplan.agents.limits import FARTHEST_S
from runplan.run.dispatch import MAX_OVERLOADS, Ending
from runplan.run.events import AgentLimited, Paused, Woke, WorkRefused
from runplan.run.reasons import Reason
from runplan.run.usage import believable
from runplan.text import in_words
from runplan.times import busy_ends, iso, limit_ends, parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.agents.endings import AgentEnding
    from runplan.run.actions import Sleep
    from runplan.run.events import DispatchEnded, DispatchStarted, Event
    from runplan.run.rows import EventRow
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import AgentsSettings, LimitSettings
    from runplan.steps.context import RunContext


LOOK_AGAIN_S = 60.0  #: while all that is left is given to agents that are at work
EARLIER = timedelta(days=2)  #: before midnight an agent may have been started that is still at work
LATE_S = 300.0  #: what is over by its own clock is recorded within this, or its runner died with it


def allowance(world: RunContext, *, phase: str, before: str = "") -> Left | Paused | WorkRefused:
    """What a dispatch for this phase may use; the journal is asked only for scopes that have a limit.

    What is at work counts with all it may use, so that no two are given the same; of those begun together, the one
    that was recorded first: `before` names a dispatch that is recorded already, behind which nobody is looked at.
    """
    budgets = _budgets(world.settings.limits)
    spent: dict[str, Cost] = {}
    given: dict[str, Cost] = {}
    if budgets["phase"] != Budget() or budgets["plan"] != Budget():
        told = _Told(world.store.facts(world.plan, "DispatchStarted"), world.store.facts(world.plan, "DispatchEnded"))
        spent |= {"plan": told.spent(), "phase": told.spent(phase=phase)}
        given |= {"plan": told.given(world, before), "phase": told.given(world, before, phase)}
    if budgets["day"] != Budget():
        morning = _midnight(world)
        early = iso(morning - EARLIER)
        told = _Told(world.store.since("DispatchStarted", early), world.store.since("DispatchEnded", early))
        spent["day"], given["day"] = told.spent(since=iso(morning)), told.given(world, before)
    match left(budgets, spent, given):
        case UsedUp(why=why):
            return WorkRefused(reason=Reason.BUDGET, detail=why)
        case GivenOut(why=why):
            again = world.clock.now() + timedelta(seconds=LOOK_AGAIN_S)
            return Paused(kind="budget", until=iso(again.astimezone(UTC)), words=why)
        case Left() as may:
            return may


def _budgets(limits: LimitSettings) -> dict[str, Budget]:
    return {
        "dispatch": Budget(tokens=limits.tokens, usd=limits.usd, seconds=limits.wall_s),
        "phase": Budget(tokens=limits.phase_tokens, usd=limits.phase_usd, seconds=limits.phase_wall_s),
        "plan": Budget(tokens=limits.plan_tokens, usd=limits.plan_usd, seconds=limits.plan_wall_s),
        "day": Budget(tokens=limits.day_tokens, usd=limits.day_usd, seconds=limits.day_wall_s),
    }


class _Open(Struct, frozen=True, kw_only=True):
    """A dispatch that was started, and not seen to have ended."""

    id: str
    phase: str
    at: str
    cost: Cost


class _Told:
    """What the journal tells of the dispatches of some scope."""

    def __init__(self, started: Iterable[EventRow], ended: Iterable[EventRow]) -> None:
        self._ended = [(row.at, json.loads(row.body)) for row in ended]
        over = {body["id"] for _, body in self._ended}
        self._open = [
            _Open(id=body["id"], phase=body.get("phase", ""), at=row.at, cost=_allowed(body))
            for row in started
            if (body := json.loads(row.body))["id"] not in over and body.get("agent")
        ]

    def spent(self, *, phase: str = "", since: str = "") -> Cost:
        total = Cost()
        for at, body in self._ended:
            if body.get("agent") and at >= since and phase in ("", body.get("phase")):
                total = total.plus(_used(body))
        return total

    def given(self, world: RunContext, before: str, phase: str = "") -> Cost:
        """What those that are at work beside this one may use."""
        total, now = Cost(), world.clock.now()
        for each in self._open:
            if each.id == before:
                break
            works = now <= parse_iso(each.at) + timedelta(seconds=each.cost.seconds + LATE_S)
            if works and not each.id.startswith(f"{world.mark}.") and phase in ("", each.phase):
                total = total.plus(each.cost)
        return total


def _used(body: dict[str, Any]) -> Cost:
    return Cost(
        tokens=believable(body.get("input_tokens")) + believable(body.get("output_tokens")),
        usd=body.get("usd", 0.0),
        seconds=body.get("seconds", 0.0),
    )


def _allowed(body: dict[str, Any]) -> Cost:
    return Cost(tokens=body.get("tokens", 0), usd=body.get("usd", 0.0), seconds=body.get("seconds", 0.0))


def bounded(ended: DispatchEnded, started: DispatchStarted) -> DispatchEnded:
    """The same, naming the setting that ended it; out of time by another scope's is out of budget."""
    tokens, usd, wall = (*started.bounds, "", "", "")[:3]
    if ended.kind == EndingKind.TIMED_OUT and wall not in ("", "limits.wall"):
        told = f"{wall} left {in_words(started.seconds)}"
        return replace(ended, ending=Ending.BUDGET, kind=EndingKind.BUDGET, detail=told)
    if ended.kind != EndingKind.BUDGET:
        return ended
    if started.tokens and ended.input_tokens + ended.output_tokens >= started.tokens:
        return replace(ended, detail=f"{tokens} left {started.tokens} tokens")
    if started.usd:
        words = f" ({ended.detail})" if ended.detail and ended.ending != Ending.BUDGET else ""
        return replace(ended, detail=f"{usd} left ${started.usd:.2f}{words}")
    return ended


def _midnight(world: RunContext) -> datetime:
    """When the day began in run.timezone."""
    today = world.clock.now().astimezone(zone(world.settings.run.timezone))
    return today.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)


def sleep(action: Sleep, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    if world.clock.now() >= parse_iso(action.until):
        yield Woke(kind=action.kind)


def paused_by(ending: AgentEnding, phase: PhaseRun, world: RunContext, *, agent: str, id: str) -> Iterator[Event]:
    """What an ending that time will mend leads to; `phase` is as it was while the agent ran."""
    now = world.clock.now().timestamp()
    if ending.kind == "limit":
        until = limit_ends(ending.resets, now=now, times=phase.limited + 1, seed=id)
        yield AgentLimited(agent=agent, until=_iso(until), words=ending.words)
    elif ending.kind == "overloaded" and phase.busy < MAX_OVERLOADS:
        until = busy_ends(now=now, times=phase.busy + 1, seed=id)
        yield Paused(kind="overloaded", until=_iso(until), agent=agent, words=ending.words)


class Chosen(Struct, frozen=True, kw_only=True):
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


class _Limit(Struct, frozen=True, kw_only=True):
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
