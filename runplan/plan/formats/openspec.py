"""OpenSpec `tasks.md`: `## 1. Group` is a phase, its boxes `- [ ] 1.1 Task` are the items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.plan.ids import read_name
from runplan.plan.reading import Format, Reading, Section, refuse_duplicates, section_places

if TYPE_CHECKING:
    from runplan.plan.scan import Lines


def read(lines: Lines, path: str) -> Reading | None:
    """The plan when numbered groups of level 2 have boxes with the group's number: `## 2.` and `- [ ] 2.1`."""
    groups = []
    has_number = False
    for heading in lines.headings:
        name = read_name(heading.text) if heading.level == 2 else None
        boxes = lines.boxes_in(heading.at, heading.end)
        if name is None or name.unit or not name.strong or not name.id.isdigit() or not boxes:
            continue
        groups.append(Section(name.id, name.title, name.strong, heading.at, heading.end, heading.level))
        has_number = has_number or any(box.text.startswith(f"{name.id}.") for box in boxes)
    if not has_number:
        return None
    refuse_duplicates(((group.id, group.at) for group in groups), "headings", path)
    places = section_places(lines, groups)
    return Reading(format=Format.OPENSPEC, name="OpenSpec tasks", places=places, decided_by=groups[0].at, unit="task")
