"""Conductor tracks, and the roadmaps and plans of GSD."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from runplan.domain.plan import reading
from runplan.domain.plan.formats.sections import named_boxes
from runplan.domain.plan.formats.table import Row, find_table
from runplan.domain.plan.formats.task_lists import choose_words
from runplan.domain.plan.marks import Mark, Named, Status, id_key, read_commit, read_mark
from runplan.domain.plan.reading import Place, Reading, Remark, Spot, find_sections, section_places
from runplan.domain.plan.scan import LABEL, Entry, Heading, Lines, marks_within

_TASK = r"(?i)\**task:\**[ \t]*"
_VERIFICATION = r"(?i)(?:\**task:\**[ \t]*)?conductor[ \t]*[-–—:][ \t]*user manual verification"
_CHECKPOINT = r"[ \t]*\[checkpoint:[^\]]*\]"
_CRITERIA = r"\*\*Success Criteria\b"
_ELEMENT = r"(?s)<{0}>(.*?)</{0}>"


def read_conductor(lines: Lines) -> Iterator[Reading]:
    """Phase sections with boxes `Task: …`. The task of the manual verification is for a person."""
    sections = find_sections(lines, "phase")
    if not any(re.match(_TASK, box.text) for s in sections for box in marks_within(lines.boxes, s.at, s.end)):
        return
    places = []
    for place in section_places(lines, sections):
        boxes = [box for box in marks_within(lines.boxes, place.first, place.end) if not box.optional]
        manual = [box for box in boxes if re.match(_VERIFICATION, box.text)]
        tasks = [box for box in boxes if box not in manual and box.indent < boxes[0].indent + 2]
        is_boxes = {spot.slot for spot in place.spots} == {"box"}
        mark = reading.mark_of_work(boxes, {box.at for box in manual}) if is_boxes else place.mark
        has_begun = mark.status is Status.TODO and any(box.sign in "~-" for box in boxes)
        checkpoint = re.search(_CHECKPOINT, place.title)
        mark = Mark(Status.IN_PROGRESS) if has_begun else mark
        commit = place.commit or read_commit(checkpoint[0] if checkpoint else "")
        place = replace(place, title=re.sub(_CHECKPOINT, "", place.title), mark=mark, commit=commit)
        entries = tuple(replace(box, text=re.sub(_TASK, "", box.text, count=1)) for box in tasks)
        sign_off = tuple(re.sub(_TASK, "", box.text, count=1) for box in manual)
        places.append(replace(place, entries=entries, sign_off=sign_off))
    yield Reading("conductor", "Conductor track", tuple(places), sections[0].at)


def read_gsd(lines: Lines) -> Iterator[Reading]:
    text = "\n".join("" if inert else text for text, inert in zip(lines.texts, lines.inert, strict=True))
    blocks = []
    begin = 0
    for block in text.split("</task>")[:-1]:
        if opened := re.search(r"(?m)^[ \t]*<task\b([^>\n]*)>", block):
            blocks.append((text.count("\n", 0, begin + opened.start()), opened[1], block[opened.end() :]))
        begin += len(block) + len("</task>")
    if blocks:
        yield _read_plan(lines, text, blocks)
        return
    sections = find_sections(lines, "phase")
    listed = {_key(name.id): (name, box) for box, name in named_boxes(lines, outside=sections)}
    table = find_table(lines, sections)
    has_plans = table is not None and re.search(r"(?i)\|[ \t]*plans\b", lines.texts[table[0]])
    if listed and (has_plans or any(_find_criteria(lines, section.at, section.end) for section in sections)):
        places, remarks = _read_roadmap(lines, sections, listed, table[1] if table else ())
        yield Reading("gsd", "GSD roadmap", places, places[-1].first, remarks=remarks)


def _read_plan(lines: Lines, text: str, blocks: Sequence[tuple[int, str, str]]) -> Reading:
    """One phase, as GSD works a plan as a whole. Its tasks are the items, its checkpoints are for a person."""
    tasks = []
    criteria = []
    sign_off = []
    for line, attributes, block in blocks:
        name = next(filter(None, (_inner(block, tag) for tag in ("name", "what-built", "action"))), "the task")
        name = re.sub(r"\ATask [0-9.]+:[ ]*", "", name)
        if "checkpoint:" in attributes:
            sign_off.append(": ".join(filter(None, (name, _inner(block, "how-to-verify")))))
        else:
            tasks.append(Entry(line, 0, 0, "", optional=False, text=name))
            criteria += [Entry(line, 0, 0, "", optional=False, text=done)] if (done := _inner(block, "done")) else []
    if element := re.search(_ELEMENT.format("success_criteria"), text):
        criteria += marks_within(lines.entries, *(text.count("\n", 0, end) for end in element.span()))
    title = _inner(text, "objective").split(". ")[0][:100].rstrip(".")
    named = Named(lines.front_value("plan") or "1", title, strong=True, unit="")
    place = section_places(lines, [Heading(lines.front, 2, title, named, len(lines.texts))])[0]
    place = replace(place, entries=tuple(tasks), criteria=tuple(criteria), sign_off=tuple(sign_off))
    return Reading("gsd", "GSD plan", (place,), blocks[0][0])


def _inner(text: str, tag: str) -> str:
    element = re.search(_ELEMENT.format(tag), text)
    return " ".join(element[1].split()) if element else ""


def _read_roadmap(
    lines: Lines, sections: list[Heading], listed: Mapping[str, tuple[Named, Entry]], table: Iterable[Row]
) -> tuple[tuple[Place, ...], tuple[Remark, ...]]:
    """The phases of a roadmap: the list of phases and the table Progress have the statuses."""
    rows = {_key(name.id): (name, spots[0]) for _, name, spots in table if name and spots and name.id[0].isdigit()}
    cells = {key: lines.texts[spot.at][spot.begin : spot.end] for key, (_, spot) in rows.items()}
    words = choose_words((cell.strip() for cell in cells.values()), ("Complete", "Not started"))
    described = {_key(section.name.id) for section in sections}
    names = {key: Heading(spot.at, LABEL, "", name, spot.at + 1) for key, (name, spot) in rows.items()}
    names |= {key: Heading(box.at, LABEL, "", name, box.at + 1) for key, (name, box) in listed.items()}
    headings = sorted([*sections, *(names[key] for key in names if key not in described)], key=lambda name: name.at)
    places = []
    remarks = []
    for section in section_places(lines, headings):
        key = _key(section.id)
        first = _find_criteria(lines, section.first, section.end) or section.end
        ends = (i for i in range(first + 1, section.end) if re.match(r"[^\s\d*+-]|\*\*", lines.texts[i]))
        criteria = marks_within(lines.entries, first + 1, next(ends, section.end))
        plans = [box for box in marks_within(lines.boxes, section.first + 1, section.end) if box not in criteria]
        place = replace(section, criteria=tuple(criteria), entries=tuple(plans))
        in_table = read_mark(cells[key]) if cells.get(key, "").strip() else Mark(Status.TODO)
        if key in listed:
            name, box = listed[key]
            place = replace(place, id=name.id, mark=reading.mark_of([box]), spots=reading.box_spots([box, *plans]))
        elif not place.spots:
            place = replace(place, mark=in_table)
        if cells.get(key, "").strip():
            spot = rows[key][1]
            begin = spot.begin + len(cells[key]) - len(cells[key].lstrip())
            cell = Spot("word", spot.at, begin, begin + len(cells[key].strip()), words)
            place = replace(place, spots=(*place.spots, cell))
        if in_table.status is Status.DONE is not place.mark.status:
            message = f"the table says that phase {place.id} is done, the list does not; it counts as done"
            remarks.append(Remark(rows[key][1].at + 1, message))
            place = replace(place, mark=Mark(Status.DONE))
        if key not in described and place.mark.status is Status.TODO:  # a done one is of an earlier milestone
            place = replace(place, mark=Mark(Status.BLOCKED, reason="has no section; describe its work in one"))
        places.append(place)
    return tuple(places), tuple(remarks)


def _key(id_: str) -> str:
    """The id without zeros before its numbers: GSD writes 03.1 and 3.1."""
    return re.sub(r"\b0+(?=[0-9])", "", id_key(id_))


def _find_criteria(lines: Lines, first: int, end: int) -> int:
    """The line of the success criteria; 0 for none."""
    return next((i for i in range(first, end) if not lines.inert[i] and re.match(_CRITERIA, lines.texts[i])), 0)
