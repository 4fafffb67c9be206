"""What one line of an agent's output can tell, whichever program printed it."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from runplan.core.counts import MOST as MOST, believable as believable
from runplan.core.quickclass import dataclass


class TroubleKind(StrEnum):
    """What stood in an agent's way, by its own account."""

    AUTH = "auth"  #: no valid key or login
    LIMIT = "limit"  #: a quota is used up until some time
    OVERLOADED = "overloaded"  #: the provider is busy, failing or out of reach; it passes
    REFUSAL = "refusal"  #: the model or its provider will not do this
    CONTEXT = "context"  #: the conversation no longer fits
    MAX_TURNS = "max-turns"
    BUDGET = "budget"
    SETUP = "setup"  #: unknown model, no credit, root, untrusted folder: for a person to mend
    UNKNOWN = "unknown"  #: an error whose words are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used; one scale for all agents."""

    input_tokens: int = 0  #: everything that was sent, from the cache or not
    output_tokens: int = 0
    usd: float = 0.0
    cached_tokens: int = 0  #: of input_tokens, what was read from the cache

    def plus(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            usd=self.usd + other.usd,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Who is at work; what is not told is empty."""

    session: str = ""
    model: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A piece of the agent's message."""

    text: str
    final: bool = False  #: takes the place of all that was said before


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsed:
    """The agent says it used a tool; the only ground on which a changed file is laid at its door."""

    tool: str
    path: str = ""
    denied: bool = False  #: it wanted to, and was not allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Something was used."""

    usage: Usage
    total: bool = False  #: all of this run; else it is added
    least: bool = False  #: of a total: it may leave something out, so that it is never less than what was told before
    of: str = ""  #: which message it is about: one about the same message takes the place of the last


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """How full the main conversation is; what sub-agents do is never told here."""

    tokens: int | None = None  #: None: as before
    window: int = 0  #: how much there is room for; 0: as before
    estimated: bool = False  #: `tokens` is a guess, to be added to what was there


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error that the agent gives up on, unless it finishes well after it."""

    kind: TroubleKind
    words: str
    resets: float | None = None  #: when a limit ends, in seconds since the epoch
    doubtful: bool = False  #: it may be a line of the agent's prose: a good end before it stands


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """Alive, and waiting for its provider."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The agent's own end event."""

    ok: bool
    words: str = ""
    so_far: bool = False  #: more may follow, and then this still stands: it has ended well if nothing goes wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A line of a form that is not known; it is in the log."""


AgentEvent: TypeAlias = Started | Message | ToolUsed | Spent | Context | Trouble | Retrying | Finished | Unread
