"""OpenSpec `tasks.md`: `## 1. Group` is a phase, its boxes `- [ ] 1.1 Task` are the items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.plan.reading import Format, Reading, find_sections, refuse_duplicates, section_places

if TYPE_CHECKING:
    from runplan.plan.scan import Lines


def read(lines: Lines, path: str) -> Reading | None:
    """The plan when numbered groups of level 2 have boxes with the group's number: `## 2.` and `- [ ] 2.1`."""
    numbered = [s for s in find_sections(lines, ("",), levels=(2,)) if s.strong and s.id.isdigit()]
    groups = [group for group in numbered if lines.boxes_in(group.at, group.end)]
    if not any(box.text.startswith(f"{g.id}.") for g in groups for box in lines.boxes_in(g.at, g.end)):
        return None
    refuse_duplicates(((group.id, group.at) for group in groups), "headings", path)
    places = section_places(lines, groups)
    return Reading(format=Format.OPENSPEC, name="OpenSpec tasks", places=places, decided_by=groups[0].at, unit="task")
