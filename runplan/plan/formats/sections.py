"""Phase sections: `## Phase 1 — Title`, with a status line, ticked boxes, or a list of boxes that names the phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.plan.formats import checklist
from runplan.plan.formats.table import other_table
from runplan.plan.ids import key
from runplan.plan.reading import (
    Format,
    Place,
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
    from collections.abc import Iterator, Sequence

    from runplan.plan.scan import Lines


def read(lines: Lines, path: str) -> Reading | None:
    sections = find_sections(lines)
    if not sections:
        return None
    refuse_duplicates(((section.id, section.at) for section in sections), "headings", path)
    places = section_places(lines, sections)
    has_line = any(place.spots[0].slot is Slot.LINE for place in places)
    if not has_line and (boxes := checklist.named(lines, outside=sections)):
        refuse_difference([box.id for box in boxes], [s.id for s in sections], "checklist", f"{path}:{boxes[0].at + 1}")
        by_id = {key(section.id): section for section in sections}
        spans = [(by_id[key(box.id)].at, by_id[key(box.id)].end) for box in boxes]
        return checklist.reading(lines, boxes, spans, path)
    if all(place.is_bare for place in places):
        ids = ", ".join(section.id for section in sections)
        raise WithoutStatuses(
            f"{path}:{sections[0].at + 1}: the phases {ids} have neither a tracker nor **Status:** lines nor boxes; "
            f"add a tracker with: {command('runplan', 'check', path, '--fix')}"
        )
    remarks = [*_about_bare(places)]
    if found := other_table(lines, {key(section.id) for section in sections}):
        what = f"this table says that phase {found[1]} is done, but it is not the tracker"
        remarks.append(Remark(found[0] + 1, f"{what}; to make it the tracker, call its columns Phase and Status"))
    return Reading(
        format=Format.SECTIONS,
        name="phase sections",
        places=places,
        decided_by=sections[0].at,
        remarks=tuple(remarks),
    )


def _about_bare(places: Sequence[Place]) -> Iterator[Remark]:
    """The phases that state their status in another way than the rest of the plan does."""
    has_line = any(place.spots[0].slot is Slot.LINE for place in places)
    for place in places:
        if place.is_bare:
            yield Remark(place.first + 1, f"phase {place.id} states no status; it counts as todo")
        elif has_line and place.spots[0].slot is Slot.BOX:
            yield Remark(place.first + 1, f"phase {place.id} has no **Status:** line; its boxes decide")
