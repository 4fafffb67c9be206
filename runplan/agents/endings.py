"""How an agent's work ended, judged from its output, its words and its process."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.limits import FARTHEST_S, reset_time
from runplan.run.dispatch import Ending
from runplan.run.usage import Trouble, TroubleKind

if TYPE_CHECKING:
    from datetime import tzinfo

    from runplan.run.dispatch import Outcome


#: The end of an error says the most; nothing longer has to be searched.
_LONGEST = 4_000

_STATUS = re.compile(r"(?:\bstatus|\berror|\bcode|\brejected)\W{0,4}([45]\d\d)\b", re.IGNORECASE)

#: The first that is found decides: what names its cause stands before what may be said of anything.
_WORDS: tuple[tuple[TroubleKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (TroubleKind.REFUSAL, r"usage policy|content.?filter|content management policy|safety (?:policy|system)"),
        (
            TroubleKind.CONTEXT,
            r"prompt is too long|context.?window|context.?length|maximum context|input_too_large"
            r"|input token count|too many tokens",
        ),
        (TroubleKind.MAX_TURNS, r"maximum number of turns|max(?:imum)? (?:session )?turns|step limit"),
        (TroubleKind.BUDGET, r"maximum budget|cost limit|LimitsExceeded"),
        (
            TroubleKind.SETUP,
            r"credit balance|insufficient_quota|insufficient (?:credit|balance|fund)|payment required"
            r"|model_not_found|model not found|no such model|unknown model|model\W.{0,80}(?:does not exist|not found)"
            r"|root/sudo|trusted (?:directory|folder)",
        ),
        (
            TroubleKind.LIMIT,
            r"hit your (?:\w+ )?limit|usage limit|exhausted your|quota (?:exceeded|exhausted)|exceeded your \w+ quota"
            r"|daily quota|(?:daily|weekly|monthly|hour) limit|per (?:day|week|month)\b|limit reached\|\d"
            r"|RESOURCE_EXHAUSTED",
        ),
        (
            TroubleKind.AUTH,
            r"api.?key|unauthorized|unauthenticated|authentication|not logged in|log ?in again|/login\b"
            r"|oauth|credentials|permission_error|forbidden",
        ),
        (
            TroubleKind.OVERLOADED,
            r"overload|at capacity|high demand|rate.?limit|too many requests|unavailable|server.?error"
            r"|bad gateway|timed? ?out|connection|reconnect|econn|network|fetch failed|stream (?:disconnected|closed)"
            r"|try again later",
        ),
    )
)

_BY_STATUS = {
    401: TroubleKind.AUTH,
    402: TroubleKind.SETUP,
    403: TroubleKind.AUTH,
    404: TroubleKind.SETUP,
    408: TroubleKind.OVERLOADED,
    413: TroubleKind.CONTEXT,
}


def trouble(words: str, *, status: int = 0, resets: float | None = None) -> Trouble:
    """The trouble that `words` tell of; `status` is the provider's answer where the program gives it apart."""
    text = words[-_LONGEST:]
    return Trouble(kind=kind_of(text, status=status or _status_in(text), resets=resets), words=text, resets=resets)


def kind_of(text: str, *, status: int = 0, resets: float | None = None) -> TroubleKind:
    """By the status where it says enough, else by the words."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return TroubleKind.OVERLOADED
    found = next((kind for kind, pattern in _WORDS if pattern.search(text)), TroubleKind.UNKNOWN)
    if status == 429 and found not in (TroubleKind.LIMIT, TroubleKind.SETUP):
        # Without a word on a quota it is the pace that was too high, which passes.
        return TroubleKind.LIMIT if resets is not None else TroubleKind.OVERLOADED
    return found


def _status_in(text: str) -> int:
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


class EndingKind(StrEnum):
    """The closed list of ways in which an agent's work ends."""

    SUCCESS = "success"
    REFUSAL = "refusal"  #: the model or its provider will not do this
    AUTH = "auth"  #: no valid key or login
    LIMIT = "limit"  #: a quota is used up; come back when it resets
    OVERLOADED = "overloaded"  #: the provider is busy, failing or out of reach; it passes
    MAX_TURNS = "max-turns"
    CONTEXT = "context"  #: the conversation no longer fitted
    BUDGET = "budget"
    SETUP = "setup"  #: unknown model, no credit, root, untrusted folder, no program: for a person to mend
    DENIED = "denied"  #: it was to write, and a tool was denied
    CRASHED = "crashed"  #: an error without a better name, or an end without an end event
    KILLED = "killed"  #: by a signal, by us on request, or together with its shim
    SILENT = "silent"
    TIMED_OUT = "timed-out"
    NO_OUTPUT = "no-output"  #: it said it was done, and said nothing else


