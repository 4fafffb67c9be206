"""Formats of sections and of boxes: phase sections and HumanLayer plans, `### Task 1` headings as of Superpowers,
ralphex and Claude Code, OpenSpec groups, TODO lists with a section for each phase, Kiro tasks and checklists of boxes.

Plans without boxes: headings that count above plain lists, and one numbered list of steps. Their statuses are what
runplan writes. A text with other signs of finished work is left to a person.
"""

import re
from bisect import bisect, bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter

from msgspec.structs import replace

from runplan.domain.plan import marks, reading
from runplan.domain.plan.body import list_task_rows
from runplan.domain.plan.marks import COLON, DONE_LABEL, STATUS_LINE, UNNAMED, Mark, Named, Status, id_key, read_name
from runplan.domain.plan.reading import Format, Place, Reading, Remark, Spot, find_sections, is_measure, section_places
from runplan.domain.plan.scan import LABEL, Entry, Heading, Lines, marks_within

#: The heading of the only list of steps.
STEPS = (
    r"(?:[0-9]++(?:\.[0-9]++)*+\W++)?"
    r"(?:(?:actionable|build|detailed|development|execution|implementation|migration|product|project"
    r"|proposed|recommended|refactoring|rollout|suggested|work) )*(?:plan|roadmap|steps|milestones|(?<= )order"
    r"|(?<= )sequence|(?<=implementation )tasks)\W*(?:\(.*)?"
)
_SIGN = r"[✅✔☑√]|(?<!`)~~\w"
#: Words above the phases that may call them done.
_OVER = (
    r"(?i)\b(?:already|archived|closed|completed?|deprecated|done|finished|historical|implemented|obsolete|released"
    r"|shipped|superseded)\b|(?:已|全部)(?:完成|实现|发布)"
)
_TICK = "✅ "
_VERIFICATION = r"(?i)(?:automated|manual) verification"
#: Headings above sections that are work.
_WORK = (
    r"(?i)implement|steps?\b|tasks?\b|changes|\bplan\b|approach|solution|strategy|refactor|migrat|milestones|stages"
    r"|to[- ]?do|\border\b"
    r"|任务|步骤|タスク|작업|задач|tareas|tarefas"
)
#: Headings of a board: its boxes are the phases, not its columns.
_COLUMN = (
    r"(?i)\W*(?:active|backlog|blocked|completed?|doing|done|in progress|next(?: up)?|pending|planned|to[ -]?do)\W*"
)
#: Milestones, phases, waves, tasks, sprints, versions, features and pull requests.
_COUNTS_WORK = r"[mpwtsvfe]|w[ps]|(?:.*-)?pr|version|release"
COUNTS_ELSE = (
    r"option|example|scenario|case|appendix|question|risk|riesgo|risiko|test|problem|section|chapter|layer|level|tier"
    r"|rule|principle|decision|gap|finding|lesson|figure|table|goal|tool|pattern|bug|method|方法|方案|选项|模式"
)
_PLAN_TITLE = r"(?i)\bplans?\b|roadmap|to[ -]?do|计划|計画|계획|\bплан\b"
#: Chapters of a document that only describes the work.
CHAPTER = (
    rf"{marks.NOT_WORK}|goal|objectiv|overview|purpose|scope|background|context|introduc|summary|architect|\bstructure|decision"
    r"|vision|stack|status|appendix|reference|concept|目标|目的|背景|概述|概要|架构|范围|现状|原则|总结|はじめに|まとめ"
    r"|objetivo|resum|alcance|ziel|übersicht|цел[ьи]|обзор|개요|목표"
)
MANY_WORDS = 12  #: that count headings; a document with more is no plan without boxes
_TASK_LIST = r"(?i)\W*(?:\S+ ){0,3}(?:to[ -]?dos?|backlog|tasks)(?: (?:list|items|and \w+))?\W*"  #: a title
_CHECKLIST = r"(?i)\W*(?:(?:implementation|task) )?checklist\W*"  #: a heading
_TASK = r"\**([0-9]{1,4})((?:\.[0-9]{1,4}){0,3})\.?\**(?:[ \t]+|\Z)"


