"""Takes away what a process put into git's own places, before git or anybody else goes there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.app.actions.starting import AGENT_ROLES, STAMP, stamp_of
from runplan.core.events import GuardFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.app.world import World
    from runplan.core.events import Event
    from runplan.core.gitfacts import Finding
    from runplan.core.run import RunState

NAMED = 8  #: of them in one record


def cleared(id: str, role: str, state: RunState, world: World) -> Iterator[Event]:
    """What is no plain file there is recorded first and taken away after; whoever put it there is accused."""
    phase = phase_of(state)
    branch = phase.lease.branch if phase.lease else ""
    path = world.worktrees.path(world.worktree)
    found = world.guard.odd(path, branch=branch, before=_before(id, state, world))
    if not found:
        return
    who = name_of(role)
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
    return f"{put} put a {finding.new} in the place of {finding.name}"


def _done(finding: Finding) -> str:
    back = "; what had been there was put back" if finding.old else ""
    kept = f"; it is kept at {finding.parked}" if finding.parked else ""
    return f"the {finding.new} in the place of {finding.name} was taken away{back}{kept}"


def _some(lines: list[str]) -> tuple[str, ...]:
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return tuple(lines[:NAMED] + more)
