"""The tracker table: rows `| 1 — Title | ⬚ | |` under a heading like Progress Tracker, a section for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.ids import UNITS, Named, key, read_name
from runplan.plan.marks import read_commit, read_mark
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
    from collections.abc import Collection, Iterator

    from runplan.plan.scan import Lines

_HEADINGS = frozenset({"tracker", "progress", "phase tracker", "status tracker", "phases", "status"})
_STATUS = ("status", "state", "progress")
_COMMIT = ("commit", "commits", "hash", "sha")
_NUMBER = ("#", "id", "no", "no.", "nr")


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


def read(lines: Lines, path: str) -> Reading | None:
    sections = find_sections(lines) or find_sections(lines, UNITS)
    table = _find(lines, sections)
    if table is None:
        return None
    if not table.rows:
        raise PlanUnreadable(f"{path}:{table.at + 1}: the tracker lists no phase; add rows like | 1 — Title | ⬚ | | |")
    refuse_duplicates(((row.name.id, row.at) for row in table.rows), "tracker rows", path)
    listed = {key(row.name.id) for row in table.rows}
    own = [s for s in sections if s.strong or key(s.id) in listed]
    refuse_duplicates(((s.id, s.at) for s in own), "headings", path)
    refuse_difference([row.name.id for row in table.rows], [s.id for s in own], "tracker", f"{path}:{table.at + 1}")
    by_id = {key(section.id): section for section in own}
    remarks = [
        *(Remark(i + 1, "this tracker row does not begin with a phase id; it is ignored") for i in table.nameless),
        *(
            Remark(s.at + 1, f"the tracker does not list phase {s.id}; this heading is ignored")
            for s in sections
            if not s.strong and key(s.id) not in listed
        ),
    ]
    return Reading(
        format=Format.TRACKER,
        name="tracker table",
        places=tuple(_place(lines, row, by_id[key(row.name.id)], path) for row in table.rows),
        decided_by=table.at,
        remarks=tuple(remarks),
    )


def _place(lines: Lines, row: Row, section: Section, path: str) -> Place:
    text = lines.texts[row.at]
    if row.status is None:
        raise PlanUnreadable(f"{path}:{row.at + 1}: the row of phase {row.name.id} has no Status cell; add one")
    cells = [(Slot.CELL, row.status), *([(Slot.COMMIT, row.commit)] if row.commit else [])]
    return Place(
        id=row.name.id,
        title=section.title or row.name.title,
        mark=read_mark(row.status.of(text)),
        commit=next(filter(None, (read_commit(cell.of(text)) for _, cell in reversed(cells))), ""),
        at=row.at,
        first=section.at,
        end=section.end,
        spots=tuple(Spot(slot, lines.offset(row.at, c.begin), lines.offset(row.at, c.end)) for slot, c in cells),
    )


def _find(lines: Lines, sections: Collection[Section]) -> Table | None:
    """The table with a Status column under a tracker's heading, else one outside of the sections that lists phases."""
    ids = {key(section.id) for section in sections}
    headers = list(_headers(lines))
    for i, names in headers:
        heading = lines.heading_above(i)
        if heading is not None and ("progress tracker" in heading.text.lower() or heading.text.lower() in _HEADINGS):
            return _table(lines, i, names)
    for i, names in headers:
        if any(name.startswith(UNITS) for name in names) and not any(s.at <= i < s.end for s in sections):
            table = _table(lines, i, names)
            if "phase" in names or any(key(row.name.id) in ids for row in table.rows):
                return table
    return None


def _headers(lines: Lines) -> Iterator[tuple[int, list[str]]]:
    """The header rows that have a Status column, and the names of their columns."""
    for i, text in enumerate(lines.texts):
        if "|" in text and not lines.inert[i] and any(name in text.lower() for name in _STATUS):
            names = [cell.of(text).strip("*_`").lower() for cell in _cells(text)]
            if any(name in _STATUS for name in names):
                yield i, names


def _table(lines: Lines, header: int, names: list[str]) -> Table:
    status = next(i for i, name in enumerate(names) if name in _STATUS)
    commit = next((i for i, name in enumerate(names) if name in _COMMIT), -1)
    free = [i for i in range(len(names)) if i not in (status, commit)] or [0]
    titles = next((i for i in free if names[i].startswith(UNITS)), free[0])
    ids = next((i for i in free if names[i] in _NUMBER), titles)
    rows, nameless = [], []
    for i in range(header + 1, len(lines.texts)):
        text = lines.texts[i]
        if lines.inert[i] or "|" not in text or text.startswith("#"):
            break
        if not text.strip("|-: \t\r"):
            continue
        cells = dict(enumerate(_cells(text)))
        name = read_name(cells[ids].of(text)) if ids in cells else None
        if name is not None and ids != titles and titles in cells:
            name = Named(name.id, cells[titles].of(text), strong=True, unit="")
        if name is not None:
            rows.append(Row(i, name, cells.get(status), cells.get(commit)))
        elif text.lstrip().startswith("|"):
            nameless.append(i)
        else:
            break
    return Table(header, tuple(rows), tuple(nameless))


def _cells(text: str) -> list[Cell]:
    """The cells of a table row; outer pipes are optional, an escaped pipe is content."""
    bounds, escaped = [-1], False
    for i, char in enumerate(text):
        if char == "|" and not escaped:
            bounds.append(i)
        escaped = char == "\\" and not escaped
    found = [Cell(a + 1, b) for a, b in zip(bounds, [*bounds[1:], len(text)], strict=True)]
    first = int(len(found) > 1 and not found[0].of(text))
    return found[first:-1] if len(found) > first + 1 and not found[-1].of(text) else found[first:]
