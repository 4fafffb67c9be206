"""Phase sections: `## Phase 1 — Title`, with a status line, ticked boxes, or a list of boxes that names the phases.

A HumanLayer plan is one whose Success Criteria are verified by commands (Automated) and by a person (Manual).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.formats import checklist
from runplan.plan.ids import key
from runplan.plan.reading import (
    Format,
    Reading,
    Remark,
    Slot,
    WithoutStatuses,
    find_sections,
    refuse_difference,
    refuse_duplicates,
    section_places,
)
from runplan.text import command

if TYPE_CHECKING:
    from runplan.plan.scan import Lines


_CRITERIA = re.compile(r"(?:automated|manual) verification", re.IGNORECASE)


def read_humanlayer(lines: Lines, path: str) -> Reading | None:
    """The phase sections, when one of them has the heading Automated or Manual Verification."""
    criteria = [heading.at for heading in lines.headings if heading.level > 2 and _CRITERIA.match(heading.text)]
    found = read(lines, path) if criteria else None
    if found is None or not any(place.first < at < place.end for place in found.places for at in criteria):
        return None
    return replace(found, format=Format.HUMANLAYER, name="HumanLayer plan", decided_by=criteria[0])


def read(lines: Lines, path: str) -> Reading | None:
    sections = find_sections(lines)
    if not sections:
        return None
    refuse_duplicates(((section.id, section.at) for section in sections), "headings", path)
    places = section_places(lines, sections)
    has_line = any(place.spots[0].slot is Slot.LINE for place in places)
    if not has_line and (boxes := checklist.named(lines, outside=sections)):
        where = f"{path}:{boxes[0][2].at + 1}"
        refuse_difference([box[0] for box in boxes], [s.id for s in sections], "checklist", where)
        by_id = {key(section.id): (section.at, section.end) for section in sections}
        return checklist.reading(lines, boxes, [by_id[key(box[0])] for box in boxes], path)
    if all(place.is_bare for place in places):
        ids = ", ".join(section.id for section in sections)
        raise WithoutStatuses(
            f"{path}:{sections[0].at + 1}: the phases {ids} have neither a tracker nor **Status:** lines nor boxes; "
            f"add a tracker with: {command('runplan', 'check', path, '--fix')}"
        )
    remarks = []
    for place in places:
        if place.is_bare:
            remarks.append(Remark(place.first + 1, f"phase {place.id} states no status; it counts as todo"))
        elif has_line and place.spots[0].slot is Slot.BOX:
            remarks.append(Remark(place.first + 1, f"phase {place.id} has no **Status:** line; its boxes decide"))
    return Reading(
        format=Format.SECTIONS,
        name="phase sections",
        places=places,
        decided_by=sections[0].at,
        remarks=tuple(remarks),
    )
