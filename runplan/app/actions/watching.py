"""Sees whether a process has ended, what it did, and whether it touched what is not its own."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runplan.app.actions.clearing import cleared, name_of
from runplan.app.actions.doing import phase_of
from runplan.app.actions.handing import arm
from runplan.app.actions.pausing import paused_by
from runplan.app.actions.returned import return_text
from runplan.app.actions.spending import bounded
from runplan.app.actions.starting import AGENT_ROLES, STAMP, TRACE, stamp_of, still_running
from runplan.core import overdue, returns
from runplan.core.commands import command
from runplan.core.dispatch import (
    GRACE_S,
    WRITERS,
    Ending,
    NeverStarted,
    Outcome,
    Return,
    ReturnStatus,
    Role,
    Running,
    ToolUsed,
    Usage,
)
from runplan.core.endings import EndingKind, judge, quoted
from runplan.core.events import DispatchEnded, GuardFound, WorkRefused
from runplan.core.findings import RECORD, obeyed_words
from runplan.core.guard import REMOTES, SYMBOLIC, Watched, signing
from runplan.core.meter import metered
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.app.world import World
    from runplan.core.actions import Await, End
    from runplan.core.events import DispatchStarted, Event
    from runplan.core.gitfacts import Finding
    from runplan.core.run import PhaseRun, RunState

TAKEN_APART = "the agent's worktree was taken apart: its .git is gone, or names another repository"
MOVED = "the repository was moved while the agent worked, and its worktree belongs to where it was"
TAKEN_AWAY = "took away or changed the record of what it might not touch"
LAST_WORDS = 600  #: characters of a failed process's output that are carried into the report


def await_end(action: Await, state: RunState, world: World) -> Iterator[Event]:
    match world.dispatches.standing(action.id):
        case Running() if _is_overdue(action, state, world):
            yield from _ended(action, state, world, _timed_out(action, world))
        case Running():
            yield from arm(action, state, world)
        case NeverStarted():
            # The intent was recorded and no process was ever there, or its agent took away what told of it; that may
            # happen a few times, not for ever.
            world.dispatches.end([action.id], grace_s=GRACE_S)
            yield from cleared(action.id, action.role, state, world)
            yield from _changes(action, action.role, state, world, world.guard.recalled(signing(action.id)))
            yield DispatchEnded(id=action.id, role=action.role, ending=Ending.LOST, code=None)
        case Outcome() as outcome:
            yield from _ended(action, state, world, outcome)


def _is_overdue(action: Await, state: RunState, world: World) -> bool:
    began = phase_of(state).dispatch
    left = overdue.left_s(began, world.clock.now()) if began else None
    return world.dispatches.overdue(action.id, left_s=left)


def _timed_out(action: Await, world: World) -> Outcome:
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


def _ended(action: Await, state: RunState, world: World, outcome: Outcome) -> Iterator[Event]:
    if outcome.ending is Ending.LOST:
        world.dispatches.end([action.id], grace_s=GRACE_S)
    yield from cleared(action.id, action.role, state, world)
    yield from _guard(action, action.role, state, world, outcome)
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


def _account(id: str, phase: PhaseRun, world: World, outcome: Outcome) -> DispatchEnded:
    """How the process ended and what it used: by its output, else by what it writes into its return."""
    began = phase.dispatch
    usage, seconds = outcome.tally.usage, outcome.seconds
    if began and not outcome.ended_at:  # its shim, which would have done so, is gone
        usage, seconds = _metered(began, world, outcome), overdue.ran_s(began, world.clock.now())
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


def _metered(began: DispatchStarted, world: World, outcome: Outcome) -> Usage:
    """What a lost agent has used, by what it had told until then."""
    if not began.agent:
        return outcome.tally.usage
    prompt = len(world.dispatches.read(began.id, "prompt.md") or "")
    return metered(outcome.tally, prompt=prompt, price=world.agents.price(began.agent), most=began.usd)


def _guard(action: Await | End, role: str, state: RunState, world: World, outcome: Outcome) -> Iterator[Event]:
    """Look at what it might not touch, and at the worktree of an agent."""
    phase = phase_of(state)
    stamped = world.dispatches.read(action.id, STAMP)
    started = phase.dispatch.stamp if phase.dispatch is not None else ""
    if not started and role not in AGENT_ROLES:
        return  # started by an earlier version
    if stamped is None or (started and stamp_of(stamped) != started):
        yield GuardFound(violated=True, lines=(f"{name_of(role)} {TAKEN_AWAY}",))
        before = world.guard.recalled(signing(action.id))
    else:
        before = json.loads(stamped)
    tools = tuple(event for event in outcome.events if isinstance(event, ToolUsed))
    yield from _changes(action, role, state, world, before, tools)
    if role not in AGENT_ROLES:
        return
    path = world.worktrees.path(world.worktree)
    if phase.lease is not None and phase.lease.worktree != world.worktree:
        left = world.worktrees.path(phase.lease.worktree)
        yield WorkRefused(reason=Reason.BLOCKED, detail=f"{MOVED}; what the agent did lies in {left}")
    elif not path.exists():
        yield WorkRefused(reason=Reason.BLOCKED, detail=f"the worktree {path} was removed while the agent worked in it")
    elif not world.worktrees.intact(path):
        yield GuardFound(violated=True, lines=(TAKEN_APART,))


def _changes(
    action: Await | End,
    role: str,
    state: RunState,
    world: World,
    before: Mapping[str, object],
    tools: tuple[ToolUsed, ...] = (),
) -> Iterator[Event]:
    """What changed is recorded first and restored after, so that a crash in between forgets nothing."""
    phase = phase_of(state)
    directory = world.dispatches.directory(action.id)
    branch = phase.lease.branch if phase.lease else ""
    own = (branch,) if role in WRITERS else ()
    whose = Watched(
        agent=signing(action.id),
        trace=directory / TRACE,
        worktree=world.worktrees.path(world.worktree),
        branch=branch,
        beside=partial(_is_accompanied, phase, world),
    )
    findings = world.guard.compare(before, own=own, tools=tools, whose=whose)
    if _users_own(role, phase):
        findings = tuple(replace(finding, by_agent=False, obeyed=()) for finding in findings)
    if findings:
        accused = [finding for finding in findings if finding.by_agent]
        violated = any(role != "verify" or finding.name != branch or finding.kind == "symref" for finding in accused)
        violated = violated or any(finding.obeyed for finding in findings)
        yield GuardFound(violated=violated, lines=tuple(line(finding, name_of(role)) for finding in findings))
        if accused and not violated:  # only a verifier's branch is not its own
            told = f"the verifier changed the branch {branch.removeprefix('refs/heads/')}"
            yield WorkRefused(reason=Reason.READONLY_VIOLATED, detail=told)
        world.point("Await.restore")
        done = tuple(told for finding in world.guard.restore(findings) if (told := _restored(finding)))
        if done:
            yield GuardFound(violated=False, lines=done)


def _is_accompanied(phase: PhaseRun, world: World) -> bool:
    """Whether another run or lane may have removed what it had landed, since the process was started."""
    began = phase.dispatch.at if phase.dispatch else ""
    going = any(row.id != world.run for row in world.store.unfinished())
    return bool(world.lane) or going or any(row.run != world.run for row in world.store.since("RunEnded", began))


def _users_own(role: str, phase: PhaseRun) -> bool:
    """Whether it is a command of the user's on code that has landed: what it sets up in the repository is theirs."""
    tree = phase.dispatch.tree if phase.dispatch else ""
    landed = (phase.base_tree, phase.candidate.onto_tree if phase.candidate else "")
    return role not in AGENT_ROLES and tree in landed


