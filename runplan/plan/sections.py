"""Phase sections: `## Phase <id> — <title>` up to the next heading of that level, and their status lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import key, read_name

if TYPE_CHECKING:
    from runplan.plan.scan import Lines

#: A status line up to its value.
STATUS = re.compile(r"[ \t]*(?:[-*>+][ \t]+)?(\*\*)?Status(?:\*\*:|:\*\*|:)[ \t]*", re.IGNORECASE)
#: Another field after it; compiled where there is a status line.
_NEXT_FIELD = r"\*\*[A-Za-z ]{1,30}(?::\*\*|\*\*:)"
_BOX = r"[ \t]*(?:[-*+]|[0-9]{1,4}[.)])[ \t]+\[([^\]])\](?=[ \t]|\Z)"


class Section(Struct, frozen=True):
    """One phase's part of the plan."""

    id: str
    title: str
    strong: bool  #: see Named.strong
    at: int  #: line of its heading
    end: int  #: line after its last
    level: int  #: of its heading


class StatusLine(Struct, frozen=True):
    """A section's `**Status:**` line and the columns of its value."""

    at: int
    begin: int
    end: int


def find_sections(lines: Lines) -> tuple[Section, ...]:
    """The phase sections in the order of the text: level 2, else level 3 where no level 2 heading names a phase.

    A heading like `## Phase 2 Findings` counts only when no other heading names that phase more clearly.
    """
    sections = _at_level(lines, 2) or _at_level(lines, 3)
    clear = {key(section.id) for section in sections if section.strong}
    return tuple(section for section in sections if section.strong or key(section.id) not in clear)


def _at_level(lines: Lines, level: int) -> list[Section]:
    # A level 1 heading ends nothing: in real plans it is a shell comment of a badly nested fence.
    borders = [h for h in lines.headings if 2 <= h.level <= level]
    ends = [h.at for h in borders[1:]] + [len(lines.texts)]
    found = []
    for heading, end in zip(borders, ends, strict=True) if borders else ():
        name = read_name(heading.text) if heading.level == level else None
        if name is not None and name.phase:
            section = Section(id=name.id, title=name.title, strong=name.strong, at=heading.at, end=end, level=level)
            found.append(section)
    return found


def status_line(lines: Lines, section: Section) -> StatusLine | None:
    """The section's status line: bold anywhere, plain only above its first sub-heading."""
    plain_ok = True
    for i in range(section.at + 1, section.end):
        text = lines.texts[i]
        if lines.inert[i]:
            continue
        plain_ok = plain_ok and not text.startswith("#")
        found = STATUS.match(text)
        if found is not None and (plain_ok or found.group(1)):
            return StatusLine(at=i, begin=found.end(), end=_value_end(text, found.end()))
    return None


def ticked(lines: Lines, section: Section) -> tuple[int, int]:
    """How many boxes of the section are ticked, and how many it has."""
    box = re.compile(_BOX)
    texts = (lines.texts[i] for i in range(section.at + 1, section.end) if not lines.inert[i])
    marks = [found.group(1) for text in texts if (found := box.match(text))]
    return sum(mark in "xX" for mark in marks), len(marks)


def _value_end(text: str, begin: int) -> int:
    """Where the value ends: before another bold field of the same line, before trailing blanks."""
    other = re.compile(_NEXT_FIELD).search(text, begin)
    value = text[: other.start()].rstrip(" \t|·•,;—–") if other else text.rstrip()
    return max(begin, len(value))
