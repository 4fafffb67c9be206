"""Kiro `tasks.md`: `- [ ] 1. Task` is a phase, `- [ ] 1.1 Sub-task` one of its items, `- [ ]*` optional."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.plan.formats.checklist import MOST
from runplan.plan.marks import Mark, Status
from runplan.plan.reading import Entry, Format, Place, Reading, Remark, box_spot, mark_of, refuse_duplicates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.plan.scan import Box, Lines

_NUMBER = re.compile(r"\**([0-9]{1,4})((?:\.[0-9]{1,4}){0,3})\.?(\*?)(?:[ \t]+|\Z)")
_REQUIREMENTS = "_Requirements:"


def read(lines: Lines, path: str) -> Reading | None:
    """The plan when its boxes are numbered, and sub-tasks or `_Requirements:_` lines show that Kiro wrote it."""
    numbers = [(box, number) for box in lines.boxes if (number := _NUMBER.match(box.text)) is not None]
    tops = [(box, number) for box, number in numbers if not number[2] and not _is_optional(box, number)]
    subs = [number for _, number in numbers if number[2]]
    owned = {number[1] for _, number in tops}
    if not tops or not (any(n[1] in owned for n in subs) or any(_REQUIREMENTS in text for text in lines.texts)):
        return None
    refuse_duplicates(((number[1], box.at) for box, number in tops), "tasks", path)
    starts = sorted([*(box.at for box, number in numbers if not number[2]), *(h.at for h in lines.headings)])
    places = []
    for box, number in tops:
        end = next((at for at in starts if at > box.at), len(lines.texts))
        own = [
            one
            for one, n in numbers
            if n[2] and n[1] == number[1] and box.at < one.at < end and not _is_optional(one, n)
        ]
        places.append(_place(lines, box, number, own, end))
    remarks = [
        Remark(place.at + 1, f"task {place.id} is ticked, but not all of its sub-tasks are; it counts as done")
        for place in places
        if place.mark.status is Status.DONE and any(lines.raw[s.begin : s.end] not in b"xX" for s in place.spots[1:])
    ]
    if len(tops) > MOST:
        remarks.append(Remark(tops[0][0].at + 1, f"the boxes make {len(tops)} phases, each with its own agents"))
    return Reading(
        format=Format.KIRO,
        name="Kiro tasks",
        places=tuple(places),
        decided_by=tops[0][0].at,
        unit="task",
        remarks=tuple(remarks),
    )


def _is_optional(box: Box, number: re.Match[str]) -> bool:
    return box.optional or number[3] == "*"


def _place(lines: Lines, box: Box, number: re.Match[str], own: Sequence[Box], end: int) -> Place:
    return Place(
        id=number[1],
        title=box.text[number.end() :],
        mark=_mark(box, own),
        first=box.at,
        end=end,
        at=box.at,
        spots=tuple(box_spot(lines, one) for one in (box, *own)),
        entries=tuple(Entry(one.at, one.text) for one in own),
    )


def _mark(box: Box, own: Sequence[Box]) -> Mark:
    """The task's own box decides; ticked sub-tasks alone make it done too, and Kiro's `[-]` is work in progress."""
    if box.ticked or (own and all(one.ticked for one in own)):
        return Mark(Status.DONE)
    if any(one.sign in "-~" for one in (box, *own)):
        return Mark(Status.IN_PROGRESS)
    return mark_of([box])
