"""Reads what would land, every commit of it, for secrets; no more of a file than its beginning."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from runplan.core.leaks import Written, leaks

if TYPE_CHECKING:
    from runplan.app.runcontext import RunContext
    from runplan.core.run import PhaseRun
    from runplan.core.tamper import Permit, Tampering

LOOKED_AT = 1_000_000  #: bytes of a file
_BINARY = 8000  #: git, too, calls a file binary that has a NUL within as many bytes


def leaked(phase: PhaseRun, world: RunContext, head: str, permit: Permit) -> tuple[Tampering, ...]:
    """The secrets that the work brings: what one commit adds and the next takes away would land as well."""
    line = None if phase.handovers else world.candidates.commits(phase.base, head)
    steps = [phase.base, *(commit.oid for commit in line)] if line else [phase.base, head]
    changes = {
        (change.path, change.new): change
        for old, new in pairwise(steps)
        for change in world.candidates.changes(old, new)
    }
    # The first change of a path starts from what was there before the phase.
    before = {change.path: _text(world, change.old) for change in reversed(changes.values())}
    files = [
        Written(
            path=path,
            before=before[path],
            after=_text(world, change.new),
            added=change.kind == "A",
        )
        for (path, _), change in changes.items()
    ]
    # What was handed over lands as one commit, under the title of the phase.
    messages = [] if phase.handovers else [one.message for one in line or (world.objects.commit(head),)]
    return leaks(files, messages, permit)


def _text(world: RunContext, oid: str) -> str:
    content = world.objects.beginning(oid, LOOKED_AT)
    return "" if b"\0" in content[:_BINARY] else content.decode("utf-8", "replace")
