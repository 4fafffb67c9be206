"""What a document has beside the phases that were read: work that is left out makes a plan ambiguous."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from operator import attrgetter

from runplan.domain.plan import marks
from runplan.domain.plan.formats.sections import CHAPTER, COUNTS_ELSE
from runplan.domain.plan.formats.table import list_status_tables
from runplan.domain.plan.marks import Status, id_key, read_mark
from runplan.domain.plan.reading import Place, Reading, Remark, counted_headings
from runplan.domain.plan.scan import Heading, Lines, marks_within
from runplan.domain.text import command, name_some

#: Formats that do not say themselves what else is work. In the others only a plan without open phases is doubtful.
_OPEN_FORMATS = ("humanlayer", "sections", "headings", "todo", "checklist")
#: Titles of sections with work that is left, with work for another plan, and with checks of all phases.
_LEFT = (
    r"(?i)\b(?:remaining|outstanding|rework|known gaps?|unfinished|still open|open (?:items|tasks|work)|left to do"
    r"|to[ -]?do|pending|not (?:yet )?(?:done|started|implemented))\b|доработ|осталось|pend[ie]+nte|待办|待完成"
)
_LATER = r"futur|later|ideas?\b|nice[- ]to[- ]have|op[tc]ional|stretch"
_ASIDE = r"\bnotes?\b|rollback|rationale|timeline|estimate|resource|\btips?\b|command|example|order|priorit|deliver"
_CHECKS = r"backlog|\btest|pre-?requis|指标|验收|验证|検証|风险|标准"
#: Words that count something else than work.
_PROSE = r"option|example|section|chapter|scenario|case|appendix|version|question"
_OVER = r"(?i)[✅✔☑]|~~|[*_(]*(?:none|n/a)\b"
#: `Phase 3`, `M4`, `v0.2` anywhere in a heading.
_MEMBER = r"([^\W\d_]{1,20})[ \t]*#?([0-9]{1,3}(?:\.[0-9]{1,3}){0,2}[A-Za-z]?)(?![\w%])"
#: The heading of a part that tells how far the work is.
_STATUS_PART = r"(?i)\W*(?:(?:current|project|implementation) )?(?:status|progress|estado|statut|статус|状态|进度|進捗)"
_NAMED = 3  #: sections that a message names


def says_complete(lines: Lines) -> bool:
    return marks.read_plan_status(lines.front_value("status")) is marks.PlanStatus.COMPLETE


def list_left_out(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """The boxes, sections and table rows in no phase: an error where they may be work, else warnings."""
    inside = {i for p in reading.places for i in (p.at, *range(p.first, p.end), *p.again)}
    series = _Series(lines, reading)
    is_over = all(place.mark.status is Status.DONE for place in reading.places)
    is_listed = any(not place.first <= place.at < place.end for place in reading.places)  # it has a tracker
    is_closed = reading.format not in _OPEN_FORMATS or is_listed
    excused = _lines_of_no_work(lines, None if is_over else series)
    # Neither in a phase nor above phases, and not called done.
    firsts = sorted(place.first for place in reading.places)
    apart = (h for h in lines.headings if bisect(firsts, h.at) == bisect(firsts, h.end - 1) and h.at not in inside)
    outside = [h for h in apart if h.level > 1 and not re.search(marks.DONE_TITLE, h.text)]
    left: dict[str, int] = {}
    passed: dict[str, list[int]] = {}
    for box in (box for box in lines.boxes if box.at not in inside):
        heading = lines.heading_above(box.at)
        where = f"boxes under {heading.text[:60]!r}" if heading else "boxes above the first heading"
        is_settled = is_closed and not is_over
        if is_settled or box.ticked or box.optional or box.at in excused or any(series.find_named(box.text)):
            passed.setdefault(f"{where} belong to no phase", []).append(box.at)
        else:
            left.setdefault(where, box.at)
    size = sum(place.end - place.first for place in reading.places) if reading.lacks_statuses else len(lines.texts)
    counted = counted_headings(outside)
    for (_, word), headings in counted.items():
        if len(word) > 2 and not re.match(_PROSE, word):
            passed[f"sections '{word.title()} <number>' are no phases"] = [heading.at for heading in headings]
            spans = [range(heading.at, heading.end) for heading in headings if heading.at not in excused]
            is_longer = sum(heading.end - heading.at for heading in headings) > size
            entries = [marks_within(lines.entries, span.start, span.stop) for span in spans]
            is_work = all(any(not entry.ticked for entry in own) for own in entries) and len(spans) > 2
            is_named = any(any(series.find_named(lines.texts[i])) for span in spans for i in span)
            is_work = is_work and not re.match(COUNTS_ELSE, word) and not is_named
            if is_work or (is_longer and len(headings) > 2):
                left[f"the sections '{word.title()} <number>'"] = headings[0].at
    left |= _list_counted_on(lines, (headings for (_, word), headings in counted.items() if not word))
    for message, places in passed.items():
        yield Remark(places[0] + 1, f"{message} and are left out ({len(places)})")
    if reading.format in ("todo", "checklist"):
        prose = (i for i, text in enumerate(lines.texts) if not (lines.inert[i] or text.startswith(("#", "**"))))
        by_line = {i: marks.read_name(lines.texts[i]) for i in prose if i not in inside}
        named = [i for i, name in by_line.items() if name and name.unit and name.strong]
        left |= {f"the line {lines.texts[i][:60]!r}": i for i in named if len(named) > 1}
    suspects = [*series.list_missing(lines, inside), *_list_suspects(lines, reading, outside, excused, series)]
    left |= {f"the section {heading.text[:60]!r}": heading.at for heading in suspects}
    rows, tables = _examine_tables(lines, inside | excused, series)
    left |= rows if not is_closed else {}
    left |= tables if reading.format in ("todo", "checklist") else {}
    if left and (is_over or not is_closed):
        settled = "status: complete" if is_over else f"format: {reading.choice}"
        names = name_some([*left], _NAMED)
        message = f"this may be work, and belongs to no phase: {names}; make it phases, or write {settled} into the"
        rewrite = f"agents can write phases: {command('runplan', 'plan', '--file', lines.path)}"
        is_error = not says_complete(lines) and not lines.front_value("format")
        yield Remark(min(left.values()) + 1, f"{message} front matter to leave it out; {rewrite}", is_error=is_error)


def _list_counted_on(lines: Lines, series: Iterable[list[Heading]]) -> dict[str, int]:
    """The sections whose numbers go on from chapter to chapter, and where they begin."""
    counted_on = {}
    for headings in series:
        numbers = [heading.name.id for heading in headings]
        above = {
            chapter.at
            for heading in headings
            for chapter in lines.headings
            if 1 < chapter.level < heading.level and chapter.at < heading.at < chapter.end
        }
        if len(above) > 1 and len(numbers) > 2 and numbers == [str(n + 1) for n in range(len(numbers))]:
            counted_on[f"the sections 1 to {len(numbers)}, which count across chapters"] = headings[0].at
    return counted_on


def is_told_elsewhere(lines: Lines, reading: Reading) -> bool:
    """Whether a section Status says done of phases, or a list outside of them has signs for done and begun."""
    inside = {i for place in reading.places for i in range(place.first, place.end)}
    begun = {entry.at for entry in lines.entries if re.match(marks.BEGUN_SIGN, entry.text)} - inside
    done = {entry.at for entry in lines.entries if re.match("[✅✔☑]", entry.text)} - inside
    if begun & {i + 1 for i in done}:
        return True
    parts = (heading for heading in lines.headings if re.match(_STATUS_PART, heading.text))
    texts = ("\n".join(lines.texts[part.at + 1 : part.end]) for part in parts)
    of_phases = (text for text in texts if re.search(rf"(?i)\b(?:{reading.unit}|{marks.PHASE})", text))
    return any(re.search(rf"(?i)✅|\b{marks.DONE_WORDS}\b", text) for text in of_phases)


class _Series:
    """The words and numbers by which the phases are called."""

    def __init__(self, lines: Lines, reading: Reading) -> None:
        self.unit = reading.unit
        self.places: dict[str, Place] = {id_key(place.id): place for place in reading.places}
        self.words: set[str] = set()
        for key, place in self.places.items() if reading.format not in ("todo", "checklist") else ():
            members = _find_members(lines.texts[place.first])
            self.words.update([word for word, number in members if key in (number, word + number)][:1])

    def list_missing(self, lines: Lines, inside: set[int]) -> Iterator[Heading]:
        """The headings of further phases; inside a phase, where its parts are not counted from the beginning."""
        nested = inside - {place.first for place in self.places.values()}
        named = [h for h in lines.headings if h.level > 1 and h.name.unit == self.unit and h.name.strong]
        restarts = any(h.at in nested and id_key(h.name.id) in self.places for h in named)
        for heading in (h for h in named if id_key(h.name.id) not in self.places):
            if heading.at not in inside or (heading.name.id.isdigit() and not restarts):
                yield heading

    def find_named(self, text: str) -> Iterator[bool]:
        """For each phase that a text names, whether the plan has it; `2.1` and `2b` are parts of phase 2."""
        for word, number in _find_members(text):
            if word in self.words:
                whole = re.sub(r"\D.*", "", number)
                yield bool(self.places.keys() & {number, word + number, whole})


def _find_members(text: str) -> list[tuple[str, str]]:
    return [(word.lower(), number.lower()) for word, number in re.findall(_MEMBER, text)]


def _lines_of_no_work(lines: Lines, series: _Series | None) -> set[int]:
    """The lines below headings of criteria, ideas and, while phases are open, of checks and of what repeats phases."""
    pattern = f"{marks.NOT_WORK}|{_LATER}|{_CHECKS}" if series else f"{marks.NOT_WORK}|{_LATER}"
    excused: set[int] = set()
    for part in (part for part in lines.parts if part.level > 1):
        if part.at not in excused and (re.search(pattern, part.text) or (series and any(series.find_named(part.text)))):
            excused.update(range(part.at, part.end))
    return excused


def _list_suspects(
    lines: Lines, reading: Reading, outside: list[Heading], excused: set[int], series: _Series
) -> Iterator[Heading]:
    """The sections that name a further phase, those beside a list of boxes that count, and what is left at the end."""
    is_over = all(place.mark.status is Status.DONE for place in reading.places)
    numbered = [h for h in outside if re.search("[0-9]", h.name.id) and h.at not in excused]
    is_boxes = reading.format in ("todo", "checklist") and reading.name != "numbered list"  # which is in a chapter
    counted = numbered if is_boxes and len(numbered) > 1 else []
    first = min(reading.places, key=attrgetter("first"))
    leads = [h for h in outside if h.end == first.first and not is_over and not re.search(CHAPTER, h.text)]
    counted += [h for h in leads if first.id.isdigit() and int(first.id) > 1]  # `MVP` before phase 2
    has_boxes = any(spot.slot == "box" for place in reading.places for spot in place.spots)
    if not is_over and (not has_boxes or reading.name == "numbered headings"):
        # Those without a number between phases, and in the chapter of numbered ones, unless they are no work.
        last = max(reading.places, key=attrgetter("first"))
        own = marks_within(lines.headings, first.first, first.first + 1)
        chapters = [h for h in lines.headings for o in own if 1 < h.level < o.level and h.at < o.at < h.end]
        is_chapter = reading.name == "numbered headings" and bool(chapters)
        span = (chapters[-1].at, chapters[-1].end) if is_chapter else (first.end, last.first)
        siblings = (h for o in own for h in marks_within(outside, *span) if h.level == o.level and not h.name.id)
        pattern = f"(?i){CHAPTER}|{_LATER}|{_CHECKS}|{_ASIDE}"
        counted += [heading for heading in siblings if not re.search(pattern, heading.text)]
    for heading in outside:
        is_listed = heading.at not in excused and ((is_over and re.search(_LEFT, heading.text)) or heading in counted)
        entries = marks_within(lines.entries, heading.at, heading.end)
        inner = marks_within(lines.headings, heading.at + 1, heading.end)
        has_work = bool(inner) or any(not re.match(_OVER, entry.text) for entry in entries)
        is_left = has_work and not any(entry.sign for entry in entries) and (is_listed)
        lead = range(heading.at + 1, min([heading.end, *(h.at for h in inner[:1])]))
        is_about = re.search(rf"(?i){CHAPTER}|progress|metadata|\bstate\b", heading.text)
        named = [*series.find_named(heading.text)]
        values = (lines.texts[i][line.end() :] for i in lead if (line := marks.STATUS_LINE.match(lines.texts[i])))
        stated = [read_mark(value) for value in values if value.strip()] if not is_about else []
        is_open = any(mark.known and mark.status is Status.TODO for mark in stated)
        is_signed = not named and re.search(marks.OPEN_SIGN, heading.text) is not None
        if is_left or is_signed or (heading.at not in excused and (is_open or not all(named))):
            yield heading


def _examine_tables(lines: Lines, passed: set[int], series: _Series) -> tuple[dict[str, int], dict[str, int]]:
    """Rows with a status that disagree with a phase, or are open and of no phase; tables whose rows are mostly open."""
    left: dict[str, int] = {}
    tables: dict[str, int] = {}
    for header, names, rows in list_status_tables(lines):
        is_of_phases = any(name.startswith((*marks.UNITS, *series.words)) for name in names)
        marked = []
        for line, name, spots in rows:
            cell = spots[0].text_in(lines) if spots else ""
            mark = read_mark(cell)
            if line not in passed and cell.strip("-: "):
                marked.append(mark)
            is_named = name is not None and re.search("[0-9]+[a-z]?\\Z|[0-9][.-]", name.id) is not None
            if name is None or not is_named or not cell or not mark.known or header in passed:
                continue
            place = series.places.get(id_key(name.id))
            is_done = place is None or place.mark.status is Status.DONE
            if (place is None or is_of_phases or name.unit) and (mark.status is Status.DONE) != is_done:
                left[f"the row of {name.id}"] = line
        if 2 * sum(mark.known and mark.status is Status.TODO for mark in marked) > max(2, len(marked)):
            tables[f"the table on line {header + 1}"] = header
    return left, tables