def read_steps(lines: Lines) -> Iterator[Reading]:
    """The entries of the only numbered list under a heading like Implementation Order, where no headings count."""
    counted = (word for (_, word), headings in reading.counted_headings(lines.headings).items() if len(headings) > 1)
    if lines.boxes or any(counted):
        return
    lists = []
    titles = lines.headings if len(lines.headings) == 1 else []
    named = [h for h in lines.parts if h.level > 1 and re.fullmatch(f"(?i){STEPS}", h.text)]
    if len({lines.heading_above(entry.at) for entry in lines.entries}) > 1:  # a label is that of its section
        named = [heading for heading in named if heading.level < LABEL]
    for section in (*named, *(h for h in titles if re.fullmatch(f"(?i)(?:{STEPS})(?:(?<={COLON} ).*)?", h.text))):
        entries = [entry for entry in marks_within(lines.entries, section.at, section.end) if not entry.indent]
        numbers = [re.sub(r"\D.*", "", lines.texts[entry.at]) for entry in entries]
        if len(entries) > 2 and numbers == [str(number) for number in range(1, len(entries) + 1)]:
            lists.append((entries, section.end))
    if len(lists) != 1:
        return
    entries, end = lists[0]
    places = []
    for number, (entry, below) in enumerate(zip(entries, [*(e.at for e in entries[1:]), end], strict=True), 1):
        column = lines.texts[entry.at].index(entry.text)
        is_done = entry.text.startswith(_TICK)
        spot = Spot("word", entry.at, column, column + len(_TICK) * is_done, (_TICK, ""))
        place = Place(id=str(number), title=entry.text.removeprefix(_TICK), first=entry.at, end=below, spots=(spot,))
        places.append(replace(place, mark=Mark(Status.DONE if is_done else Status.TODO)))
    if not _may_be_done(lines, places):
        yield replace(plain_reading("numbered list", tuple(places)), format="checklist")


def plain_reading(name: str, places: tuple[Place, ...], unit: str = "phase") -> Reading:
    said = Remark(places[0].first + 1, f"no boxes and no statuses: all {len(places)} phases count as todo")
    has_status = any(place.mark.status is Status.DONE for place in places)
    return Reading("headings", name, places, places[0].first, unit, () if has_status else (said,))


def _may_be_done(lines: Lines, places: Sequence[Place]) -> bool:
    """Whether a sign or a cell beside open phases, or a word in the prose above or in them, says that work is done."""
    passed = {spot.at for place in places for spot in place.spots}
    stated = [p for p in places if p.mark.status is Status.DONE or any(spot.slot == "line" for spot in p.spots)]
    passed.update(i for place in stated for i in range(place.first, place.end))
    inside = {i for place in places for i in range(place.first, place.end)} if stated else {*range(len(lines.texts))}
    prose = {*range(min([places[0].first, *(heading.at for heading in lines.headings if heading.level > 1)]))}
    for first, end in ((place.first, place.end) for place in places):
        entries = marks_within(lines.entries, first, end)
        headings = marks_within(lines.headings, first + 1, end)
        prose.update(range(first, min([end, *(e.at for e in entries[:1]), *(h.at for h in headings[:1])])))
    for i, text in enumerate(lines.texts):
        if i in passed or lines.inert[i]:
            continue
        is_prose = i in prose or text.startswith("#") or STATUS_LINE.match(text) is not None
        is_cell = any(re.fullmatch(DONE_LABEL, cell) for cell in text.split("|")[1:-1])
        is_near = i in inside or is_prose or any(place.id in text for place in places)  # else of no phase
        if is_cell or (is_near and re.search(_SIGN, text)) or (is_prose and re.search(_OVER, text)):
            return True
    return False


def read_phases(lines: Lines) -> Iterator[Reading]:
    """Phase sections, with a status line, ticked boxes, or a list of boxes that names the phases."""
    sections = find_sections(lines, "phase")
    if not sections:
        return
    count = len({id_key(section.name.id) for section in sections})
    if count < len(sections):  # `#### Phase 1: Red` may repeat in each `## Task 2: Parser`
        outer = [h for unit in marks.UNITS[1:] for h in find_sections(lines, unit) if h.level < sections[0].level]
        inside = {i for h in outer for i in range(h.at, h.end)}
        if all(section.at in inside for section in sections):
            return
    places = section_places(lines, sections)
    is_stated = [place.is_bare for place in places] == [number >= count for number in range(len(places))]
    if is_stated and count < len(places) and sections[count - 1].end < sections[count].at:
        # A later chapter without statuses describes the same phases once more.
        sections, places = sections[:count], places[:count]
    again = places[count:]
    is_told = all(place.is_bare for place in places[:count]) and not any(place.is_bare for place in again)
    if is_told and [place.id for place in again] == [place.id for place in places[:count]] and again:
        # A later chapter has the boxes of the phases that the sections describe.
        sections = sections[:count]
        spans = (range(other.first, other.end) for other in again)
        rows = zip(places, again, spans, strict=False)
        places = tuple(replace(place, mark=other.mark, spots=other.spots, again=span) for place, other, span in rows)
    if listed := _read_list(lines, sections, places, "phase"):
        yield listed
        return
    lacks_all = all(place.is_bare for place in places)
    remarks = []
    for place, section in zip(places, sections, strict=True):
        is_clear = section.name.strong or section.name.title.startswith("(")  # else it may be prose
        message = "it counts as todo" if is_clear else "is it a phase? then add a line **Status:** below its heading"
        if place.is_bare and not (is_clear and lacks_all):
            text = f"phase {place.id} states no status; {message}"
            remarks.append(Remark(place.first + 1, text, is_error=not is_clear))
    yield Reading("sections", "phase sections", places, sections[0].at, remarks=tuple(remarks))


