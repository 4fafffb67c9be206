"""Identifies processes by pid and start time, finds those of a dispatch, and ends them.

psutil reads the process table. It is imported where it is used, because that takes 33 ms. State, start time, parent
and environment of a single pid are read from /proc directly (docs/dependencies.md).
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from runplan.adapters.clock import until

if sys.platform != "linux":
    import psutil


MARK = "RUNPLAN_DISPATCH"  #: a variable of every process of a dispatch, with the dispatch id
AGENT_MARK = "RUNPLAN_AGENT"  #: set for agents and checks; verbs that change something refuse to run below it
KILLED_S = 5.0  #: how long killing may take; a hanging disk can delay the end of a process
LAST_LOOK_S = 0.5  #: how long killed processes may take to disappear when that time is up


class Process(Struct, frozen=True):
    """A pid is reused; pid and start time together are unique until the next boot."""

    pid: int
    started: str


def process(pid: int) -> Process | None:
    """The live process with this pid; a zombie counts as dead."""
    state, _, started = _stat(pid)
    return Process(pid, started) if state not in ("", "Z", "X") else None


def stopped(pid: int) -> bool:
    """Whether the process is suspended until SIGCONT."""
    return _stat(pid)[0] in ("T", "t")


def identity(pid: int) -> str | None:
    """The text "<pid>:<start>:<boot>" for the live process with this pid."""
    known = process(pid)
    return f"{pid}:{known.started}:{_boot()}" if known else None


def living(name: str) -> Process | None:
    """The process with this identity, if it is alive."""
    pid, _, rest = name.partition(":")
    known = process(int(pid)) if pid.isascii() and pid.isdigit() else None
    return known if known and rest == f"{known.started}:{_boot()}" else None


def is_of_this_boot(name: str) -> bool:
    """Whether the process with this identity was started on this machine since its last boot."""
    return name.rpartition(":")[2] == _boot()


def alive(name: str) -> bool:
    return living(name) is not None


def lives(known: Process) -> bool:
    return process(known.pid) == known


def _stat(pid: int) -> tuple[str, int, str]:
    """State letter, parent and start time; ("", 0, "") when there is no such process."""
    if sys.platform != "linux":
        return stat_by_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return "", 0, ""
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it can contain brackets and blanks
    if fields[0] == b"Z" and int(fields[17]) > 1:
        fields[0] = b"S"  # its first thread has ended, and others run
    return fields[0].decode(), int(fields[1]), fields[19].decode()


def stat_by_psutil(pid: int) -> tuple[str, int, str]:
    """The same on systems without /proc."""
    import psutil  # on Linux only the tests come here

    letters = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}
    try:
        seen = psutil.Process(pid)
        return letters.get(seen.status(), "R"), seen.ppid(), f"{seen.create_time():.2f}"
    except psutil.Error:
        return "", 0, ""


@functools.cache
def _boot() -> str:
    if sys.platform != "linux":
        return str(int(psutil.boot_time()))
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def variable(pid: int, name: str) -> str:
    """The variable in the environment the process was started with; "" when unset or not readable."""
    if sys.platform != "linux":
        with contextlib.suppress(psutil.Error, OSError):
            return psutil.Process(pid).environ().get(name, "")
        return ""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            block = b"\0" + file.read()
    except OSError:
        return ""
    value = block.partition(b"\0" + os.fsencode(name) + b"=")[2]
    return os.fsdecode(value.partition(b"\0")[0])


def agent_above(pid: int) -> str:
    """Why the process counts as an agent's: it or a parent has the variables of one; "" when it does not."""
    while pid:
        state, parent, _ = _stat(pid)
        if not state:  # also a parent that has just ended
            return f"process {pid} cannot be traced to its parents"
        if mark := next((name for name in (MARK, AGENT_MARK) if variable(pid, name)), ""):
            return f"process {pid} carries {mark}"
        pid = parent
    return ""


def describe(known: Process) -> str:
    import psutil  # 33 ms, and only a process that cannot be killed is described

    with contextlib.suppress(psutil.Error, OSError):
        return f"{known.pid} ({psutil.Process(known.pid).name()})"
    return str(known.pid)


