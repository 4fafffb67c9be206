"""Lists of phase ids as people write them: `1, 2a and 4–6`, ranges by tracker order, `all previous phases`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core.ids import key

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Anything that may be an id: which words are one is known from the plan.
WORD = r"[A-Za-z0-9]{1,6}(?:[.-][A-Za-z0-9]{1,4}){0,4}(?![A-Za-z0-9])"
_TOKEN = re.compile(rf"\b[Pp]hases?\b|\bthrough\b|{WORD}|–|-|\.\.")
_RANGE = frozenset({"–", "-", "to", "through", ".."})
_NONE = re.compile(
    r"[*_ ]*(?:(?:none|n/a|nothing|no (?:dependenc(?:y|ies)|phases?))\b|(?:no|[-–—]+)[*_. ]*\Z)", re.IGNORECASE
)
#: "None besides Phase 1" names a phase all the same.
_EXCEPT = re.compile(
    r"[*_ ]*(?:none|nothing|no )[^.;:—]{0,40}?"
    r"\b(?:besides|except(?: for)?|other than|beyond|apart from|until|unless|but)\b",
    re.IGNORECASE,
)

_EARLIER = r"(?:previous|prior|earlier|preceding)"
#: Phrases that stand for several phases, tried in this order.
_OTHERS = r"\b(?:all|every|each)(?: of)?(?: the)? (?:other )?phases?\b(?! (?:before\b|[0-9]|[A-Za-z](?:[0-9]|\b)))"
_BEFORE = (
    rf"\b(?:(?:all|every|each)(?: of)?(?: the)? )(?:{_EARLIER}|above)(?: (?:phases?|ones?))?\b"
    rf"|\b(?:all(?: of)?(?: the)? |the )?(?:{_EARLIER}|above) phases\b"
    r"|\b(?:(?:all|every|each)(?: of)?(?: the)? )?phases? (?:above|before (?:this|it)\b(?: (?:one|phase))?)"
    r"|\b(?:all(?: of)?(?: the)?|everything) (?:above|before (?:this|it))\b(?: (?:one|phase))?"
)
_LAST = rf"\b(?:the )?{_EARLIER} (?:phase|one)\b"
_LATER = r"\b(?:all(?: of)?(?: the)? |every |the )?(?:later|subsequent|remaining) phases?\b"


def says_none(text: str) -> bool:
    """Whether a paragraph begins by saying that there is nothing to wait for."""
    return _NONE.match(text) is not None and _EXCEPT.match(text) is None


def without_exception(text: str) -> str:
    """The text after "none besides", "no dependencies other than" and the like."""
    found = _EXCEPT.match(text)
    return text[found.end() :].strip() if found else text


def spelled_out(text: str, *, own: str, known: Mapping[str, str]) -> str:
    """The text with phrases like "all previous phases" replaced by the ids they stand for.

    A phrase that stands for no phase is replaced by the phase's own id, which is never waited for.
    """
    order = list(known.values())
    at = order.index(own)
    before, after = order[:at], order[at + 1 :]
    for pattern, ids in ((_BEFORE, before), (_LAST, before[-1:]), (_LATER, after), (_OTHERS, [*before, *after])):
        text = re.sub(pattern, f"Phases {', '.join(ids or [own])}", text, flags=re.IGNORECASE)
    return text


def resolve(listed: str, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The ids of a list like `1, 2a and 4–6`, ranges by tracker order; and those that are no phase."""
    ids: list[str] = []
    unknown: list[str] = []
    ranged = False
    for token in _TOKEN.findall(listed):
        if token.lower() in ("phase", "phases"):
            continue
        if token in _RANGE:
            ranged = bool(ids)
            continue
        found = _known(token, known)
        if ranged and len(found) == 1:
            found = _between(ids[-1], found[0], known)
        ranged = False
        ids += found
        if not found and any(char.isdigit() for char in token):
            unknown.append(token)
    return list(dict.fromkeys(ids)), unknown


def _known(token: str, known: Mapping[str, str]) -> list[str]:
    if (id_ := known.get(key(token))) is not None:
        # Letters alone are words too: "Phase 1 and a test" names no phase A.
        return [id_] if id_ == token or any(char.isdigit() for char in token) else []
    first, _, last = token.partition("-")
    if last and key(first) in known and key(last) in known:
        return _between(known[key(first)], known[key(last)], known)
    if parts := [id_ for id_ in known.values() if token.isdigit() and re.match(rf"{token}[A-Za-z]", id_)]:
        return parts  # "Phase 1" of a plan with 1a and 1b is both
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c; "Phase 3.5" is a phase of its own
    return _known(whole, known) if any(char.isalpha() for char in whole) else []


def _between(first: str, last: str, known: Mapping[str, str]) -> list[str]:
    order = list(known.values())
    a, b = sorted((order.index(first), order.index(last)))
    return order[a : b + 1]