def _read_list(lines: Lines, sections: Sequence[Heading], places: Sequence[Place], unit: str) -> Reading | None:
    """The plan by a list of boxes outside of the sections that names them."""
    # Where the sections state statuses, a list of some of them, as below Completed, or of bare ids is no tracker.
    has_line = any(spot.slot in ("line", "brackets") for place in places for spot in place.spots)
    named = [] if has_line else named_boxes(lines, outside=sections, unit=unit)
    listed = {id_key(name.id) for _, name in named}
    ids = {id_key(place.id) for place in places}
    is_bare = all(place.is_bare for place in places) and not listed.isdisjoint(ids)
    if not named or not (is_bare or (listed >= ids and named[0][1].unit)):
        return None
    paired = reading.pair_sections(lines, "checklist", [(name.id, box.at) for box, name in named], sections)
    return replace(read_boxes(lines, named, paired), unit=unit)


def read_humanlayer(lines: Lines) -> Iterator[Reading]:
    """The phase sections, when one of them has the heading Automated or Manual Verification."""
    criteria = [heading.at for heading in lines.headings if heading.level > 2 and re.match(_VERIFICATION, heading.text)]
    for in_phases in read_phases(lines) if criteria else ():
        if any(place.first < line < place.end for place in in_phases.places for line in criteria):
            yield replace(in_phases, format="humanlayer", name="HumanLayer plan", decided_by=criteria[0])


def read_openspec(lines: Lines) -> Iterator[Reading]:
    """The numbered groups of level 2, when their boxes have the group's number: `## 2.` and `- [ ] 2.1`."""
    groups = [s for s in find_sections(lines, "", levels=(2,)) if s.name.strong and s.name.id.isdigit()]
    groups = [group for group in groups if marks_within(lines.boxes, group.at, group.end)]
    if any(box.text.startswith(f"{g.name.id}.") for g in groups for box in marks_within(lines.boxes, g.at, g.end)):
        yield Reading("openspec", "OpenSpec tasks", section_places(lines, groups), groups[0].at, unit="task")


def read_headings(lines: Lines) -> Iterator[Reading]:
    """The plan by each word that its headings count with: `## Task 1`, then `## Étape 1`, `### M1`, then `### 1.`."""
    for unit in marks.UNITS[1:]:
        sections = find_sections(lines, unit)
        is_high = sections and sections[0].level < (3 if unit in marks.WEAK_UNITS else 4)
        if sections and (is_high or _are_work(lines, sections)):
            yield _numbered_reading("headings", f"{unit.title()} headings", lines, sections, unit)
    # Statuses, boxes, tables or plain lists show that others are work; if only some of a word have them, it is unclear.
    work = _work_boxes(lines)
    series = reading.counted_headings(lines.headings)
    for (level, word), counted in sorted(series.items(), key=lambda entry: not entry[0][1]):  # numbers last
        sections = [section for section in counted if word or not is_measure(section.name.title)]
        ids = [section.name.id for section in sections]
        is_lettered = ids == [*"ABCDEFGH"[: len(ids)]]
        numbers = [[int(number) for number in re.findall("[0-9]+", id_)] for id_ in ids]
        is_counted = is_lettered or all(a < b for a, b in pairwise(numbers))
        if level == 1 or word in marks.UNITS or len(sections) < 2 or not is_counted:
            continue
        is_letters = len(word) < 3 and word.isascii()
        name = "numbered headings" if is_letters else f"{word.title()} headings"
        places = section_places(lines, sections)
        bare = [place for place in places if place.is_bare]
        inside = {i for place in places for i in range(place.first, place.end)}
        if any(box.at not in inside for box in work):
            continue
        has_boxes = any(spot.slot == "box" for place in places for spot in place.spots)
        is_list = not has_boxes and (not is_lettered or any(place.mark.status is Status.DONE for place in places))
        if is_list and len(series) <= MANY_WORDS and (plain_sections := _plain_places(lines, word, sections)):
            yield plain_reading(name, plain_sections, "step")
            continue
        if not is_letters and 0 < len(bare) < len(sections):
            message = f"other sections '{word.title()} <number>' have boxes or a status, this one has none"
            raise lines.error_at(bare[0].first, f"{message}; if they are the phases, add boxes to it")
        has_titles = all(section.name.title for section in sections)
        if has_titles and (not bare or (is_letters and _are_work(lines, sections))):
            yield _numbered_reading("headings", name, lines, sections, "step")


