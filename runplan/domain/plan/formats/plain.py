"""Plans without boxes: headings that count above plain lists, and one numbered list of steps.

Their statuses are what runplan writes. A text with other signs of finished work is left to a person.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from runplan.domain.plan import reading
from runplan.domain.plan.marks import COLON, DONE_LABEL, STATUS_LINE, Mark, Status
from runplan.domain.plan.reading import Place, Reading, Remark, Spot
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


def plain_places(
    lines: Lines, sections: Sequence[Heading], others: Iterable[Heading], *, tables: bool = False
) -> tuple[Place, ...]:
    """The sections with their lists as items; none if one has no list, others have some, or work may be done.

    A table counts as a list if `tables` says so.
    """
    beside = reading.lines_beside_work(lines)
    others = (other for other in others if other.at not in beside and not reading.is_measure(other.text))
    if any(marks_within(lines.entries, other.at, other.end) for other in others):
        return ()
    inner_titles = Counter(h.text for s in sections for h in marks_within(lines.headings, s.at + 1, s.end))
    places = []
    for place, section in zip(reading.section_places(lines, sections), sections, strict=True):
        entries = [e for e in marks_within(lines.entries, place.first, place.end) if e.at not in beside]
        entries = [e for e in entries if e.indent < 2 and not STATUS_LINE.match(lines.texts[e.at])]
        is_listed = bool(entries) and all(re.match("[✅✔☑]", e.text) for e in entries)
        is_done = place.mark.status is Status.DONE or (is_listed and not place.spots)
        is_table = tables and any(text.startswith("|") for text in lines.texts[place.first : place.end])
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
