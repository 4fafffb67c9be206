"""What a keeper needs of the daemon around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from runplan.core import events as e
    from runplan.core.decide import Decision
    from runplan.core.run import RunState
    from runplan.core.turns import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A repository in which nothing can be done for now."""

    root: str
    error: str
    since: str  #: UTC, ISO 8601
    again: str  #: when it is tried again, likewise


class Timers(Protocol):
    """Calls back at moments."""

    def at(self, key: str, moment: datetime, call: Callable[[], None]) -> None: ...

    def cancel(self, key: str) -> None: ...

    def look_again(self) -> None:
        """See by the clock on the wall what is due."""
        ...


class HostTurns(Protocol):
    """Who may be at work on this host."""

    def ask(self, key: Key) -> bool: ...

    def leave(self, key: Key) -> None: ...

    def enter(self, key: Key) -> None:
        """Count a run whose process is running already."""
        ...

    def counted(self, root: str) -> None:
        """The adopted runs of the repository are counted, or it cannot be opened for now."""
        ...


class Audience(Protocol):
    """Who hears what becomes of runs: the log, followers, people who are to be told."""

    def happened(self, root: str, event: str, **fields: object) -> None: ...

    def told(self, root: str, plan: str, run: str, fact: e.Fact) -> None: ...

    def ended(self, root: str, plan: str, run: str, state: RunState) -> None: ...

    def waits(self, root: str, plan: str, run: str, state: RunState, decision: Decision) -> None: ...
