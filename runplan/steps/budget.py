"""The budget and the agent of the next dispatch, and waits for limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.budgets import Cost, GivenOut, Left, UsedUp, left
from runplan.agents.endings import FARTHEST_S
from runplan.run.dispatch import MAX_OVERLOADS, Ending, EndingKind
from runplan.run.events import AgentLimited, DispatchEnded, DispatchStarted, Paused, RunResumed, Woke, WorkRefused
from runplan.run.reasons import Reason
from runplan.text import in_words
from runplan.times import busy_ends, iso, limit_ends, parse_iso, zone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.agents.endings import AgentEnding
    from runplan.run.actions import Action
    from runplan.run.events import Event, Recorded
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import AgentsSettings
    from runplan.steps.context import RunContext


RETRY_S = 60.0  #: wait while running agents may use all that is left
EARLIER = timedelta(days=2)  #: an agent that was started this long before midnight may still run
LATE_S = 300.0  #: the end of a dispatch is recorded this long after its time limit, or its runner died


def allowance(context: RunContext, *, role: str, phase: str) -> Left | Paused | WorkRefused:
    """What a dispatch for this phase may use. The journal is read only for scopes that have a limit."""
    limits, store = context.settings.limits, context.store
    wall_s, wall = limits.wall_of(role)
    budgets = {
        "dispatch": Cost(tokens=limits.tokens, usd=limits.usd, seconds=wall_s),
        "phase": Cost(tokens=limits.phase_tokens, usd=limits.phase_usd, seconds=limits.phase_wall_s),
        "plan": Cost(tokens=limits.plan_tokens, usd=limits.plan_usd, seconds=limits.plan_wall_s),
        "day": Cost(tokens=limits.day_tokens, usd=limits.day_usd, seconds=limits.day_wall_s),
    }
    usage: dict[str, tuple[Cost, Cost]] = {}
    if budgets["phase"] != Cost() or budgets["plan"] != Cost():
        of_plan = store.facts(DispatchStarted, plan=context.plan), store.facts(DispatchEnded, plan=context.plan)
        usage["plan"] = _usage(context, *of_plan)
        usage["phase"] = _usage(context, *of_plan, phase=phase)
    if budgets["day"] != Cost():
        today = context.clock.now().astimezone(zone(context.settings.run.timezone))
        midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
        since = iso(midnight - EARLIER)
        of_day = store.facts(DispatchStarted, since=since), store.facts(DispatchEnded, since=since)
        usage["day"] = _usage(context, *of_day, since=iso(midnight))
    spent = {scope: cost for scope, (cost, _) in usage.items()}
    match left(budgets, spent, {scope: cost for scope, (_, cost) in usage.items()}):
        case UsedUp(why=why):
            return WorkRefused(reason=Reason.BUDGET, detail=why)
        case GivenOut(why=why):
            until = context.clock.now() + timedelta(seconds=RETRY_S)
            return Paused(kind="budget", until=iso(until), words=why)
        case Left(bounds=(tokens, usd, "limits.wall")) as may:
            return replace(may, bounds=(tokens, usd, wall))
        case Left() as may:
            return may


def _usage(
    context: RunContext,
    started: list[Recorded[DispatchStarted]],
    ended: list[Recorded[DispatchEnded]],
    *,
    phase: str = "",
    since: str = "",
) -> tuple[Cost, Cost]:
    """What agents have used, and what agents that run in other lanes and runs may still use."""
    spent, given, now = Cost(), Cost(), context.clock.now()
    for one in ended:
        if one.event.agent and one.at >= since and phase in ("", one.event.phase):
            tokens = one.event.input_tokens + one.event.output_tokens
            spent = spent.plus(Cost(tokens=tokens, usd=one.event.usd, seconds=one.event.seconds))
    over = {one.event.id for one in ended}
    for begun in started:
        event = begun.event
        late = parse_iso(begun.at) + timedelta(seconds=event.seconds + LATE_S)
        runs = event.agent and event.id not in over and now <= late
        if runs and not event.id.startswith(f"{context.mark}.") and phase in ("", event.phase):
            given = given.plus(Cost(tokens=event.tokens, usd=event.usd, seconds=event.seconds))
    return spent, given


def name_limit(ended: DispatchEnded, started: DispatchStarted) -> DispatchEnded:
    """Name the setting that ended the dispatch. A time limit of a phase, plan or day counts as a budget."""
    tokens, usd, wall = (*started.bounds, "", "", "")[:3]
    if ended.kind == EndingKind.TIMED_OUT and wall not in ("", "limits.wall", f"limits.{started.role}_wall"):
        detail = f"{wall} left {in_words(started.seconds)}"
        return replace(ended, ending=Ending.BUDGET, kind=EndingKind.BUDGET, detail=detail)
    if ended.kind != EndingKind.BUDGET:
        return ended
    if started.tokens and ended.input_tokens + ended.output_tokens >= started.tokens:
        return replace(ended, detail=f"{tokens} left {started.tokens} tokens")
    if started.usd:
        words = f" ({ended.detail})" if ended.detail and ended.ending != Ending.BUDGET else ""
        return replace(ended, detail=f"{usd} left ${started.usd:.2f}{words}")
    return ended


def sleep(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    pause = state.pause
    if pause is not None and context.clock.now() >= parse_iso(pause.until):
        yield Woke(kind=pause.kind)


def pause_after(ending: AgentEnding, phase: PhaseRun, context: RunContext, *, agent: str, id: str) -> Iterator[Event]:
    """The wait after a usage limit or an overload; `phase` is the state before the agent ended."""
    now = context.clock.now().timestamp()
    if ending.kind == "limit":
        until = limit_ends(ending.resets, now=now, times=phase.limited + 1, seed=id)
        yield AgentLimited(agent=agent, until=_iso(until), words=ending.words)
    elif ending.kind == "overloaded" and phase.busy < MAX_OVERLOADS:
        until = busy_ends(now=now, times=phase.busy + 1, seed=id)
        yield Paused(kind="overloaded", until=_iso(until), agent=agent, words=ending.words)


def _iso(moment: float) -> str:
    return iso(datetime.fromtimestamp(moment, UTC))


def choose(wanted: DispatchStarted, phase: PhaseRun, context: RunContext) -> DispatchStarted | Paused | WorkRefused:
    """With the agent of the role, or its fallback, and its budget; a wait when all have reached a usage limit."""
    names = _candidates(wanted, phase, context.settings.agents)
    limits = _limits(context)
    free = next((name for name in names if name not in limits), None)
    if free is None:
        first = min((limits[name] for name in names), key=lambda limit: limit.until)
        return Paused(kind="limit", until=first.until, agent=first.agent, words=first.words)
    may = allowance(context, role=wanted.role, phase=phase.read.phase)
    if not isinstance(may, Left):
        return may
    wanted = replace(wanted, agent=free, version=context.agents.version(free))
    return replace(wanted, tokens=may.tokens, usd=may.usd, seconds=may.seconds, bounds=may.bounds)


def _candidates(wanted: DispatchStarted, phase: PhaseRun, agents: AgentsSettings) -> list[str]:
    """The agents for the role by preference; none verifies its own work unless the settings say so."""
    verifier = wanted.agent or agents.judges[0]
    if wanted.role != "verify":
        names = [agents.implementer, agents.fallback]
    elif verifier == agents.implementer or verifier not in phase.authors:
        names = [verifier, *({agents.fallback} - set(phase.authors))]
    else:  # the verifier stood in for the implementer, which now verifies in its place
        names = [name for name in (agents.fallback, agents.implementer) if name not in phase.authors]
    return list(dict.fromkeys(name for name in names if name)) or [verifier]


def _limits(context: RunContext) -> dict[str, AgentLimited]:
    """The newest usage limit of each agent that has not reset yet, over all runs of the repository.

    A person who resumes the run does not want to wait for the limits before that.
    """
    now = context.clock.now().timestamp()
    newest: dict[str, AgentLimited] = {}
    resumed = [one.seq for one in context.store.facts(RunResumed, plan=context.plan) if one.run == context.run]
    for one in context.store.facts(AgentLimited, since=_iso(now - FARTHEST_S)):
        latest = _iso(parse_iso(one.at).timestamp() + FARTHEST_S)
        if one.seq > max(resumed, default=0):
            newest[one.event.agent] = replace(one.event, until=min(one.event.until, latest))
    return {agent: limit for agent, limit in newest.items() if parse_iso(limit.until).timestamp() > now}
