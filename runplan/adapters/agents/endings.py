"""How an agent's work ended, judged from its output, its process and the words of its program.

This includes when a usage limit resets: most programs say so in a sentence only.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.adapter import Agent
from runplan.domain.run.dispatch import Ending, EndingKind, Outcome, Trouble
from runplan.domain.times import zone as zone_of

_LONGEST = 4_000  #: only the end of an error is searched
_LONGEST_WORDS = 600
_STATUS = r"(?i)(?:\bstatus|\berror|\bcode|\brejected)\W{0,4}([45]\d\d)\b"
#: The first match decides: patterns that name a cause come before general ones.
_WORDS = {
    EndingKind.REFUSAL: r"usage policy|content.?filter|content management policy|safety (?:policy|system)",
    EndingKind.CONTEXT: r"prompt is too long|context.?window|context.?length|maximum context|input_too_large"
    r"|input token count|too many tokens",
    EndingKind.MAX_TURNS: r"maximum number of turns|max(?:imum)? (?:session )?turns|step limit",
    EndingKind.BUDGET: r"maximum budget|cost limit|LimitsExceeded",
    EndingKind.SETUP: r"credit balance|insufficient_quota|insufficient (?:credit|balance|fund)|payment required"
    r"|model_not_found|model not found|no such model|unknown model|model\W.{0,80}(?:does not exist|not found)"
    r"|root/sudo|trusted (?:directory|folder)",
    EndingKind.LIMIT: r"hit your (?:\w+ )?limit|usage limit|exhausted your|quota (?:exceeded|exhausted)"
    r"|exceeded your \w+ quota|daily quota|(?:daily|weekly|monthly|hour) limit|per (?:day|week|month)\b"
    r"|limit reached\|\d|RESOURCE_EXHAUSTED",
    EndingKind.AUTH: r"api.?key|unauthorized|unauthenticated|authentication|not logged in|log ?in again|/login\b"
    r"|oauth|credentials|permission_error|forbidden",
    EndingKind.OVERLOADED: r"overload|at capacity|high demand|rate.?limit|too many requests|unavailable|server.?error"
    r"|bad gateway|timed? ?out|connection|reconnect|econn|network|fetch failed|stream (?:disconnected|closed)"
    r"|try again later|database is locked",
}
_BY_STATUS = {
    **dict.fromkeys((401, 403), EndingKind.AUTH),
    **dict.fromkeys((402, 404), EndingKind.SETUP),
    408: EndingKind.OVERLOADED,
    413: EndingKind.CONTEXT,
}
_CLOCKS = {Ending.TIMEOUT: EndingKind.TIMED_OUT, Ending.SILENT: EndingKind.SILENT}
#: An agent that waited for its provider because of one of these is not blamed for its silence.
_EXCUSES = (EndingKind.LIMIT, EndingKind.OVERLOADED, EndingKind.AUTH)
_RETRYING = r"(?im)^.{0,400}\bretrying\b.{0,1000}$"
_SIGNAL_CODES = (130, 137, 143)  #: 128 + SIGINT, SIGKILL, SIGTERM: how shells and node report a signal
FARTHEST_S = 8 * 86_400.0  #: no limit lasts longer; a later time was misread
JUST_PASSED_S = 900.0  #: a time of day that passed less than this ago is meant, and not tomorrow's
_CLOCK = (
    r"(?i)(?:resets?|try again|available again|come back)(?: on| at)?:? "
    r"(?:(?P<month>[a-z]{3})[a-z]* (?P<day>\d{1,2})(?:st|nd|rd|th)?,?(?: (?P<year>\d{4}),?)?(?: at)? )?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap]m)?\b\.?"
    r"(?: ?\((?P<zone>[\w/+-]{1,40})\)| (?P<utc>UTC|GMT)\b)?"
)
_SPAN = (
    r"(?i)(?:try again|retry|resets?|wait|available)(?: after| in)[:=]? "
    r"(?:about )?((?:\d{1,9}(?:\.\d{1,9})? ?"
    r"(?:days?|d|hours?|hrs?|h|minutes?|mins?|ms|m|seconds?|secs?|s)(?![a-z])[ ,]{0,2}(?:and )?){1,4})"
)
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def classify_trouble(words: str, *, status: int = 0, resets: float | None = None) -> Trouble:
    """The trouble that the words describe; `status` is the provider's answer if the program reports it."""
    text = words[-_LONGEST:]
    stated = re.search(_STATUS, text)
    status = status or (int(stated[1]) if stated else 0)
    return Trouble(kind=kind_of(text, status=status, resets=resets), words=text, resets=resets)


