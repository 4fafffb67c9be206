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
    """It cannot go on now; the run waits until then, and no attempt is charged."""

    kind: str  #: limit, overloaded; in the daemon also checkout, unreachable
    until: str  #: UTC ISO-8601
    agent: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Woke:
    """The time that was waited for has come."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverArmed:
    """An agent's context is filling: while it goes on, a note is kept for whoever may have to take over."""

    id: str  #: its dispatch
    percent: int  #: how full
    note: str
    estimated: bool = False  #: nobody told; it is a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """An agent had no room left; what it made is on the branch, and a fresh one goes on with a note."""

    number: int  #: from 1, per phase
    head: str
    tree: str
    note: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """As many runs are at work as may be; this one has its turn when one of them ends or waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """It is this run's turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """Nothing new is begun until a person lets it go on."""

    by: str
    missing: tuple[str, ...] = ()  #: names of the variables that a restart has lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """A person lets it go on."""
