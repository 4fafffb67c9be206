"""Checklists, in which a box is a phase, and TODO lists, in which a section with boxes is one.

If some boxes say `Phase <id>`, only those are phases; else every box at the left margin is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from runplan.plan.ids import key, read_name
from runplan.plan.marks import read_commit
from runplan.plan.reading import (
    Format,
    Place,
    Reading,
    Remark,
    Section,
    box_spot,
    mark_of,
    refuse_duplicates,
    section_place,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.plan.scan import Entry, Lines

MOST = 40  #: phases from boxes alone; more are probably steps of fewer phases
#: Boxes under these headings are no work.
_NOT_WORK = re.compile(
    r"accept|criteri|verif|definition of done|question|risk|goals|prerequisite|dependenc|checklist|review|test plan",
    re.IGNORECASE,
)


Listed: TypeAlias = tuple[str, str, "Entry"]  #: the id, title and box of a phase


def read(lines: Lines, path: str) -> Reading | None:
    listed = named(lines) or _numbered(work(lines))
    return reading(lines, listed, [(box.at, _end(lines, box)) for _, _, box in listed], path) if listed else None


def named(lines: Lines, outside: Sequence[Section] = ()) -> list[Listed]:
    """The boxes that say `Phase <id>`, outside of some sections."""
    found = []
    for box in lines.boxes:
        name = read_name(box.text) if "phase" in box.text[:20].lower() else None
        is_outside = box.indent <= 3 and not any(section.at <= box.at < section.end for section in outside)
        if name is not None and name.unit == "phase" and is_outside:
            found.append((name.id, name.title, box))
    return found


def work(lines: Lines) -> list[Entry]:
    """The boxes at the left margin, without those under other boxes or headings like Acceptance Criteria."""
    found: list[Entry] = []
    end = 0  # of the last one
    for box in lines.boxes:
        heading = lines.heading_above(box.at)
        is_work = heading is None or not _NOT_WORK.search(heading.text)
        if box.indent <= 3 and not box.optional and is_work and box.at >= end:
            found.append(box)
            end = _end(lines, box)
    return found


def _numbered(boxes: Sequence[Entry]) -> list[Listed]:
    """The boxes with their own ids where all have one, else by their number."""
    own = [name for box in boxes if (name := read_name(box.text)) is not None and name.strong]
    if len(own) == len(boxes) == len({key(name.id) for name in own}):
        return [(name.id, name.title, box) for name, box in zip(own, boxes, strict=True)]
    return [(str(number), box.text, box) for number, box in enumerate(boxes, 1)]


def _end(lines: Lines, box: Entry) -> int:
    """The line after the box and the lines below it that are indented more deeply, blank lines in between included."""
    end = box.at + 1
    for i in range(box.at + 1, len(lines.texts)):
        text = lines.texts[i]
        if text.strip():
            if len(text) - len(text.lstrip()) <= box.indent and not text.startswith("\t"):
                break
            end = i + 1
    return end


def reading(lines: Lines, listed: Sequence[Listed], spans: Sequence[tuple[int, int]], path: str) -> Reading:
    refuse_duplicates(((id_, box.at) for id_, _, box in listed), "items", path)
    places, remarks = [], []
    for (id_, title, box), (first, end) in zip(listed, spans, strict=True):
        nested = lines.boxes_in(first + 1, end) if first == box.at else ()
        spots = tuple(box_spot(lines, one) for one in (box, *nested) if not one.optional)
        commit = read_commit(box.text)
        mark = mark_of([box])
        places.append(
            Place(id=id_, title=title, mark=mark, commit=commit, first=first, end=end, at=box.at, spots=spots)
        )
        if (name := read_name(box.text)) and name.strong and key(name.id) != key(id_):
            what = f"item {name.id!r} is called phase {id_}: not all boxes have an id of their own"
            remarks.append(Remark(box.at + 1, what))
    decided_by = listed[0][2].at
    if len(listed) > MOST:
        remarks.append(Remark(decided_by + 1, too_many(len(listed))))
    return Reading(
        format=Format.CHECKLIST, name="checklist", places=tuple(places), decided_by=decided_by, remarks=tuple(remarks)
    )


def too_many(count: int) -> str:
    return f"the boxes alone make {count} phases; headings above them would make them items of fewer phases"


def read_todo(lines: Lines, path: str) -> Reading | None:  # noqa: ARG001 - all recognisers take the path
    """Two or more sections with boxes: each section is a phase, done when all its boxes are ticked."""
    above = (lines.heading_above(box.at) for box in work(lines))
    headings = list(dict.fromkeys(heading for heading in above if heading is not None and heading.level > 1))
    if len(headings) < 2 or named(lines):
        return None
    names = [heading.name for heading in headings if heading.name is not None and heading.name.strong]
    has_ids = len(names) == len(headings) == len({key(name.id) for name in names})
    places, remarks = [], []
    for number, heading in enumerate(headings, 1):
        name = heading.name
        id_, title = (name.id, name.title) if has_ids and name is not None else (str(number), heading.text)
        end = headings[number].at if number < len(headings) else heading.end
        place = section_place(lines, id_=id_, title=title or heading.text, first=heading.at, end=min(end, heading.end))
        places.append(place)
        if name is not None and name.strong and name.id != id_:
            what = f"section {name.id!r} is called phase {id_}: not all sections have an id of their own"
            remarks.append(Remark(heading.at + 1, what))
    return Reading(
        format=Format.TODO, name="TODO list", places=tuple(places), decided_by=headings[0].at, remarks=tuple(remarks)
    )
