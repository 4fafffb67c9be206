"""Tells whether a process descends from an agent, also when it has cleared its environment.

An agent's processes carry the mark of their dispatch. One that was started without it still has a parent: the agent,
or, once that has gone, the shim, to which the kernel gives the orphans of a dispatch (Linux only).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from runplan.processes import MARK, variable

if TYPE_CHECKING:
    import psutil

_SPAWNER = ("-m", "runplan.supervise.spawner")

#: A parent that ends while it is looked at hands its children on; then the walk begins anew.
WALKS = 10


def agent_above(pid: int) -> str:
    """What shows that the process is an agent's, in words; "" when nothing does."""
    for _ in range(WALKS):
        if (told := _walk(pid)) is not None:
            return told
    return f"process {pid} cannot be traced to whoever started it"


def _walk(pid: int) -> str | None:
    """What was found on the way up; None when a process ended meanwhile."""
    import psutil  # 33 ms

    while pid > 1:
        for name in (MARK, "RUNPLAN_AGENT"):
            if variable(pid, name):
                return f"process {pid} carries {name}"
        try:
            found = psutil.Process(pid)
            if _is_shim(found):
                return f"process {pid} supervises an agent"
            pid = found.ppid()
        except psutil.NoSuchProcess:
            return None
    return ""


def _is_shim(process: psutil.Process) -> bool:
    """Whether it is a spawner, or one of the shims, which are its forks; these start agents and nobody else."""
    import psutil

    try:
        return any(pair == _SPAWNER for pair in itertools.pairwise(process.cmdline()[1:5]))
    except psutil.AccessDenied:
        return False
