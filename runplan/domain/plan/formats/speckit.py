"""spec-kit `tasks.md`: phases with tasks like `- [ ] T012 [P] [US1] Create User model in src/models/user.py`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from runplan.domain.plan.marks import Mark, Status
from runplan.domain.plan.reading import Place, Reading, find_sections, section_places
from runplan.domain.plan.scan import Lines, marks_within

_TASK = r"\**(T[0-9]{1,4}[a-z]?)\**(?=[ \t:]|\Z)"
_STORY = r"(?i)(?:user story|US)[ \t-]*([0-9]{1,3})"
_AFTER = r"(?i:depends on|after|requires|needs|blocked by)(?:[ ,&–-]|and|T[0-9]{1,4}[a-z]?)+"
#: Stands between phases in the section Dependencies.
_BEFORE = r"(?i)\bmust (?:be )?(?:complete|finish|land|done)\w* before\b"
#: Follows the name of a phase or story there; `US1 → US2` is an order, which demands nothing.
_SENTENCE = r"(?:\*\*)?:|→(?![ \t]*(?:US|T|User Story|Phase)[ \t-]*[0-9])| - "
#: A path ends with a slash or an extension; "cause/effect" is none, and "Node.js" is one in back-ticks only.
_PATH = (
    r"(?<![\w/:.-])((?:[\w.@-]{1,60}/){1,12}(?:[\w@-]{1,60}(?:\.\w{1,12}){1,3}|(?![\w.@-]))"
    r"|(?<=`)[\w-]{1,60}\.\w{1,12}(?=`))"
)


def read_speckit(lines: Lines) -> Iterator[Reading]:
    """The phase sections, when their boxes are tasks with T-numbers."""
    sections = find_sections(lines, "phase")
    phases = {f"phase{section.name.id}": section.name.id for section in sections}
    tasks: dict[str, int] = {}
    for section in sections:
        if story := re.search(_STORY, section.name.title):
            phases[f"us{story[1]}"] = section.name.id
        boxes = marks_within(lines.boxes, section.at, section.end)
        lines_by_task = {task[1].lower(): box.at for box in boxes if (task := re.match(_TASK, box.text))}
        tasks |= lines_by_task
        phases |= dict.fromkeys(lines_by_task, section.name.id)
    if tasks:
        places = _in_order(lines, section_places(lines, sections), phases)
        yield Reading("spec-kit", "spec-kit tasks", places, min(tasks.values()), aliases=phases)


def _in_order(lines: Lines, places: Sequence[Place], phases: Mapping[str, str]) -> tuple[Place, ...]:
    """The phases with their tasks as items: a story waits for the phases before the first story, others for all before.

    Paths limit a phase if every task names one. A file stands for its directory: an `__init__.py` there is work, too.
    """
    stories = {place.id for place in places if re.search(_STORY, place.title)}
    first = next((n for n, place in enumerate(places) if place.id in stories), len(places))
    sentences: dict[str, list[str]] = {}  # by phase, below Dependencies: `- **US2 (Phase 4)**: Depends on US1`
    for part in (heading for heading in lines.headings if "dependenc" in heading.text.lower()):
        for entry in marks_within(lines.entries, part.at, part.end):
            head, *tail = re.split(_SENTENCE, entry.text, maxsplit=1)
            earlier, *later = re.split(_BEFORE, head, maxsplit=1)
            told = "".join(later or [head]).lower().replace("phase ", "phase")
            named = re.sub(r"user story ?|us-?(?=[0-9])", "us", re.sub(r"phase[0-9]+\+", "", told))
            ids = dict.fromkeys(phases[word] for word in re.findall(r"\w+", named) if word in phases)
            for id_ in ids if later else [*ids][:1]:
                sentences.setdefault(id_, []).extend([earlier] if later else tail)
    ordered = []
    for number, place in enumerate(places):
        boxes = [box for box in marks_within(lines.boxes, place.first, place.end) if not box.optional]
        tasks = [box for box in boxes if re.match(_TASK, box.text)]
        if tasks and all(box.ticked for box in tasks) and {spot.slot for spot in place.spots} == {"box"}:
            place = replace(place, mark=Mark(Status.DONE))  # other boxes, as of test cases, decide nothing
        after = [words[0] for box in boxes for words in re.finditer(_AFTER, box.text)]
        paths = [re.findall(_PATH, box.text) for box in boxes]
        touches = [f"{path.rpartition('/')[0]}/**" if "/" in path else path for path in chain(*paths)]
        depends = tuple(other.id for other in places[: first if place.id in stories else number])
        prose = tuple(dict.fromkeys((*sentences.get(place.id, ()), *after)))
        place = replace(place, entries=tuple(boxes), depends=depends, prose=prose)
        ordered.append(replace(place, touches=tuple(dict.fromkeys(touches)) if all(paths) else ()))
    return tuple(ordered)
