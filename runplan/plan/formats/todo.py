"""TODO lists and roadmaps: two or more sections with boxes; each section is a phase, done when all are ticked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.plan.formats.checklist import is_work, work
from runplan.plan.ids import key, read_name
from runplan.plan.reading import Format, Reading, Remark, section_place

if TYPE_CHECKING:
    from runplan.plan.scan import Heading, Lines


def read(lines: Lines, path: str) -> Reading | None:  # noqa: ARG001 - all recognisers take the path
    headings = _headings(lines)
    if len(headings) < 2:
        return None
    names = [read_name(heading.text) for heading in headings]
    own = [name for name in names if name is not None and name.strong]
    has_ids = len(own) == len(headings) == len({key(name.id) for name in own})
    borders = {heading.at for heading in headings}
    places, remarks = [], []
    for number, heading in enumerate(headings, 1):
        name = names[number - 1]
        id_ = name.id if has_ids and name is not None else str(number)
        title = name.title if has_ids and name is not None else heading.text
        inner = (other.at for other in headings[number:] if other.at < heading.end)
        end = min(inner, default=heading.end)
        places.append(section_place(lines, id_=id_, title=title or heading.text, first=heading.at, end=end))
        if not has_ids and name is not None and name.strong and key(name.id) != key(id_):
            what = f"section {name.id!r} is called phase {id_}: the sections are numbered, as not all have an id"
            remarks.append(Remark(heading.at + 1, what))
    assert borders
    return Reading(
        format=Format.TODO, name="TODO list", places=tuple(places), decided_by=headings[0].at, remarks=tuple(remarks)
    )


def _headings(lines: Lines) -> list[Heading]:
    """The headings with boxes right below them, without the title of the plan."""
    found: dict[int, Heading] = {}
    for box in work(lines):
        heading = lines.heading_above(box.at)
        if heading is not None and heading.level > 1 and is_work(lines, box.at):
            found[heading.at] = heading
    return list(found.values())
