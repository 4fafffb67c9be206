"""Who may be at work: so many runs on the host, so many in one repository, in the order in which they asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from runplan.core.quickclass import dataclass

Key: TypeAlias = tuple[str, str]  #: repository, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The runs at work, and those that wait for their turn."""

    host: int  #: runs at once in all
    repository: int  #: runs at once in one repository
    working: tuple[Key, ...] = ()
    waiting: tuple[Key, ...] = ()  #: first come, first served

    def ask(self, key: Key) -> tuple[Turns, bool]:
        """Whether this run may be at work now; if not, it is kept in line."""
        if key in self.working:
            return self, True
        turns = self.wait(key)
        if key not in turns.due():
            return turns, False
        waiting = tuple(one for one in turns.waiting if one != key)
        return replace(turns, working=(*turns.working, key), waiting=waiting), True

    def enter(self, key: Key) -> Turns:
        """Count a run whose process is running already, also above the limits."""
        if key in self.working:
            return self
        waiting = tuple(one for one in self.waiting if one != key)
        return replace(self, working=(*self.working, key), waiting=waiting)

    def wait(self, key: Key) -> Turns:
        """Put a run in line without a turn."""
        return self if key in (*self.working, *self.waiting) else replace(self, waiting=(*self.waiting, key))

    def leave(self, key: Key) -> Turns:
        """The run has ended, or waits for something else."""
        return replace(
            self,
            working=tuple(one for one in self.working if one != key),
            waiting=tuple(one for one in self.waiting if one != key),
        )

    def due(self) -> tuple[Key, ...]:
        """Those in line whose turn it is; one whose repository is full does not hold up the others."""
        working = list(self.working)
        found: list[Key] = []
        for key in self.waiting:
            here = sum(1 for repository, _ in working if repository == key[0])
            if len(working) < self.host and here < self.repository:
                working.append(key)
                found.append(key)
        return tuple(found)
