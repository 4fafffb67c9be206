"""Observes the end of a process: how it ended, what it used, and what it changed outside its worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.budgets import metered, priced
from runplan.agents.clis import agent_of
from runplan.agents.endings import judge, quoted
from runplan.checks import returns
from runplan.checks.secrets import redacted
from runplan.errors import ObjectsRefused, Unreachable
from runplan.git.repository import describe_differences
from runplan.gitfacts import signing
from runplan.run.dispatch import (
    GRACE_S,
    WRITERS,
    Ending,
    EndingKind,
    NeverStarted,
    Outcome,
    Return,
    ReturnStatus,
    Role,
    Running,
    Usage,
    ran_s,
)
from runplan.run.events import DispatchEnded, GuardFound, Landed, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.budget import name_limit, pause_after
from runplan.steps.context import phase_of
from runplan.steps.start import AGENT_ROLES, FINGERPRINT, still_running
from runplan.steps.verify import return_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Action
    from runplan.run.events import DispatchStarted, Event
    from runplan.run.state import RunState
    from runplan.steps.context import RunContext

LAST_WORDS = 600  #: characters of a failed process's output in the report


def await_end(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    started = _running(state)
    match context.dispatches.standing(started.id):
        case Running():
            return
        case NeverStarted():
            # Only the intent was recorded, or the agent deleted the files of its dispatch.
            context.dispatches.end([started.id], grace_s=GRACE_S)
            yield from _examine(started, state, context)
            yield DispatchEnded(id=started.id, role=started.role, ending=Ending.LOST, code=None)
        case Outcome(ending=Ending.REFUSED) as outcome:
            # It never ran: the same dispatch is due again when the run is retried.
            detail = outcome.message
            yield DispatchEnded(id=started.id, role=started.role, ending=Ending.ENDED, code=None, detail=detail)
            raise Unreachable(detail)
        case Outcome() as outcome:
            yield from _ended(started, state, context, outcome)


def end(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    """Record a process that the loop has just ended; its commits are kept."""
    started = _running(state)
    outcome = context.dispatches.standing(started.id)
    if outcome == Running():
        raise still_running(started.id)
    yield from _examine(started, state, context)
    if isinstance(outcome, Outcome):
        yield replace(_usage(started, context, outcome), ending=Ending.ENDED, kind=EndingKind.KILLED)
    else:
        yield DispatchEnded(id=started.id, role=started.role, ending=Ending.ENDED, code=None)


def _running(state: RunState) -> DispatchStarted:
    started = phase_of(state).dispatch
    assert started is not None
    return started


def _ended(started: DispatchStarted, state: RunState, context: RunContext, outcome: Outcome) -> Iterator[Event]:
    if outcome.ending is Ending.LOST:
        context.dispatches.end([started.id], grace_s=GRACE_S)
    yield from _examine(started, state, context)
    said, detail = _said(started, context, outcome)
    ended = replace(_usage(started, context, outcome), said=said, detail=detail)
    if not started.agent:
        yield ended
        return
    profile = context.agents.profile(started.agent, Role(started.role))
    ending = judge(outcome, profile)
    if ending.kind in ("crashed", "killed", "silent", "timed-out"):
        has_reason = said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED)  # in the agent's own return
        detail = detail if has_reason else quoted(ending, outcome, profile)
    elif ending.kind != "success":
        detail = ending.words or detail
    yield name_limit(replace(ended, kind=ending.kind, detail=detail), started)
    yield from pause_after(ending, phase_of(state), context, agent=started.agent, id=started.id)


def _usage(started: DispatchStarted, context: RunContext, outcome: Outcome) -> DispatchEnded:
    """How the process ended and what it used, by its output or by its return."""
    usage, seconds = outcome.tally.usage, outcome.seconds
    if not outcome.ended_at:  # its shim died and recorded neither
        seconds = ran_s(started, context.clock.now())
        if started.agent:
            prompt = len(context.dispatches.read(started.id, "prompt.md") or "")
            table = context.settings.agents.agent(started.agent)
            prices = {"usd_in": table.usd_per_mtok_in, "usd_out": table.usd_per_mtok_out}
            usage = metered(outcome.tally, prompt=prompt, **prices)
    returned = returns.parse_return(return_text(context, started.id), outcome.message)
    if usage == Usage() and isinstance(returned, Return):
        usage = returned.usage
    if started.agent and not usage.usd and outcome.ending is not Ending.EXITED:  # before it reported dollars
        kind = context.settings.agents.agent(started.agent).kind
        usage = priced(usage, *agent_of(kind).highest_usd)
    return DispatchEnded(
        id=started.id,
        role=started.role,
        agent=started.agent,
        phase=started.phase,
        ending=outcome.ending,
        code=outcome.code,
        signal=outcome.signal,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        usd=usage.usd,
        seconds=seconds,
    )


def _examine(started: DispatchStarted, state: RunState, context: RunContext) -> Iterator[Event]:
    """Name changes in the user's repository during the dispatch, and fetch the commits of a writer."""
    phase, role = phase_of(state), started.role
    if (before := context.dispatches.read(started.id, FINGERPRINT)) is not None:
        tips = [one.event.tip for one in context.store.facts(Landed, since=started.at)]
        found = context.fingerprints.compare(before, agent=signing(started.id).email, landed=tips)
        lines = describe_differences(found, "the agent" if role in AGENT_ROLES else f"the {role} command")
        if set(lines) - set(phase.warnings):  # else recorded before a crash
            yield GuardFound(violated=any(one.by_agent for one in found), lines=lines)
    if role not in WRITERS or phase.lease is None:
        return
    if phase.lease.worktree != context.worktree:
        left = context.worktrees.path(phase.lease.worktree)
        why = f"the repository was moved while the agent worked; the agent's work is in {left}"
        yield WorkRefused(reason=Reason.BLOCKED, detail=why)
        return
    try:
        context.worktrees.take(phase.lease.worktree, branch=phase.lease.branch, base=phase.base)
    except ObjectsRefused as error:
        yield WorkRefused(reason=Reason.TAMPERED, detail=redacted(str(error)))


def _said(started: DispatchStarted, context: RunContext, outcome: Outcome) -> tuple[str, str]:
    """The status in the agent's return, and why it stopped; the last words of a process that failed."""
    succeeded = outcome.ending is Ending.EXITED and outcome.code == 0
    last_words = "" if succeeded else " ".join(outcome.message[-LAST_WORDS:].split())
    if started.role not in WRITERS:
        return "", last_words
    if blockers := returns.blockers(outcome.message):
        return ReturnStatus.BLOCKED, "; ".join(blockers)
    match returns.parse_return(return_text(context, started.id), outcome.message):
        case Return(status=ReturnStatus.BLOCKED | ReturnStatus.FAILED as status, summary=summary):
            return status, summary
        case Return(status=status):
            return status, last_words
        case _:
            return "", last_words
