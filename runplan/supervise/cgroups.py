"""Gives each dispatch a control group (v2), which no process leaves by forking.

The groups are made below the group of this process, where its user may divide it: systemd delegates such groups
(https://systemd.io/CGROUP_DELEGATION). No controller is enabled. Without one, processes are found by mark and parent.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from runplan import processes
from runplan.clock import until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from runplan.processes import Process

#: The kernel refuses to remove a group in the instant after its last process ended.
REMOVE_S = 1.0

MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class Cgroup:
    """One control group. A missing directory is an empty group."""

    def __init__(self, path: str) -> None:
        self.path = path

    def make(self) -> bool:
        """Whether the group exists now: the kernel can be out of groups."""
        with contextlib.suppress(OSError):
            Path(self.path).mkdir(exist_ok=True)
            return True
        return False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Put this process into the group for a moment: children that it starts stay there.

        A child that moved itself would need a fork of this interpreter, which takes five milliseconds.
        """
        _move_to(self.path)
        try:
            yield
        finally:
            _move_to(own_place())

    def members(self) -> list[Process]:
        """Every process in it and in the groups below it, which an agent may have made."""
        pids: set[int] = set()
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                pids.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
        return [found for pid in pids - {os.getpid()} if (found := processes.process(pid))]

    def kill(self) -> None:
        """Kill all members at once, so that none can fork away; one by one on kernels before 5.14."""
        try:
            with open(f"{self.path}/cgroup.kill", "r+") as file:
                file.write("1")
        except OSError:
            for process in self.members():
                processes.send(process, signal.SIGKILL)

    def remove(self, *, within_s: float = REMOVE_S) -> bool:
        """Remove the group and those below it; False when a process is still in it."""
        return until(self._removed, within_s=within_s, every_s=0.001)

    def _removed(self) -> bool:
        for folder, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not os.path.lexists(self.path)


def end(groups: Collection[Cgroup], find: Callable[[], Collection[Process]], *, grace_s: float) -> int:
    """End the processes that `find` returns and those in the groups, then remove the groups; the number signalled."""

    def force() -> None:
        for group in groups:
            group.kill()

    count = processes.end_all(lambda: with_members(find(), groups), grace_s=grace_s, force=force)
    for group in groups:
        if group.members():  # they fork faster than they can be killed one by one
            group.kill()
        group.remove()
    return count


def with_members(found: Collection[Process], groups: Collection[Cgroup]) -> list[Process]:
    """The processes found and those in the groups, each once."""
    everyone = [*found, *(process for group in groups for process in group.members())]
    return list({process.pid: process for process in everyone}.values())


def _move_to(place: str) -> None:
    with contextlib.suppress(OSError):
        Path(place, "cgroup.procs").write_text("0")


def planned(name: str) -> Cgroup | None:
    """The group for the dispatch with this directory name; None when no group can be made."""
    return Cgroup(f"{place}/runplan-{name}-{os.getpid()}") if (place := own_place()) else None


def parent_of(pid: int | str = "self") -> str:
    """The directory of the process's group if its user may divide it, else ""."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        group = next((line.removeprefix("0::").rstrip("/") for line in lines if line.startswith("0::")), None)
        for place in () if group is None else (f"{mount}{group}" for mount in MOUNTS):
            # Starting a process elsewhere also needs the right to write here.
            if os.access(place, os.W_OK) and os.access(f"{place}/cgroup.procs", os.W_OK):
                return place
    return ""


@functools.cache
def own_place() -> str:
    """The same for this process. Its children are in the same group."""
    return parent_of()