def line(finding: Finding, process: str) -> str:
    """One sentence for the report."""
    who = process if finding.by_agent else f"while {process} ran, somebody"
    if finding.kind == RECORD:
        return f"{who} took away the record of the git commands it ran"
    if finding.kind == "symref" and finding.new.startswith(SYMBOLIC):
        return f"{who} made {finding.name} stand for {finding.new.removeprefix(SYMBOLIC)}"
    return f"{who} changed the {finding.kind} {finding.name}{obeyed_words(finding)}"


def _restored(finding: Finding) -> str:
    """What was done about it; "" when nothing was, or could be."""
    if finding.kind == RECORD:
        return ""
    kept = f"the value that would be lost is kept at {finding.parked}" if finding.parked else ""
    back = "it was put back as it was" if finding.restored else _left(finding) if finding.by_agent else ""
    done = "; ".join(part for part in (back, kept) if part)
    return f"the {finding.kind} {finding.name}: {done}" if done else ""


def _left(finding: Finding) -> str:
    """Putting it back would be a checkout in the user's checkout, or undo what somebody built on it."""
    if finding.name.startswith(REMOTES):
        return "it was left as it is, because the remote itself was pushed to; look there, and mend it there"
    if finding.kind != "head":
        return "it was left as it is"
    branch = finding.old.removeprefix("ref: refs/heads/")
    way = (branch,) if branch != finding.old else ("--detach", finding.old)
    return f"it was left as it is; to go back: {command('git', 'switch', *way)}"


def _said(action: Await, world: World, outcome: Outcome) -> tuple[str, str]:
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


def end(action: End, state: RunState, world: World) -> Iterator[Event]:
    """Tell of a process that the loop has just ended with everything below it; what it has committed stays."""
    phase = phase_of(state)
    role = phase.dispatch.role if phase.dispatch else ""
    outcome = world.dispatches.standing(action.id)
    if outcome == Running():
        raise still_running(action.id)
    yield from cleared(action.id, role, state, world)
    if isinstance(outcome, Outcome):
        yield from _guard(action, role, state, world, outcome)
    if isinstance(outcome, Outcome):
        # It is over because we wanted it so, whatever it did meanwhile; what it used is used.
        yield replace(_account(action.id, phase, world, outcome), ending=Ending.ENDED, kind=EndingKind.KILLED)
    else:
        yield DispatchEnded(id=action.id, role=role, ending=Ending.ENDED, code=None)
