"""Tells whether a process descends from an agent, also when it has cleared its environment.

An agent's processes carry the mark of their dispatch. One that was started without it still has a parent: the agent,
or, once that has gone, the shim, to which the kernel gives the orphans of a dispatch (Linux only).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from runplan.adapters.processtable import MARK, this_table

if TYPE_CHECKING:
    from runplan.adapters.processtable import ProcessTable

_SPAWNER = ("-m", "runplan.adapters.spawner")

#: A parent that ends while it is looked at hands its children on; then the walk begins anew.
WALKS = 10


def agent_above(pid: int, *, table: ProcessTable | None = None) -> str:
    """What shows that the process is an agent's, in words; "" when nothing does."""
    table = table or this_table()
    for _ in range(WALKS):
        if (told := _walk(pid, table)) is not None:
            return told
    return f"process {pid} cannot be traced to whoever started it"


def _walk(pid: int, table: ProcessTable) -> str | None:
    """What was found on the way up; None when somebody ended meanwhile."""
    while pid > 1:
        found = table.process(pid)
        if found is None:
            return None
        for name in (MARK, "RUNPLAN_AGENT"):
            if table.variable(pid, name):
                return f"process {pid} carries {name}"
        if _is_shim(table.command(pid)):
            return f"process {pid} supervises an agent"
        pid = found.parent
    return ""


def _is_shim(argv: tuple[str, ...]) -> bool:
    """Whether it is a spawner, or one of the shims, which are its forks; these start agents and nobody else."""
    return any(pair == _SPAWNER for pair in itertools.pairwise(argv[1:5]))