class AgentEnding(Struct, frozen=True, kw_only=True):
    """The judgement."""

    kind: EndingKind
    words: str = ""  #: the program's own words for it, or ours; one line
    resets: float | None = None  #: of a limit, when it is known; in seconds since the epoch


class Profile(Struct, frozen=True, kw_only=True):
    """What has to be known of an agent and its role: to speak to it, and to judge its ending."""

    closes: bool = False  #: its program has an end event, without which nothing ended well
    answers: bool = False  #: it is expected to leave a message
    writes: bool = False  #: its role is to change files, so a tool that was denied is missed
    hears: bool = False  #: it is called so that it can be told something while it works
    codes: tuple[tuple[int, EndingKind], ...] = ()  #: what its exit codes mean when it said nothing better
    zone: tzinfo | None = None  #: of the clock times it names; UTC when unknown


_OURS = {Ending.TIMEOUT: EndingKind.TIMED_OUT, Ending.SILENT: EndingKind.SILENT}
_OUR_LIMITS = {Ending.BUDGET: EndingKind.BUDGET, Ending.CONTEXT: EndingKind.CONTEXT}
_GONE = {
    Ending.ENDED: (EndingKind.KILLED, "ended on request"),
    Ending.LOST: (EndingKind.KILLED, "lost together with its shim"),
}
#: What a wait for the provider has to be about to excuse a silence.
_EXCUSES = (TroubleKind.LIMIT, TroubleKind.OVERLOADED, TroubleKind.AUTH)
#: After which a limit that was told before may still be what it met.
_LIMITED = (TroubleKind.LIMIT, TroubleKind.OVERLOADED)
_RETRYING = re.compile(r"^.{0,400}\bretrying\b.{0,1000}$", re.IGNORECASE | re.MULTILINE)
#: 128 + SIGINT, SIGKILL, SIGTERM: the way in which shells and node tell of a signal.
_SIGNALLED = (130, 137, 143)
_ENDING_WORDS = 600


def judge(outcome: Outcome, profile: Profile) -> AgentEnding:
    """How the dispatch ended."""
    tally = outcome.tally
    if outcome.ending in _OURS:
        return _stopped(outcome, profile)
    if outcome.ending in _OUR_LIMITS:
        return AgentEnding(kind=_OUR_LIMITS[outcome.ending])
    if outcome.ending in _GONE:
        kind, words = _GONE[outcome.ending]
        return AgentEnding(kind=kind, words=words)
    if outcome.ending is Ending.MISSING:
        return AgentEnding(kind=EndingKind.SETUP, words=_line(outcome.message))
    if tally.finished is not None and tally.finished.ok:
        return _finished(outcome, profile)
    if tally.troubles:
        return _troubled(outcome, profile)
    if tally.finished is not None:
        return AgentEnding(kind=EndingKind.CRASHED, words=_line(tally.finished.words) or _exit(outcome))
    return _unfinished(outcome, profile)


def quoted(ending: AgentEnding, outcome: Outcome, profile: Profile) -> str:
    """What the report quotes of a failed process: its program's error, never the chat of an agent.

    Of a plain command both streams are its own words; standard error goes first.
    """
    bare = ("", _exit(outcome))
    if ending.kind is EndingKind.CRASHED and ending.words not in bare:
        return ending.words
    told = _line(outcome.error) or ("" if profile.answers else _line(outcome.message))
    return told or ("" if ending.words in bare else ending.words)


def _stopped(outcome: Outcome, profile: Profile) -> AgentEnding:
    """Ended by our own clock; the provider is to blame when the agent was waiting for it."""
    waiting = outcome.tally.waiting
    told = (trouble(waiting), *outcome.tally.troubles[-1:]) if waiting else _retried(outcome, profile)
    for each in told:
        if each.kind in _EXCUSES:
            resets = _resets(each.words, outcome, profile)
            return AgentEnding(kind=EndingKind(each.kind), words=_line(each.words), resets=resets)
    return AgentEnding(kind=_OURS[outcome.ending])