def session(pid: int) -> int:
    """The session id of the process; 0 when it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def run_program(argv: Sequence[str], env: Mapping[str, str], *, within_s: float) -> tuple[int, str, str]:
    """The exit code of a program of PATH, its output and its errors; -1 and the reason when it does not end in time."""
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath)) or argv[0]
    try:
        ran = subprocess.run(
            (program, *argv[1:]), stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=within_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, "", str(error)
    return ran.returncode, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")


def marked_inside(directory: Path) -> list[int]:
    """Processes of any dispatch that work in the directory."""
    import psutil  # 33 ms, and only a start needs the process table

    pids = []
    for running in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # psutil lets FileNotFoundError through while a process exits
            if f"{running.cwd()}/".startswith(f"{directory}/") and variable(running.pid, MARK):
                pids.append(running.pid)
    return pids


def family(dispatch: str, *, shim: int = 0, leader: int = -1) -> Iterator[Process]:
    """The processes of a dispatch: descended from its shim, with its mark, or in the session of `leader`.

    Descendants are yielded as they are found, so that a caller signals them before they fork again. Zombies are among
    them: one that has just ended may have left a child.
    """
    import psutil  # as above

    seen = {shim, os.getpid()}
    parents = [shim] if shim else []
    while parents:  # as far as the kernel lists the children of a process; few microseconds for each
        tasks = Path(f"/proc/{parents.pop()}/task")
        with contextlib.suppress(OSError):  # the process has ended; `glob` raises, too
            for task in tasks.iterdir():
                with contextlib.suppress(OSError):  # the thread has ended
                    children = [int(child) for child in (task / "children").read_bytes().split()]
                    parents += children
                    seen.update(children)
                    yield from (Process(child, started) for child in children if (started := _stat(child)[2]))
    descended = {child.pid for child in psutil.Process(shim).children(recursive=True)} if shim else set()
    for pid in set(psutil.pids()) - seen:
        if pid in descended or session(pid) == leader or variable(pid, MARK) == dispatch:
            yield from filter(None, [process(pid)])


def send(known: Process, number: signal.Signals) -> bool:
    """Signal this process, never another one with the same pid; False when it is gone or not ours."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if lives(known):
            os.kill(known.pid, number)
            return True
    return False


def end_all(find: Callable[[], Iterable[Process]], *, grace_s: float) -> tuple[int, list[Process]]:
    """Send SIGTERM, and kill what is left after the grace; the number of processes signalled, and those still there."""
    asked = {known for known in find() if send(known, signal.SIGTERM)}
    await_gone(asked, timeout_s=grace_s)
    killed, left = kill_all(find)
    return len(asked | killed), left


def kill_all(
    find: Callable[[], Iterable[Process]], *, within_s: float = KILLED_S
) -> tuple[set[Process], list[Process]]:
    """Stop processes until `find` finds no new one, so that none forks, and kill them; those signalled, those left."""
    deadline = time.monotonic() + within_s
    stopped: dict[Process, bool] = {}  #: whether it could be signalled
    while True:
        family = []
        known_before = len(stopped)
        for known in find():
            family.append(known)
            if known not in stopped:
                stopped[known] = send(known, signal.SIGSTOP)
        is_late = time.monotonic() >= deadline
        if is_late or len(stopped) == known_before:
            for known in family:
                send(known, signal.SIGKILL)
            await_gone(family, timeout_s=max(LAST_LOOK_S, deadline - time.monotonic()))
        if is_late or not family:
            return {known for known, is_sent in stopped.items() if is_sent}, list(find()) if family else []


def await_gone(ended: Collection[Process], *, timeout_s: float) -> list[Process]:
    """Wait until all of them are gone; returns those still alive when the time is up."""
    until(lambda: not any(map(lives, ended)), within_s=timeout_s)
    return list(filter(lives, ended))


def descriptor(known: Process) -> int | None:
    """A descriptor that becomes readable when the process ends; None when it is gone or the system has none."""
    with contextlib.suppress(AttributeError, ProcessLookupError):  # macOS has none
        handle = os.pidfd_open(known.pid)
        if lives(known):
            return handle
        os.close(handle)
    return None
