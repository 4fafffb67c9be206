"""Checklists: every box at the left margin is a phase, or those that say `Phase <id>`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import key, read_name
from runplan.plan.reading import (
    Format,
    Place,
    Reading,
    Remark,
    Section,
    Slot,
    Spot,
    box_spot,
    mark_of,
    refuse_duplicates,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runplan.plan.scan import Box, Lines

MOST = 40  #: phases of a checklist; more are probably steps of fewer phases
_LANDED = re.compile(r"\(`?([0-9a-f]{7,40})`?(?:,[^()]*)?\)\Z")
#: Boxes under these headings are no work.
_NOT_WORK = re.compile(
    r"accept|criteri|verif|definition of done|question|risk|goals|prerequisite|dependenc|checklist|review|test plan",
    re.IGNORECASE,
)


class Listed(Struct, frozen=True):
    """A box that is a phase."""

    id: str
    title: str
    box: Box

    @property
    def at(self) -> int:
        return self.box.at


def read(lines: Lines, path: str) -> Reading | None:
    listed = named(lines) or numbered(work(lines))
    if not listed:
        return None
    return reading(lines, listed, [(one.at, end_of(lines, one.box)) for one in listed], path)


def named(lines: Lines, outside: Sequence[Section] = ()) -> list[Listed]:
    """The boxes that say `Phase <id>`, outside of some sections."""
    within = [(section.at, section.end) for section in outside]
    found = []
    for box in _at_margin(lines.boxes):
        name = read_name(_title(box)[0]) if "phase" in box.text[:20].lower() else None
        if name is not None and name.unit == "phase" and not any(a <= box.at < b for a, b in within):
            found.append(Listed(name.id, name.title, box))
    return found


def work(lines: Lines) -> list[Box]:
    """The boxes at the left margin, without those under headings like Acceptance Criteria."""
    return [box for box in _at_margin(lines.boxes) if not box.optional and is_work(lines, box.at)]


def is_work(lines: Lines, index: int) -> bool:
    heading = lines.heading_above(index)
    return heading is None or not _NOT_WORK.search(heading.text)


def numbered(boxes: Sequence[Box]) -> list[Listed]:
    """The boxes with their own ids where all have one, else by their number."""
    titles = [_title(box)[0] for box in boxes]
    own = [name for name in map(read_name, titles) if name is not None and name.strong]
    if len(own) == len(boxes) == len({key(name.id) for name in own}):
        return [Listed(name.id, name.title, box) for name, box in zip(own, boxes, strict=True)]
    return [Listed(str(n), title, box) for n, (title, box) in enumerate(zip(titles, boxes, strict=True), 1)]


def _at_margin(boxes: Collection[Box]) -> list[Box]:
    return [box for box in boxes if box.indent <= 3]


def _title(box: Box) -> tuple[str, str]:
    """The title without the `(hash, note)` that a landing adds, and the hash."""
    landed = _LANDED.match(box.text, max(box.text.rfind("("), 0))
    return (box.text[: landed.start()].rstrip(), landed[1]) if landed else (box.text, "")


def end_of(lines: Lines, box: Box) -> int:
    """The line after the box and the lines below it that are indented more deeply, blank lines in between included."""
    end = box.at + 1
    for i in range(box.at + 1, len(lines.texts)):
        text = lines.texts[i]
        if text.strip():
            if len(text.expandtabs(4)) - len(text.expandtabs(4).lstrip()) <= box.indent:
                break
            end = i + 1
    return end


def reading(lines: Lines, listed: Sequence[Listed], spans: Sequence[tuple[int, int]], path: str) -> Reading:
    refuse_duplicates(((one.id, one.at) for one in listed), "items", path)
    places = tuple(_place(lines, one, span) for one, span in zip(listed, spans, strict=True))
    own = [(one, name.id) for one in listed if (name := read_name(one.box.text)) and name.strong]
    remarks = [
        Remark(one.at + 1, f"item {id_!r} is called phase {one.id}: the boxes are numbered, as not all have an id")
        for one, id_ in own
        if key(id_) != key(one.id)
    ]
    if len(listed) > MOST:
        what = f"{len(listed)} boxes are {len(listed)} phases, each with its own agents"
        remarks.append(Remark(listed[0].at + 1, f"{what}; headings above them would make them items of fewer phases"))
    return Reading(
        format=Format.CHECKLIST, name="checklist", places=places, decided_by=listed[0].at, remarks=tuple(remarks)
    )


def _place(lines: Lines, one: Listed, span: tuple[int, int]) -> Place:
    note = lines.offset(one.at, len(lines.texts[one.at].rstrip()))
    return Place(
        id=one.id,
        title=one.title,
        mark=mark_of([one.box]),
        commit=_title(one.box)[1],
        first=span[0],
        end=span[1],
        at=one.at,
        spots=(box_spot(lines, one.box), Spot(Slot.NOTE, lines.start(one.at), note)),
    )
