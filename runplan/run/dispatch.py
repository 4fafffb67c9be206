"""Dispatches as plain values: roles, the process to start, its outcome, and the agent's return."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.run.usage import (
    AgentEvent as AgentEvent,
    Message as Message,
    Spent as Spent,
    Tally,
    ToolUsed as ToolUsed,
    Usage as Usage,
)
from runplan.times import parse_iso

if TYPE_CHECKING:
    from datetime import datetime

    from runplan.run.events import DispatchStarted


class Role(StrEnum):
    """The job of a process."""

    IMPLEMENT = "implement"
    FIX = "fix"
    VERIFY = "verify"
    GATE = "gate"  #: no agent: the project's test command
    BASELINE = "baseline"  #: no agent: the test command on the base
    SETUP = "setup"  #: no agent: run.setup


WRITERS = (Role.IMPLEMENT, Role.FIX)  #: the roles that change files

GRACE_S = 10.0  #: for a process tree to end on request; its shim kills earlier than that
MAX_OVERLOADS = 5  #: overloaded providers in a row, before the agent counts as failed

OWN = "own"  #: the folder of a dispatch that its agent may write; under a sandbox the only one
RETURN = f"{OWN}/return.json"


class Ending(StrEnum):
    """How a process ended."""

    EXITED = "exited"  #: by itself, with any exit code
    SIGNALLED = "signalled"  #: killed by a signal that runplan did not send
    TIMEOUT = "timeout"  #: stopped at its wall limit
    SILENT = "silent"  #: stopped at its silence limit
    ENDED = "ended"  #: stopped on request
    BUDGET = "budget"  #: stopped at its budget
    CONTEXT = "context"  #: stopped because its context is full
    LOST = "lost"  #: its shim died with it; the result is unknown
    MISSING = "missing"  #: the program could not be started
    REFUSED = "refused"  #: the system lacks processes, descriptors, memory or disk space


class Launch(Struct, frozen=True, kw_only=True):
    """One process to start under a shim."""

    id: str  #: unique; also the mark that descendants carry in RUNPLAN_DISPATCH
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: str  #: path of the file given as standard input; "" for none
    reader: str  #: module of agents/clis that reads the output lines; "" for none
    wall_s: float
    silence_s: float  #: 0 = no silence limit
    log_cap: int = 16 * 1024 * 1024  #: bytes of output kept; the rest is counted and dropped
    grace_s: float = 5.0  #: between asking the process to end and killing it
    tokens: int = 0  #: limit, sent and received; 0 = none
    usd: float = 0.0  #: likewise
    prompt: int = 0  #: characters of the prompt, for an estimate of the context
    hand_over_at: int = 0  #: per cent at which it is stopped, so that a fresh agent continues; 0 = never
    window: int = 0  #: tokens of its context; 0 = as it reports, or by the model's name
    model: str = ""
    usd_in: float = 0.0  #: dollars per million tokens, for an agent that reports no cost; 0 = unknown
    usd_out: float = 0.0
    files: tuple[tuple[str, str], ...] = ()  #: (name, text) to write next to its logs before it starts


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a process, read from the files of its shim."""

    ending: Ending
    code: int | None  #: exit code; None after a signal or a loss
    signal: int | None
    message: str  #: the end of the agent's message, bounded
    output_bytes: int = 0
    leftovers: int = 0  #: descendants that had to be ended after it
    tally: Tally = Tally()
    error: str = ""  #: the end of its standard error
    ended_at: float = 0.0  #: seconds since the epoch; 0 when unknown
    seconds: float = 0.0  #: from its start to its end


class Running(Struct, frozen=True, kw_only=True):
    """The dispatch is alive: its shim holds its lock."""


class NeverStarted(Struct, frozen=True, kw_only=True):
    """No shim took the dispatch up."""


DispatchStanding: TypeAlias = Running | NeverStarted | Outcome


class ReturnStatus(StrEnum):
    DONE = "done"
    PARTIAL = "partial"
    BLOCKED = "blocked"
    FAILED = "failed"


class ItemResult(Struct, frozen=True, kw_only=True):
    item: str
    passed: bool
    evidence: str


class Return(Struct, frozen=True, kw_only=True):
    """The structured return of an agent (docs/agents.md)."""

    status: ReturnStatus
    summary: str
    items: tuple[ItemResult, ...] = ()
    usage: Usage = Usage()


def ran_s(started: DispatchStarted, now: datetime) -> float:
    """The longest time that a lost process can have run."""
    passed_s = max(0.0, (now - parse_iso(started.at)).total_seconds()) if started.at else 0.0
    return min(passed_s, started.seconds) if started.seconds else passed_s
