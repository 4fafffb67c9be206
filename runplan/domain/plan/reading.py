"""A reading: the place of every phase in the text of a plan, as one of the formats sees it."""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.plan import marks
from runplan.domain.plan.marks import Mark, Named, Status, id_key, read_commit, read_mark, read_name
from runplan.domain.plan.scan import LABEL, Entry, Heading, Lines, marks_within, scan_lines

#: The way a plan is written: its name in the front matter and in JSON.
TaskFormat: TypeAlias = Literal["json", "backlog", "cursor", "gsd", "conductor"]
Format: TypeAlias = Literal[
    TaskFormat, "tracker", "spec-kit", "humanlayer", "sections", "kiro", "openspec", "headings", "todo", "checklist"
]
#: Formats whose front matter is that of their tasks; runplan writes no status of the plan into it.
OWN_FRONT = ("backlog", "cursor")
#: How a status is written: a table cell, the cell of the commit, the value of a status line, the brackets of a heading,
#: the sign in a box, a word.
Slot: TypeAlias = Literal["cell", "commit", "line", "brackets", "box", "word"]
LONGEST_CLAIM = 500  #: characters of a line that may call phases done
_BOX_WORDS = (("x", " "), ("done", "todo"), ("DONE", "TODO"))  #: as they are written into a box
_ABOUT_STATUS = r"(?i)\W*(?:\w+ )?(?:status|progress)\b[^:：]{0,20}[:：]"
#: A line about one phase: `**M0 status:** Complete`.
_OWN_STATUS = (
    rf"(?i)\W*(?:[^\W\d_]{{1,20}}[ \t]+)?([a-z]{{0,2}}[0-9][\w.]{{0,5}}) status\W*[:：]\W*{marks.DONE_WORDS}\b"
)
_MEASURE = (
    r"(?i)[\W\d_]*(?:(?:success|key|performance|overall) )?(?:metrics|kpis?|timeline|(?:success|acceptance) criteria"
    r"|progress(?: (?:overview|summary))?|sequenc(?:e|ing)|progreso general|progresso geral"
    r"|(?:recommended |suggested |implementation |execution )+order)\W*"
)
_BEFORE_NAME = r"\A[\s#|>+-]*(?:\*[ \t])?(?:\[[xX]\]|[✅✔☑]\ufe0f?)?[ \t]*"  #: `- [x] Phase 1`, `## ✅ Phase 1`
#: `Étape 1 : Title`, `Lot A ✅`, `阶段1：Title`, `AUTH-PR-1: Title`; a Latin word needs the blank: P0 and v1 are none.
_COUNTED = (
    r"[\W_]*([^\W\d_]{3,20}(?=[ \t])|[A-Z][A-Z-]{2,20}(?=-[0-9])|[^\W\d_a-zA-Z]{1,20})[ \t-]*"
    rf"([0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{0,2}}|[A-H])[ \t]*(?:\Z|[\]*)—–-]+|(?=[✅✔☑⬜🔲])|{marks.COLON}|\.(?![0-9]))"
)
_OUTLINED = r"[0-9]{1,3}[.)][ \t]+(?=([A-Z]{1,2})[0-9])"  #: `2. M0: Title`
_RESERVED = rf"{marks.RESERVED}|[0-9] (?:day|week)"
_NUMBER = r"([A-Za-z]{0,3})-?[0-9]{1,4}(?:\.[0-9]{1,3}){0,2}"


class Spot(Struct, frozen=True):
    slot: Slot
    at: int  #: line
    begin: int  #: columns
    end: int
    words: tuple[str, str] = ("", "")  #: for done and for todo, as they are written into a box or a word

    def text_in(self, lines: Lines) -> str:
        return lines.texts[self.at][self.begin : self.end].strip()


class Remark(Struct, frozen=True, omit_defaults=True):
    line: int
    text: str
    is_error: bool = False  #: a part of the plan cannot be used
    document: str = ""  #: the path of a document about the plan's progress, as the plan names it
    landing: str = ""  #: the landing mode that the plan names, which the settings or the word after PLAN choose


