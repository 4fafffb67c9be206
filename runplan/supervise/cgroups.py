"""Gives each dispatch a control group of the kernel, which nobody leaves by forking, and ends what is in one.

Only below the group this process is in itself, where that belongs to its user: systemd delegates such groups
(https://systemd.io/CGROUP_DELEGATION). No controller is switched on. A group is known by its name, which tells the
directory of dispatches, by its number, and the dispatch: no copy of a repository, and nobody else, has the same.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from typing import TYPE_CHECKING

from runplan import processes
from runplan.polling import until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from runplan.processes import Process

#: A group cannot be removed in the instant after its last process: it is tried again, for this long.
REMOVED_S = 1.0

_OWN = "self"


class Cgroup:
    """One control group, by its directory; where that is not there, nobody is in it."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def make(self) -> bool:
        """Whether there is such a group now; the kernel may be out of them, or the group above be gone."""
        try:
            os.mkdir(self.path)  # noqa: PTH102 - pathlib is dear for a shim
        except FileExistsError:
            return True
        except OSError:
            return False
        return True

    def members(self) -> list[Process]:
        """Every process in it and in groups below it, but this one."""
        found = (processes.process(pid) for pid in dict.fromkeys(self._pids()) if pid != os.getpid())
        return [process for process in found if process]

    def kill(self) -> None:
        """Kill all of them at once, so that none can fork away; one by one where the kernel is older than 5.14."""
        try:
            _write(f"{self.path}/cgroup.kill", b"1")
        except OSError:
            for process in self.members():
                processes.send(process, signal.SIGKILL)

    def remove(self, *, patience_s: float = REMOVED_S) -> bool:
        """Take the empty group away, with those that were made below it; False when somebody is still in it."""
        return until(self._removed, within_s=patience_s, every_s=0.001)

    def _removed(self) -> bool:
        try:
            os.rmdir(self.path)  # noqa: PTH106
        except FileNotFoundError:
            return True
        except OSError:
            for path in reversed(list(self._tree())):
                with contextlib.suppress(OSError):
                    os.rmdir(path)  # noqa: PTH106
        else:
            return True
        return not os.path.lexists(self.path)

    def _pids(self) -> Iterator[int]:
        for path in self._tree():
            with contextlib.suppress(OSError), open(f"{path}/cgroup.procs", "rb") as file:
                yield from map(int, file.read().split())

    def _tree(self) -> Iterator[str]:
        """It and the groups below it, which an agent may have made; upper ones first."""
        waiting = [self.path]
        while waiting:
            path = waiting.pop()
            yield path
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def end(groups: Collection[Cgroup], find: Callable[[], Collection[Process]], *, grace_s: float) -> int:
    """End what `find` finds and what is in the groups, then take these away; says how many there were to end."""

    def force() -> None:
        for group in groups:
            group.kill()

    count = processes.end_found(lambda: with_members(find(), groups), grace_s=grace_s, force=force)
    for group in groups:
        if group.members():  # they start others faster than one by one can be ended
            group.kill()
        group.remove()
    return count


def with_members(found: Collection[Process], groups: Collection[Cgroup]) -> list[Process]:
    """These and those in the groups, each once."""
    everyone = [*found, *(process for group in groups for process in group.members())]
    return list({process.pid: process for process in everyone}.values())


# --- which one ---------------------------------------------------------------------------------------------


def planned(directory: Path) -> Cgroup | None:
    """The group for the dispatch that has this directory; None where no group can be made."""
    with contextlib.suppress(OSError):
        return Cgroup(f"{place}/{name_of(directory)}") if (place := own_home()) else None
    return None


def left(directory: Path, *, told: str) -> list[Cgroup]:
    """The groups that the dispatch with this directory may have left: where we would make it, and where it told."""
    here = planned(directory)
    found = {here.path} if here else set()
    with contextlib.suppress(OSError):
        if told.rpartition("/")[2] == name_of(directory):  # in a copy of the repository it is another's
            found.add(told)
    return [Cgroup(path) for path in sorted(found) if os.path.lexists(path)]


def all_left(dispatches: Path) -> list[str]:
    """The directories below this one whose dispatch has a group beside us, by name."""
    with contextlib.suppress(OSError):
        prefix, place = _prefix(dispatches), own_home()
        names = os.listdir(place) if place else []  # noqa: PTH208 - pathlib makes this three times as dear
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return []


def name_of(directory: Path) -> str:
    return f"{_prefix(directory.parent)}{directory.name}"


def _prefix(dispatches: Path) -> str:
    """How the groups of a directory are called: by its number, which goes with it wherever it is moved."""
    found = dispatches.stat()
    return f"runplan-{found.st_dev:x}-{found.st_ino:x}-"


# --- where -------------------------------------------------------------------------------------------------


def home(pid: int | None = None) -> str:
    """The directory of the group the process is in, if it is its user's to divide; "" where it is not."""
    found = _directory(_OWN if pid is None else str(pid))
    # To start a process elsewhere takes the right to write here, too.
    return found if found and os.access(found, os.W_OK) and os.access(f"{found}/cgroup.procs", os.W_OK) else ""


@functools.cache
def own_home() -> str:
    """The same of this process, looked up once: its children are there, too."""
    return home()


def _directory(pid: str) -> str:
    """Where the group of the process is to be seen; "" where it is not."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", "rb") as file:
        ours = next((os.fsdecode(line[3:].rstrip(b"\n")) for line in file if line.startswith(b"0::")), "")
        for mount, root in _mounts():
            below = "" if root == "/" else root
            if ours == root or ours.startswith(f"{below}/"):
                return f"{mount}{ours.removeprefix(below)}".rstrip("/")
    return ""


def _mounts() -> list[tuple[str, str]]:
    """Where the second version's tree is mounted, and which part of it: at times it is not alone."""
    found = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            # proc_pid_mountinfo(5): how many words there are before the dash differs.
            words, _, kind = line.partition(b" - ")
            if kind.startswith(b"cgroup2 "):
                found.append((os.fsdecode(words.split()[4]), os.fsdecode(words.split()[3])))
    return found


def _write(path: str, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)
