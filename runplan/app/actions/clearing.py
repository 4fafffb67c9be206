"""Takes away what a process put into git's own places, and mends what it broke, before git or anybody goes there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.app.actions.starting import AGENT_ROLES, STAMP, stamp_of
from runplan.core.events import GuardFound
from runplan.core.gitfiles import GONE, UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.app.world import World
    from runplan.core.events import Event
    from runplan.core.gitfacts import Finding
    from runplan.core.run import RunState

NAMED = 8  #: of them in one record


def cleared(id: str, role: str, state: RunState, world: World) -> Iterator[Event]:
    """What is no plain file there, or cannot be read, is recorded first and put right after; who did so is accused."""
    phase = phase_of(state)
    branch = phase.lease.branch if phase.lease else ""
    path = world.worktrees.path(world.worktree)
    before = _before(id, state, world)
    yield from _put_right(world.guard.odd(path, branch=branch, before=before), name_of(role), world)
    yield from _put_right(world.guard.broken(before), name_of(role), world)


def _put_right(found: tuple[Finding, ...], who: str, world: World) -> Iterator[Event]:
    if not found:
        return
    violated = any(finding.by_agent for finding in found)
    yield GuardFound(violated=violated, lines=_some([_line(finding, who) for finding in found]))
    world.point("Await.clear")
    done = [_done(finding) for finding in world.guard.restore(found)]
    yield GuardFound(violated=False, lines=_some(done))


def name_of(role: str) -> str:
    """Whom a person is told of."""
    return "the agent" if role in AGENT_ROLES else f"the {role} command"


def _before(id: str, state: RunState, world: World) -> Mapping[str, object]:
    """The guard's record, unless there is none, or none that is provably ours."""
    began = phase_of(state).dispatch
    stamped = world.dispatches.read(id, STAMP)
    known = stamped is not None and began is not None and began.stamp == stamp_of(stamped)
    return json.loads(stamped) if stamped is not None and known else {}


def _line(finding: Finding, who: str) -> str:
    put = who if finding.by_agent else f"while {who} ran, somebody"
    if finding.new == GONE:
        return f"{put} took {finding.name} away"
    if finding.new == UNREADABLE:
        return f"{put} left {finding.name} so that git cannot read it"
    return f"{put} put a {finding.new} in the place of {finding.name}"


def _done(finding: Finding) -> str:
    kept = f"; it is kept at {finding.parked}" if finding.parked else ""
    if finding.new in (GONE, UNREADABLE):
        kept = f"; what stood there is kept at {finding.parked}" if finding.parked else ""
        anew = f"{finding.name} tells what is staged in your checkout; to begin it anew: git reset"
        return f"{finding.name} was put back as it was{kept}" if finding.restored else f"{anew}{kept}"
    back = "; what had been there was put back" if finding.old else ""
    return f"the {finding.new} in the place of {finding.name} was taken away{back}{kept}"


def _some(lines: list[str]) -> tuple[str, ...]:
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return tuple(lines[:NAMED] + more)
