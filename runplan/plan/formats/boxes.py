"""Formats of boxes: a box is a phase in Kiro tasks and checklists; in TODO lists a section with boxes is one."""

from __future__ import annotations

import re
from bisect import bisect
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.ids import UNNAMED, Named, read_name
from runplan.plan.marks import Mark, Status, read_commit
from runplan.plan.reading import Place, Reading, Remark, box_spots, mark_of, own_or_numbered, section_places
from runplan.plan.scan import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runplan.plan.scan import Entry, Heading, Lines

MOST = 40  #: phases from boxes alone; more are probably steps of fewer phases
#: Boxes under these headings are no work.
_NOT_WORK = re.compile(
    r"accept|criteri|verif|definition of done|question|risk|goals|prerequisite|dependenc|checklist|review|test plan",
    re.IGNORECASE,
)
#: Headings of a board: its boxes are the phases, not its columns.
_COLUMN = re.compile(
    r"\W*(?:active|backlog|blocked|completed?|doing|done|in progress|pending|to[ -]?do)\W*", re.IGNORECASE
)
_NUMBER = re.compile(r"\**([0-9]{1,4})((?:\.[0-9]{1,4}){0,3})\.?\**(?:[ \t]+|\Z)")


def read_kiro(lines: Lines) -> Iterator[Reading]:
    """`- [ ] 1. Task` is a phase, `- [ ] 1.1 Sub-task` one of its items, `- [ ]*` optional.

    Sub-tasks or `_Requirements:_` lines show that Kiro wrote it.
    """
    numbers = [(box, number) for box in lines.boxes if (number := _NUMBER.match(box.text)) is not None]
    tops = [(box, number) for box, number in numbers if not number[2] and not box.optional]
    ids = {number[1] for _, number in tops}
    has_items = any(number[2] and number[1] in ids for _, number in numbers)
    if not tops or not (has_items or any("_Requirements:" in text for text in lines.texts)):
        return
    borders = sorted([*(box.at for box, number in numbers if not number[2]), *(h.at for h in lines.headings)])
    borders.append(len(lines.texts))
    places, remarks = [], _too_many(tops[0][0].at, len(tops))
    for box, number in tops:
        end = borders[bisect(borders, box.at)]
        own = [one for one in within(lines.boxes, box.at + 1, end) if not one.optional]
        mark = mark_of([box])
        if own and all(one.ticked for one in own):
            mark = Mark(Status.DONE)
        elif not box.ticked and any(one.sign in "-~" for one in (box, *own)):
            mark = Mark(Status.IN_PROGRESS)
        elif box.ticked and own:
            what = f"task {number[1]} is ticked, but not all of its sub-tasks are; it counts as done"
            remarks.append(Remark(box.at + 1, what))
        place = _place(replace(UNNAMED, id=number[1], title=box.text[number.end() :]), (box, *own), end)
        places.append(replace(place, mark=mark, commit="", entries=tuple(own)))
    yield Reading("kiro", "Kiro tasks", tuple(places), tops[0][0].at, "task", tuple(remarks))


def read_todo(lines: Lines) -> Iterator[Reading]:
    """Two or more sections with boxes: each section is a phase, done when all its boxes are ticked."""
    above = (lines.heading_above(box.at) for box in _work(lines))
    headings = list(dict.fromkeys(heading for heading in above if heading is not None and heading.level > 1))
    if len(headings) < 2 or named(lines) or all(_COLUMN.fullmatch(heading.text) for heading in headings):
        return
    names, remarks = own_or_numbered([(heading.at, heading.text, heading.name) for heading in headings])
    sections = []
    for heading, name, below in zip(headings, names, [*(h.at for h in headings[1:]), len(lines.texts)], strict=True):
        titled = replace(name, title=name.title or heading.text)
        sections.append(replace(heading, name=titled, end=min(below, heading.end)))
    yield Reading("todo", "TODO list", section_places(lines, sections), headings[0].at, remarks=remarks)


def read_checklist(lines: Lines) -> Iterator[Reading]:
    """The boxes that say `Phase <id>` are phases; where none does, every box at the left margin is."""
    if listed := named(lines):
        yield reading(lines, listed)
    elif work := _work(lines):
        names, remarks = own_or_numbered([(box.at, box.text, read_name(box.text) or UNNAMED) for box in work])
        found = reading(lines, list(zip(work, names, strict=True)))
        yield replace(found, remarks=(*found.remarks, *remarks))


def reading(lines: Lines, listed: Sequence[tuple[Entry, Named]], sections: Sequence[Heading] = ()) -> Reading:
    """The plan of some boxes, which may be the tracker of sections."""
    places = []
    for number, (box, name) in enumerate(listed):
        end = _end(lines, box)
        nested = within(lines.boxes, box.at + 1, end) if not sections else []
        place = _place(name, (box, *(one for one in nested if not one.optional)), end)
        if sections:
            place = replace(place, first=sections[number].at, end=sections[number].end)
        places.append(place)
    first = listed[0][0].at
    return Reading("checklist", "checklist", tuple(places), first, remarks=tuple(_too_many(first, len(listed))))


def _place(name: Named, boxes: Sequence[Entry], end: int) -> Place:
    """A phase that begins with its box; the other boxes are ticked with it."""
    at, text = boxes[0].at, boxes[0].text
    place = Place(id=name.id, title=name.title, first=at, end=end, spots=box_spots(boxes))
    return replace(place, mark=mark_of(boxes[:1]), commit=read_commit(text))


def _too_many(at: int, count: int) -> list[Remark]:
    what = f"the boxes alone make {count} phases; headings above them would make them items of fewer phases"
    return [Remark(at + 1, what)] if count > MOST else []


def named(lines: Lines, outside: Sequence[Heading] = ()) -> list[tuple[Entry, Named]]:
    """The boxes that say `Phase <id>`, outside of some sections."""
    found = []
    for box in lines.boxes:
        name = read_name(box.text) if "phase" in box.text[:20].lower() else None
        is_outside = box.indent <= 3 and not any(section.at <= box.at < section.end for section in outside)
        if name is not None and name.unit == "phase" and is_outside:
            found.append((box, name))
    return found


def _work(lines: Lines) -> list[Entry]:
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
