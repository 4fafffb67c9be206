"""Sees whether a process has ended, what it did, and whether it touched what is not its own."""

from __future__ import annotations

import json
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
    left_s,
    ran_s,
)
from runplan.run.events import DispatchEnded, GuardFound, WorkRefused
from runplan.run.reasons import Reason
from runplan.steps.budget import bounded, paused_by
from runplan.steps.context import phase_of
from runplan.steps.finish import arm
from runplan.steps.judge import return_text
from runplan.steps.start import AGENT_ROLES, FINGERPRINT, still_running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.run.actions import Await, End
    from runplan.run.events import DispatchStarted, Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext

MOVED = "the repository was moved while the agent worked, and its worktree belongs to where it was"
LAST_WORDS = 600  #: characters of a failed process's output that are carried into the report


def await_end(action: Await, state: RunState, world: RunContext) -> Iterator[Event]:
    match world.dispatches.standing(action.id):
        case Running() if _is_overdue(action, state, world):
            yield from _ended(action, state, world, _timed_out(action, world))
        case Running():
            yield from arm(action, state, world)
        case NeverStarted():
            # The intent was recorded and no process was ever there, or its agent took away what told of it; that may
            # happen a few times, not for ever.
            world.dispatches.end([action.id], grace_s=GRACE_S)
            yield from _look_after(action.id, action.role, state, world)
            yield DispatchEnded(id=action.id, role=action.role, ending=Ending.LOST, code=None)
        case Outcome(ending=Ending.REFUSED) as outcome:
            # It never ran: the same dispatch is due again, when the run is tried again.
            yield DispatchEnded(id=action.id, role=action.role, ending=Ending.ENDED, code=None, detail=outcome.message)
            raise Unreachable(outcome.message)
        case Outcome() as outcome:
            yield from _ended(action, state, world, outcome)


def _is_overdue(action: Await, state: RunState, world: RunContext) -> bool:
    began = phase_of(state).dispatch
    left = left_s(began, world.clock.now()) if began else None
    return world.dispatches.overdue(action.id, left_s=left)


def _timed_out(action: Await, world: RunContext) -> Outcome:
    """End what its shim ought to have ended, which is stopped or hangs: it ran for too long, whoever says so."""
    world.dispatches.end([action.id], grace_s=GRACE_S)
    match world.dispatches.standing(action.id):
        case Outcome(ending=Ending.LOST | Ending.ENDED) as outcome:
            return replace(outcome, ending=Ending.TIMEOUT)
        case Outcome() as outcome:
            return outcome
        case Running():
            raise still_running(action.id)
        case NeverStarted():
            return Outcome(ending=Ending.TIMEOUT, code=None, signal=None, message="")


def _ended(action: Await, state: RunState, world: RunContext, outcome: Outcome) -> Iterator[Event]:
    if outcome.ending is Ending.LOST:
        world.dispatches.end([action.id], grace_s=GRACE_S)
    yield from _look_after(action.id, action.role, state, world)
    phase = phase_of(state)
    agent = phase.dispatch.agent if phase.dispatch else ""
    said, told = _said(action, world, outcome)
    ended = replace(_account(action.id, phase, world, outcome), said=said, detail=told)
    if not agent:
        yield ended
        return
    profile = world.agents.profile(agent, Role(action.role))
    ending = judge(outcome, profile)
    detail = ending.words or ended.detail
    if ending.kind in ("crashed", "killed", "silent", "timed-out", "success"):
        stopped = said in (ReturnStatus.BLOCKED, ReturnStatus.FAILED)  # then its own account tells why
        detail = ended.detail if stopped or ending.kind == "success" else quoted(ending, outcome, profile)
    yield bounded(replace(ended, kind=ending.kind, detail=detail), phase.dispatch) if phase.dispatch else ended
    yield from paused_by(ending, phase, world, agent=agent, id=action.id)


