"""Finds where a plan keeps each phase: its status, its commit and its text, in whichever format it is written.

Statuses live in a tracker table, else in the `**Status:**` lines of the phase sections, else in a checklist.
A tracker defines the phases and their order; the sections are looked up by id and must agree with it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.ids import key
from runplan.plan.marks import WRITTEN, Mark, Status, read_commit, read_mark
from runplan.plan.scan import Lines, scan
from runplan.plan.sections import Section, StatusLine, find_sections, status_line, ticked
from runplan.plan.table import Cell, Row, Table, find_tracker
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runplan.plan.checklist import Box


class Format(StrEnum):
    """Where a plan keeps its statuses."""

    TRACKER = "tracker"
    SECTIONS = "sections"
    CHECKLIST = "checklist"


class Remark(Struct, frozen=True):
    """Something a person should know about a plan that can be used all the same."""

    line: int
    text: str


class Place(Struct, frozen=True):
    """Where one phase stands in the text. Spans are byte offsets."""

    id: str
    title: str
    mark: Mark
    commit: str
    at: int  #: line that holds the status
    first: int  #: first line of its text
    end: int  #: line after its text
    status_at: tuple[int, int] | None  #: None: no status line yet, it goes below the heading
    commit_at: tuple[int, int] | None  #: None: the commit is written with the status


class Layout(Struct, frozen=True, kw_only=True):
    """A plan's phases in tracker order."""

    format: Format
    places: tuple[Place, ...]
    remarks: tuple[Remark, ...]


class Bare(Struct, frozen=True, kw_only=True):
    """A plan that keeps no statuses; its phase sections, if it has any."""

    sections: tuple[Section, ...]


def find_layout(lines: Lines, *, path: str) -> Layout | Bare:
    """Where every phase of the plan stands."""
    sections = find_sections(lines)
    around = outside(lines, sections)
    if (table := find_tracker(lines, around, frozenset(key(section.id) for section in sections))) is not None:
        return _by_table(lines, table, sections, path)
    _refuse_twins(((s.id, s.at) for s in sections), "headings", path)
    stated = [status_line(lines, section) for section in sections]
    if any(stated):
        return _by_sections(lines, sections, stated)
    from runplan.plan.checklist import find_boxes  # for the few plans that keep their statuses in one

    if boxes := find_boxes(lines, around, only_named=bool(sections)):
        return _by_checklist(lines, boxes, sections, path)
    return Bare(sections=sections)


@lru_cache(maxsize=2)  # a phase reads the same text when it begins, when it lands and when its row is set
def lay_out(text: bytes, path: str) -> tuple[Lines, Layout]:
    """The lines of a plan and where every phase stands; one without statuses is refused with what is missing."""
    lines = scan(text, path=path)
    layout = find_layout(lines, path=path)
    if isinstance(layout, Bare):
        raise PlanUnreadable(what_is_missing(lines, layout.sections, path))
    return lines, layout


def outside(lines: Lines, sections: Sequence[Section]) -> list[range]:
    """The lines that belong to no phase section."""
    begin, parts = 0, []
    for section in sections:
        parts.append(range(begin, section.at))
        begin = section.end
    return [*parts, range(begin, len(lines.texts))]


# --- the three formats --------------------------------------------------------------------------------


def _by_table(lines: Lines, table: Table, sections: Sequence[Section], path: str) -> Layout:
    rows = table.rows
    if not rows:
        raise PlanUnreadable(f"{path}:{table.at + 1}: the tracker lists no phase; add rows like | 1 — Title | ⬚ | | |")
    _refuse_twins(((row.name.id, row.at) for row in rows), "tracker rows", path)
    listed = {key(row.name.id) for row in rows}
    stray = [s for s in sections if not s.strong and key(s.id) not in listed]
    sections = [s for s in sections if s.strong or key(s.id) in listed]
    _refuse_twins(((s.id, s.at) for s in sections), "headings", path)
    _agree([row.name.id for row in rows], sections, "tracker", f"{path}:{table.at + 1}")
    by_id = {key(section.id): section for section in sections}
    remarks = [
        *(_remark(i, "this tracker row begins with no phase id; it is left out") for i in table.nameless),
        *(_remark(s.at, f"the tracker lists no phase {s.id}; this heading is no phase") for s in stray),
    ]
    places = tuple(_row_place(lines, row, by_id[key(row.name.id)], path) for row in rows)
    return Layout(format=Format.TRACKER, places=places, remarks=tuple(remarks))


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