def kind_of(text: str, *, status: int = 0, resets: float | None = None) -> EndingKind:
    """By the status if it is specific, else by the words."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return EndingKind.OVERLOADED
    matching = (kind for kind, pattern in _WORDS.items() if re.search(pattern, text, re.IGNORECASE))
    kind = next(matching, EndingKind.CRASHED)
    if status == 429 and kind not in (EndingKind.LIMIT, EndingKind.SETUP):
        # Without a quota or a reset time only the request rate was too high.
        return EndingKind.LIMIT if resets is not None else EndingKind.OVERLOADED
    return kind


class AgentEnding(Struct, frozen=True, kw_only=True):
    kind: EndingKind
    words: str = ""  #: one line, of the program or of runplan
    resets: float | None = None  #: when a limit resets, in seconds since the epoch, if known


#: The ending of a process that runplan stopped or lost, and its words.
_STOPPED = {
    Ending.BUDGET: AgentEnding(kind=EndingKind.BUDGET),
    Ending.CONTEXT: AgentEnding(kind=EndingKind.CONTEXT),
    Ending.SURVIVED: AgentEnding(kind=EndingKind.SETUP),
    Ending.ENDED: AgentEnding(kind=EndingKind.KILLED, words="ended on request"),
    Ending.LOST: AgentEnding(kind=EndingKind.KILLED, words="lost together with its shim"),
}


def judge_ending(outcome: Outcome, agent: Agent, *, writes: bool, zone: tzinfo | None = None) -> AgentEnding:
    """How the agent's work ended; `zone` is that of the clock times it names, UTC when unknown."""
    tally = outcome.tally
    if outcome.ending in _STOPPED:
        return _STOPPED[outcome.ending]
    if outcome.ending in _CLOCKS:
        # The provider is to blame when the agent waited for it. Some programs report a wait only on standard error.
        said = [tally.waiting] if tally.waiting else re.findall(_RETRYING, outcome.error)[-1:] if agent.program else []
        candidates = [*map(classify_trouble, said), *(tally.troubles[-1:] if tally.waiting else ())]
        excuse = next((candidate for candidate in candidates if candidate.kind in _EXCUSES), None)
        return _end_by(excuse, outcome, zone) if excuse else AgentEnding(kind=_CLOCKS[outcome.ending])
    if outcome.ending is Ending.MISSING:
        return AgentEnding(kind=EndingKind.SETUP, words=_shorten_line(outcome.message))
    if tally.finished is not None and tally.finished.ok:
        if outcome.ending is Ending.SIGNALLED:
            return AgentEnding(kind=EndingKind.KILLED, words=_describe_exit(outcome))
        if outcome.code:
            words = f"{_describe_exit(outcome)}, although it reported success"
            return AgentEnding(kind=EndingKind.CRASHED, words=words)
        if writes and tally.denied and tally.uses <= tally.denials:
            tools = ", ".join(dict.fromkeys(tool.tool for tool in tally.denied))
            return AgentEnding(kind=EndingKind.DENIED, words=_shorten_line(f"not allowed to use {tools}"))
        return _judge_answer(outcome, agent)
    if tally.troubles:
        return _judge_troubles(outcome, zone)
    if tally.finished is not None:
        words = _shorten_line(tally.finished.words) or _describe_exit(outcome)
        return AgentEnding(kind=EndingKind.CRASHED, words=words)
    if outcome.ending is Ending.SIGNALLED:
        return AgentEnding(kind=EndingKind.KILLED, words=_describe_exit(outcome))
    if outcome.code:
        return _judge_failure(outcome, agent, zone)
    if not agent.closes:
        return _judge_answer(outcome, agent)
    if not outcome.message.strip() and not tally.context and not tally.usage.input_tokens:
        return AgentEnding(kind=EndingKind.NO_OUTPUT, words="it ended without output")
    return AgentEnding(kind=EndingKind.CRASHED, words="it ended without its end event")


def quote_error(ending: AgentEnding, outcome: Outcome, agent: Agent) -> str:
    """The error that the report quotes: of an agent its program's, never its chat; of a command either stream."""
    bare = ("", _describe_exit(outcome))
    if ending.kind is EndingKind.CRASHED and ending.words not in bare:
        return ending.words
    error = _shorten_line(outcome.error) or ("" if agent.program else _shorten_line(outcome.message))
    return error or ("" if ending.words in bare else ending.words)


def _judge_answer(outcome: Outcome, agent: Agent) -> AgentEnding:
    if agent.program and not outcome.message.strip():
        return AgentEnding(kind=EndingKind.NO_OUTPUT, words="it ended without a message")
    return AgentEnding(kind=EndingKind.SUCCESS)


def _judge_troubles(outcome: Outcome, zone: tzinfo | None) -> AgentEnding:
    """The last trouble of a known kind; but a limit holds until its reset."""
    troubles = outcome.tally.troubles
    known = [trouble for trouble in troubles if trouble.kind is not EndingKind.CRASHED]
    if not known:
        return AgentEnding(kind=EndingKind.CRASHED, words=_shorten_line(troubles[-1].words))
    # The final error of a limit is often only a refused request.
    if known[-1].kind in (EndingKind.LIMIT, EndingKind.OVERLOADED):
        limits = [trouble for trouble in reversed(known) if trouble.kind is EndingKind.LIMIT]
        limits.sort(key=lambda trouble: trouble.resets is None)  # a time in a field before one in words
        endings = (_end_by(trouble, outcome, zone) for trouble in limits)
        if lasting := next((ending for ending in endings if ending.resets is not None), None):
            return replace(lasting, words=_shorten_line(max(limits, key=known.index).words))
    return replace(_end_by(known[-1], outcome, zone), resets=None)


