"""Dispatches as plain values: roles, the process to start, the events of its agent and their sum, and its outcome."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

GRACE_S = 10.0  #: for a process tree to end on request; its shim kills earlier than that
MAX_OVERLOADS = 5  #: overloaded providers in a row, before the agent counts as failed
OWN = "own"  #: the folder of a dispatch that its agent may write; under a sandbox the only one
SCRATCH = "scratch"  #: the folder of a dispatch with its temporary files in a sandbox; gone at its end
TEMPORARY = {"/tmp": "tmp", "/var/tmp": "var-tmp", "/run": "run"}  # noqa: S108  #: places of a view, by folder there
BESIDE = f"{SCRATCH}/beside"  #: has both folders for a second process, which shares no place with the first
RETURN = f"{OWN}/return.json"
NOTES = f"{OWN}/notes.md"  #: of a writer, for the agent that continues its work
EVERY_PHASE = "all"  #: the phase of the verifier that judges all phases together
SERVER_LOG = "server.log"  #: the output of try.serve
TOLD = "told"  #: the folder of a dispatch with the messages for its agent, a file each
PROGRESS = "progress.log"  #: a line `context% tools` for each change
LOGS = "RUNPLAN_LOGS"  #: has the paths of `Launch.logs`
MESSAGE_TAIL = 1024 * 1024  #: characters kept of the end of the agent's message
MOST_DENIED = 100  #: denied tools kept
MOST_TROUBLES = 8  #: the first one and the last ones are kept
WORDS = 4_000  #: characters kept of an error
NAME = 200  #: characters kept of a name
CORRECTABLE = 64  #: newest messages whose usage may still be corrected


class Ending(StrEnum):
    EXITED = "exited"  #: by itself, with any exit code
    SIGNALLED = "signalled"  #: killed by a signal that runplan did not send
    TIMEOUT = "timeout"  #: stopped at its wall limit
    SILENT = "silent"  #: stopped at its silence limit
    ENDED = "ended"  #: stopped on request
    BUDGET = "budget"  #: stopped at its budget
    CONTEXT = "context"  #: stopped because its context is full
    SURVIVED = "survived"  #: processes of it could not be killed
    LOST = "lost"  #: its shim died with it; the result is unknown
    MISSING = "missing"  #: the program could not be started
    REFUSED = "refused"  #: the system lacks processes, descriptors, memory or disk space


class EndingKind(StrEnum):
    SUCCESS = "success"
    REFUSAL = "refusal"  #: the model or its provider refuses the task
    AUTH = "auth"  #: no valid key or login
    LIMIT = "limit"  #: a quota is used up until it resets
    OVERLOADED = "overloaded"  #: the provider is busy, failing or unreachable; temporary
    MAX_TURNS = "max-turns"
    CONTEXT = "context"  #: the context is full
    BUDGET = "budget"
    SETUP = "setup"  #: unknown model, no credit, root, untrusted folder, no program: a person has to fix it
    DENIED = "denied"  #: it had to write, and a tool was denied
    CRASHED = "crashed"  #: an unknown error, or an end without an end event
    KILLED = "killed"  #: by a signal, by us on request, or together with its shim
    SILENT = "silent"
    TIMED_OUT = "timed-out"
    NO_OUTPUT = "no-output"  #: it finished without any output
    UNSERVED = "unserved"  #: it did not begin, because try.serve accepted no connection


class Usage(Struct, frozen=True, kw_only=True):
    input_tokens: int = 0  #: everything sent, cached or not
    output_tokens: int = 0
    usd: float = 0.0
    cached_tokens: int = 0  #: the part of input_tokens that was read from the cache

    def plus(self, other: Usage, sign: int = 1) -> Usage:
        return Usage(**{name: getattr(self, name) + sign * getattr(other, name) for name in self.__struct_fields__})


class Started(Struct, frozen=True, kw_only=True):
    model: str = ""
    version: str = ""


class Message(Struct, frozen=True, kw_only=True):
    text: str
    final: bool = False  #: replaces all earlier pieces


class ToolUsed(Struct, frozen=True, kw_only=True):
    tool: str
    path: str = ""
    detail: str = ""  #: its command or search words, for people
    denied: bool = False  #: the agent was not allowed to use it


class ToolEnded(Struct, frozen=True, kw_only=True):
    output: str
    ending: str = ""  #: `exit code 3`, `failed`


class Spent(Struct, frozen=True, kw_only=True):
    usage: Usage
    total: bool = False  #: the sum of this dispatch; else it is added
    least: bool = False  #: a total that may leave something out, so it never lowers the sum
    of: str = ""  #: the message that it belongs to; a later one for the same message replaces it


class Context(Struct, frozen=True, kw_only=True):
    tokens: int | None = None  #: None: unchanged
    window: int = 0  #: its size; 0: unchanged
    estimated: bool = False  #: `tokens` is an estimate, to be added
    file: str = ""  #: a file that the agent read; its size is to be added
    resent: bool = False  #: the program sends the whole conversation after this


class Quota(Struct, frozen=True, kw_only=True):
    percent: int  #: of a usage window of its account that is used
    resets: float | None = None  #: end of the window, in seconds since the epoch


class Trouble(Struct, frozen=True, kw_only=True):
    kind: EndingKind  #: CRASHED when the error is not known
    words: str
    resets: float | None = None  #: end of a limit, in seconds since the epoch
    doubtful: bool = False  #: may be a line of the agent's prose: an earlier success stands


class Retrying(Struct, frozen=True, kw_only=True):
    words: str


class Finished(Struct, frozen=True, kw_only=True):
    ok: bool
    words: str = ""
    so_far: bool = False  #: more may follow, and the end still stands


class Unread(Struct, frozen=True, kw_only=True):
    """A line of an unknown form."""


AgentEvent: TypeAlias = (
    Started | Message | ToolUsed | ToolEnded | Spent | Context | Quota | Trouble | Retrying | Finished | Unread
)


class Tally(Struct, frozen=True, kw_only=True):
    model: str = ""
    usage: Usage = Usage()
    context: int = 0  #: tokens in the main conversation
    window: int = 0  #: 0 when unknown
    estimated: bool = False  #: `context` is an estimate that leaves the prompt out
    requests: int = 0  #: after the first one, in an estimate
    resent: int = 0  #: tokens of the conversation in all of these requests
    quota: Quota | None = None  #: the fullest window that it has reported
    troubles: tuple[Trouble, ...] = ()
    finished: Finished | None = None
    denied: tuple[ToolUsed, ...] = ()
    uses: int = 0  #: of tools, denied or not
    denials: int = 0
    waiting: str = ""  #: the words of the last retry, if nothing followed it
    unread: int = 0  #: lines of an unknown form


class Folding:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._denied: dict[ToolUsed, None] = {}
        self._troubles: list[Trouble] = []
        self._recent: dict[str, Usage] = {}
        self._tally = Tally()

    def add_event(self, event: AgentEvent) -> None:
        finished = self._tally.finished
        if not isinstance(event, (Retrying, Unread)) and self._tally.waiting:
            self._set_fields(waiting="")
        if finished is not None and finished.ok and not finished.so_far:
            # Tools and usage may belong to sub-agents, which outlive the end.
            goes_on = isinstance(event, Message | Started) or (isinstance(event, Context) and event.tokens is not None)
            so_far = isinstance(event, ToolUsed | Spent)
            self._set_fields(finished=None if goes_on else replace(finished, so_far=so_far))
        match event:
            case Message():
                self._add_message(event)
            case ToolUsed(denied=True):
                self._set_fields(denials=self._tally.denials + 1)
                if len(self._denied) < MOST_DENIED:
                    self._denied[event] = None
            case ToolUsed():
                self._set_fields(uses=self._tally.uses + 1)
            case Spent():
                self._add_usage(event)
            case Context():
                self._add_context(event)
            case Quota():
                self._set_fields(quota=max(filter(None, (self._tally.quota, event)), key=attrgetter("percent")))
            case Started(model=model) if model:
                self._set_fields(model=model[:NAME])
            case Trouble():
                self._record_trouble(event)
            case Retrying(words=words):
                self._set_fields(waiting=words[:WORDS] or "waiting")
            case Finished(words=words):
                self._set_fields(finished=replace(event, words=words[:WORDS]))
            case Unread():
                self._set_fields(unread=self._tally.unread + 1)

    @property
    def message(self) -> str:
        return "".join(self._pieces)[-MESSAGE_TAIL:]

    @property
    def tally(self) -> Tally:
        return replace(self._tally, troubles=tuple(self._troubles), denied=tuple(self._denied))

    def _set_fields(self, **fields: object) -> None:
        self._tally = replace(self._tally, **fields)

    def _add_message(self, message: Message) -> None:
        if message.final:
            self._pieces, self._length = [], 0
        self._pieces.append(message.text[-MESSAGE_TAIL:])
        self._length += len(self._pieces[-1])
        if self._length > 2 * MESSAGE_TAIL:
            self._pieces = [self.message]
            self._length = len(self._pieces[0])

    def _add_context(self, event: Context) -> None:
        self._set_fields(window=event.window or self._tally.window)
        if event.tokens is None:
            return
        before = self._tally.context if event.estimated else 0
        self._set_fields(context=before + event.tokens, estimated=event.estimated)
        if event.resent:
            tally = self._tally
            self._set_fields(requests=tally.requests + 1, resent=tally.resent + tally.context)

    def _add_usage(self, event: Spent) -> None:
        usage = event.usage
        seen = self._tally.usage
        if event.total:
            self._recent.clear()
            if event.least:
                sent = usage if usage.input_tokens >= seen.input_tokens else seen
                output = max(usage.output_tokens, seen.output_tokens)
                usage = replace(sent, output_tokens=output, usd=max(usage.usd, seen.usd))
            self._set_fields(usage=usage)
            total = event.usage.input_tokens + event.usage.output_tokens
            if self._tally.estimated and total:  # the conversation is not longer than everything sent and received
                self._set_fields(context=min(self._tally.context, total))
            return
        before = self._recent.pop(event.of, Usage())
        self._set_fields(usage=seen.plus(usage).plus(before, -1))
        if event.of:
            self._recent[event.of] = usage
            if len(self._recent) > CORRECTABLE:
                del self._recent[next(iter(self._recent))]

    def _record_trouble(self, event: Trouble) -> None:
        if self._tally.finished is not None and self._tally.finished.ok:
            if event.doubtful:
                return
            self._set_fields(finished=None)  # an error after the end means that it was not the end
        self._troubles.append(Trouble(kind=event.kind, words=event.words[:WORDS], resets=event.resets))
        if len(self._troubles) > MOST_TROUBLES:
            del self._troubles[1]


class Launch(Struct, frozen=True, kw_only=True):
    id: str  #: unique; also the mark that descendants carry in RUNPLAN_DISPATCH
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    boxed: bool = False  #: it runs in a sandbox, so it needs a folder for temporary files
    is_double: bool = False  #: a second process has a view of its own
    end: tuple[str, ...] = ()  #: the command that ends what its sandbox has outside its process tree
    hosts: tuple[str, ...] = ()  #: the only ones that it may reach, through a proxy of the shim; empty: no proxy
    stdin: str = ""  #: path of the file given as standard input; "" for none
    talks: bool = False  #: its standard input stays open for messages; `stdin` is the first one
    reader: str = ""  #: module of agents/clis that reads the output lines; "" for none
    wall_s: float
    silence_s: float = 0  #: 0 = no silence limit
    log_cap: int = 16 * 1024 * 1024  #: bytes kept of each output; the rest is counted and dropped
    logs: tuple[str, ...] = ()  #: names of further logs; the process writes to the paths that LOGS has
    grace_s: float = 5.0  #: between asking the process to end and killing it
    save_s: float = 0.0  #: the same at a hand-over, of an agent that was not warned; 0 = grace_s
    tokens: int = 0  #: limit, sent and received; 0 = none
    usd: float = 0.0  #: limit in dollars; 0 for none
    memory: int = 0  #: limit of all its processes together, in bytes; 0 for none
    prompt: int = 0  #: characters of the prompt and the program's own instructions, for an estimate
    hand_over_at: int = 0  #: per cent at which it is stopped, so that a fresh agent continues; 0 = never
    warn_at: int = 0  #: per cent at which an agent that talks gets `warning`; 0 = never
    warning: str = ""
    window: int = 0  #: tokens of its context; 0 = as it reports, or by the model's name
    model: str = ""
    usd_in: float = 0.0  #: dollars per million tokens, for an agent that reports no cost; 0 = unknown
    usd_out: float = 0.0
    files: tuple[tuple[str, str], ...] = ()  #: (name, text) to write next to its logs before it starts


class Outcome(Struct, frozen=True, kw_only=True):
    ending: Ending
    code: int | None  #: exit code; None after a signal or a loss
    signal: int | None
    message: str  #: the end of the agent's message, bounded
    leftovers: int = 0  #: descendants that had to be ended after it
    survivors: tuple[str, ...] = ()  #: those that could not be killed, by pid and name
    memory: int = 0  #: bytes that its processes had when that was too much
    refused: tuple[str, ...] = ()  #: hosts with their ports that it asked for and may not reach
    tally: Tally = Tally()
    estimated: bool = False  #: its usage, or the usage at which it was stopped, is an estimate
    error: str = ""  #: the end of its standard error
    ended_at: float = 0.0  #: seconds since the epoch; 0 when unknown
    seconds: float = 0.0  #: from its start to its end


class Evidence(Struct, frozen=True, kw_only=True):
    dispatch: str
    file: str  #: its output, below runplan's directory in the git directory
    sha256: str  #: of that file


class NewTestsAnswer(StrEnum):
    FAILS = "fails by assertion"  #: a new test runs on the base's code and fails
    FAILS_EMPTIED = "fails to load and fails when emptied"
    HOLLOW = "hollow"  #: they pass without the change
    NOT_JUDGED = "not judged"  #: they reach nothing that can be emptied, or do not run then, either


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


class ItemAnswer(StrEnum):
    PASSED = "pass"
    PARTIAL = "partial"
    FAILED = "fail"


class ReferenceKind(StrEnum):
    TEST = "test"
    FILE = "file"
    COMMAND = "command"
    TEXT = "text"  #: words that may contain references; also any kind that is not known


class Reference(Struct, frozen=True, kw_only=True):
    kind: ReferenceKind = ReferenceKind.TEXT
    ref: str  #: a file with its line is `path:12`
    gone: bool = False  #: the file was in the base and is not in the tree
    absent: bool = False  #: the item names the file, and it was never there
    unchanged: bool = False  #: the file was so before the work


class ItemResult(Struct, frozen=True, kw_only=True):
    item: str
    answer: ItemAnswer
    evidence: tuple[Reference, ...] = ()
    demanded_by: str = ""  #: the item that demands the broken promise of a test

    @property
    def passed(self) -> bool:
        return self.answer is ItemAnswer.PASSED


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    kind: str = ""
    summary: str = ""


class Remarks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent says in its return besides the answers for its items; it decides nothing."""

    artifacts: tuple[Artifact, ...] = ()
    next_steps: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()  #: for agents of later runs, once the work has landed

    def describe(self) -> list[str]:
        """A line for each, which begins with its kind."""
        named = (f"{made.path}{f' ({made.kind})' if made.kind else ''}: {made.summary}" for made in self.artifacts)
        groups = {"Made": named, "Next": self.next_steps, "Problem": self.errors, "To remember": self.memory}
        return [f"{word}: {line.removesuffix(': ')}" for word, lines in groups.items() for line in lines]


class Return(Struct, frozen=True, kw_only=True):
    status: ReturnStatus
    summary: str
    items: tuple[ItemResult, ...] = ()
    usage: Usage = Usage()
    remarks: Remarks = Remarks()
