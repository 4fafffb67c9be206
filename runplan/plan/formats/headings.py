"""Task headings: `### Task 1: Title`, Stage, Step, Milestone and the like, or `### 1. Title` above boxes.

Superpowers, ralphex and Claude Code's plan mode write plans like this. The boxes below a heading are its items.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.ids import key, read_name
from runplan.plan.reading import Format, Reading, Remark, Section, find_sections, section_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.plan.scan import Heading, Lines

#: The words, most telling first: a Chunk has Tasks, a Task has Steps.
_UNITS = ("task", "issue", "iteration", "stage", "milestone", "sprint", "session", "part", "chunk", "step")
_WEAK = ("issue", "session", "part", "step")  #: words that documents of other kinds count with too
#: Headings above sections that are work.
_WORK = re.compile(r"implement|steps?\b|tasks?\b|changes|\bplan\b|approach|milestones|stages|to[- ]?do", re.IGNORECASE)


def read(lines: Lines, path: str) -> Reading | None:
    return next(readings(lines, path), None)


def readings(lines: Lines, path: str) -> Iterator[Reading]:  # noqa: ARG001 - all recognisers take the path
    """The plan by each word that its headings count with, then by bare numbers."""
    for unit in _UNITS:
        sections = find_sections(lines, (unit,))
        if sections and (unit not in _WEAK or sections[0].level == 2 or _are_work(lines, sections)):
            named, remarks = _unique(lines, sections, unit)
            yield _reading(lines, named, unit, f"{unit.title()} headings", remarks)
    if numbered := _numbered(lines):
        yield _reading(lines, numbered, "step", "numbered headings", ())


def _reading(lines: Lines, sections: Sequence[Section], unit: str, name: str, remarks: tuple[Remark, ...]) -> Reading:
    return Reading(
        format=Format.HEADINGS,
        name=name,
        places=section_places(lines, sections),
        decided_by=sections[0].at,
        unit=unit,
        remarks=remarks,
    )


def _unique(lines: Lines, sections: Sequence[Section], unit: str) -> tuple[list[Section], tuple[Remark, ...]]:
    """The sections with ids that differ: `2.1` for Task 1 of Chunk 2, else their number where the count starts anew."""
    if len({key(section.id) for section in sections}) == len(sections):
        return list(sections), ()
    above = [_owner(lines, section) for section in sections]
    ids = [f"{owner}.{section.id}" if owner else "" for owner, section in zip(above, sections, strict=True)]
    if not all(ids) or len(set(map(key, ids))) < len(ids):
        ids = [str(number) for number in range(1, len(sections) + 1)]
    renamed = [replace(section, id=id_) for section, id_ in zip(sections, ids, strict=True)]
    remarks = tuple(
        Remark(old.at + 1, f"{unit.title()} {old.id} is called phase {new.id}: more than one heading has its number")
        for old, new in zip(sections, renamed, strict=True)
        if key(old.id) != key(new.id)
    )
    return renamed, remarks


def _owner(lines: Lines, section: Section) -> str:
    """The id of the heading that the section is in; "" when it has none."""
    parent = _parent(lines, section.at, section.level)
    name = read_name(parent.text) if parent else None
    return name.id if name is not None and name.strong else ""


def _parent(lines: Lines, at: int, level: int) -> Heading | None:
    return next((h for h in reversed(lines.headings) if h.at < at < h.end and h.level < level), None)


def _numbered(lines: Lines) -> list[Section]:
    """The sections `### 1. Title` that count upwards."""
    for level in (2, 3):
        found = []
        for heading in lines.headings:
            name = read_name(heading.text) if heading.level == level else None
            if name is not None and not name.unit and name.strong and name.id.isdigit() and name.title:
                found.append(Section(name.id, name.title, name.strong, heading.at, heading.end, level))
        counts = all(int(a.id) < int(b.id) for a, b in pairwise(found))
        if len(found) > 1 and counts and _are_work(lines, found):
            return found
    return []


def _are_work(lines: Lines, sections: Sequence[Section]) -> bool:
    """Whether boxes or the heading above show work; the chapters and procedures of other documents are numbered too."""
    parent = _parent(lines, sections[0].at, sections[0].level)
    has_boxes = any(lines.boxes_in(section.at, section.end) for section in sections)
    return has_boxes or (parent is not None and parent.level > 1 and _WORK.search(parent.text) is not None)
