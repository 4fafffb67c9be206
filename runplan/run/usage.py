"""What an agent reports while it works: its events, and the sum of what it used."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.text import MOST as MOST, believable as believable


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


class Usage(Struct, frozen=True, kw_only=True):
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


class Started(Struct, frozen=True, kw_only=True):
    """Who is at work; what is not told is empty."""

    session: str = ""
    model: str = ""
    version: str = ""


class Message(Struct, frozen=True, kw_only=True):
    """A piece of the agent's message."""

    text: str
    final: bool = False  #: takes the place of all that was said before


class ToolUsed(Struct, frozen=True, kw_only=True):
    """The agent says it used a tool; the only ground on which a changed file is laid at its door."""

    tool: str
    path: str = ""
    denied: bool = False  #: it wanted to, and was not allowed


class Spent(Struct, frozen=True, kw_only=True):
    """Something was used."""

    usage: Usage
    total: bool = False  #: all of this run; else it is added
    least: bool = False  #: of a total: it may leave something out, so that it is never less than what was told before
    of: str = ""  #: which message it is about: one about the same message takes the place of the last


class Context(Struct, frozen=True, kw_only=True):
    """How full the main conversation is; what sub-agents do is never told here."""

    tokens: int | None = None  #: None: as before
    window: int = 0  #: how much there is room for; 0: as before
    estimated: bool = False  #: `tokens` is a guess, to be added to what was there


class Trouble(Struct, frozen=True, kw_only=True):
    """An error that the agent gives up on, unless it finishes well after it."""

    kind: TroubleKind
    words: str
    resets: float | None = None  #: when a limit ends, in seconds since the epoch
    doubtful: bool = False  #: it may be a line of the agent's prose: a good end before it stands


class Retrying(Struct, frozen=True, kw_only=True):
    """Alive, and waiting for its provider."""

    words: str


class Finished(Struct, frozen=True, kw_only=True):
    """The agent's own end event."""

    ok: bool
    words: str = ""
    so_far: bool = False  #: more may follow, and then this still stands: it has ended well if nothing goes wrong


class Unread(Struct, frozen=True, kw_only=True):
    """A line of a form that is not known; it is in the log."""


AgentEvent: TypeAlias = Started | Message | ToolUsed | Spent | Context | Trouble | Retrying | Finished | Unread


#: What is kept of the end of the agent's message, in characters.
MESSAGE_TAIL = 1024 * 1024

#: Different tool events kept; the rest is counted.
MOST_TOOLS = 5_000

#: Denied tools and troubles kept; the first and the last ones tell enough.
MOST_DENIED = 100
MOST_TROUBLES = 8

#: What is kept of the words of an error, of a name, and how many messages' usage may still be corrected.
WORDS = 4_000
NAME = 200
CORRECTABLE = 64


class Tally(Struct, frozen=True, kw_only=True):
    """What the lines of one dispatch told, besides its message and its tools."""

    session: str = ""
    model: str = ""
    version: str = ""
    usage: Usage = Usage()
    context: int = 0  #: tokens in the main conversation when it was last told
    window: int = 0  #: 0 when nobody said
    estimated: bool = False  #: `context` is a guess that leaves the prompt out
    troubles: tuple[Trouble, ...] = ()
    finished: Finished | None = None
    denied: tuple[ToolUsed, ...] = ()
    retries: int = 0
    waiting: str = ""  #: the words of a retry after which nothing else came
    unread: int = 0  #: lines of an unknown form


