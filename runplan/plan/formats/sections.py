"""Formats in which a section is a phase: `## Phase 1 — Title`, `### Task 1: Title`, `## 1. Group`.

HumanLayer plans are phase sections with Success Criteria that commands (Automated) and a person (Manual) verify.
OpenSpec writes groups `## 1. Group` with the boxes `- [ ] 1.1 Task`. Superpowers, ralphex and Claude Code's plan mode
write `### Task 1: Title` with the boxes of its items below.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.formats import boxes
from runplan.plan.reading import Reading, Remark, find_sections, own_or_numbered, paired, section_places
from runplan.plan.scan import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.plan.scan import Heading, Lines

_VERIFICATION = re.compile(r"(?:automated|manual) verification", re.IGNORECASE)
#: The words of headings, most telling first: a Chunk has Tasks, a Task has Steps.
_UNITS = (
    *("task", "issue", "iteration", "stage", "milestone", "sprint", "story", "slice", "session", "part", "chunk"),
    *("wave", "epic", "week", "step"),
)
_WEAK = ("issue", "session", "part", "step", "week")  #: words that documents of other kinds count with too
#: Headings above sections that are work.
_WORK = re.compile(r"implement|steps?\b|tasks?\b|changes|\bplan\b|approach|milestones|stages|to[- ]?do", re.IGNORECASE)
_NUMBER = re.compile(r"([A-Z]{0,2})([0-9]{1,4})")


def read(lines: Lines) -> Iterator[Reading]:
    """Phase sections, with a status line, ticked boxes, or a list of boxes that names the phases."""
    sections = find_sections(lines, "phase")
    if not sections:
        return
    places = section_places(lines, sections)
    has_line = any(spot.slot == "line" for place in places for spot in place.spots)
    if not has_line and (named := boxes.named(lines, outside=sections)):
        listed = [(name.id, box.at) for box, name in named]
        yield boxes.reading(lines, named, paired(lines, "checklist", listed, sections))
        return
    bare = (place for place in places if place.is_bare)
    remarks = tuple(Remark(one.first + 1, f"phase {one.id} states no status; it counts as todo") for one in bare)
    yield Reading("sections", "phase sections", places, sections[0].at, remarks=remarks)


def read_humanlayer(lines: Lines) -> Iterator[Reading]:
    """The phase sections, when one of them has the heading Automated or Manual Verification."""
    criteria = [heading.at for heading in lines.headings if heading.level > 2 and _VERIFICATION.match(heading.text)]
    for found in read(lines) if criteria else ():
        if any(place.first < at < place.end for place in found.places for at in criteria):
            yield replace(found, format="humanlayer", name="HumanLayer plan", decided_by=criteria[0])


def read_openspec(lines: Lines) -> Iterator[Reading]:
    """The numbered groups of level 2, when their boxes have the group's number: `## 2.` and `- [ ] 2.1`."""
    groups = [s for s in find_sections(lines, "", levels=(2,)) if s.name.strong and s.name.id.isdigit()]
    groups = [group for group in groups if within(lines.boxes, group.at, group.end)]
    if any(box.text.startswith(f"{g.name.id}.") for g in groups for box in within(lines.boxes, g.at, g.end)):
        yield Reading("openspec", "OpenSpec tasks", section_places(lines, groups), groups[0].at, unit="task")


def read_headings(lines: Lines) -> Iterator[Reading]:
    """The plan by each word that its headings count with, then by numbers: `### 1. Title`, `#### M1: Title`."""
    for unit in _UNITS:
        sections = find_sections(lines, unit)
        if sections and (unit not in _WEAK or sections[0].level < 3 or _are_work(lines, sections)):
            yield _reading(lines, sections, unit, f"{unit.title()} headings")
    for level in (2, 3, 4):
        sections = find_sections(lines, "", levels=(level,))
        numbers = [number for section in sections if (number := _NUMBER.fullmatch(section.name.id))]
        counts = len(numbers) > 1 and all(a[1] == b[1] and int(a[2]) < int(b[2]) for a, b in pairwise(numbers))
        is_clear = len(numbers) == len(sections) and all(s.name.strong and s.name.title for s in sections)
        if counts and is_clear and _are_work(lines, sections):
            yield _reading(lines, sections, "step", "numbered headings")


def _reading(lines: Lines, sections: Sequence[Heading], unit: str, name: str) -> Reading:
    names, remarks = own_or_numbered([(section.at, section.text, section.name) for section in sections])
    named = [replace(section, name=name) for section, name in zip(sections, names, strict=True)]
    return Reading("headings", name, section_places(lines, named), sections[0].at, unit, remarks)


def _are_work(lines: Lines, sections: Sequence[Heading]) -> bool:
    """Whether boxes or the heading above show work; the chapters and procedures of other documents are numbered too."""
    first = sections[0]
    above = [h.text for h in lines.headings if h.at < first.at < h.end and 1 < h.level < first.level]
    with_boxes = [section for section in sections if within(lines.boxes, section.at, section.end)]
    return any(map(_WORK.search, above)) or 2 * len(with_boxes) > len(sections)