def _plain_places(lines: Lines, word: str, sections: Sequence[Heading]) -> tuple[Place, ...]:
    """The sections with plain lists as items; none if one has no list, others have some, or work may be done."""
    firsts = [section.at for section in sections]
    above = [heading for heading in lines.headings if 1 < heading.level <= sections[0].level]
    others = [h for h in above if bisect_left(firsts, h.at) == bisect_left(firsts, h.end)]  # without a section
    title = lines.headings[0].text if lines.headings[0].level == 1 else ""
    counts_work = re.fullmatch(_COUNTS_WORK, word) is not None  # such as milestones or versions
    if counts_work:
        others = [h for h in others if re.match(rf"(?i)\W*{word}[ \t]*[0-9]|(?:{STEPS})\Z", h.text)]
    elif word and (len(word) < 3 or re.match(COUNTS_ELSE, word)):
        return ()
    elif not word and not re.fullmatch(_TASK_LIST, title):  # numbers alone count the chapters of most documents
        numbers = [section.name.id for section in sections]
        is_counted = len(numbers) > 2 and numbers == [str(number) for number in range(1, len(numbers) + 1)]
        has_chapters = any(re.search(CHAPTER, section.name.title) for section in sections)
        if has_chapters or not is_counted or not re.search(_PLAN_TITLE, title):
            return ()
    beside = reading.lines_beside_work(lines)
    others = [h for h in others if h.at not in beside and not is_measure(h.text)]
    if any(marks_within(lines.entries, other.at, other.end) for other in others):
        return ()
    inner_titles = Counter(h.text for s in sections for h in marks_within(lines.headings, s.at + 1, s.end))
    places = []
    for place, section in zip(section_places(lines, sections), sections, strict=True):
        entries = [e for e in marks_within(lines.entries, place.first, place.end) if e.at not in beside]
        entries = [e for e in entries if e.indent < 2 and not STATUS_LINE.match(lines.texts[e.at])]
        is_listed = bool(entries) and all(re.match("[✅✔☑]", e.text) for e in entries)
        is_done = place.mark.status is Status.DONE or (is_listed and not place.spots)
        is_table = counts_work and any(text.startswith("|") for text in lines.texts[place.first : place.end])
        if not entries and not place.spots and not is_done and not is_table:
            return ()
        inner = marks_within(lines.headings, place.first + 1, place.end)
        is_headed = any(re.match(r"[0-9]", h.name.id) and (h.name.strong or "." in h.name.id) for h in inner)
        numbered = [entry for entry in entries if lines.texts[entry.at].lstrip()[0].isdigit()]
        parts = [h for h in inner if h.level == inner[0].level and h.at not in beside]
        headed = [Entry(h.at, 0, 0, "", optional=False, text=h.text) for h in parts]
        is_grouped = len(headed) > 1 and entries and headed[0].at < entries[0].at
        is_grouped = is_grouped and all(inner_titles[h.text] == 1 for h in parts)  # else they are labels like Goal
        items = () if is_headed else headed if is_grouped else numbered if len(numbered) > 1 else entries
        mark = Mark(Status.DONE) if is_done else place.mark
        places.append(replace(place, title=place.title or section.text, mark=mark, entries=tuple(items)))
    return () if _may_be_done(lines, places) else tuple(places)


