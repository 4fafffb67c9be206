"""The words and signs of a status, and the commit next to it."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct


class Status(StrEnum):
    TODO = "todo"
    IN_PROGRESS = "in-progress"
    BLOCKED = "blocked"
    DONE = "done"


class Mark(Struct, frozen=True):
    status: Status
    known: bool = True  #: False when the text is no known status and counts as todo


_GLYPH = re.compile("✅|🟡|⏳|⚙|🔴|[⬚⬜]|\\[[xX ]?\\]")
_GLYPHS = {
    **dict.fromkeys(("✅", "[x]"), Status.DONE),
    **dict.fromkeys(("🟡", "⏳", "⚙"), Status.IN_PROGRESS),
    "🔴": Status.BLOCKED,
}
_WORD = re.compile(r"\b(?:done|in[ -]progress|blocked)\b", re.IGNORECASE)
_WORDS = {"done": Status.DONE, "blocked": Status.BLOCKED}
#: Words that mean done at the beginning of a text: "Merged in #12", but not "waits until #12 is merged".
_FINISHED = re.compile(r"[\W_]*(?:fully )?(complete|completed|finished|shipped|merged)\b", re.IGNORECASE)
#: Words that negate a "done" after them.
_NOT_YET = re.compile(r"(?:\b(?:not|never|almost|nearly|mostly|half|partly|partially|to be)\b|n't\b|%)", re.IGNORECASE)
_TODO = frozenset(
    {"", "-", "–", "—", "not started", "not done", "not yet done", "incomplete", "not complete", "unfinished"}
    | {"ready", "todo", "to do", "pending", "planned"}
)
_HASH = re.compile(r"`([0-9a-f]{7,40})`|(?<![\w`])(?=[a-f]*[0-9])([0-9a-f]{7,40})(?![\w`])")

#: The text that is written for a status. Only a person writes the other two.
WRITTEN = {Status.DONE: "✅ Done", Status.TODO: "⬚"}


@lru_cache(maxsize=1024)
def read_mark(text: str) -> Mark:
    """The status in a cell or a status line; the first glyph decides, else the first word."""
    glyph = _GLYPH.search(text)
    word = _WORD.search(text)
    if glyph is not None and (status := _GLYPHS.get(glyph.group().lower())) is not None:
        return Mark(status)
    if glyph is None and _FINISHED.match(text):
        return Mark(Status.DONE)
    if word is not None and word.group().lower() == "done" and _NOT_YET.search(text, 0, word.start()):
        word = None
    if word is None or (glyph is not None and word.group().lower() != "blocked"):
        return Mark(Status.TODO, known=glyph is not None or _stripped(text) in _TODO)
    return Mark(_WORDS.get(word.group().lower(), Status.IN_PROGRESS))


def says_complete(status: str) -> bool:
    """Whether the status in a front matter means that the whole plan is done."""
    return _stripped(status) == "done" or _FINISHED.fullmatch(_stripped(status)) is not None


def _stripped(text: str) -> str:
    return text.strip(" \t\r*_`.").lower()


def read_commit(text: str) -> str:
    """The last commit hash in a text; "" for none."""
    found = _HASH.findall(text)
    return found[-1][0] or found[-1][1] if found else ""


#: A status line up to its value.
STATUS_LINE = re.compile(r"[ \t]*(?:[-*>+][ \t]+)?(\*\*)?Status(?:\*\*:|:\*\*|:)[ \t]*", re.IGNORECASE)
#: Another field after the value.
_NEXT_FIELD = r"\*\*[A-Za-z ]{1,30}(?::\*\*|\*\*:)"
#: A heading that says done: `## Phase 1 — Parser ✅`, `… (done in 4a6075d)`, `… — Done`; not `… (complete rewrite)`.
DONE_TITLE = re.compile(
    r"✅|\[[xX]\]|(?:[(\[]|[—–-][ \t]+)(?:done|complete|completed|finished|shipped|merged)"
    r"(?:[ \t,:]+(?:(?:in|on|at|by)[ \t]+)?[`#v]?[0-9a-f][\w.:#-]{0,40}`?)?[)\]]?[ \t]*\Z",
    re.IGNORECASE,
)


def status_value(text: str, *, only_bold: bool) -> tuple[int, int] | None:
    """The columns of the value of a status line; None for any other line."""
    found = STATUS_LINE.match(text)
    if found is None or (only_bold and not found[1]):
        return None
    other = re.compile(_NEXT_FIELD).search(text, found.end())
    value = text[: other.start()].rstrip(" \t|·•,;—–") if other else text.rstrip()
    return found.end(), max(found.end(), len(value))
