"""Pipe tables: their cells by column offsets, and the one table of a plan that is its tracker."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import Named, key, read_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.plan.scan import Lines

_TRACKER_HEADINGS = frozenset({"tracker", "progress", "phase tracker", "status tracker", "phases", "status"})
_WIDEST = 20  #: columns in which ids are looked for
_COMMIT = frozenset({"commit", "commits", "hash", "sha"})


class Cell(Struct, frozen=True):
    """Where a cell's content stands in its line, blanks around it included."""

    begin: int
    end: int

    def of(self, text: str) -> str:
        return text[self.begin : self.end].strip()


class Row(Struct, frozen=True):
    """A tracker row of one phase."""

    at: int  #: line
    name: Named
    status: Cell | None  #: None when the row is too short to have one
    commit: Cell | None


class Table(Struct, frozen=True, kw_only=True):
    """The tracker."""

    at: int  #: line of the header row
    rows: tuple[Row, ...]
    nameless: tuple[int, ...]  #: lines of rows that begin with no phase id


def cells(text: str) -> list[Cell]:
    """The cells of a table row; outer pipes are optional, an escaped pipe is content."""
    bounds = [-1]
    escaped = False
    for i, char in enumerate(text):
        if char == "|" and not escaped:
            bounds.append(i)
        escaped = char == "\\" and not escaped
    bounds.append(len(text))
    found = [Cell(begin=a + 1, end=b) for a, b in pairwise(bounds)]
    if len(found) > 1 and not found[0].of(text):
        del found[0]
    if len(found) > 1 and not found[-1].of(text):
        del found[-1]
    return found


def find_tracker(lines: Lines, outside: Iterable[range], ids: frozenset[str]) -> Table | None:
    """The tracker: the table with a Status column under a heading that says so, else with Phase and Status.

    `ids` are the keys of the phases that have sections; they tell which column holds the ids.
    """
    for place, heading in enumerate(lines.headings):
        if "progress tracker" in heading.text.lower() or heading.text.lower() in _TRACKER_HEADINGS:
            for i in _under(lines, place):
                if "status" in (names := _header(lines, i)):
                    return _table(lines, i, names, ids)
    for part in outside:
        for i in part:
            names = _header(lines, i)
            if "status" in names and any(name.startswith("phase") for name in names):
                table = _table(lines, i, names, ids)
                if "phase" in names or any(key(row.name.id) in ids for row in table.rows):
                    return table
    return None


def _under(lines: Lines, place: int) -> range:
    borders = [heading.at for heading in lines.headings[place : place + 2]]
    return range(borders[0] + 1, borders[1] if len(borders) == 2 else len(lines.texts))


def _header(lines: Lines, index: int) -> list[str]:
    text = lines.texts[index]
    if lines.inert[index] or "|" not in text or "status" not in text.lower():
        return []
    return [cell.of(text).strip("*_`").lower() for cell in cells(text)]


def _table(lines: Lines, header: int, names: list[str], ids: frozenset[str]) -> Table:
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
        name = _name(text, found, phase, titles)
        if name is not None:
            rows.append(Row(at=i, name=name, status=_cell(found, status), commit=_cell(found, commit)))
        elif text.lstrip().startswith("|"):
            nameless.append(i)
        else:
            break
    return Table(at=header, rows=tuple(rows), nameless=tuple(nameless))


def _id_column(
    names: list[str], taken: tuple[int, int], rows: list[tuple[str, list[Cell]]], ids: frozenset[str]
) -> tuple[int, int]:
    """The column with the ids, and the one with the titles: that called Phase, unless another names more phases."""
    free = [column for column in range(min(len(names), _WIDEST)) if column not in taken] or [0]
    titles = next((c for c in free if names[c] == "phase"), None)
    if titles is None:
        titles = next((c for c in free if names[c].startswith("phase")), free[0])

    def named(column: int) -> int:
        found = (read_name(cell.of(text)) for text, row in rows if (cell := _cell(row, column)))
        return sum(name is not None and key(name.id) in ids for name in found)

    return max([titles, *free], key=named), titles


def _cell(found: list[Cell], column: int) -> Cell | None:
    return found[column] if 0 <= column < len(found) else None


def _name(text: str, found: list[Cell], phase: int, titles: int) -> Named | None:
    """The id of a row; a title may stand in a column of its own."""
    cell, title = _cell(found, phase), _cell(found, titles)
    name = read_name(cell.of(text)) if cell else None
    if name is None or phase == titles or title is None:
        return name
    return Named(id=name.id, title=title.of(text), strong=True, phase=False)