def _numbered_reading(format_: Format, name: str, lines: Lines, sections: Sequence[Heading], unit: str) -> Reading:
    first: dict[str, Heading] = {}
    for section in sections if format_ == "headings" else ():
        other = first.setdefault(id_key(section.name.id), section)
        title, again = other.name.title.casefold(), section.name.title.casefold()
        if other is not section and again and (title.startswith(again) or again.startswith(title)):
            message = f"this heading repeats the one on line {other.at + 1}; leave the work in one of them"
            raise lines.error_at(section.at, message)
    names, remarks = reading.own_or_numbered([(section.at, section.text, section.name) for section in sections])
    named = [replace(section, name=heading_name) for section, heading_name in zip(sections, names, strict=True)]
    places = section_places(lines, named)
    listed = _read_list(lines, named, places, unit) if format_ == "headings" else None
    return listed or Reading(format_, name, places, sections[0].at, unit, remarks)


def _are_work(lines: Lines, sections: Sequence[Heading]) -> bool:
    """Whether boxes, tables or the heading above show work; the chapters of other documents are numbered too."""
    first = sections[0]
    above = [h.text for h in lines.headings if h.at < first.at < h.end and 1 < h.level < first.level]
    places = section_places(lines, sections)
    stated = [p for p in places if not p.is_bare or list_task_rows(lines, range(p.first, p.end))]
    is_named = any(re.search(_WORK, title) and not re.match(marks.NOT_WORK, title) for title in above[-1:])
    return is_named or 2 * len(stated) > len(sections)


def read_kiro(lines: Lines) -> Iterator[Reading]:
    """`- [ ] 1. Task` is a phase, `- [ ] 1.1 Sub-task` an item, `- [ ]*` optional; or `_Requirements:_` shows it."""
    numbers = [(box, number) for box in lines.boxes if (number := re.match(_TASK, box.text)) is not None]
    tops = [(box, number) for box, number in numbers if not number[2] and not box.optional]
    ids = {number[1] for _, number in tops}
    has_items = any(number[2] and number[1] in ids for _, number in numbers)
    if not tops or not (has_items or any("_Requirements:" in text for text in lines.texts)):
        return
    borders = sorted([*(box.at for box, number in numbers if not number[2]), *(h.at for h in lines.headings)])
    borders.append(len(lines.texts))
    places = []
    remarks = []
    for box, number in tops:
        end = borders[bisect(borders, box.at)]
        sub_tasks = [nested for nested in marks_within(lines.boxes, box.at + 1, end) if not nested.optional]
        mark = reading.mark_of([box])
        own = (re.match(_TASK, nested.text) for nested in sub_tasks)
        for other in (sub_task for sub_task in own if sub_task and sub_task[1] != number[1]):
            sub_id = "".join(other.groups())
            message = f"sub-task {sub_id} stands below task {number[1]}; the box of its task is missing"
            remarks.append(Remark(box.at + 1, message, is_error=True))
            break
        if sub_tasks and all(nested.ticked for nested in sub_tasks):
            mark = Mark(Status.DONE)
            message = f"task {number[1]} is open, but all of its sub-tasks are ticked; it counts as done"
            remarks += [Remark(box.at + 1, message)] if not box.ticked else []
        elif not box.ticked and any(nested.sign in "-~" for nested in (box, *sub_tasks)):
            mark = Mark(Status.IN_PROGRESS)
        elif box.ticked and sub_tasks:
            message = f"task {number[1]} is ticked, but not all of its sub-tasks are; it counts as done"
            remarks.append(Remark(box.at + 1, message))
        place = _box_place(replace(UNNAMED, id=number[1], title=box.text[number.end() :]), (box, *sub_tasks), end)
        places.append(replace(place, mark=mark, commit="", entries=tuple(sub_tasks)))
    yield Reading("kiro", "Kiro tasks", tuple(places), tops[0][0].at, "task", tuple(remarks))


def read_todo(lines: Lines) -> Iterator[Reading]:
    """Two or more sections with boxes: each section is a phase, done when all its boxes are ticked."""
    # Headings below one like `## v1.1` only group its boxes. A list of what is completed is no phase.
    counted = [h for h in lines.headings if h.level > 1 and any(char.isdigit() for char in h.name.id)]
    open_: dict[Heading, bool] = {}
    for box in _work_boxes(lines):
        heading = lines.heading_above(box.at)
        place = bisect(counted, box.at, key=attrgetter("at"))
        if heading is not None and place and counted[place - 1].at < heading.at < counted[place - 1].end:
            heading = counted[place - 1]
        if heading is not None and heading.level > 1:
            open_[heading] = open_.get(heading, False) or not box.ticked
    headings = [h for h, is_open in open_.items() if is_open or not re.fullmatch(marks.DONE_LABEL, h.text)]
    if len(headings) < 2 or named_boxes(lines) or all(re.fullmatch(_COLUMN, heading.text) for heading in open_):
        return
    ends = [*(heading.at for heading in headings[1:]), len(lines.texts)]
    sections = []
    for heading, end in zip(headings, ends, strict=True):
        name = replace(heading.name, title=heading.name.title or heading.text)
        sections.append(replace(heading, name=name, end=min(end, heading.end)))
    yield _numbered_reading("todo", "TODO list", lines, sections, "phase")


