"""The status vocabulary of plans: how a status is read from a cell, a line or a box, and how it is written."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct


class Status(StrEnum):
    """How far a phase is, as its plan says."""

    TODO = "todo"
    IN_PROGRESS = "in-progress"
    BLOCKED = "blocked"
    DONE = "done"


class Mark(Struct, frozen=True):
    """A status as it was read."""

    status: Status
    known: bool = True  #: False when the text is no word of the vocabulary and was taken for todo


_GLYPH = re.compile("✅|🟡|⏳|⚙|🔴|[⬚⬜]|\\[[xX ]?\\]")
_GLYPHS = {
    "✅": Status.DONE,
    "[x]": Status.DONE,
    "🟡": Status.IN_PROGRESS,
    "⏳": Status.IN_PROGRESS,
    "⚙": Status.IN_PROGRESS,
    "🔴": Status.BLOCKED,
}
_WORD = re.compile(r"\b(?:done|in[ -]progress|blocked)\b", re.IGNORECASE)
_WORDS = {"done": Status.DONE, "blocked": Status.BLOCKED}
#: Words that mean done where a text begins with them: "Merged in #12", but not "waits until #12 is merged".
_FINISHED = re.compile(r"[\W_]*(?:fully )?(complete|completed|finished|shipped|merged)\b", re.IGNORECASE)
#: Before "done": it is not.
_NOT_YET = re.compile(r"(?:\b(?:not|never|almost|nearly|mostly|half|partly|partially|to be)\b|n't\b|%)", re.IGNORECASE)
_TODO = frozenset(
    {"", "-", "–", "—", "not started", "not done", "not yet done", "incomplete", "not complete", "unfinished"}
    | {"ready", "todo", "to do", "pending", "planned"}
)
_HASH = re.compile(r"`([0-9a-f]{7,40})`|(?<![\w`])(?=[a-f]*[0-9])([0-9a-f]{7,40})(?![\w`])")

#: What is written for a status. Only a person writes the other two.
WRITTEN = {Status.DONE: "✅ Done", Status.TODO: "⬚"}


def read_mark(text: str) -> Mark:
    """The status a cell or a status line states; the first glyph decides, else the first word."""
    glyph = _GLYPH.search(text)
    word = _WORD.search(text)
    if glyph is not None and (status := _GLYPHS.get(glyph.group().lower())) is not None:
        return Mark(status=status)
    if glyph is None and _FINISHED.match(text):
        return Mark(status=Status.DONE)
    if word is not None and word.group().lower() == "done" and _NOT_YET.search(text, 0, word.start()):
        word = None
    if word is None or (glyph is not None and word.group().lower() != "blocked"):
        known = glyph is not None or _plain(text) in _TODO
        return Mark(status=Status.TODO, known=known)
    return Mark(status=_WORDS.get(word.group().lower(), Status.IN_PROGRESS))


def says_complete(status: str) -> bool:
    """Whether the status in a front matter says that the whole plan is done."""
    status = _plain(status)
    found = _FINISHED.match(status)
    return status == "done" or (found is not None and found.end() == len(status))


def _plain(text: str) -> str:
    return text.strip(" \t\r*_`.").lower()


def read_commit(text: str) -> str:
    """The last commit hash a text names, or nothing."""
    commit = ""
    for found in _HASH.finditer(text):
        commit = found.group(1) or found.group(2)
    return commit
