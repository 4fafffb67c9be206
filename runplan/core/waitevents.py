"""The facts of agents that cannot go on now: limited, waited for, handed over."""

from __future__ import annotations

from runplan.core.quickclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimited:
    """An agent's quota is used up; nobody starts it before then, in whatever run."""

    agent: str
    until: str  #: UTC ISO-8601, margin and jitter included
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nobody can be sent now; the run waits, and no attempt is charged."""

    kind: str  #: limit, overloaded
    until: str  #: UTC ISO-8601
    agent: str
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Woke:
    """The time that was waited for has come."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """An agent had no room left; what it made is on the branch, and a fresh one goes on with a note."""

    number: int  #: from 1, per phase
    head: str
    tree: str
    note: str
    why: str
