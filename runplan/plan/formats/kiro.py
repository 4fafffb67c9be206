"""Kiro `tasks.md`: `- [ ] 1. Task` is a phase, `- [ ] 1.1 Sub-task` one of its items, `- [ ]*` optional."""

from __future__ import annotations

import re
from bisect import bisect
from typing import TYPE_CHECKING

from runplan.plan.formats.checklist import MOST, too_many
from runplan.plan.marks import Mark, Status
from runplan.plan.reading import Format, Place, Reading, Remark, box_spot, mark_of, refuse_duplicates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.plan.scan import Entry, Lines

_NUMBER = re.compile(r"\**([0-9]{1,4})((?:\.[0-9]{1,4}){0,3})\.?\**(?:[ \t]+|\Z)")


def read(lines: Lines, path: str) -> Reading | None:
    """The plan when its boxes are numbered, and sub-tasks or `_Requirements:_` lines show that Kiro wrote it."""
    numbers = [(box, number) for box in lines.boxes if (number := _NUMBER.match(box.text)) is not None]
    tops = [(box, number) for box, number in numbers if not number[2] and not box.optional]
    ids = {number[1] for _, number in tops}
    is_kiro = any(number[2] and number[1] in ids for _, number in numbers)
    if not tops or not (is_kiro or any("_Requirements:" in text for text in lines.texts)):
        return None
    refuse_duplicates(((number[1], box.at) for box, number in tops), "tasks", path)
    borders = sorted([*(box.at for box, number in numbers if not number[2]), *(h.at for h in lines.headings)])
    borders.append(len(lines.texts))
    places, remarks = [], []
    for box, number in tops:
        end = borders[bisect(borders, box.at)]
        own = [one for one in lines.boxes_in(box.at + 1, end) if not one.optional]
        places.append(_place(lines, box, number, own, end))
        if box.ticked and not all(one.ticked for one in own):
            what = f"task {number[1]} is ticked, but not all of its sub-tasks are; it counts as done"
            remarks.append(Remark(box.at + 1, what))
    if len(tops) > MOST:
        remarks.append(Remark(tops[0][0].at + 1, too_many(len(tops))))
    return Reading(
        format=Format.KIRO,
        name="Kiro tasks",
        places=tuple(places),
        decided_by=tops[0][0].at,
        unit="task",
        remarks=tuple(remarks),
    )


def _place(lines: Lines, box: Entry, number: re.Match[str], own: Sequence[Entry], end: int) -> Place:
    """The task's own box decides; ticked sub-tasks alone make it done too, and Kiro's `[-]` is work in progress."""
    mark = mark_of([box])
    if own and all(one.ticked for one in own):
        mark = Mark(Status.DONE)
    elif not box.ticked and any(one.sign in "-~" for one in (box, *own)):
        mark = Mark(Status.IN_PROGRESS)
    return Place(
        id=number[1],
        title=box.text[number.end() :],
        mark=mark,
        first=box.at,
        end=end,
        at=box.at,
        spots=tuple(box_spot(lines, one) for one in (box, *own)),
        entries=tuple(own),
    )
