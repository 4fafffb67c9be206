"""Phase ids: their grammar, and the plan or phase that a word means."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


#: One id. Parts after a dot or a hyphen stay short, so that `1-Setup` is phase 1 and `3b-i` is itself.
_ID = re.compile(
    r"(?:[A-Za-z]{0,3}[0-9]{1,4}[A-Za-z]{0,3}|[A-Za-z]{1,2}|[IVXivx]{1,4})"
    r"(?:[.-](?:[A-Za-z]{1,4}|[0-9]{1,4}[A-Za-z]{0,2})){0,4}(?![A-Za-z0-9])"
)
_PHASE = re.compile(r"phase[ \t]+", re.IGNORECASE)
_SEPARATOR = re.compile(r"[*_`]*[ \t]*(?:—|–|-+|:|\.(?![0-9])|\))[*_`]*[ \t]*")
_MARKS = "*_`~ \t\r"


class Named(Struct, frozen=True):
    """A phase's id and title as a heading, a row or an item gives them."""

    id: str
    title: str
    strong: bool  #: a separator or nothing follows the id; else a title follows after a blank only
    phase: bool  #: it begins with the word Phase


def read_name(text: str) -> Named | None:
    """The id and title a text begins with; None when it begins with no id."""
    text = _without_link(text.strip(_MARKS)).strip(_MARKS)
    word = _PHASE.match(text)
    begin = word.end() if word else 0
    found = _ID.match(text, begin)
    if found is None:
        return None
    separator = _SEPARATOR.match(text, found.end())
    strong = separator is not None or not text[found.end() :].strip(_MARKS)
    if not strong and not (text[found.end()] in " \t" and any(c.isdigit() for c in found.group())):
        return None
    rest = text[separator.end() if separator else found.end() :]
    return Named(id=found.group(), title=rest.strip(_MARKS), strong=strong, phase=word is not None)


def _without_link(text: str) -> str:
    end = text.find("](")
    return text[1:end] if text.startswith("[") and end > 0 else text


def key(id_: str) -> str:
    """The same for all spellings of an id: some file systems ignore case in branch names."""
    return id_.casefold()


def find_plan(word: str, plans: Sequence[str], *, place: str, gone: Sequence[str] = ()) -> str:
    """The plan of `plans` (repository-relative paths) that `word` names; `place` is their directory.

    Plans that are `gone`, but have runs, are found by path, or by part of it if no other plan matches.
    """
    for tries, among in (
        (_same_path, (*plans, *gone)),
        (is_named, plans),
        (_part, plans),
        (is_named, gone),
        (_part, gone),
    ):
        found = [plan for plan in among if tries(word, plan)]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"{word} may be {_or(found)}; say which")
    from difflib import get_close_matches  # only an error needs it

    near = get_close_matches(PurePosixPath(word).name, [PurePosixPath(p).name for p in plans], n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(plans)}" if plans else ""
    raise NotFound(f"{word}: no such plan, neither as a path nor under {place}/{hint}")


def _same_path(word: str, plan: str) -> bool:
    return PurePosixPath(word) == PurePosixPath(plan)


def is_named(word: str, plan: str) -> bool:
    name = PurePosixPath(plan).name
    return word.lower() in (name.lower(), name.removesuffix(".md").lower())


def _part(word: str, plan: str) -> bool:
    return word.lower() in plan.lower()


def _or(found: Sequence[str]) -> str:
    return f"{', '.join(found[:-1])} or {found[-1]}"
