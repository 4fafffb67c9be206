"""Finds where a plan keeps the status, the commit and the text of each phase.

Statuses are in a tracker table, else in the `**Status:**` lines of the phase sections, else in a checklist. A tracker
defines the phases and their order; the sections are looked up by id and must agree with it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan import formats
from runplan.plan.formats import WRITTEN, Mark, Status, read_commit, read_mark
from runplan.plan.ids import key
from runplan.plan.scan import Lines, scan
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runplan.plan.formats import Box, Cell, Row, Section, Table


class Format(StrEnum):
    """Where a plan keeps its statuses."""

    TRACKER = "tracker"
    SECTIONS = "sections"
    CHECKLIST = "checklist"


class Remark(Struct, frozen=True):
    """A warning about a plan that can be used."""

    line: int
    text: str


class Place(Struct, frozen=True):
    """The place of one phase in the text. Spans are byte offsets."""

    id: str
    title: str
    mark: Mark
    commit: str
    at: int  #: line with the status
    first: int  #: first line of its text
    end: int  #: line after its text
    status_at: tuple[int, int] | None  #: None: no status line yet, it goes below the heading
    commit_at: tuple[int, int] | None = None  #: None: the commit is written with the status


class Layout(Struct, frozen=True):
    format: Format
    places: tuple[Place, ...]
    remarks: tuple[Remark, ...] = ()


class Bare(Struct, frozen=True):
    """A plan without statuses; its phase sections, if it has any."""

    sections: tuple[Section, ...]


def find_layout(lines: Lines, *, path: str) -> Layout | Bare:
    sections = formats.find_sections(lines)
    around = outside(lines, sections)
    ids = frozenset(key(section.id) for section in sections)
    if (table := formats.find_tracker(lines, around, ids)) is not None:
        return _by_table(lines, table, sections, path)
    _refuse_duplicates(((s.id, s.at) for s in sections), "headings", path)
    stated = [formats.status_line(lines, section) for section in sections]
    if any(stated):
        return _by_sections(lines, sections, stated)
    if boxes := formats.find_boxes(lines, around, only_named=bool(sections)):
        return _by_checklist(lines, boxes, sections, path)
    return Bare(sections)


@lru_cache(maxsize=2)  # a phase reads the same text when it begins, when it lands and when its row is set
def lay_out(text: bytes, path: str) -> tuple[Lines, Layout]:
    """The lines of a plan and the place of every phase; a plan without statuses is refused."""
    lines = scan(text, path=path)
    layout = find_layout(lines, path=path)
    if isinstance(layout, Bare):
        raise PlanUnreadable(what_is_missing(lines, layout.sections, path))
    return lines, layout


def outside(lines: Lines, sections: Sequence[Section]) -> list[range]:
    """The lines that belong to no phase section."""
    begins = [0, *(section.end for section in sections)]
    ends = [*(section.at for section in sections), len(lines.texts)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _by_table(lines: Lines, table: Table, sections: Sequence[Section], path: str) -> Layout:
    rows = table.rows
    if not rows:
        raise PlanUnreadable(f"{path}:{table.at + 1}: the tracker lists no phase; add rows like | 1 — Title | ⬚ | | |")
    _refuse_duplicates(((row.name.id, row.at) for row in rows), "tracker rows", path)
    listed = {key(row.name.id) for row in rows}
    stray = [s for s in sections if not s.strong and key(s.id) not in listed]
    sections = [s for s in sections if s.strong or key(s.id) in listed]
    _refuse_duplicates(((s.id, s.at) for s in sections), "headings", path)
    _refuse_difference([row.name.id for row in rows], sections, "tracker", f"{path}:{table.at + 1}")
    by_id = {key(section.id): section for section in sections}
    remarks = [
        *(Remark(i + 1, "this tracker row does not begin with a phase id; it is ignored") for i in table.nameless),
        *(Remark(s.at + 1, f"the tracker does not list phase {s.id}; this heading is ignored") for s in stray),
    ]
    places = tuple(_row_place(lines, row, by_id[key(row.name.id)], path) for row in rows)
    return Layout(Format.TRACKER, places, tuple(remarks))


def _row_place(lines: Lines, row: Row, section: Section, path: str) -> Place:
    text = lines.texts[row.at]
    if row.status is None:
        raise PlanUnreadable(f"{path}:{row.at + 1}: the row of phase {row.name.id} has no Status cell; add one")
    status = row.status.of(text)
    commit = read_commit(row.commit.of(text)) if row.commit else ""
    return Place(
        id=row.name.id,
        title=section.title or row.name.title,
        mark=read_mark(status),
        commit=commit or read_commit(status),
        at=row.at,
        first=section.at,
        end=section.end,
        status_at=_span(lines, row.at, row.status),
        commit_at=_span(lines, row.at, row.commit) if row.commit else None,
    )


def _by_sections(lines: Lines, sections: Sequence[Section], stated: Sequence[tuple[int, Cell] | None]) -> Layout:
    places, remarks = [], []
    for section, line in zip(sections, stated, strict=True):
        at, span = section.at, None
        if line is not None:
            at, value, span = line[0], line[1].of(lines.texts[line[0]]), _span(lines, *line)
        else:
            done, boxes = formats.ticked(lines, section)
            value = WRITTEN[Status.DONE] if boxes and done == boxes else ""
            meaning = "all its boxes are ticked, so it is done" if value else "it counts as todo"
            remarks.append(Remark(section.at + 1, f"phase {section.id} has no **Status:** line; {meaning}"))
        mark, commit = read_mark(value), read_commit(value)
        places.append(Place(section.id, section.title, mark, commit, at, section.at, section.end, span))
    return Layout(Format.SECTIONS, tuple(places), tuple(remarks))


def _by_checklist(lines: Lines, boxes: Sequence[Box], sections: Sequence[Section], path: str) -> Layout:
    _refuse_duplicates(((box.id, box.at) for box in boxes), "items", path)
    if sections:
        _refuse_difference([box.id for box in boxes], sections, "checklist", f"{path}:{boxes[0].at + 1}")
    by_id = {key(section.id): section for section in sections}
    places = []
    for box in boxes:
        char, section = lines.texts[box.at][box.column], by_id.get(key(box.id), box)
        mark = Mark(Status.DONE if char in "xX" else Status.TODO, known=char in "xX ")
        at = lines.offset(box.at, box.column)
        span = (at, at + len(char.encode()))
        places.append(Place(box.id, box.title, mark, box.commit, box.at, section.at, section.end, span))
    return Layout(Format.CHECKLIST, tuple(places))


def _span(lines: Lines, index: int, cell: Cell) -> tuple[int, int]:
    return lines.offset(index, cell.begin), lines.offset(index, cell.end)


def _refuse_duplicates(named: Iterable[tuple[str, int]], what: str, path: str) -> None:
    seen: dict[str, int] = {}
    for id_, index in named:
        if (first := seen.setdefault(key(id_), index)) != index:
            raise PlanUnreadable(
                f"{path}:{index + 1}: two {what} are called {id_!r}, the first on line {first + 1}; rename one"
            )


def _refuse_difference(listed: Sequence[str], sections: Sequence[Section], tracker: str, where: str) -> None:
    if {key(id_) for id_ in listed} == {key(section.id) for section in sections}:
        return
    headings = ", ".join(section.id for section in sections) or "none"
    raise PlanUnreadable(
        f"{where}: the {tracker} lists the phases {', '.join(listed)}; the '## Phase' headings are {headings}; "
        "make them agree"
    )


def what_is_missing(lines: Lines, sections: Sequence[Section], path: str) -> str:
    """Why a plan without statuses cannot be worked, and the remedy."""
    if sections:
        ids = ", ".join(section.id for section in sections)
        return (
            f"{path}:{sections[0].at + 1}: the phases {ids} have neither a tracker nor **Status:** lines; "
            f"add a tracker with: {command('runplan', 'check', path, '--fix')}"
        )
    fence = f" (the fence opened on line {lines.open_fence + 1} is never closed)" if lines.open_fence >= 0 else ""
    return (
        f"{path}:1: no phases found{fence}: neither a Progress Tracker table nor '## Phase 1 — Title' sections nor "
        f"'- [ ]' items; add phase sections, then run runplan check {path} --fix"
    )