class Folding:
    """Takes events one by one."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._tools: dict[ToolUsed, None] = {}
        self._started = Started()
        self._usage = Usage()
        self._recent: dict[str, Usage] = {}
        self._spent = False
        self._context = self._window = 0
        self._estimated = False
        self._troubles: list[Trouble] = []
        self._finished: Finished | None = None
        self._denied: dict[ToolUsed, None] = {}
        self._retries = 0
        self._waiting = ""
        self._unread = 0
        self.left_out = 0  #: tool events beyond MOST_TOOLS

    def take(self, event: AgentEvent) -> None:
        if not isinstance(event, (Retrying, Unread)):
            self._waiting = ""
        if self._finished is not None and self._finished.ok and not self._finished.so_far:
            self._finished = _still(self._finished, event)
        match event:
            case Message():
                self._say(event)
            case ToolUsed():
                self._use(event)
            case Spent():
                self._spend(event)
            case Context():
                self._fill(event)
            case Started():
                self._begin(event)
            case Trouble():
                self._meet(event)
            case Retrying(words=words):
                self._retries += 1
                self._waiting = words[:WORDS] or "waiting"
            case Finished(words=words):
                self._finished = replace(event, words=words[:WORDS])
            case Unread():
                self._unread += 1

    @property
    def message(self) -> str:
        return "".join(self._pieces)[-MESSAGE_TAIL:]

    @property
    def events(self) -> tuple[AgentEvent, ...]:
        """The tools used, and all that was spent."""
        spent = (Spent(usage=self._usage, total=True),) if self._spent else ()
        return (*self._tools, *spent)

    @property
    def tally(self) -> Tally:
        return Tally(
            session=self._started.session,
            model=self._started.model,
            version=self._started.version,
            usage=self._usage,
            context=self._context,
            window=self._window,
            estimated=self._estimated,
            troubles=tuple(self._troubles),
            finished=self._finished,
            denied=tuple(self._denied),
            retries=self._retries,
            waiting=self._waiting,
            unread=self._unread,
        )

    def _say(self, message: Message) -> None:
        if message.final:
            self._pieces, self._length = [], 0
        self._pieces.append(message.text[-MESSAGE_TAIL:])
        self._length += len(self._pieces[-1])
        if self._length > 2 * MESSAGE_TAIL:
            self._pieces = [self.message]
            self._length = len(self._pieces[0])

    def _use(self, event: ToolUsed) -> None:
        if event.denied:
            if len(self._denied) < MOST_DENIED:
                self._denied[event] = None
        elif event in self._tools or len(self._tools) < MOST_TOOLS:
            self._tools[event] = None
        else:
            self.left_out += 1

    def _spend(self, event: Spent) -> None:
        self._spent = True
        if event.total:
            self._usage = _larger(event.usage, self._usage) if event.least else event.usage
            self._recent.clear()
            told = event.usage.input_tokens + event.usage.output_tokens
            if self._estimated and told:  # no conversation is longer than all that was said
                self._context = min(self._context, told)
            return
        before = self._recent.pop(event.of, None) if event.of else None
        self._usage = self._usage.plus(event.usage if before is None else _less(event.usage, before))
        if event.of:
            self._recent[event.of] = event.usage
            if len(self._recent) > CORRECTABLE:
                del self._recent[next(iter(self._recent))]

    def _fill(self, event: Context) -> None:
        self._window = event.window or self._window
        if event.tokens is not None:
            self._context = self._context + event.tokens if event.estimated else event.tokens
            self._estimated = event.estimated

    def _begin(self, event: Started) -> None:
        known = self._started
        self._started = Started(
            session=event.session[:NAME] or known.session,
            model=event.model[:NAME] or known.model,
            version=event.version[:NAME] or known.version,
        )

    def _meet(self, event: Trouble) -> None:
        # A good end with an error after it was not the end.
        if self._finished is not None and self._finished.ok:
            if event.doubtful:
                return
            self._finished = None
        self._troubles.append(Trouble(kind=event.kind, words=event.words[:WORDS], resets=event.resets))
        if len(self._troubles) > MOST_TROUBLES:
            del self._troubles[1]


def _still(end: Finished, then: AgentEvent) -> Finished | None:
    """What is left of a good end when this follows: whoever works on has not ended.

    Of tools, and of what was spent, nobody says whose they are: sub-agents outlive an end that stands.
    """
    match then:
        case Message() | Started() | Context(tokens=int()):
            return None
        case ToolUsed() | Spent():
            return replace(end, so_far=True)
        case _:
            return end


def _larger(told: Usage, seen: Usage) -> Usage:
    """What was used at least, by two accounts of the same."""
    sent = told if told.input_tokens >= seen.input_tokens else seen
    return Usage(
        input_tokens=sent.input_tokens,
        cached_tokens=sent.cached_tokens,
        output_tokens=max(told.output_tokens, seen.output_tokens),
        usd=max(told.usd, seen.usd),
    )


def _less(usage: Usage, before: Usage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens - before.input_tokens,
        output_tokens=usage.output_tokens - before.output_tokens,
        usd=usage.usd - before.usd,
        cached_tokens=usage.cached_tokens - before.cached_tokens,
    )
