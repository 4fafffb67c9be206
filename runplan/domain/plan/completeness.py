"""What a document has beside the phases that were read: work that is left out makes a plan ambiguous."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runplan.domain.plan.formats.table import list_status_tables
from runplan.domain.plan.marks import (
    DONE_TITLE,
    NOT_WORK,
    UNITS,
    PlanStatus,
    Status,
    id_key,
    read_mark,
    read_name,
    read_plan_status,
)
from runplan.domain.plan.reading import Remark, counted_headings
from runplan.domain.plan.scan import marks_within
from runplan.domain.text import command

if TYPE_CHECKING:
    from runplan.domain.plan.reading import Place, Reading
    from runplan.domain.plan.scan import Heading, Lines

#: Formats that do not say themselves what else is work. In the others only a plan without open phases is doubtful.
_OPEN_FORMATS = ("humanlayer", "sections", "headings", "todo", "checklist")
#: Titles of sections with work that is left, with work for another plan, and with checks of all phases.
_LEFT = (
    r"(?i)\b(?:remaining|outstanding|rework|known gaps?|unfinished|still open|open (?:items|tasks|work)|left to do"
    r"|to[ -]?do|pending|not (?:yet )?(?:done|started|implemented))\b|доработ|осталось|pend[ie]+nte|待办|待完成"
)
_LATER = r"(?i)futur|later|ideas?\b|nice[- ]to[- ]have|op[tc]ional|stretch|backlog"
_CHECKS = r"(?i)\btest|pre-?requis|指标|验收|风险|标准"
_PROSE = r"option|example|scenario|case|appendix|version|question"  #: words that count something else than work
_OVER = r"(?i)[✅✔☑]|~~|[*_(]*(?:none|n/a)\b"
#: `Phase 3`, `M4`, `v0.2` anywhere in a heading.
_MEMBER = r"([^\W\d_]{1,20})[ \t]*#?([0-9]{1,3}(?:\.[0-9]{1,3}){0,2}[A-Za-z]?)(?![\w%])"
_NAMED = 3  #: sections that a message names


def says_complete(lines: Lines) -> bool:
    return read_plan_status(lines.front_value("status")) is PlanStatus.COMPLETE


def list_left_out(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """The boxes, sections and table rows in no phase: an error where they may be work, else warnings about boxes.

    A person settles it by the format or by `status: complete` in the front matter.
    """
    inside = {i for place in reading.places for i in (place.at, *range(place.first, place.end))}
    series = _Series(lines, reading)
    is_over = all(place.mark.status is Status.DONE for place in reading.places)
    is_listed = any(not place.first <= place.at < place.end for place in reading.places)  # it has a tracker
    is_open = is_over or (reading.format in _OPEN_FORMATS and not is_listed)
    excused = _lines_of_no_work(lines, None if is_over else series)
    left: dict[str, int] = {}
    passed: dict[str, list[int]] = {}
    for box in (box for box in lines.boxes if box.at not in inside):
        heading = lines.heading_above(box.at)
        where = f"under {heading.text[:60]!r}" if heading else "above the first heading"
        is_excused = box.ticked or box.optional or box.at in excused or any(series.find_named(box.text))
        if is_open and not is_excused:
            left.setdefault(f"boxes {where}", box.at)
        else:
            passed.setdefault(where, []).append(box.at)
    for where, boxes in passed.items():
        yield Remark(boxes[0] + 1, f"boxes {where} belong to no phase and are left out ({len(boxes)})")
    outside = list(_list_outside(lines, reading, inside))
    yield from _about_other_words(outside)
    final = rf"(?i)\W*(?:final|last|closing) {reading.unit}\b"
    suspects = [h for h in outside if re.match(final, h.text) and _has_entries(lines, h)]
    suspects += _list_suspects(lines, reading, [h for h in outside if h.at not in excused], series, is_over=is_over)
    for heading in suspects if is_open else ():
        left.setdefault(f"the section {heading.text[:60]!r}", heading.at)
    if is_open and reading.format in _OPEN_FORMATS:
        left |= {f"the row of {id_}": at for at, id_ in _list_rows(lines, inside | excused, series)}
    if left:
        settled = "status: complete" if is_over else f"format: {reading.choice}"
        names = ", ".join([*left][:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
        remedy = f"make it phases, or write {settled} into the front matter to leave it out; agents can write phases"
        message = f"this may be work, and belongs to no phase: {names}; {remedy}"
        is_error = not says_complete(lines) and not lines.front_value("format")
        yield Remark(
            min(left.values()) + 1,
            f"{message}: {command('runplan', 'plan', '--file', lines.path)}",
            is_error=is_error,
        )


class _Series:
    """The words and numbers by which the phases are called."""

    def __init__(self, lines: Lines, reading: Reading) -> None:
        self.unit = reading.unit
        self.places: dict[str, Place] = {id_key(place.id): place for place in reading.places}
        self.words: set[str] = set()
        for key, place in self.places.items():
            members = _find_members(lines.texts[place.first])
            self.words.update([word for word, number in members if key in (number, word + number)][:1])

    def find_named(self, text: str) -> Iterator[bool]:
        """For each phase that a text names, whether the plan has it; `2.1` and `2b` are parts of phase 2."""
        if (name := read_name(text)) and name.unit == self.unit:
            yield id_key(name.id) in self.places
        for word, number in _find_members(text):
            if word in self.words:
                whole = re.sub(r"\D.*", "", number)
                yield bool(self.places.keys() & {number, word + number, whole})


def _find_members(text: str) -> list[tuple[str, str]]:
    return [(word.lower(), number.lower()) for word, number in re.findall(_MEMBER, text)]


def _lines_of_no_work(lines: Lines, series: _Series | None) -> set[int]:
    """The lines below headings of criteria, ideas and, while phases are open, of checks and of what repeats phases."""
    pattern = f"{NOT_WORK}|{_LATER[4:]}|{_CHECKS[4:]}" if series else f"{NOT_WORK}|{_LATER[4:]}"
    excused: set[int] = set()
    for part in (part for part in lines.parts if part.level > 1):
        if part.at not in excused and (re.search(pattern, part.text) or (series and any(series.find_named(part.text)))):
            excused.update(range(part.at, part.end))
    return excused


def _list_outside(lines: Lines, reading: Reading, inside: set[int]) -> Iterator[Heading]:
    """The headings that neither are in a phase nor have phases below them, and do not say done."""
    firsts = sorted(place.first for place in reading.places)
    for heading in lines.headings:
        after = bisect(firsts, heading.at)
        holds = after < len(firsts) and firsts[after] < heading.end
        if heading.level > 1 and heading.at not in inside and not holds and not re.search(DONE_TITLE, heading.text):
            yield heading


def _about_other_words(outside: Iterable[Heading]) -> Iterator[Remark]:
    for (_, word), headings in counted_headings(outside).items():
        message = f"sections '{word.title()} <number>' are no phases and are left out ({len(headings)})"
        yield from [Remark(headings[0].at + 1, message)] if not re.match(_PROSE, word) else ()


def _list_suspects(
    lines: Lines, reading: Reading, outside: list[Heading], series: _Series, *, is_over: bool
) -> Iterator[Heading]:
    """The sections that name a further phase, those beside a list of boxes that count, and what is left at the end."""
    numbered = [h for h in outside if h.name.strong and any(char.isdigit() for char in h.name.id)]
    counts = reading.format in ("todo", "checklist") and len(numbered) > 1
    for heading in outside:
        is_listed = (is_over and re.search(_LEFT, heading.text)) or (counts and heading in numbered)
        if not all(series.find_named(heading.text)) or (is_listed and _has_entries(lines, heading)):
            yield heading


def _has_entries(lines: Lines, heading: Heading) -> bool:
    """Whether a section without boxes has sub-headings or entries that do not say done."""
    entries = marks_within(lines.entries, heading.at, heading.end)
    inner = marks_within(lines.headings, heading.at + 1, heading.end)
    is_listed = bool(inner) or any(not re.match(_OVER, entry.text) for entry in entries)
    return is_listed and not any(entry.sign for entry in entries)


def _list_rows(lines: Lines, passed: set[int], series: _Series) -> Iterator[tuple[int, str]]:
    """The rows of tables with a status that disagree with a phase, or are open and of no phase."""
    for header, names, rows in list_status_tables(lines):
        is_of_phases = any(name.startswith((*UNITS, *series.words)) for name in names)
        for line, name, spots in rows if header not in passed else ():
            cell = next((lines.texts[line][spot.begin : spot.end] for spot in spots if spot.slot == "cell"), "")
            mark = read_mark(cell.strip())
            if name is None or not cell.strip() or not mark.known or not any(char.isdigit() for char in name.id):
                continue
            place = series.places.get(id_key(name.id))
            is_done = place is not None and place.mark.status is Status.DONE
            is_about = place is None or is_of_phases or bool(name.unit)
            if is_about and (mark.status is Status.DONE) != (is_done or place is None):
                yield line, name.id
