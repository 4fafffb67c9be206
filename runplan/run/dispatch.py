"""Dispatches as plain values: roles, what is asked of a process, and what came of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from runplan.run.usage import (
    AgentEvent as AgentEvent,
    Message as Message,
    Spent as Spent,
    Tally,
    ToolUsed as ToolUsed,
    Usage as Usage,
)


class Role(StrEnum):
    """What an agent is asked to be."""

    IMPLEMENT = "implement"
    FIX = "fix"
    VERIFY = "verify"
    GATE = "gate"  #: not an agent: a command runplan runs itself, supervised the same way
    BASELINE = "baseline"  #: likewise: the same command on the base
    SETUP = "setup"  #: likewise: what prepares a fresh worktree


#: Those that change files; everybody else only reads.
WRITERS = (Role.IMPLEMENT, Role.FIX)


#: What processes get to end, with all they started, when we want them to; their shims kill earlier than that.
GRACE_S = 10.0

#: The folder in the directory of a dispatch that is its agent's to write; under a sandbox it can write no other there.
OWN = "own"
RETURN = f"{OWN}/return.json"  #: what the agent hands back


class Ending(StrEnum):
    """How a process came to its end."""

    EXITED = "exited"  #: by itself; the exit code says no more than that
    SIGNALLED = "signalled"  #: died by a signal that was not ours
    TIMEOUT = "timeout"  #: ran longer than its wall limit and was ended
    SILENT = "silent"  #: gave no sign of life for its silence limit and was ended
    ENDED = "ended"  #: ended by us, on request
    BUDGET = "budget"  #: used what it may use and was ended
    CONTEXT = "context"  #: filled its context and was ended, so that a fresh one goes on
    LOST = "lost"  #: its shim died with it; nothing is known
    MISSING = "missing"  #: the program could not be started
    REFUSED = "refused"  #: the system had nothing left to start it with: processes, descriptors, memory, disk space


class Launch(Struct, frozen=True, kw_only=True):
    """One process to start under a shim."""

    id: str  #: unique; also the mark that descendants carry in RUNPLAN_DISPATCH
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: str  #: path of the file given as standard input; "" for none
    reader: str  #: which module of agents/clis reads the output lines; "" for none
    wall_s: float
    silence_s: float  #: 0 = no silence limit
    log_cap: int = 16 * 1024 * 1024  #: bytes of output kept; the rest is counted and dropped
    grace_s: float = 5.0  #: between asking the process to end and killing it
    hears: bool = False  #: its standard input stays open, and what is given there first is its prompt
    wrap_up_s: float = 120.0  #: what one that hears gets to end by itself when it was told that its context is full
    rung_s: float = 10.0  #: after that, or where nothing can be said: after an interrupt, and after a request to end
    tokens: int = 0  #: what it may use, sent and received; 0 = no limit
    usd: float = 0.0  #: likewise
    prompt: int = 0  #: characters of the prompt, which an estimate of its context has to count
    arm_at: int = 0  #: per cent of its context at which a hand-over is prepared; 0 = never
    hand_over_at: int = 0  #: at which it is ended, so that a fresh agent goes on; 0 = never
    window: int = 0  #: tokens its context has room for; 0 = as it tells, or by the model's name
    model: str = ""  #: the model it is asked to use
    usd_in: float = 0.0  #: dollars per million tokens, for one that tells no dollars; 0 = unknown
    usd_out: float = 0.0
    usd_guessed: bool = False  #: that price is for booking, not for ending it
    files: tuple[tuple[str, str], ...] = ()  #: (name, text) to be on the disk, beside its logs, before it runs


class Outcome(Struct, frozen=True, kw_only=True):
    """What an agent's process did: read back from what its shim wrote."""

    ending: Ending
    code: int | None  #: exit code, None when it died by a signal or was lost
    signal: int | None
    message: str  #: the end of the agent's message, bounded
    events: tuple[AgentEvent, ...] = ()  #: tool events and usage, bounded
    events_left_out: int = 0  #: tool events beyond that bound
    output_bytes: int = 0
    leftovers: int = 0  #: descendants that had to be ended after it
    tally: Tally = Tally()  #: what its lines told
    error: str = ""  #: the end of what it wrote to standard error
    ended_at: float = 0.0  #: when that was, in seconds since the epoch; 0 when nobody knows
    seconds: float = 0.0  #: from its start to its end


class Running(Struct, frozen=True, kw_only=True):
    """The dispatch is alive: its lock is held by its shim."""


class NeverStarted(Struct, frozen=True, kw_only=True):
    """No shim took the dispatch up."""


DispatchStanding: TypeAlias = Running | NeverStarted | Outcome


class ReturnStatus(StrEnum):
    """What an agent says of its own work."""

    DONE = "done"
    PARTIAL = "partial"
    BLOCKED = "blocked"
    FAILED = "failed"


class ItemResult(Struct, frozen=True, kw_only=True):
    """One line of evidence."""

    item: str
    passed: bool
    evidence: str


class Return(Struct, frozen=True, kw_only=True):
    """The structured return of an agent (docs/agents.md)."""

    status: ReturnStatus
    summary: str
    items: tuple[ItemResult, ...] = ()
    usage: Usage = Usage()
