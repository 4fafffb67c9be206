"""spec-kit `tasks.md`: phases with tasks like `- [ ] T012 [P] [US1] Create User model in src/models/user.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.reading import Format, Place, Reading, find_sections, refuse_duplicates, section_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.plan.scan import Lines

_TASK = re.compile(r"\**(T[0-9]{3,4}[a-z]?)\**(?=[ \t:]|\Z)")
_STORY = re.compile(r"(?:user story|US)[ \t]*([0-9]{1,3})", re.IGNORECASE)
_AFTER = re.compile(r"(?i:depends on|after|requires|needs|blocked by)((?:[ ,&]|and|T[0-9]{3,4}[a-z]?)+)")
_STORY_AFTER = re.compile(r"depends on[^.;]{0,40}?(?:user story|US)[ \t]*([0-9]{1,3})", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/:.-])((?:[\w.@-]{1,60}/){1,12}[\w.@-]*|[\w-]{1,60}\.[a-z]{1,5}(?![\w.]))")


def read(lines: Lines, path: str) -> Reading | None:
    """The phase sections, when their boxes are tasks with T-numbers."""
    sections = find_sections(lines)
    tasks: dict[str, str] = {}
    for section in sections:
        boxes = lines.boxes_in(section.at, section.end)
        tasks |= {task[1]: section.id for box in boxes if (task := _TASK.match(box.text))}
    if not tasks:
        return None
    refuse_duplicates(((section.id, section.at) for section in sections), "headings", path)
    places = [_with_tasks(lines, place, tasks) for place in section_places(lines, sections)]
    return Reading(
        format=Format.SPEC_KIT,
        name="spec-kit tasks",
        places=_in_order(lines, places),
        decided_by=next(box.at for box in lines.boxes if _TASK.match(box.text)),
    )


def _with_tasks(lines: Lines, place: Place, phase_of: Mapping[str, str]) -> Place:
    """The phase with its tasks as items, their paths, and the phases of tasks that they name: `depends on T012`.

    The paths limit the phase only when every task names one. A file stands for its directory: an `__init__.py` beside
    it belongs to the work too.
    """
    boxes = [box for box in lines.boxes_in(place.first, place.end) if not box.optional]
    named = [task for box in boxes for after in _AFTER.findall(box.text) for task in re.findall(r"T\w+", after)]
    paths = [_PATH.findall(box.text) for box in boxes]
    touches = [f"{path.rpartition('/')[0]}/**" if "/" in path else path for found in paths for path in found]
    return replace(
        place,
        entries=tuple(boxes),
        depends=tuple(phase_of[task] for task in named if task in phase_of),
        touches=tuple(dict.fromkeys(touches)) if all(paths) else (),
    )


def _in_order(lines: Lines, places: Sequence[Place]) -> tuple[Place, ...]:
    """The phases in the order of the template: a story waits for the phases before the first story, others for all."""
    stories = {place.id: story[1] for place in places if (story := _STORY.search(place.title))}
    first = next((n for n, place in enumerate(places) if place.id in stories), len(places))
    between = _between_stories(lines)
    ordered = []
    for number, place in enumerate(places):
        before = [other.id for other in places[: first if place.id in stories else number]]
        named = [id_ for id_, story in stories.items() if (stories.get(place.id), story) in between]
        waits = dict.fromkeys((*before, *named, *place.depends))
        ordered.append(replace(place, depends=tuple(id_ for id_ in waits if id_ != place.id)))
    return tuple(ordered)


def _between_stories(lines: Lines) -> set[tuple[str | None, str]]:
    """The pairs of stories in lines like `- **User Story 2 (P2)**: Depends on User Story 1`."""
    found: set[tuple[str | None, str]] = set()
    for heading in lines.headings:
        if heading.text.lower().startswith("user story dependencies"):
            for text in lines.texts[heading.at + 1 : heading.end]:
                story, after = _STORY.search(text), _STORY_AFTER.search(text)
                found |= {(story[1], after[1])} if story and after else set()
    return found