def _by_sections(lines: Lines, sections: Sequence[Section], stated: Sequence[StatusLine | None]) -> Layout:
    places, remarks = [], []
    for section, line in zip(sections, stated, strict=True):
        value = lines.texts[line.at][line.begin : line.end] if line else ""
        if line is None:
            done, all_ = ticked(lines, section)
            value = WRITTEN[Status.DONE] if all_ and done == all_ else ""
            taken = "all its boxes are ticked, so it is done" if value else "it is taken for todo"
            remarks.append(_remark(section.at, f"phase {section.id} has no **Status:** line; {taken}"))
        place = Place(
            id=section.id,
            title=section.title,
            mark=read_mark(value),
            commit=read_commit(value),
            at=line.at if line else section.at,
            first=section.at,
            end=section.end,
            status_at=_span(lines, line.at, line) if line else None,
            commit_at=None,
        )
        places.append(place)
    return Layout(format=Format.SECTIONS, places=tuple(places), remarks=tuple(remarks))


def _by_checklist(lines: Lines, boxes: Sequence[Box], sections: Sequence[Section], path: str) -> Layout:
    _refuse_twins(((box.id, box.at) for box in boxes), "items", path)
    if sections:
        _agree([box.id for box in boxes], sections, "checklist", f"{path}:{boxes[0].at + 1}")
    by_id = {key(section.id): section for section in sections}
    places = []
    for box in boxes:
        char, section = lines.texts[box.at][box.column], by_id.get(key(box.id))
        status = Status.DONE if char in "xX" else Status.TODO
        at = lines.offset(box.at, box.column)
        place = Place(
            id=box.id,
            title=box.title,
            mark=Mark(status=status, known=char in "xX "),
            commit=box.commit,
            at=box.at,
            first=section.at if section else box.at,
            end=section.end if section else box.end,
            status_at=(at, at + len(char.encode())),
            commit_at=None,
        )
        places.append(place)
    return Layout(format=Format.CHECKLIST, places=tuple(places), remarks=())


def _span(lines: Lines, index: int, part: Cell | StatusLine) -> tuple[int, int]:
    return lines.offset(index, part.begin), lines.offset(index, part.end)


# --- what cannot be used ------------------------------------------------------------------------------


def _refuse_twins(named: Iterable[tuple[str, int]], what: str, path: str) -> None:
    seen: dict[str, int] = {}
    for id_, index in named:
        if (first := seen.setdefault(key(id_), index)) != index:
            raise PlanUnreadable(
                f"{path}:{index + 1}: two {what} are called {id_!r}, the first on line {first + 1}; rename one"
            )


def _agree(listed: Sequence[str], sections: Sequence[Section], tracker: str, where: str) -> None:
    if {key(id_) for id_ in listed} == {key(section.id) for section in sections}:
        return
    headings = ", ".join(section.id for section in sections) or "none"
    raise PlanUnreadable(
        f"{where}: the {tracker} lists the phases {', '.join(listed)}; the '## Phase' headings are {headings}; "
        "make them agree"
    )


def what_is_missing(lines: Lines, sections: Sequence[Section], path: str) -> str:
    """Why a plan without statuses cannot be worked, and what helps."""
    if sections:
        ids = ", ".join(section.id for section in sections)
        return (
            f"{path}:{sections[0].at + 1}: the phases {ids} have neither a tracker nor **Status:** lines; "
            f"add a tracker with: {command('runplan', 'check', path, '--fix')}"
        )
    fence = f" (the fence opened on line {lines.open_fence + 1} is never closed)" if lines.open_fence >= 0 else ""
    return (
        f"{path}:1: no phases found{fence}: neither a Progress Tracker table nor '## Phase 1 — Title' sections nor "
        "'- [ ]' items; a narrative is not guessed at, give the plan phase sections, then runplan check "
        f"{path} --fix"
    )


def _remark(index: int, text: str) -> Remark:
    return Remark(line=index + 1, text=text)