class Place(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    mark: Mark = Mark(Status.TODO)
    first: int  #: first line of its text
    end: int  #: line after its text
    spots: tuple[Spot, ...] = ()  #: where its status is written; without any, a status line goes below its first line
    commit: str = ""
    entries: tuple[Entry, ...] = ()  #: its work items; without them its text names them
    again: range = range(0)  #: lines of a later section with its boxes, which are work items too
    depends: tuple[str, ...] = ()  #: phases that the format has it wait for, in addition to those that its text names
    prose: tuple[str, ...] = ()  #: sentences elsewhere that may name phases that it waits for
    touches: tuple[str, ...] = ()
    criteria: tuple[Entry, ...] = ()  #: likewise
    sign_off: tuple[str, ...] = ()  #: criteria for a person
    text: str = ""  #: a readable form of its text, where the lines are none; it names no phases that it waits for
    context: str = ""  #: text of the document that belongs to all phases

    @property
    def at(self) -> int:
        return self.spots[0].at if self.spots else self.first

    @property
    def is_bare(self) -> bool:
        return not self.spots and not self.entries and self.mark.status is Status.TODO


class Reading(Struct, frozen=True):
    format: Format
    name: str  #: for people: "Kiro tasks"
    places: tuple[Place, ...]
    decided_by: int  #: the line that shows the format
    unit: str = "phase"  #: the word for a phase in its prose
    remarks: tuple[Remark, ...] = ()
    aliases: dict[str, str] = {}  #: other names of phases in its prose, in lower case: `us1`, `t012`
    title: str = ""  #: of the plan, where the format has a place for it

    @property
    def choice(self) -> str:
        """The value of `format:` in the front matter that chooses it."""
        return self.name.lower() if self.format == "headings" else self.format

    @property
    def lacks_statuses(self) -> bool:
        """Whether it has phase sections and states no status."""
        return self.format in ("sections", "humanlayer") and all(place.is_bare for place in self.places)


def find_sections(lines: Lines, *units: str, levels: Sequence[int] = (2, 3, 4, 1)) -> list[Heading]:
    """The headings like `Phase <id> — <title>` of the first level that has some; the unit "" is for bare ids.

    One like `## Phase 2 Findings` counts only when no other names that phase or its parts, one of level 1 only beside
    others. One below Success Metrics that repeats another is none.
    """
    named = [heading for heading in lines.headings if heading.name.id and heading.name.unit in units]
    if not named:
        return _bold_sections(lines, units)
    measures = [h for h in lines.headings if h.level > 1 and is_measure(h.text)]
    inside = {heading.at for measure in measures for heading in marks_within(named, measure.at, measure.end)}
    checks = (h for h in lines.headings if h.level > 1 and not h.name.id and re.search(marks.NOT_WORK, h.text))
    checked = {heading.at for check in checks for heading in marks_within(named, check.at, check.end)}
    named = [heading for heading in named if heading.name.strong or heading.at not in checked]
    headings: dict[int, list[Heading]] = {level: [] for level in levels}
    outside = {id_key(heading.name.id) for heading in named if heading.at not in inside}
    for heading in named:
        if heading.level in headings and (heading.at not in inside or id_key(heading.name.id) not in outside):
            headings[heading.level].append(heading)
    clear_level = (some for level, some in headings.items() if level > 1 and any(h.name.strong for h in some))
    sections: list[Heading] = next(clear_level, next(filter(None, headings.values()), []))
    clear = {id_key(section.name.id) for section in sections if section.name.strong}
    counts = Counter(id_key(section.name.id) for section in sections)
    vague = {key for key, count in counts.items() if count > 1 or key in clear or f"{key}.1" in clear}
    sections = [section for section in sections if section.name.strong or id_key(section.name.id) not in vague]
    sections = sections or _bold_sections(lines, units)
    return sections if len(sections) > 1 or not sections or sections[0].level > 1 else []


def _bold_sections(lines: Lines, units: Sequence[str]) -> list[Heading]:
    """The lines `**Phase 1: Title**` above all boxes, or all entries without signs, where no heading has a word."""
    bold = [(i, read_name(text)) for i, text in enumerate(lines.texts) if text.startswith("**") and not lines.inert[i]]
    named = [(i, name) for i, name in bold if name and name.strong and name.unit and name.unit in units]
    if len(named) < 2 or any(heading.name.unit for heading in lines.headings):
        return []
    borders = sorted([*(i for i, _ in named), *(heading.at for heading in lines.headings), len(lines.texts)])
    sections = [Heading(i, LABEL, lines.texts[i], name, borders[bisect(borders, i)]) for i, name in named]
    beside = lines_beside_work(lines)
    beside.update(i for section in sections for i in range(section.at, section.end))
    work = lines.boxes or [entry for entry in lines.entries if not entry.indent]
    loose = any(entry.at not in beside or (not entry.sign and re.search("[✅✔☑~]", entry.text)) for entry in work)
    return [] if loose or not all(marks_within(work, s.at, s.end) for s in sections) else sections


def lines_beside_work(lines: Lines) -> set[int]:
    """The lines below headings and labels like Acceptance Criteria; one with an id may have parts that are work."""
    beside: set[int] = set()
    for part in lines.parts:
        if part.level > 1 and part.at not in beside and re.search(marks.NOT_WORK, part.text):
            inner = marks_within(lines.headings, part.at + 1, part.end)
            beside.update(range(part.at, inner[0].at if inner and read_name(part.text) else part.end))
    return beside


def counted_headings(headings: Iterable[Heading]) -> dict[tuple[int, str], list[Heading]]:
    """The headings like `## Lot 3: Title`, `## M3 — Title` and `## 3. Title`, by their level and word."""
    series: dict[tuple[int, str], list[Heading]] = {}
    vague: list[Heading] = []
    for heading in headings:
        is_clear = heading.name.strong or heading.name.title.startswith(("(", "（"))
        is_named = is_clear or heading.name.title[:1].isalpha()  # not `Q1 2026`
        inner = re.match(_OUTLINED, heading.text)
        if inner and (name := read_name(heading.text[inner.end() :])) and name.strong:
            series.setdefault((heading.level, inner[1].lower()), []).append(replace(heading, name=name))
        if counted := re.match(_COUNTED, heading.text):
            title = heading.text[counted.end() :].replace("**", "", counted[0].count("**")).strip()
            name = Named(counted[2], title, strong=True, unit=heading.name.unit)
            series.setdefault((heading.level, counted[1].lower()), []).append(replace(heading, name=name))
        elif not heading.name.unit and is_named and (numbered := re.fullmatch(_NUMBER, heading.name.id)):
            series.setdefault((heading.level, numbered[1].lower()), []).append(heading)
            vague += [] if is_clear else [heading]
    for (_, word), members in series.items():  # `## F1 Search` is one of F1, F2, F3
        ids = [id_key(heading.name.id) for heading in members]
        if word and ids in ([f"{word}{n}" for n in range(k, k + len(ids))] for k in (0, 1)):
            members[:] = [replace(heading, name=replace(heading.name, strong=True)) for heading in members]
        else:
            members[:] = [heading for heading in members if heading not in vague]
    return {key: members for key, members in series.items() if members}


def is_measure(title: str) -> bool:
    """Whether a heading is that of a list of measures or dates, which may name every phase and is none."""
    return re.fullmatch(_MEASURE, title) is not None


def section_places(lines: Lines, sections: Iterable[Heading]) -> tuple[Place, ...]:
    """The phases that are sections: the status line of each decides, else its heading, else its boxes."""
    places = []
    for section in sections:
        place = Place(id=section.name.id, title=section.name.title, first=section.at, end=section.end)
        boxes = [box for box in marks_within(lines.boxes, section.at, section.end) if not box.optional]
        # Sub-headings that say done, `### ✅ A1 — Title`, and those beside them that do not and are not struck.
        below = marks_within(lines.headings, section.at + 1, section.end)
        beside = [h for h in below if h.level == below[0].level and not re.search(marks.NOT_WORK, h.text)]
        done_parts = [part for part in beside if re.search(marks.DONE_TITLE, part.text)]
        counts = any(part.name.id for part in done_parts)
        others = [h for h in beside if not h.text.startswith("~~") and (h.name.id or not counts)] if done_parts else []
        left_parts = [h for h in others if h not in done_parts]
        brackets = re.search(marks.BRACKETS, lines.texts[section.at])
        sign = re.search(marks.SIGN, lines.texts[section.at])
        signed = read_mark(sign[1]) if sign else Mark(Status.TODO)
        if brackets:
            place = replace(place, title=re.sub(marks.BRACKETS, "", place.title).rstrip())
        if (spot := _status_line(lines, section.at, section.end)) is not None:
            value = spot.text_in(lines)
            mark = read_mark(value)
            if not mark.known and (done := re.search(marks.DONE_TITLE, section.text)):
                mark = _mark_of_claim(section.text[done.start() :], is_whole=not done.start())
            elif _is_doubtful(lines, spot.at, value, mark):
                mark = Mark(Status.TODO, known=False, note="has a status that may mean done or begun")
            place = replace(place, mark=mark, commit=read_commit(value), spots=(spot,))
        elif brackets:
            group = brackets.lastindex or 0
            spots = (Spot("brackets", section.at, *brackets.span(group)), *box_spots(boxes))
            place = replace(place, mark=read_mark(brackets[group]), commit=read_commit(brackets[group]), spots=spots)
        elif sign and signed.status is not Status.TODO:
            spots = (Spot("word", section.at, *sign.span(1), ("✅", "⬜")), *box_spots(boxes))
            place = replace(place, mark=signed, spots=spots)
        elif done := re.search(marks.DONE_TITLE, section.text):
            place = replace(place, mark=_mark_of_claim(section.text[done.start() :], is_whole=not done.start()))
        elif boxes:
            parts = marks_within(lines.parts, section.at, section.end)
            checked = [part for part in parts if re.match(marks.MANUAL, part.text)]
            manual = {box.at for part in checked for box in marks_within(lines.boxes, part.at, part.end)}
            groups = [[b for b in boxes if part.at < b.at < part.end and b.indent < 2] for part in done_parts]
            sure = [part for part, own in zip(done_parts, groups, strict=True) if len({b.ticked for b in own}) < 2]
            ticked = {box.at for part in sure for box in marks_within(lines.boxes, part.at, part.end)}
            mark = mark_of_work([box for box in boxes if box.at not in ticked], manual)
            is_partly = any(not marks_within(lines.boxes, part.at, part.end) for part in left_parts)
            mark = Mark(Status.TODO, known=False) if mark.status is Status.DONE and is_partly else mark
            place = replace(place, mark=mark, spots=box_spots(boxes))
        elif sign:
            place = replace(place, spots=(Spot("word", section.at, *sign.span(1), ("✅", sign[1])),))
        elif done_parts:
            left = (Entry(part.at, 0, 0, "", optional=False, text=part.text) for part in left_parts)
            place = replace(place, mark=Mark(Status.TODO if left_parts else Status.DONE), entries=tuple(left))
        elif unknown := re.search(marks.UNKNOWN_BRACKETS, section.text):
            note = f"ends with [{unknown[1]}], which is no status that runplan knows"
            place = replace(place, mark=Mark(Status.TODO, known=False, note=note))
        places.append(place)
    return tuple(places)


def _mark_of_claim(claim: str, *, is_whole: bool) -> Mark:
    """Done, unless the words of a title take that back."""
    is_done = is_whole or not re.search(marks.RESERVED, claim)
    return Mark(Status.DONE) if is_done else Mark(Status.IN_PROGRESS, note=claim)


def _is_doubtful(lines: Lines, line: int, value: str, mark: Mark) -> bool:
    """Whether a status is said by words that runplan does not know, or by a list below it."""
    if value:
        return not mark.known and re.search(marks.MAY_BE_DONE, value) is not None
    return any(not entry.sign for entry in marks_within(lines.entries, line + 1, line + 3)[:1])


def mark_of_work(boxes: Sequence[Entry], manual: set[int]) -> Mark:
    """Done when all boxes are ticked, and blocked when all but those are that a person verifies, by their lines."""
    tops: list[Entry] = []  # boxes that are nested below a ticked one count as ticked, where none of them is
    for box in boxes:
        tops.append(tops[-1] if tops and tops[-1].indent + 1 < box.indent else box)
    told = {(top.at, box.indent) for box, top in zip(boxes, tops, strict=True) if box.ticked and box is not top}
    pairs = list(zip(boxes, tops, strict=True))
    boxes = [box for box, top in pairs if box is top or not top.ticked or (top.at, box.indent) in told]
    left = [box for box in boxes if not box.ticked]
    if not left or len(manual) >= len(boxes) or not manual.issuperset(box.at for box in left):
        return mark_of(boxes)
    todo = "tick them when they hold, and commit the plan"
    reason = f"is implemented and waits for a person: open manual criteria: {len(left)}; {todo}"
    return Mark(Status.BLOCKED, reason=reason)


def _status_line(lines: Lines, first: int, end: int) -> Spot | None:
    """The status line of a section, above its sub-headings or below one like Status; an indented one is of an entry."""
    is_own = True
    is_value = False  # the next line is below a heading Status
    for i in range(first + 1, end):
        text = lines.texts[i]
        if lines.inert[i] or text.startswith(("  ", "\t")) or not text.strip():
            continue
        if text.startswith("#"):
            is_own = re.match(r"(?i)#+\W*(?:status|progress)\b", text) is not None
            is_value = re.fullmatch(r"(?i)#+\W*status\W*", text) is not None
        elif is_value and read_mark(text).known:
            return Spot("line", i, 0, len(text.rstrip()))
        elif is_own and (line := marks.STATUS_LINE.match(text)):
            other = marks.NEXT_FIELD.search(text, line.end())
            value = text[: other.start()].rstrip(" \t|·•,;—–") if other else text.rstrip()
            return Spot("line", i, line.end(), max(line.end(), len(value)))
    return None


def list_claims(lines: Lines, unit: str, inside: Container[int]) -> Iterator[tuple[int, list[str]]]:
    """The lines that call phases done, by a sign, by the label above or as the status of the plan."""
    # Outside of the phases; inside a line with a date does: "PHASE 6 COMPLETED: 2026-03-12".
    said = marks.CLAIM.replace("UNIT", unit)
    is_below = False
    for i, line in enumerate(lines.texts):
        if (lines.inert[i] and "✅" not in line) or not line.strip() or line.startswith("|"):
            if is_below and i not in inside and (row := read_name(line.partition("|")[2].partition("|")[0])):
                yield i, [row.id]
            continue
        text = re.sub(_BEFORE_NAME, "", line) if unit in line.lower() and len(line) < LONGEST_CLAIM else ""
        if text and (
            re.fullmatch(rf"\W*{said}\W[^A-Za-z]*[0-9]\W*", line) if i in inside else re.match(_ABOUT_STATUS, line)
        ):
            spans = ((int(first), int(last or first)) for first, last in re.findall(said, line))
            yield i, [str(number) for first, last in spans for number in range(first, last + 1)]
        elif i not in inside and (own := re.match(_OWN_STATUS, line)):
            yield i, [own[1]]
        name = read_name(text) if text and i not in inside else None
        if name is None or name.unit != unit:
            ends_list = line.startswith(("#", "**")) or line.rstrip("* ").endswith((":", "："))
            is_label = re.match(marks.DONE_START, line) if ends_list else re.fullmatch(marks.DONE_LABEL, line)
            is_below = (is_below and not ends_list) or (len(line) < 80 and is_label is not None)
        elif not re.search(_RESERVED, text) and (
            is_below
            or re.search(marks.DONE_TITLE, line)
            or (not name.strong and re.match(marks.DONE_START, name.title))
        ):
            yield i, [name.id]


def list_done(text: bytes, *, path: str) -> dict[str, int]:
    """The phases that a document about progress marks done in sections, rows or lines, by their keys, with the line."""
    lines = scan_lines(text, path=path)
    places = section_places(lines, find_sections(lines, *marks.UNITS))
    done = {id_key(place.id): place.at + 1 for place in places if place.mark.status is Status.DONE}
    for i, line in enumerate(lines.texts):
        name = None if lines.inert[i] else read_name(re.sub(_BEFORE_NAME, "", line))
        if name and (name.unit or (name.strong and line.startswith("|"))) and read_mark(line).status is Status.DONE:
            done.setdefault(id_key(name.id), i + 1)
    return done


def mark_of(boxes: Sequence[Entry]) -> Mark:
    """Done when all are ticked; the word in all open ones counts, as in `[blocked]`."""
    words = {read_mark(box.sign) if box.is_word else None for box in boxes if not box.ticked}
    if len(words) == 1 and (word := words.pop()):
        return word
    known = all(box.is_word or box.ticked or box.sign == " " for box in boxes)
    return Mark(Status.DONE if all(box.ticked for box in boxes) else Status.TODO, known=known)


def box_spots(boxes: Iterable[Entry]) -> tuple[Spot, ...]:
    rows = ((box, _BOX_WORDS[box.is_word + (box.is_word and box.sign.isupper())]) for box in boxes)
    return tuple(Spot("box", box.at, box.column, box.column + box.width, words) for box, words in rows)


def own_or_numbered(named: Sequence[tuple[int, str, Named]]) -> tuple[list[Named], tuple[Remark, ...]]:
    """The names on some lines with their texts: their own where all differ, else numbers instead of their ids."""
    ids = [name.id if name.strong or name.unit else "" for _, _, name in named]
    if all(ids) and len(set(map(id_key, ids))) == len(ids):
        return [name for _, _, name in named], ()
    names = []
    remarks = []
    for number, ((line, text, name), id_) in enumerate(zip(named, ids, strict=True), 1):
        names.append(replace(name, id=str(number), title=name.title if name.unit else text))
        if id_ not in ("", str(number)):
            remarks.append(Remark(line + 1, f"{id_!r} is called phase {number}: not every phase has an id of its own"))
    return names, tuple(remarks)


def refuse_duplicates(named: Iterable[tuple[str, int]], lines: Lines) -> None:
    seen: dict[str, int] = {}
    for id_, index in named:
        if (first := seen.setdefault(id_key(id_), index)) != index:
            raise lines.error_at(index, f"two phases are called {id_!r}, the first on line {first + 1}; rename one")


def pair_sections(
    lines: Lines, tracker: str, listed: Sequence[tuple[str, int]], sections: Sequence[Heading]
) -> list[Heading]:
    """The section of each phase that a tracker lists; refused where they disagree."""
    refuse_duplicates(listed, lines)
    refuse_duplicates(((section.name.id, section.at) for section in sections), lines)
    by_id = {id_key(section.name.id): section for section in sections}
    if {id_key(id_) for id_, _ in listed} != set(by_id):
        ids = ", ".join(id_ for id_, _ in listed)
        headings = ", ".join(s.name.id for s in sections if s.level < LABEL) or "none"
        why = f"the {tracker} lists the phases {ids}; the '## Phase' headings are {headings}; make them agree"
        raise lines.error_at(listed[0][1], why)
    return [by_id[id_key(id_)] for id_, _ in listed]
