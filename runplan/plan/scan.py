"""Reads a plan file into lines that know their byte offsets, with its headings and list entries.

A line ends at LF or CRLF; a lone CR is part of its line. Only a line that begins with three backticks at column 0
opens or closes a fence: real plans nest fences badly, and every stricter reading loses phases.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.ids import Named, read_name

MAX_BYTES = 5 * 1024 * 1024
MAX_LINES = 20_000
BOLD = 7  #: the level of a line in bold that serves as a heading
_BOM = b"\xef\xbb\xbf"
_ENTRY = re.compile(
    r"([ \t]*)(?:[-*+]|[0-9]{1,4}[.)])(?:[ \t]+|\Z)(?:\[([^\]\w]|[xX])\](\*?)(?=[ \t]|\Z)[ \t]*)?", re.DOTALL
)
_BOLD = re.compile(r"[ \t]{0,3}\*\*([^*`]{1,60}?):?\*\*:?[ \t]*\Z")


class Heading(Struct, frozen=True):
    """A heading, or a line in bold like `**Tasks:**`, outside of fences and front matter."""

    at: int
    level: int
    text: str
    name: Named | None  #: the id and title that it begins with
    end: int  #: the line after its section. A level 1 heading ends none: it may be a comment in a badly nested fence.


class Entry(Struct, frozen=True):
    """An entry of a list, `- text`, `1. text` or the box `- [ ] text`, outside of fences and front matter."""

    at: int
    indent: int
    column: int  #: of the character between the brackets
    sign: str  #: that character; "" when it is no box
    optional: bool  #: `- [ ]* text`, as Kiro writes it
    text: str  #: without the lines that continue it

    @property
    def ticked(self) -> bool:
        return self.sign in ("x", "X")


T = TypeVar("T", Heading, Entry)


class Lines(Struct, frozen=True, kw_only=True):
    """A plan's text by lines; indexes count from 0, the line numbers for people from 1."""

    raw: bytes
    texts: list[str]  #: without line ends and without the byte order mark
    starts: list[int]  #: byte offset of each line's first character
    inert: list[bool]  #: front matter and fenced lines, fence marks included: never structure
    headings: list[Heading]  #: without lines in bold
    parts: list[Heading]  #: headings and lines in bold
    entries: list[Entry]
    boxes: list[Entry]  #: the entries that are boxes
    front: int  #: index of the line that closes the front matter; 0 when there is none
    open_fence: int  #: index of a fence that is never closed; -1 when there is none
    eol: bytes  #: the line end of the first line

    def offset(self, index: int, column: int) -> int:
        return self.starts[index] + len(self.texts[index][:column].encode())

    def start(self, index: int) -> int:
        """The byte offset of a line, or of the end of the text for the line after the last."""
        return self.starts[index] if index < len(self.starts) else len(self.raw)

    def heading_above(self, index: int) -> Heading | None:
        """The nearest heading above a line."""
        place = bisect(self.headings, index, key=_at)
        return self.headings[place - 1] if place else None

    def boxes_in(self, first: int, end: int) -> list[Entry]:
        """The boxes of lines first to end - 1."""
        return _within(self.boxes, range(first, end))

    def entries_in(self, part: range) -> list[Entry]:
        return _within(self.entries, part)

    def parts_in(self, part: range) -> list[Heading]:
        return _within(self.parts, part)

    def between(self, first: int, end: int) -> str:
        """The text of lines first to end - 1, byte for byte."""
        return self.raw[self.start(first) : self.start(end)].decode()


def _at(mark: Heading | Entry) -> int:
    return mark.at


def _within(marks: list[T], part: range) -> list[T]:
    return marks[bisect_left(marks, part.start, key=_at) : bisect_left(marks, part.stop, key=_at)]