def _judge_failure(outcome: Outcome, agent: Agent, zone: tzinfo | None) -> AgentEnding:
    """It ended with an error code. Of a command's own words only a usage limit is believed."""
    words = _shorten_line(outcome.error) or _describe_exit(outcome)
    if kind := agent.codes.get(outcome.code or 0):
        return AgentEnding(kind=kind, words=words, resets=reset_time(outcome.error, now=outcome.ended_at, zone=zone))
    if outcome.code in _SIGNAL_CODES:
        return AgentEnding(kind=EndingKind.KILLED, words=_describe_exit(outcome))
    for text in (outcome.error,) if agent.program else (outcome.error, outcome.message):
        last = re.split(r"\n\s*\n", text.strip())[-1][-_LONGEST_WORDS:]  # paragraphs before it are warnings
        cause = kind_of(last)
        if cause is EndingKind.LIMIT or (agent.program and cause is not EndingKind.CRASHED):
            return _end_by(Trouble(kind=cause, words=text), outcome, zone)
    return AgentEnding(kind=EndingKind.CRASHED, words=words)


def _end_by(cause: Trouble, outcome: Outcome, zone: tzinfo | None) -> AgentEnding:
    """The ending by this trouble, with the time that it or its words name."""
    now = outcome.ended_at
    resets = cause.resets
    if resets is None or (now and not now < resets <= now + FARTHEST_S):
        resets = reset_time(cause.words, now=now, zone=zone)
    return AgentEnding(kind=cause.kind, words=_shorten_line(cause.words), resets=resets)


def _describe_exit(outcome: Outcome) -> str:
    return f"ended by signal {outcome.signal}" if outcome.code is None else f"exit code {outcome.code}"


def _shorten_line(words: str) -> str:
    return " ".join(words[-_LONGEST_WORDS:].split())


def reset_time(words: str, *, now: float, zone: tzinfo | None = None) -> float | None:
    """The moment within eight days that the words name; `now` is when they were printed, 0 when that is unknown."""
    if not now:
        return None
    text = words[-_LONGEST:]
    epoch = re.search(r"\|\s*(\d{10})\b", text)
    wait_s = 0.0
    if span := re.search(_SPAN, text):
        parts = ((float(count), unit.lower()) for count, unit in re.findall(r"(?i)(\d+(?:\.\d+)?) ?([a-z]+)", span[1]))
        wait_s = sum(count * _UNITS[unit if unit == "ms" else unit[0]] for count, unit in parts)
    elif span := re.search(r"(?i)retry[-_ ]after\W{1,4}(\d{1,9}(?:\.\d{1,9})?)\b(?! ?(?:m|h|d))", text):
        wait_s = float(span[1])
    clock = _from_clock(text, now, zone or UTC)
    moments = (float(epoch[1]) if epoch else None, clock, now + wait_s if wait_s else None)
    return next((moment for moment in moments if moment and now <= moment <= now + FARTHEST_S), None)


def reset_header(headers: Mapping[str, object], *, now: float) -> float | None:
    """The same from the headers of a response; a wait of zero counts as none."""
    known = {name.lower(): str(value) for name, value in headers.items()}
    named = ((known.get("retry-after-ms", ""), 1000.0), (known.get("retry-after", ""), 1.0))
    waits = (float(text) / unit for text, unit in named if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", text))
    return next((now + wait for wait in waits if 0 < wait <= FARTHEST_S), None)


def _from_clock(text: str, now: float, zone: tzinfo) -> float | None:
    named = re.search(_CLOCK, text)
    if named is None or (named["half"] is None and named["minute"] is None):
        return None
    clock = f"{named['hour']}:{named['minute'] or '00'} {named['half'] or ''}"
    form = "%I:%M %p" if named["half"] else "%H:%M "
    try:
        if name := named["zone"] or named["utc"]:
            zone = UTC if name.upper() in ("UTC", "GMT", "Z") else zone_of(name)
        today = datetime.fromtimestamp(now, zone)
        named_day = f"{named['month']} {named['day']} {named['year'] or today.year}"
        day = named_day if named["month"] else f"{today:%b %d %Y}"
        moment = datetime.strptime(f"{day} {clock}", f"%b %d %Y {form}").replace(tzinfo=zone, fold=today.fold)
        if moment.timestamp() > now:
            return moment.timestamp()
        if moment.timestamp() > now - JUST_PASSED_S:
            return max(moment.timestamp() + 60, now)  # the minute that was named has to end
        if named["month"]:
            return None if named["year"] else moment.replace(year=today.year + 1).timestamp()
        return (moment + timedelta(days=1)).timestamp()
    except (ArithmeticError, LookupError, OSError, ValueError):
        return None
