"""The tracker table: rows `| 1 — Title | ⬚ | |` under a heading like Progress Tracker, a section for each row."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.ids import UNITS, Named, key, read_name
from runplan.plan.marks import Status, read_commit, read_mark
from runplan.plan.reading import (
    Format,
    Place,
    Reading,
    Remark,
    Section,
    Slot,
    Spot,
    find_sections,
    refuse_difference,
    refuse_duplicates,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from runplan.plan.scan import Lines

_TRACKER_HEADINGS = frozenset({"tracker", "progress", "phase tracker", "status tracker", "phases", "status"})
_WIDEST = 20  #: columns in which ids are looked for
_COMMIT = frozenset({"commit", "commits", "hash", "sha"})


class Cell(Struct, frozen=True):
    """The columns of a cell in its line, blanks around its content included."""

    begin: int
    end: int

    def of(self, text: str) -> str:
        return text[self.begin : self.end].strip()


class Row(Struct, frozen=True):
    at: int  #: line
    name: Named
    status: Cell | None  #: None when the row is too short to have one
    commit: Cell | None


class Table(Struct, frozen=True):
    at: int  #: line of the header row
    rows: tuple[Row, ...]
    nameless: tuple[int, ...]  #: lines of rows that do not begin with a phase id


def cells(text: str) -> list[Cell]:
    """The cells of a table row; outer pipes are optional, an escaped pipe is content."""
    bounds = [-1]
    escaped = False
    for i, char in enumerate(text):
        if char == "|" and not escaped:
            bounds.append(i)
        escaped = char == "\\" and not escaped
    found = [Cell(a + 1, b) for a, b in pairwise([*bounds, len(text)])]
    if len(found) > 1 and not found[0].of(text):
        del found[0]
    if len(found) > 1 and not found[-1].of(text):
        del found[-1]
    return found


def find_tracker(lines: Lines, outside: Iterable[range], ids: Collection[str]) -> Table | None:
    """The table with a Status column under a tracker's heading, else the one with the columns Phase and Status.

    `ids` are the keys of the phases that have sections. They show which column has the ids.
    """
    headings = [*(heading.at for heading in lines.headings), len(lines.texts)]
    for place, heading in enumerate(lines.headings):
        if "progress tracker" in heading.text.lower() or heading.text.lower() in _TRACKER_HEADINGS:
            for i in range(headings[place] + 1, headings[place + 1]):
                if "status" in (names := _header(lines, i)):
                    return _table(lines, i, names, ids)
    for i in (i for part in outside for i in part):
        names = _header(lines, i)
        if "status" in names and any(name.startswith(UNITS) for name in names):
            table = _table(lines, i, names, ids)
            if "phase" in names or any(key(row.name.id) in ids for row in table.rows):
                return table
    return None


def _header(lines: Lines, index: int) -> list[str]:
    text = lines.texts[index]
    if lines.inert[index] or "|" not in text or "status" not in text.lower():
        return []
    return [cell.of(text).strip("*_`").lower() for cell in cells(text)]


def _table(lines: Lines, header: int, names: list[str], ids: Collection[str]) -> Table:
    status = names.index("status")
    commit = next((i for i, name in enumerate(names) if name in _COMMIT), -1)
    below = []
    for i in range(header + 1, len(lines.texts)):
        text = lines.texts[i]
        if lines.inert[i] or "|" not in text or text.startswith("#"):
            break
        if text.strip("|-: \t\r"):
            below.append((i, text, cells(text)))
    phase, titles = _id_column(names, (status, commit), [row[1:] for row in below], ids)
    rows, nameless = [], []
    for i, text, found in below:
        name = _row_name(text, _cell(found, phase), None if phase == titles else _cell(found, titles))
        if name is not None:
            rows.append(Row(i, name, _cell(found, status), _cell(found, commit)))
        elif text.lstrip().startswith("|"):
            nameless.append(i)
        else:
            break
    return Table(header, tuple(rows), tuple(nameless))


def _id_column(
    names: list[str], taken: tuple[int, int], rows: list[tuple[str, list[Cell]]], ids: Collection[str]
) -> tuple[int, int]:
    """The column of the ids and that of the titles: the column Phase, unless another names more phases."""
    free = [column for column in range(min(len(names), _WIDEST)) if column not in taken] or [0]
    called = [c for c in free if names[c] in UNITS] or [c for c in free if names[c].startswith(UNITS)]
    titles = (called or free)[0]

    def named(column: int) -> int:
        found = (read_name(cell.of(text)) for text, row in rows if (cell := _cell(row, column)))
        return sum(name is not None and key(name.id) in ids for name in found)

    return max([titles, *free], key=named), titles


def _cell(found: list[Cell], column: int) -> Cell | None:
    return found[column] if 0 <= column < len(found) else None


def _row_name(text: str, cell: Cell | None, title: Cell | None) -> Named | None:
    """The id and title of a row; `title` is the title's own cell, if it has one."""
    name = read_name(cell.of(text)) if cell else None
    return name if name is None or title is None else Named(name.id, title.of(text), strong=True, unit="")


