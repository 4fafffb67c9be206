"""Phase ids: their grammar, and the plan or phase that a word means."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

#: The words that a heading may call its phase.
UNITS = (
    *("phase", "task", "stage", "step", "milestone", "part", "session", "sprint", "chunk", "issue", "iteration"),
    *("story", "epic", "wave", "slice", "week"),
)
#: One id. Parts after a dot or a hyphen stay short, so that `1-Setup` is phase 1 and `3b-i` is itself.
_ID = re.compile(
    r"(?:[A-Za-z]{0,3}[0-9]{1,4}[A-Za-z]{0,3}|[A-Za-z]{1,2}|[IVXivx]{1,4})"
    r"(?:[.-](?:[A-Za-z]{1,4}|[0-9]{1,4}[A-Za-z]{0,2})){0,4}(?![A-Za-z0-9])"
)
_UNIT = re.compile(rf"(?:user )?({'|'.join(UNITS)})[ \t]+#?", re.IGNORECASE)
_SEPARATOR = re.compile(r"[*_`]*[ \t]*(?:—|–|-+|:|\.(?![0-9])|\))[*_`]*[ \t]*")
_LINK = re.compile(r"\A\[(.+?)\]\(.*", re.DOTALL)
_MARKS = "*_`~ \t"


class Named(Struct, frozen=True):
    """A phase's id and title as a heading, a row or an item gives them."""

    id: str
    title: str
    strong: bool  #: a separator or nothing follows the id; else a title follows after a blank only
    unit: str  #: the word before the id in lower case, one of UNITS; "" for none


UNNAMED = Named("", "", strong=False, unit="")


@lru_cache(maxsize=4096)  # a plan is read again at each phase, and half of the time goes into this
def read_name(text: str) -> Named | None:
    """The id and title a text begins with; None when it begins with no id."""
    text = _unwrapped(_LINK.sub(r"\1", _unwrapped(text.strip())))
    begin = len(text) - len(text.lstrip("*_`~"))
    unit = _UNIT.match(text, begin)
    found = _ID.match(text, unit.end() if unit else begin)
    if found is None:
        return None
    separator = _SEPARATOR.match(text, found.end())
    strong = separator is not None or not text[found.end() :].strip(_MARKS)
    if not strong and not (text[found.end()] in " \t" and any(c.isdigit() for c in found.group())):
        return None
    end = separator.end() if separator else found.end()
    rest = text[end:].strip()
    if begin and text[:begin] not in text[begin:end]:
        rest = rest.replace(text[:begin], "", 1).strip()  # `**4a: Title** text`
    return Named(found[0], rest if rest.strip(_MARKS) else "", strong=strong, unit=unit[1].lower() if unit else "")


def _unwrapped(text: str) -> str:
    """The text without emphasis around all of it; marks within it stay."""
    for mark in ("**", "__", "~~", "*", "_", "`") if text[:1] in _MARKS else ():
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and inner and mark not in inner:
            return _unwrapped(inner.strip())
    return text


def key(id_: str) -> str:
    """The id without its case, for comparisons: some file systems ignore case in branch names."""
    return id_.casefold()
