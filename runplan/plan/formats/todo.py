"""TODO lists and roadmaps: two or more sections with boxes; each section is a phase, done when all are ticked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.plan.formats.checklist import work
from runplan.plan.ids import key
from runplan.plan.reading import Format, Reading, Remark, section_place

if TYPE_CHECKING:
    from runplan.plan.scan import Lines


def read(lines: Lines, path: str) -> Reading | None:  # noqa: ARG001 - all recognisers take the path
    above = (lines.heading_above(box.at) for box in work(lines))
    headings = list(dict.fromkeys(heading for heading in above if heading is not None and heading.level > 1))
    if len(headings) < 2:
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