def read(lines: Lines, path: str) -> Reading | None:
    sections = find_sections(lines) or find_sections(lines, UNITS)
    table = find_tracker(lines, outside(lines, sections), {key(section.id) for section in sections})
    if table is None:
        return None
    rows = table.rows
    if not rows:
        raise PlanUnreadable(f"{path}:{table.at + 1}: the tracker lists no phase; add rows like | 1 — Title | ⬚ | | |")
    refuse_duplicates(((row.name.id, row.at) for row in rows), "tracker rows", path)
    listed = {key(row.name.id) for row in rows}
    stray = [s for s in sections if not s.strong and key(s.id) not in listed]
    own = [s for s in sections if s.strong or key(s.id) in listed]
    refuse_duplicates(((s.id, s.at) for s in own), "headings", path)
    refuse_difference([row.name.id for row in rows], [s.id for s in own], "tracker", f"{path}:{table.at + 1}")
    by_id = {key(section.id): section for section in own}
    remarks = [
        *(Remark(i + 1, "this tracker row does not begin with a phase id; it is ignored") for i in table.nameless),
        *(Remark(s.at + 1, f"the tracker does not list phase {s.id}; this heading is ignored") for s in stray),
    ]
    return Reading(
        format=Format.TRACKER,
        name="tracker table",
        places=tuple(_place(lines, row, by_id[key(row.name.id)], path) for row in rows),
        decided_by=table.at,
        remarks=tuple(remarks),
    )


def _place(lines: Lines, row: Row, section: Section, path: str) -> Place:
    text = lines.texts[row.at]
    if row.status is None:
        raise PlanUnreadable(f"{path}:{row.at + 1}: the row of phase {row.name.id} has no Status cell; add one")
    status = row.status.of(text)
    spots = [_spot(lines, row.at, row.status, Slot.CELL)]
    if row.commit:
        spots.append(_spot(lines, row.at, row.commit, Slot.COMMIT))
    return Place(
        id=row.name.id,
        title=section.title or row.name.title,
        mark=read_mark(status),
        commit=(read_commit(row.commit.of(text)) if row.commit else "") or read_commit(status),
        at=row.at,
        first=section.at,
        end=section.end,
        spots=tuple(spots),
    )


def _spot(lines: Lines, index: int, cell: Cell, slot: Slot) -> Spot:
    return Spot(slot, lines.offset(index, cell.begin), lines.offset(index, cell.end))


def outside(lines: Lines, sections: Sequence[Section]) -> list[range]:
    """The lines that belong to no phase section."""
    begins = [0, *(section.end for section in sections)]
    ends = [*(section.at for section in sections), len(lines.texts)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def other_table(lines: Lines, ids: Collection[str]) -> tuple[int, str] | None:
    """The first row of any table that says that a phase is done, and the phase's id."""
    for i, text in enumerate(lines.texts):
        if lines.inert[i] or not text.lstrip().startswith("|"):
            continue
        row = [cell.of(text) for cell in cells(text)[:_WIDEST]]
        names = [name.id for name in map(read_name, row) if name is not None and key(name.id) in ids]
        if names and any(read_mark(cell).status is Status.DONE for cell in row):
            return i, names[0]
    return None
