"""Identifies processes by pid and start time, finds those of a dispatch, and ends them.

psutil reads the table of processes. It is imported where it is used, because it takes 33 ms. One look is our own: state
and start time of one pid (docs/dependencies.md).
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

#: The variable that every process of a dispatch carries; its value is the id of the dispatch.
MARK = "RUNPLAN_DISPATCH"

#: How long a killed process may take to leave the table; a disk that does not answer holds it longer.
KILLED_S = 5.0

#: Processes that are being ended may start others. After this many rounds the rest is left to a later sweep.
ROUNDS = 20

#: How often a process is looked at where the kernel has no process descriptors.
POLL_S = 0.01


class Process(Struct, frozen=True):
    """A process that was alive. A pid is reused; pid and start time together are unique until the next boot."""

    pid: int
    started: str


# --- one process ------------------------------------------------------------------------------------------------


def process(pid: int) -> Process | None:
    """The living process with this pid; a zombie is dead."""
    state, started = _state(pid)
    return Process(pid, started) if state not in ("", "Z", "X") else None


def stopped(pid: int) -> bool:
    """Whether the process is suspended until SIGCONT."""
    return _state(pid)[0] in ("T", "t")


def identity(pid: int) -> str | None:
    """The name of the living process with this pid, "<pid>:<start>:<boot>"; None for none."""
    found = process(pid)
    return f"{pid}:{found.started}:{_boot()}" if found else None


def alive(name: str) -> bool:
    """Whether the process with this identity lives; a text that is no identity names no process."""
    return living(name) is not None


def living(name: str) -> Process | None:
    """The process with this identity, if it lives."""
    pid, _, rest = name.partition(":")
    found = process(int(pid)) if pid.isascii() and pid.isdigit() else None
    return found if found and rest == f"{found.started}:{_boot()}" else None


def lives(known: Process) -> bool:
    """Whether this process still lives."""
    return process(known.pid) == known


def _state(pid: int) -> tuple[str, str]:
    """State letter and start time of the process with this pid; empty for none."""
    if sys.platform != "linux":
        return state_by_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return "", ""
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may contain brackets and blanks
    return fields[0].decode(), fields[19].decode()


def state_by_psutil(pid: int) -> tuple[str, str]:
    """The same for systems without /proc."""
    import psutil

    letters = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}
    try:
        found = psutil.Process(pid)
        return letters.get(found.status(), "R"), f"{found.create_time():.2f}"
    except psutil.Error:
        return "", ""


@functools.cache
def _boot() -> str:
    if sys.platform != "linux":
        import psutil

        return str(int(psutil.boot_time()))
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


# --- the table ----------------------------------------------------------------------------------------------------


def variable(pid: int, name: str) -> str:
    """The variable as the process was started with it; "" for none, or when it may not be read."""
    import psutil

    try:
        return psutil.Process(pid).environ().get(name, "")
    except (psutil.Error, OSError):
        return ""


def session(pid: int) -> int:
    """The session of the process; 0 for none."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def marked(dispatch: str) -> list[Process]:
    """Every process but this one that carries the mark of the dispatch."""
    import psutil

    return _seen(pid for pid in psutil.pids() if _carries(pid, dispatch))


def family(dispatch: str, *, root: int, leader: int) -> list[Process]:
    """Every process of a dispatch but its shim `root`: a descendant, in the session of `leader`, or marked."""
    import psutil

    descended = {one.pid for one in psutil.Process(root).children(recursive=True)}
    return _seen(
        pid
        for pid in psutil.pids()
        if pid != root and (pid in descended or session(pid) == leader or _carries(pid, dispatch))
    )


def _carries(pid: int, dispatch: str) -> bool:
    return pid != os.getpid() and variable(pid, MARK) == dispatch


def _seen(pids: Iterable[int]) -> list[Process]:
    return [found for pid in pids if (found := process(pid))]


def work_done(found: Iterable[Process]) -> tuple[float, int]:
    """Processor seconds and bytes moved so far by these processes and the children they have waited for."""
    import psutil

    cpu_s, moved = 0.0, 0
    for one in found:
        with contextlib.suppress(psutil.Error, OSError, AttributeError):  # macOS counts no bytes
            known = psutil.Process(one.pid)
            cpu_s += sum(known.cpu_times()[:4])
            counted = known.io_counters()
            # Memory-mapped files are read without a call and count only as blocks of the disk.
            moved += max(counted.read_chars + counted.write_chars, counted.read_bytes + counted.write_bytes)
    return cpu_s, moved


# --- ending -------------------------------------------------------------------------------------------------------


def send(known: Process, number: signal.Signals) -> bool:
    """Signal this process, never another with the same pid; False when it is gone or not ours."""
    with contextlib.ExitStack() as stack, contextlib.suppress(ProcessLookupError, PermissionError):
        handle = _pidfd(known.pid)
        if handle is not None:
            stack.callback(os.close, handle)
        if not lives(known):
            return False
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(known.pid, number)
        return True
    return False


def end_all(found: Collection[Process], *, grace_s: float, force: Callable[[], None] | None = None) -> int:
    """Send SIGTERM, then SIGKILL to those that outlive the grace; the number of processes that were signalled.

    `force` is called before SIGKILL, for a way that reaches more.
    """
    left = [one for one in found if send(one, signal.SIGTERM)]
    count = len(left)
    left = await_gone(left, timeout_s=grace_s)
    if left and force:
        force()
    left = [one for one in left if send(one, signal.SIGKILL)]
    await_gone(left, timeout_s=KILLED_S)
    return count


def end_found(
    find: Callable[[], Collection[Process]], *, grace_s: float, force: Callable[[], None] | None = None
) -> int:
    """End what `find` finds until it finds nothing more; the number of processes that were signalled."""
    count = 0
    for _ in range(ROUNDS):
        if not (found := find()):
            break
        count += end_all(found, grace_s=grace_s, force=force)
    return count


def await_gone(found: Collection[Process], *, timeout_s: float) -> list[Process]:
    """Wait until all of them are gone; those that are left when the time is up."""
    deadline = time.monotonic() + timeout_s
    left = list(filter(lives, found))
    while left and (rest := deadline - time.monotonic()) > 0:
        _until_one_ends(left, rest)
        left = list(filter(lives, left))
    return left


def _until_one_ends(found: Collection[Process], timeout_s: float) -> None:
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for one in found:
            try:
                handle = _pidfd(one.pid)
            except ProcessLookupError:
                return
            if handle is None:
                time.sleep(min(POLL_S, timeout_s))
                return
            stack.callback(os.close, handle)
            selector.register(handle, selectors.EVENT_READ)
        selector.select(timeout_s)


def descriptor(known: Process) -> int | None:
    """A descriptor that becomes readable when the process ends; None where there are none, or when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        handle = _pidfd(known.pid)
        if handle is None or lives(known):
            return handle
        os.close(handle)
    return None


def _pidfd(pid: int) -> int | None:
    """A descriptor of the process that has this pid now; None where the kernel has none."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