def _retried(outcome: Outcome, profile: Profile) -> tuple[Trouble, ...]:
    """The last wait for its provider that a known program told of on standard error, where some tell of it alone."""
    return tuple(trouble(line) for line in _RETRYING.findall(outcome.error)[-1:]) if profile.answers else ()


def _finished(outcome: Outcome, profile: Profile) -> AgentEnding:
    if outcome.ending is Ending.SIGNALLED:
        return AgentEnding(kind=EndingKind.KILLED, words=_exit(outcome))
    if outcome.code:
        return AgentEnding(kind=EndingKind.CRASHED, words=f"{_exit(outcome)}, although it said it had ended well")
    if profile.writes and outcome.tally.denied:
        tools = ", ".join(dict.fromkeys(tool.tool for tool in outcome.tally.denied))
        return AgentEnding(kind=EndingKind.DENIED, words=_line(f"not allowed to use {tools}"))
    return _spoken(outcome, profile)


def _spoken(outcome: Outcome, profile: Profile) -> AgentEnding:
    if profile.answers and not outcome.message.strip():
        return AgentEnding(kind=EndingKind.NO_OUTPUT, words="it ended without a message")
    return AgentEnding(kind=EndingKind.SUCCESS)


def _troubled(outcome: Outcome, profile: Profile) -> AgentEnding:
    """The last trouble whose kind is known, the end event's words first; but a limit lasts until it is reset."""
    told = outcome.tally.troubles
    known = [each for each in told if each.kind is not TroubleKind.UNKNOWN]
    if not known:
        return AgentEnding(kind=EndingKind.CRASHED, words=_line(told[-1].words))
    last = known[-1]
    resets = _limit_ends(known, outcome, profile) if last.kind in _LIMITED else None
    if resets is not None:  # many say of a limit in the end that they were refused, and no more
        last = next(each for each in reversed(known) if each.kind is TroubleKind.LIMIT)
    return AgentEnding(kind=EndingKind(last.kind), words=_line(last.words), resets=resets)


def _limit_ends(told: list[Trouble], outcome: Outcome, profile: Profile) -> float | None:
    limits = [each for each in told if each.kind is TroubleKind.LIMIT]
    given = [each.resets for each in limits if each.resets is not None]
    for when in reversed(given):
        if not outcome.ended_at or outcome.ended_at < when <= outcome.ended_at + FARTHEST_S:
            return when
    read = (_resets(each.words, outcome, profile) for each in reversed(limits))
    return next((each for each in read if each is not None), None)


def _unfinished(outcome: Outcome, profile: Profile) -> AgentEnding:
    if outcome.ending is Ending.SIGNALLED:
        return AgentEnding(kind=EndingKind.KILLED, words=_exit(outcome))
    if outcome.code:
        return _failed(outcome, profile)
    if not profile.closes:
        return _spoken(outcome, profile)
    if not outcome.message.strip() and not outcome.events:
        return AgentEnding(kind=EndingKind.NO_OUTPUT, words="it ended without a word")
    return AgentEnding(kind=EndingKind.CRASHED, words="it ended without its end event")


def _failed(outcome: Outcome, profile: Profile) -> AgentEnding:
    words = _line(outcome.error) or _exit(outcome)
    for code, kind in profile.codes:
        if code == outcome.code:
            return AgentEnding(kind=kind, words=words, resets=_resets(outcome.error, outcome, profile))
    if outcome.code in _SIGNALLED:
        return AgentEnding(kind=EndingKind.KILLED, words=_exit(outcome))
    kind_said = kind_of(_last_words(outcome.error)) if profile.answers else TroubleKind.UNKNOWN
    if kind_said is TroubleKind.UNKNOWN:
        return AgentEnding(kind=EndingKind.CRASHED, words=words)
    return AgentEnding(kind=EndingKind(kind_said), words=words, resets=_resets(outcome.error, outcome, profile))


def _last_words(error: str) -> str:
    """The last paragraph of standard error; what stands before it are warnings."""
    return re.split(r"\n\s*\n", error.strip())[-1][-_ENDING_WORDS:]


def _resets(words: str, outcome: Outcome, profile: Profile) -> float | None:
    return reset_time(words, now=outcome.ended_at, zone=profile.zone) if outcome.ended_at else None


def _exit(outcome: Outcome) -> str:
    return f"ended by signal {outcome.signal}" if outcome.code is None else f"exit code {outcome.code}"


def _line(words: str) -> str:
    return " ".join(words[-_ENDING_WORDS:].split())
