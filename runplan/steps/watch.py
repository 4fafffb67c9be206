"""Observes the end of a process: how it ended, what it used, and what it changed outside its worktree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.budgets import metered
from runplan.agents.endings import EndingKind, judge, quoted
from runplan.checks import returns
from runplan.checks.secrets import redacted
from runplan.errors import ObjectsRefused, Unreachable
from runplan.git import fingerprint
from runplan.gitfacts import signing
from runplan.run.dispatch import (
    GRACE_S,
    WRITERS,
    Ending,
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

    from runplan.run.actions import Await, End
    from runplan.run.events import DispatchStarted, Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

LAST_WORDS = 600  #: characters of a failed process's output in the report


def await_end(action: Await, state: RunState, context: RunContext) -> Iterator[Event]:
    match context.dispatches.standing(action.id):
        case Running():
            return
        case NeverStarted():
            # Only the intent was recorded, or the agent deleted the files of its dispatch.
            context.dispatches.end([action.id], grace_s=GRACE_S)
            yield from _examine(action.id, action.role, state, context)
            yield DispatchEnded(id=action.id, role=action.role, ending=Ending.LOST, code=None)
        case Outcome(ending=Ending.REFUSED) as outcome:
            # It never ran: the same dispatch is due again when the run is retried.
            yield DispatchEnded(id=action.id, role=action.role, ending=Ending.ENDED, code=None, detail=outcome.message)
            raise Unreachable(outcome.message)
        case Outcome() as outcome:
            yield from _ended(action, state, context, outcome)


def _ended(action: Await, state: RunState, context: RunContext, outcome: Outcome) -> Iterator[Event]:
    if outcome.ending is Ending.LOST:
        context.dispatches.end([action.id], grace_s=GRACE_S)
    yield from _examine(action.id, action.role, state, context)
    phase = phase_of(state)
    started = phase.dispatch
    said, detail = _said(action, context, outcome)
    ended = replace(_usage(action.id, phase, context, outcome), said=said, detail=detail)
    if started is None or not started.agent:
        yield ended
        return
    profile = context.agents.profile(started.agent, Role(action.role))
    ending = judge(outcome, profile)
    detail = ending.words or ended.detail
    if ending.kind in ("crashed", "killed", "silent", "timed-out", "success"):
        has_reason = said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED)  # in the agent's own return
        detail = ended.detail if has_reason or ending.kind == "success" else quoted(ending, outcome, profile)
    yield name_limit(replace(ended, kind=ending.kind, detail=detail), started)
    yield from pause_after(ending, phase, context, agent=started.agent, id=action.id)


def _usage(id: str, phase: PhaseRun, context: RunContext, outcome: Outcome) -> DispatchEnded:
    """How the process ended and what it used, by its output or by its return."""
    started = phase.dispatch
    usage, seconds = outcome.tally.usage, outcome.seconds
    if started and not outcome.ended_at:  # its shim died and recorded neither
        usage, seconds = _estimated(started, context, outcome), ran_s(started, context.clock.now())
    returned = returns.parse_return(return_text(context, id), outcome.message)
    if usage == Usage() and isinstance(returned, Return):
        usage = returned.usage
    return DispatchEnded(
        id=id,
        role=started.role if started else "",
        agent=started.agent if started else "",
        phase=phase.read.phase if started and started.agent else "",
        ending=outcome.ending,
        code=outcome.code,
        signal=outcome.signal,
        output_bytes=outcome.output_bytes,
        leftovers=outcome.leftovers,
        session=outcome.tally.session,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        usd=usage.usd,
        seconds=seconds,
    )


def _estimated(started: DispatchStarted, context: RunContext, outcome: Outcome) -> Usage:
    """The usage of an agent whose shim died, by its output until then."""
    if not started.agent:
        return outcome.tally.usage
    prompt = len(context.dispatches.read(started.id, "prompt.md") or "")
    return metered(outcome.tally, prompt=prompt, price=context.agents.price(started.agent), most=started.usd)


def _examine(id: str, role: str, state: RunState, context: RunContext) -> Iterator[Event]:
    """Name changes in the user's repository during the dispatch, and fetch the commits of a writer."""
    phase = phase_of(state)
    if (before := context.dispatches.read(id, FINGERPRINT)) is not None:
        since = phase.dispatch.at if phase.dispatch else ""
        tips = [one.event.tip for one in context.store.facts(Landed, since=since)]
        differences = context.fingerprints.compare(before, agent=signing(id).email)
        found = fingerprint.foreign(differences, tips)
        lines = fingerprint.lines(found, "the agent" if role in AGENT_ROLES else f"the {role} command")
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


def _said(action: Await, context: RunContext, outcome: Outcome) -> tuple[str, str]:
    """The status in the agent's return, and why it stopped; the last words of a process that failed."""
    succeeded = outcome.ending is Ending.EXITED and outcome.code == 0
    last_words = "" if succeeded else " ".join(outcome.message[-LAST_WORDS:].split())
    if action.role not in WRITERS:
        return "", last_words
    if blockers := returns.blockers(outcome.message):
        return ReturnStatus.BLOCKED, "; ".join(blockers)
    match returns.parse_return(return_text(context, action.id), outcome.message):
        case Return(status=ReturnStatus.BLOCKED | ReturnStatus.FAILED as status, summary=summary):
            return status, summary
        case Return(status=status):
            return status, last_words
        case _:
            return "", last_words


def end(action: End, state: RunState, context: RunContext) -> Iterator[Event]:
    """Record a process that the loop has just ended; its commits are kept."""
    phase = phase_of(state)
    role = phase.dispatch.role if phase.dispatch else ""
    outcome = context.dispatches.standing(action.id)
    if outcome == Running():
        raise still_running(action.id)
    yield from _examine(action.id, role, state, context)
    if isinstance(outcome, Outcome):
        yield replace(_usage(action.id, phase, context, outcome), ending=Ending.ENDED, kind=EndingKind.KILLED)
    else:
        yield DispatchEnded(id=action.id, role=role, ending=Ending.ENDED, code=None)