@lru_cache(maxsize=2)
def scan(raw: bytes, *, path: str) -> Lines:
    """The lines of a plan file. Raises PlanUnreadable when it is no text."""
    pieces = _decoded(raw, path).split("\n")
    first = len(_BOM) if raw.startswith(_BOM) else 0
    starts = list(accumulate((len(piece.encode()) + 1 for piece in pieces[:-1]), initial=first))
    if not pieces[-1]:  # there is no line after the last line end
        pieces.pop()
        starts.pop()
    ended = len(pieces) if raw.endswith(b"\n") else len(pieces) - 1
    texts = [piece.removesuffix("\r") if i < ended else piece for i, piece in enumerate(pieces)]
    front = 0
    if texts and texts[0] == "---":
        front = next((i for i in range(1, len(texts)) if texts[i].rstrip() == "---"), 0)
    inert, open_fence = _inert(texts, front)
    parts, entries = _parts(texts, inert), _entries(texts, inert)
    return Lines(
        raw=raw,
        texts=texts,
        starts=starts,
        inert=inert,
        headings=[part for part in parts if part.level < BOLD],
        parts=parts,
        entries=entries,
        boxes=[entry for entry in entries if entry.sign],
        front=front,
        open_fence=open_fence,
        eol=b"\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else b"\n",
    )


def _decoded(raw: bytes, path: str) -> str:
    if len(raw) > MAX_BYTES:
        size, limit = len(raw) / 1024 / 1024, MAX_BYTES // 1024 // 1024
        raise PlanUnreadable(f"{path}:1: the file has {size:.1f} MB, and a plan at most {limit} MB; is it a plan?")
    if (count := raw.count(b"\n")) > MAX_LINES:
        raise PlanUnreadable(f"{path}:1: the file has {count:,} lines, and a plan at most {MAX_LINES:,}; is it a plan?")
    if (nul := raw.find(b"\0")) >= 0:
        line = raw.count(b"\n", 0, nul) + 1
        raise PlanUnreadable(f"{path}:{line}: a binary file (it contains NUL bytes); a plan is UTF-8 text")
    try:
        return raw.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = raw.removeprefix(_BOM).count(b"\n", 0, error.start) + 1
        raise PlanUnreadable(f"{path}:{line}: the text is not valid UTF-8; save the plan as UTF-8") from error


def _inert(texts: list[str], front: int) -> tuple[list[bool], int]:
    first = front + 1 if front else 0
    inert = [True] * first + [False] * (len(texts) - first)
    opened = -1
    for i in range(first, len(texts)):
        text = texts[i]
        is_fence = text.startswith("```") and "`" not in text.lstrip("`")
        inert[i] = is_fence or opened >= 0
        if is_fence:
            opened = -1 if opened >= 0 else i
    return inert, opened


def _parts(texts: list[str], inert: list[bool]) -> list[Heading]:
    found: list[Heading] = []
    border = [len(texts)] * (BOLD + 1)  # by level: where the section of a heading above ends
    for i in range(len(texts) - 1, -1, -1):
        text = texts[i]
        level = len(text) - len(text.lstrip("#"))
        if inert[i] or not (level or "**" in text[:5]):
            continue
        if 0 < level < BOLD and text[level : level + 1] in (" ", "\t"):
            words = text[level:].strip().rsplit(None, 1)
            is_closed = len(words) == 2 and not words[1].strip("#")  # `## Title ##`
            title = words[0].rstrip() if is_closed else text[level:].strip()
            found.append(Heading(i, level, title, read_name(title) if level > 1 else None, border[level]))
        elif not level and (bold := _BOLD.match(text)):
            level = BOLD
            found.append(Heading(i, level, bold[1], None, border[level]))
        else:
            continue
        if level > 1:
            border[level:] = [i] * (BOLD + 1 - level)
    return found[::-1]


def _entries(texts: list[str], inert: list[bool]) -> list[Entry]:
    found = []
    for i, text in enumerate(texts):
        if not inert[i] and (entry := _ENTRY.match(text)) is not None:
            indent, sign = len(entry[1].expandtabs(4)), entry[2] or ""
            found.append(Entry(i, indent, entry.start(2), sign, entry[3] == "*", text[entry.end() :].strip()))
    return found
