"""Task headings: `### Task 1: Title`, Stage, Step, Milestone and the like, or `### 1. Title` above boxes.

Superpowers, ralphex and Claude Code's plan mode write plans like this. The boxes below a heading are its items.
OpenSpec writes groups `## 1. Group` with the boxes `- [ ] 1.1 Task`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.ids import key
from runplan.plan.reading import Format, Reading, Remark, Section, find_sections, refuse_duplicates, section_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.plan.scan import Lines

#: The words, most telling first: a Chunk has Tasks, a Task has Steps.
_UNITS = ("task", "issue", "iteration", "stage", "milestone", "sprint", "session", "part", "chunk", "step")
_WEAK = ("issue", "session", "part", "step")  #: words that documents of other kinds count with too
#: Headings above sections that are work.
_WORK = re.compile(r"implement|steps?\b|tasks?\b|changes|\bplan\b|approach|milestones|stages|to[- ]?do", re.IGNORECASE)


def read_openspec(lines: Lines, path: str) -> Reading | None:
    """The plan when numbered groups of level 2 have boxes with the group's number: `## 2.` and `- [ ] 2.1`."""
    numbered = [s for s in find_sections(lines, ("",), levels=(2,)) if s.strong and s.id.isdigit()]
    groups = [group for group in numbered if lines.boxes_in(group.at, group.end)]
    if not any(box.text.startswith(f"{g.id}.") for g in groups for box in lines.boxes_in(g.at, g.end)):
        return None
    refuse_duplicates(((group.id, group.at) for group in groups), "headings", path)
    places = section_places(lines, groups)
    return Reading(format=Format.OPENSPEC, name="OpenSpec tasks", places=places, decided_by=groups[0].at, unit="task")


def read(lines: Lines, path: str) -> Reading | None:
    return next(readings(lines, path), None)


def readings(lines: Lines, path: str) -> Iterator[Reading]:  # noqa: ARG001 - all recognisers take the path
    """The plan by each word that its headings count with, then by bare numbers."""
    for unit in _UNITS:
        sections = find_sections(lines, (unit,))
        if sections and (unit not in _WEAK or sections[0].level == 2 or _are_work(lines, sections)):
            yield _reading(lines, sections, unit, f"{unit.title()} headings")
    for level in (2, 3):
        sections = tuple(section for section in find_sections(lines, ("",), levels=(level,)) if section.id.isdigit())
        counts = len(sections) > 1 and all(int(a.id) < int(b.id) for a, b in pairwise(sections))
        if counts and all(section.strong and section.title for section in sections) and _are_work(lines, sections):
            yield _reading(lines, sections, "step", "numbered headings")


def _reading(lines: Lines, sections: Sequence[Section], unit: str, name: str) -> Reading:
    """The sections as phases, by their number where two have the same id."""
    remarks = []
    if len({key(section.id) for section in sections}) < len(sections):
        for number, section in enumerate(sections, 1):
            if section.id != str(number):
                what = f"{unit.title()} {section.id} is called phase {number}: two headings have the same number"
                remarks.append(Remark(section.at + 1, what))
        sections = [replace(section, id=str(number)) for number, section in enumerate(sections, 1)]
    return Reading(
        format=Format.HEADINGS,
        name=name,
        places=section_places(lines, sections),
        decided_by=sections[0].at,
        unit=unit,
        remarks=tuple(remarks),
    )


def _are_work(lines: Lines, sections: Sequence[Section]) -> bool:
    """Whether boxes or the heading above show work; the chapters and procedures of other documents are numbered too."""
    first = sections[0]
    above = [h.text for h in lines.headings if h.at < first.at < h.end and 1 < h.level < first.level]
    return any(map(_WORK.search, above)) or any(lines.boxes_in(section.at, section.end) for section in sections)
