"""Reads the table of processes through psutil, where there is no /proc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from runplan.adapters.processtable import MARK, Process

if TYPE_CHECKING:
    from collections.abc import Iterator


class PsutilTable:
    """The same facts as ProcTable, by way of psutil."""

    def boot(self) -> str:
        return str(int(psutil.boot_time()))

    def process(self, pid: int) -> Process | None:
        try:
            found = psutil.Process(pid)
            with found.oneshot():
                if found.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    return None
                times = found.cpu_times()
                return Process(
                    pid=pid,
                    parent=found.ppid(),
                    session=os.getsid(pid),
                    started=f"{found.create_time():.2f}",
                    cpu_s=times.user + times.system + times.children_user + times.children_system,
                )
        except (psutil.Error, OSError):
            return None

    def stopped(self, pid: int) -> bool:
        try:
            return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        except (psutil.Error, OSError):
            return False

    def processes(self) -> Iterator[Process]:
        for pid in psutil.pids():
            if process := self.process(pid):
                yield process

    def mark(self, pid: int) -> str:
        return self.variable(pid, MARK)

    def variable(self, pid: int, name: str) -> str:
        try:
            return psutil.Process(pid).environ().get(name, "")
        except (psutil.Error, OSError):
            return ""

    def command(self, pid: int) -> tuple[str, ...]:
        try:
            return tuple(psutil.Process(pid).cmdline())
        except (psutil.Error, OSError):
            return ()

    def moved(self, pid: int) -> int:
        try:
            told = psutil.Process(pid).io_counters()
        except (AttributeError, psutil.Error, OSError):  # some systems keep no such account
            return 0
        called = getattr(told, "read_chars", 0) + getattr(told, "write_chars", 0)
        return max(called, told.read_bytes + told.write_bytes)
