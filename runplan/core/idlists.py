"""Lists of phase ids as people write them: `1, 2a and 4–6`, ranges by tracker order."""

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
_NONE = re.compile(r"[*_ ]*(?:none|n/a|nothing|no dependenc(?:y|ies))\b", re.IGNORECASE)


def says_none(text: str) -> bool:
    """Whether a paragraph begins by saying that there is nothing to wait for."""
    return _NONE.match(text) is not None


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
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c
    return _known(whole, known) if whole else []


def _between(first: str, last: str, known: Mapping[str, str]) -> list[str]:
    order = list(known.values())
    a, b = sorted((order.index(first), order.index(last)))
    return order[a : b + 1]