def _account(id: str, phase: PhaseRun, world: RunContext, outcome: Outcome) -> DispatchEnded:
    """How the process ended and what it used: by its output, else by what it writes into its return."""
    began = phase.dispatch
    usage, seconds = outcome.tally.usage, outcome.seconds
    if began and not outcome.ended_at:  # its shim, which would have done so, is gone
        usage, seconds = _metered(began, world, outcome), ran_s(began, world.clock.now())
    told = returns.parse_return(return_text(world, id), outcome.message)
    if usage == Usage() and isinstance(told, Return):
        usage = told.usage
    return DispatchEnded(
        id=id,
        role=began.role if began else "",
        agent=began.agent if began else "",
        phase=phase.read.phase if began and began.agent else "",
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


def _metered(began: DispatchStarted, world: RunContext, outcome: Outcome) -> Usage:
    """What a lost agent has used, by what it had told until then."""
    if not began.agent:
        return outcome.tally.usage
    prompt = len(world.dispatches.read(began.id, "prompt.md") or "")
    return metered(outcome.tally, prompt=prompt, price=world.agents.price(began.agent), most=began.usd)


def _look_after(id: str, role: str, state: RunState, world: RunContext) -> Iterator[Event]:
    """Name what changed in the user's repository meanwhile, and take the commits of a writer."""
    yield from _differences(id, role, state, world)
    if role in WRITERS:
        yield from _take(state, world)


def _differences(id: str, role: str, state: RunState, world: RunContext) -> Iterator[Event]:
    taken = world.dispatches.read(id, FINGERPRINT)
    if taken is None:
        return
    began = phase_of(state).dispatch
    tips = [json.loads(row.body)["tip"] for row in world.store.since("Landed", began.at if began else "")]
    found = fingerprint.foreign(world.fingerprints.compare(fingerprint.load(taken), agent=signing(id).email), tips)
    lines = fingerprint.lines(found, name_of(role))
    if set(lines) - set(phase_of(state).warnings):  # a process that died since may have told of them
        yield GuardFound(violated=any(one.by_agent for one in found), lines=lines)


def _take(state: RunState, world: RunContext) -> Iterator[Event]:
    """Copy what the agent committed out of its repository; what git refuses ends the attempt."""
    phase = phase_of(state)
    if phase.lease is None:
        return
    if phase.lease.worktree != world.worktree:
        left = world.worktrees.path(phase.lease.worktree)
        yield WorkRefused(reason=Reason.BLOCKED, detail=f"{MOVED}; what the agent did lies in {left}")
        return
    try:
        world.worktrees.take(phase.lease.worktree, branch=phase.lease.branch, base=phase.base)
    except ObjectsRefused as error:
        yield WorkRefused(reason=Reason.TAMPERED, detail=redacted(str(error)))


def name_of(role: str) -> str:
    """How the report names the process."""
    return "the agent" if role in AGENT_ROLES else f"the {role} command"


def _said(action: Await, world: RunContext, outcome: Outcome) -> tuple[str, str]:
    """What the agent says of itself; it counts only when it says that it could not go on."""
    if action.role not in WRITERS:
        return "", _last_words(outcome)
    stuck = returns.blockers(outcome.message)
    if stuck:
        return ReturnStatus.BLOCKED, "; ".join(stuck)
    match returns.parse_return(return_text(world, action.id), outcome.message):
        case Return(status=status, summary=summary):
            return status, summary if status in (ReturnStatus.BLOCKED, ReturnStatus.FAILED) else _last_words(outcome)
        case _:
            return "", _last_words(outcome)


def _last_words(outcome: Outcome) -> str:
    if outcome.ending is Ending.EXITED and outcome.code == 0:
        return ""
    return " ".join(outcome.message[-LAST_WORDS:].split())


def end(action: End, state: RunState, world: RunContext) -> Iterator[Event]:
    """Tell of a process that the loop has just ended with everything below it; what it has committed stays."""
    phase = phase_of(state)
    role = phase.dispatch.role if phase.dispatch else ""
    outcome = world.dispatches.standing(action.id)
    if outcome == Running():
        raise still_running(action.id)
    yield from _look_after(action.id, role, state, world)
    if isinstance(outcome, Outcome):
        # It is over because we wanted it so, whatever it did meanwhile; what it used is used.
        yield replace(_account(action.id, phase, world, outcome), ending=Ending.ENDED, kind=EndingKind.KILLED)
    else:
        yield DispatchEnded(id=action.id, role=role, ending=Ending.ENDED, code=None)
