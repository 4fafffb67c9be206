"""What kind of trouble the words of an error mean.

Only for words that a program gives as its error: an agent's prose and the output of its tools are never asked.
"""

from __future__ import annotations

import re

from runplan.core.agentevents import Trouble, TroubleKind

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
