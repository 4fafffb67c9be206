"""Knows processes by identity rather than by pid, finds those of a dispatch, and ends them.

Nothing here matches a name: a process belongs to a dispatch because it carries its mark, sits in its session
or descends from its shim.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from typing import TYPE_CHECKING

from runplan.adapters.processtable import Process, ProcessTable, this_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: How long a killed process may take to leave the table (a disk that does not answer holds it longer).
KILLED_S = 5.0

#: Processes that are ended may still start others; after so many rounds the rest is left to a later sweep.
ROUNDS = 20

#: Kernels without process descriptors are asked again after this pause.
POLL_S = 0.01


def identity(pid: int, *, table: ProcessTable | None = None) -> str | None:
    """Name the process that has this pid now, for good: "<pid>:<start>:<boot>"; None when there is none."""
    table = table or this_table()
    found = table.process(pid)
    return f"{pid}:{found.started}:{table.boot()}" if found else None


def alive(name: str, *, table: ProcessTable | None = None) -> bool:
    """Tell whether the process with this identity still lives; anything that is no identity is dead."""
    return living(name, table=table) is not None


def living(name: str, *, table: ProcessTable | None = None) -> Process | None:
    """The process with this identity, if it still lives."""
    table = table or this_table()
    pid, _, rest = name.partition(":")
    found = table.process(int(pid)) if pid.isascii() and pid.isdigit() else None
    return found if found and rest == f"{found.started}:{table.boot()}" else None


def lives(process: Process, *, table: ProcessTable | None = None) -> bool:
    """Tell whether this very process, which was seen before, still lives."""
    now = (table or this_table()).process(process.pid)
    return now is not None and now.started == process.started


def marked(dispatch: str, *, table: ProcessTable | None = None) -> list[Process]:
    """Every process but this one that carries the mark of the dispatch."""
    table = table or this_table()
    return [process for process in table.processes() if _carries(process, dispatch, table)]


def family(dispatch: str, *, root: int, session: int, table: ProcessTable | None = None) -> list[Process]:
    """Every process of a dispatch but its shim `root`: marked, in the agent's session, or descended from the shim."""
    table = table or this_table()
    everyone = list(table.processes())
    descended = _descended(everyone, {root})
    return [
        process
        for process in everyone
        if process.pid != root
        and (process.pid in descended or process.session == session or _carries(process, dispatch, table))
    ]


def _descended(everyone: Collection[Process], roots: set[int]) -> set[int]:
    """These and all below them."""
    found = set(roots)
    while more := {process.pid for process in everyone if process.parent in found} - found:
        found |= more
    return found


def _carries(process: Process, dispatch: str, table: ProcessTable) -> bool:
    return process.pid != os.getpid() and table.mark(process.pid) == dispatch


def send(process: Process, number: signal.Signals, *, table: ProcessTable | None = None) -> bool:
    """Signal this very process, never another that was given its pid; False when it is gone or not ours."""
    table = table or this_table()
    with contextlib.ExitStack() as stack, contextlib.suppress(ProcessLookupError, PermissionError):
        handle = pidfd(process.pid)
        if handle is not None:
            stack.callback(os.close, handle)
        if not lives(process, table=table):
            return False
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
        return True
    return False


def end_all(
    found: Collection[Process],
    *,
    grace_s: float,
    table: ProcessTable | None = None,
    force: Callable[[], None] | None = None,
) -> int:
    """Ask the processes to end, kill those that have not after the grace; says how many there were to end.

    `force` kills by a surer way, before that.
    """
    table = table or this_table()
    left = [process for process in found if send(process, signal.SIGTERM, table=table)]
    count = len(left)
    left = await_gone(left, timeout_s=grace_s, table=table)
    if left and force:
        force()
    left = [process for process in left if send(process, signal.SIGKILL, table=table)]
    await_gone(left, timeout_s=KILLED_S, table=table)
    return count


def end_found(
    find: Callable[[], Collection[Process]], *, grace_s: float, force: Callable[[], None] | None = None
) -> int:
    """End what `find` finds until it finds nothing more; says how many there were to end."""
    count = 0
    for _ in range(ROUNDS):
        if not (found := find()):
            break
        count += end_all(found, grace_s=grace_s, force=force)
    return count


def await_gone(found: Collection[Process], *, timeout_s: float, table: ProcessTable | None = None) -> list[Process]:
    """Wait until all of them are gone; gives back those that are still there when the time is up."""
    table = table or this_table()
    deadline = time.monotonic() + timeout_s
    left = _living(found, table)
    while left and (rest := deadline - time.monotonic()) > 0:
        _until_one_ends(left, rest)
        left = _living(left, table)
    return left


def _living(found: Collection[Process], table: ProcessTable) -> list[Process]:
    return [process for process in found if lives(process, table=table)]


def _until_one_ends(found: Collection[Process], timeout_s: float) -> None:
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for process in found:
            try:
                handle = pidfd(process.pid)
            except ProcessLookupError:
                return
            if handle is None:
                time.sleep(min(POLL_S, timeout_s))
                return
            stack.callback(os.close, handle)
            selector.register(handle, selectors.EVENT_READ)
        selector.select(timeout_s)


def descriptor(process: Process) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there are none, or when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        handle = pidfd(process.pid)
        if handle is None or lives(process):
            return handle
        os.close(handle)
    return None


def pidfd(pid: int) -> int | None:
    """A descriptor of the process that has this pid now; None where the kernel has none."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
