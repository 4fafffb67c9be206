"""Tells whether silent processes work: by the processor time they use and the bytes they read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters.processtable import this_table
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.adapters.processtable import Process, ProcessTable

#: Processor time that counts as a sign of life: this much, and this share of the time. Agents that merely wait for
#: their provider use 1 % (opencode) to 3 % (codex) of a processor.
BUSY_S = 0.02
BUSY_SHARE = 0.05

#: Bytes that count as one: this many, and this many a second. Loops that look at something once a second move 5 kB
#: (sleep), 15 kB (ls, git status) to 50 kB (curl, which reads its certificates); a download over 1 Mbit/s moves 125 kB.
MOVED = 256 * 1024
MOVED_PER_S = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What some processes had done at a moment."""

    at: float
    cpu_s: float
    moved: int  #: bytes

    def working(self, earlier: Signs) -> bool:
        """Whether they have worked since; who merely waits or polls has not."""
        elapsed = self.at - earlier.at
        return self.cpu_s - earlier.cpu_s >= max(BUSY_S, BUSY_SHARE * elapsed) or (
            self.moved - earlier.moved >= max(MOVED, MOVED_PER_S * elapsed)
        )


def signs_of(processes: Iterable[Process], *, at: float, table: ProcessTable | None = None) -> Signs:
    """What the processes have done so far."""
    table = table or this_table()
    there = list(processes)
    return Signs(
        at=at,
        cpu_s=sum(process.cpu_s for process in there),
        moved=sum(table.moved(process.pid) for process in there),
    )
