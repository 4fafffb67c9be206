"""The tracker table: rows `| 1 — Title | ⬚ | |` under a heading like Progress Tracker, a section for each row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

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
    from collections.abc import Collection

    from runplan.plan.scan import Lines

_HEADINGS = frozenset({"tracker", "progress", "phase tracker", "status tracker", "phases", "status"})
_STATUS = ("status", "state", "progress")
_COMMIT = ("commit", "commits", "hash", "sha")
_NUMBER = ("#", "id", "no", "no.", "nr")


class Row(Struct, frozen=True):
    at: int  #: line
    name: Named
    cells: dict[Slot, tuple[int, int]]  #: columns of the status and the commit, blanks around them included


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
    remarks = [Remark(i + 1, "this tracker row does not begin with a phase id; it is ignored") for i in table.nameless]
    for section in sections:
        if key(section.id) not in listed:
            what = f"the tracker does not list phase {section.id}; this heading is ignored"
            remarks.append(Remark(section.at + 1, what))
    return Reading(
        format=Format.TRACKER,
        name="tracker table",
        places=tuple(_place(lines, row, by_id[key(row.name.id)], path) for row in table.rows),
        decided_by=table.at,
        remarks=tuple(remarks),
    )


def _place(lines: Lines, row: Row, section: Section, path: str) -> Place:
    texts = {slot: lines.texts[row.at][slice(*columns)].strip() for slot, columns in row.cells.items()}
    if Slot.CELL not in texts:
        raise PlanUnreadable(f"{path}:{row.at + 1}: the row of phase {row.name.id} has no Status cell; add one")
    return Place(
        id=row.name.id,
        title=section.title or row.name.title,
        mark=read_mark(texts[Slot.CELL]),
        commit=read_commit(texts.get(Slot.COMMIT, "")) or read_commit(texts[Slot.CELL]),
        at=row.at,
        first=section.at,
        end=section.end,
        spots=tuple(Spot(slot, *(lines.offset(row.at, c) for c in cell)) for slot, cell in row.cells.items()),
    )


def _find(lines: Lines, sections: Collection[Section]) -> Table | None:
    """The table with a Status column under a tracker's heading, else one outside of the sections that lists phases."""
    ids = {key(section.id) for section in sections}
    headers = [(i, names) for i in range(len(lines.texts)) if (names := _header(lines, i))]
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


def _header(lines: Lines, index: int) -> list[str]:
    """The names of the columns of a header row that has a Status column."""
    text = lines.texts[index]
    if "|" not in text or lines.inert[index] or not any(name in text.lower() for name in _STATUS):
        return []
    names = [text[slice(*cell)].strip().strip("*_`").lower() for cell in _cells(text)]
    return names if any(name in _STATUS for name in names) else []


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
        cells = dict(enumerate(_cells(text)))
        name = read_name(text[slice(*cells[ids])].strip()) if ids in cells else None
        if name is not None and ids != titles and titles in cells:
            name = replace(name, title=text[slice(*cells[titles])].strip())
        if name is not None:
            found = {Slot.CELL: cells.get(status), Slot.COMMIT: cells.get(commit)}
            rows.append(Row(i, name, {slot: cell for slot, cell in found.items() if cell}))
        elif text.strip("|-: \t\r"):
            nameless.append(i)
    return Table(header, tuple(rows), tuple(nameless))


def _cells(text: str) -> list[tuple[int, int]]:
    """The columns of the cells of a row; outer pipes are optional, an escaped pipe is content."""
    pipes = [pipe.start() for pipe in re.finditer(r"(?<!\\)(?:\\\\)*\|", text)]
    pipes = [text.index("|", at) for at in pipes]
    found = list(zip([0, *(at + 1 for at in pipes)], [*pipes, len(text)], strict=True))
    first = int(len(found) > 1 and not text[slice(*found[0])].strip())
    return found[first:-1] if len(found) > first + 1 and not text[slice(*found[-1])].strip() else found[first:]