def read_checklist(lines: Lines) -> Iterator[Reading]:
    """The boxes that say `Phase <id>` are phases, else all at the left margin; criteria if the front matter says so."""
    if listed := named_boxes(lines):
        yield read_boxes(lines, listed)
        return
    work = _work_boxes(lines)
    if not work:  # those below headings that are no work, if they are a list or the front matter wants them
        above = {heading.text for box in lines.boxes if (heading := lines.heading_above(box.at))}
        is_list = bool(above) and all(re.fullmatch(_CHECKLIST, text) for text in above)
        work = _work_boxes(lines, set()) if is_list or lines.front_value("format") else []
    if work:
        names, remarks = reading.own_or_numbered([(box.at, box.text, read_name(box.text) or UNNAMED) for box in work])
        yield replace(read_boxes(lines, list(zip(work, names, strict=True))), unit="task", remarks=remarks)


def read_boxes(lines: Lines, listed: Sequence[tuple[Entry, Named]], sections: Sequence[Heading] = ()) -> Reading:
    """The plan of some boxes, which may be the tracker of sections."""
    places = []
    for number, (box, name) in enumerate(listed):
        end = _end_of_box(lines, box)
        nested = marks_within(lines.boxes, box.at + 1, end) if not sections else []
        place = _box_place(name, (box, *(nested_box for nested_box in nested if not nested_box.optional)), end)
        if sections:
            place = replace(place, first=sections[number].at, end=sections[number].end)
        places.append(place)
    return Reading("checklist", "checklist", tuple(places), listed[0][0].at)


def _box_place(name: Named, boxes: Sequence[Entry], end: int) -> Place:
    """A phase that begins with its box; the other boxes are ticked with it."""
    place = Place(id=name.id, title=name.title, first=boxes[0].at, end=end, spots=reading.box_spots(boxes))
    return replace(place, mark=reading.mark_of(boxes[:1]), commit=marks.read_commit(boxes[0].text))


def named_boxes(lines: Lines, outside: Sequence[Heading] = (), unit: str = "phase") -> list[tuple[Entry, Named]]:
    """The boxes that say `Phase <id>`, outside of some sections, else those with just the ids of all of them."""
    named = []
    beside = reading.lines_beside_work(lines)
    inside = {i for section in outside for i in range(section.at, section.end)}
    for box in (box for box in lines.boxes if box.indent <= 3):
        name = read_name(box.text) if any(char.isdigit() for char in box.text[:20]) else None
        if name is not None and box.at not in inside and (name.strong or not outside or box.at not in beside):
            named.append((box, name))
    numbered = [(box, name) for box, name in named if name.strong and not name.unit and box.at not in beside]
    has_all = [id_key(name.id) for _, name in numbered] == [id_key(section.name.id) for section in outside]
    named = [(box, name) for box, name in named if name.unit == unit]
    if not outside and 2 * len(named) < len([box for box in lines.boxes if not box.indent]):
        return []  # a few entries about phases
    return named or (numbered if has_all else [])


def _work_boxes(lines: Lines, beside: set[int] | None = None) -> list[Entry]:
    """The boxes at the left margin, without those under other boxes or headings like Acceptance Criteria."""
    work: list[Entry] = []
    beside = reading.lines_beside_work(lines) if beside is None else beside
    end = 0  # of the last one
    for box in lines.boxes:
        if box.indent <= 3 and not box.optional and box.at >= end and box.at not in beside:
            work.append(box)
            end = _end_of_box(lines, box)
    return work


def _end_of_box(lines: Lines, box: Entry) -> int:
    """The line after the box and the lines below it that are indented more deeply, blank lines in between included."""
    end = box.at + 1
    for i in range(box.at + 1, len(lines.texts)):
        text = lines.texts[i]
        if text.strip():
            is_beside = re.match(r" ?(?=[-*+] \[)", text[box.indent :]) is not None  # a blank more nests no box
            if (is_beside or len(text) - len(text.lstrip()) <= box.indent) and not text.startswith("\t"):
                break
            end = i + 1
    return end
