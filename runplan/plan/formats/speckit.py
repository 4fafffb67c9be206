"""spec-kit `tasks.md`: phases with tasks like `- [ ] T012 [P] [US1] Create User model in src/models/user.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.ids import key
from runplan.plan.reading import Entry, Format, Place, Reading, find_sections, refuse_duplicates, section_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.plan.scan import Lines

_TASK = re.compile(r"\**(T[0-9]{3,4}[a-z]?)\**(?=[ \t:]|\Z)")
_STORY = re.compile(r"(?:user story|US)[ \t]*([0-9]{1,3})", re.IGNORECASE)
_AFTER = re.compile(
    r"(?:depends on|after|requires|needs|blocked by)((?:[ \t]*(?:,|and|&)?[ \t]*T[0-9]{3,4}[a-z]?)+)", re.IGNORECASE
)
_STORY_AFTER = re.compile(r"depends on[^.;]{0,40}?(?:user story|US)[ \t]*([0-9]{1,3})", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/`.-])`?((?:[\w.@-]+/)+[\w.@-]*|[\w-]+\.[a-z]{1,5}(?=[\s`,;)]|\Z))`?")


def read(lines: Lines, path: str) -> Reading | None:
    """The phase sections, when their boxes are tasks with T-numbers."""
    sections = find_sections(lines)
    tasks = {task[1]: box.at for box in lines.boxes if (task := _TASK.match(box.text))}
    places = section_places(lines, sections) if tasks else ()
    if not any(place.first < at < place.end for place in places for at in tasks.values()):
        return None
    refuse_duplicates(((section.id, section.at) for section in sections), "headings", path)
    phase_of = {task: place.id for task, at in tasks.items() for place in places if place.first < at < place.end}
    read_ = [_with_tasks(lines, place, phase_of) for place in places]
    return Reading(
        format=Format.SPEC_KIT,
        name="spec-kit tasks",
        places=_with_order(lines, read_),
        decided_by=min(tasks.values()),
    )


def _with_tasks(lines: Lines, place: Place, phase_of: Mapping[str, str]) -> Place:
    """The phase with its tasks as items, and the phases of the tasks that they name as `depends on T012`."""
    boxes = [box for box in lines.boxes_in(place.first, place.end) if not box.optional]
    named = [task for box in boxes for after in _AFTER.findall(box.text) for task in re.findall(r"T\w+", after)]
    depends = dict.fromkeys(phase_of[task] for task in named if phase_of.get(task, place.id) != place.id)
    paths = [_paths(box.text) for box in boxes]
    touches = tuple(dict.fromkeys(path for found in paths for path in found)) if paths and all(paths) else ()
    return replace(
        place,
        entries=tuple(Entry(box.at, box.text) for box in boxes),
        depends=tuple(depends),
        touches=touches,
    )


def _paths(text: str) -> list[str]:
    """The directories of the files that a task names: an `__init__.py` beside them belongs to the work too."""
    found = [path for path in _PATH.findall(text) if not path.startswith("http")]
    return [f"{path.rpartition('/')[0]}/**" if "/" in path else path for path in found]


def _with_order(lines: Lines, places: Sequence[Place]) -> tuple[Place, ...]:
    """The phases in the order of the template: a story waits for the phases before the first story, others for all."""
    stories = {place.id: story[1] for place in places if (story := _STORY.search(place.title))}
    by_story = {number: id_ for id_, number in stories.items()}
    between = _story_dependencies(lines)
    before: list[str] = []
    shared: list[str] = []  # the phases before the first story
    ordered = []
    for place in places:
        if place.id in stories:
            others = [by_story[n] for n in between.get(stories[place.id], ()) if n in by_story]
            waits = [*shared, *others, *place.depends]
        else:
            waits = [*before, *place.depends]
        ordered.append(replace(place, depends=tuple(id_ for id_ in dict.fromkeys(waits) if key(id_) != key(place.id))))
        before.append(place.id)
        if not any(id_ in stories for id_ in before):
            shared.append(place.id)
    return tuple(ordered)


def _story_dependencies(lines: Lines) -> dict[str, list[str]]:
    """The stories that a line like `- **User Story 2 (P2)**: Depends on User Story 1` has another one wait for."""
    found: dict[str, list[str]] = {}
    for heading in lines.headings:
        if not heading.text.lower().startswith("user story dependencies"):
            continue
        for text in lines.texts[heading.at + 1 : heading.end]:
            story, after = _STORY.search(text), _STORY_AFTER.search(text)
            if story is not None and after is not None and story[1] != after[1]:
                found.setdefault(story[1], []).append(after[1])
    return found
