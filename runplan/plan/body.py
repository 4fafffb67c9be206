"""The inside of a phase: its sub-sections by heading, its `Label: value` lines, its lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.sections import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.plan.scan import Heading, Lines

_LABEL = re.compile(
    r"[ \t]*(?:[-*>+][ \t]+)?(?:#{3,6}[ \t]+)?\*{0,2}(Touches|Allows|Depends(?: on)?|Dependencies|Execution)"
    r"(?:\*\*:|:\*\*|:)[ \t]*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,4}[.)])(?:[ \t]+|\Z)(?:\[[^\]]\](?=[ \t]|\Z)[ \t]*)?")


class Bullet(Struct, frozen=True):
    """An item of a list: bullet, number or box."""

    at: int
    indent: int
    text: str  #: with its continuation lines, joined by blanks


class Part(Struct, frozen=True):
    """The lines under one heading: with its sub-headings, and up to the first of them."""

    whole: range
    direct: range


class Body(Struct, frozen=True):
    """The lines of one phase."""

    lines: Lines
    first: int
    end: int
    headings: tuple[Heading, ...]  #: those below the phase's own
    labels: dict[str, tuple[int, str]]  #: lower-case label to line and value, the first of each

    def parts(self, title: str) -> Iterator[Part]:
        """The lines under each heading that begins with the title."""
        for place, heading in enumerate(self.headings):
            if heading.text.lower().startswith(title):
                later = place + 1
                while later < len(self.headings) and self.headings[later].level > heading.level:
                    later += 1
                yield Part(
                    whole=range(heading.at + 1, self._border(later)),
                    direct=range(heading.at + 1, self._border(place + 1)),
                )

    def _border(self, place: int) -> int:
        return self.headings[place].at if place < len(self.headings) else self.end


def body_of(lines: Lines, first: int, end: int, headings: tuple[Heading, ...]) -> Body:
    """The body of a phase; `headings` are those within its lines."""
    labels: dict[str, tuple[int, str]] = {}
    for i in range(first, end):
        text = lines.texts[i]
        if ":" in text and not lines.inert[i] and (found := _LABEL.match(text)):
            labels.setdefault(found.group(1).lower(), (i, found.group(2).strip()))
    below = tuple(heading for heading in headings if heading.at > first)
    return Body(lines=lines, first=first, end=end, headings=below, labels=labels)


def bullets(lines: Lines, part: range) -> Iterator[Bullet]:
    """The items of the lists in some lines, nested ones too."""
    for i in part:
        text = lines.texts[i]
        found = None if lines.inert[i] else _BULLET.match(text)
        if found is None or STATUS.match(text):
            continue
        mark = len(found.group(1))
        text = " ".join([text[found.end() :].strip(), *_continued(lines, range(i + 1, part.stop), mark)])
        yield Bullet(at=i, indent=len(found.group(1).expandtabs(4)), text=text.strip())


def _continued(lines: Lines, below: range, mark: int) -> Iterator[str]:
    """The lines that go on with an item: those right below it, indented more than its mark."""
    for i in below:
        text = lines.texts[i]
        indented = text[: mark + 1].isspace() and len(text) > mark + 1
        if lines.inert[i] or not indented or not text.strip() or _BULLET.match(text):
            return
        yield text.strip()


def unbulleted(text: str) -> tuple[bool, str]:
    """Whether a line begins a list item, and its text without the mark."""
    found = _BULLET.match(text)
    return found is not None, text[found.end() :].strip() if found else text.strip()
