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
_AFTER = re.compile(r"(?i:depends on|after|requires|needs|blocked by)((?:[ ,&–-]|and|T[0-9]{3,4}[a-z]?)+)")
_STORY_LINK = re.compile(
    r"^[ \t]*[-*] .{0,9}user story ([0-9]{1,3})\b.{0,60}?depends on[^.;]{0,40}?(?:user story|US)[ \t]*([0-9]{1,3})",
    re.IGNORECASE,
)
#: A path ends with a slash or an extension; "cause/effect" is none, and "Node.js" is one in back-ticks only.
_PATH = re.compile(
    r"(?<![\w/:.-])((?:[\w.@-]{1,60}/){1,12}(?:[\w@-]{1,60}(?:\.\w{1,12}){1,3}|(?![\w.@-]))"
    r"|(?<=`)[\w-]{1,60}\.\w{1,12}(?=`))"
)


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

    The paths limit the phase only when every task names one. A file stands for its directory: an `__init__.py` next to
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
    """The phases in the order of the template: a story waits for the phases before the first story, others for all.

    A line like `- **User Story 2 (P2)**: Depends on User Story 1` has a story wait for another one.
    """
    stories = {place.id: story[1] for place in places if (story := _STORY.search(place.title))}
    first = next((n for n, place in enumerate(places) if place.id in stories), len(places))
    linked = {(link[1], link[2]) for text in lines.texts if (link := _STORY_LINK.search(text))}
    ordered = []
    for number, place in enumerate(places):
        before = [other.id for other in places[: first if place.id in stories else number]]
        named = [id_ for id_, story in stories.items() if (stories.get(place.id), story) in linked]
        waits = dict.fromkeys((*before, *named, *place.depends))
        ordered.append(replace(place, depends=tuple(id_ for id_ in waits if id_ != place.id)))
    return tuple(ordered)
