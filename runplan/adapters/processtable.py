"""Reads the kernel's table of processes: who there is, since when, under whom, and with which mark."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Protocol

from runplan.core.quickclass import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The variable every process of a dispatch carries; its value is the dispatch's id.
MARK = "RUNPLAN_DISPATCH"


class Process(NamedTuple):
    """One living process at the moment it was looked at."""

    pid: int
    parent: int
    session: int
    started: str  #: with the pid it is unique until the next boot
    cpu_s: float  #: of itself and of the children it has waited for


class ProcessTable(Protocol):
    """What runplan wants to know of processes; a zombie counts as gone."""

    def boot(self) -> str:
        """What tells this boot of the machine from every other."""

    def process(self, pid: int) -> Process | None:
        """The process that has this pid now."""

    def stopped(self, pid: int) -> bool:
        """Whether the process does nothing until it is told to go on; False for one that is not there."""

    def processes(self) -> Iterator[Process]:
        """Every process that can be seen."""

    def mark(self, pid: int) -> str:
        """The dispatch whose mark the process carries; "" for none, or when it may not be read."""

    def variable(self, pid: int, name: str) -> str:
        """The variable as the process was started with it; "" for none, or when it may not be read."""

    def command(self, pid: int) -> tuple[str, ...]:
        """The program and its arguments; empty when they may not be read."""

    def moved(self, pid: int) -> int:
        """Bytes that it and the children it has waited for have read and written; 0 when nobody tells."""


class ProcTable:
    """The table as Linux shows it under /proc: no package, some 20 microseconds a process."""

    def boot(self) -> str:
        return _boot_id()

    def process(self, pid: int) -> Process | None:
        fields = _stat(pid)
        if not fields or fields[0] in (b"Z", b"X"):
            return None
        return Process(
            pid=pid,
            parent=int(fields[1]),
            session=int(fields[3]),
            started=fields[19].decode(),
            cpu_s=sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
        )

    def stopped(self, pid: int) -> bool:
        return _stat(pid)[:1] in ([b"T"], [b"t"])

    def processes(self) -> Iterator[Process]:
        for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib makes this three times as dear
            if name.isdigit() and (process := self.process(int(name))):
                yield process

    def mark(self, pid: int) -> str:
        return self.variable(pid, MARK)

    def variable(self, pid: int, name: str) -> str:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = b"\0" + file.read()
        except OSError:
            return ""
        _, found, rest = environ.partition(b"\0" + name.encode() + b"=")
        return os.fsdecode(rest.partition(b"\0")[0]) if found else ""

    def command(self, pid: int) -> tuple[str, ...]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return tuple(os.fsdecode(word) for word in file.read().split(b"\0")[:-1])
        except OSError:
            return ()

    def moved(self, pid: int) -> int:
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                told = dict(line.split(b": ", 1) for line in file)
            called = int(told[b"rchar"]) + int(told[b"wchar"])
            # What is mapped into memory is read by no call, and shows only as what came from the disk.
            return max(called, int(told[b"read_bytes"]) + int(told[b"write_bytes"]))
        except (OSError, KeyError, ValueError):
            return 0


def _stat(pid: int) -> list[bytes]:
    """What the kernel tells of a process, from its state on; nothing of one that is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return []
    # The name stands in brackets and may itself hold brackets and blanks.
    return stat[stat.rindex(b")") + 2 :].split()


@functools.cache
def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def this_table() -> ProcessTable:
    """The table of this machine."""
    if os.path.exists("/proc/self/environ"):  # noqa: PTH110 - pathlib is dear for a reading verb
        return ProcTable()
    from runplan.adapters.processtable_psutil import PsutilTable  # 30 ms, and only where there is no /proc

    return PsutilTable()
