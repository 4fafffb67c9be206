"""The tracker table: rows `| 1 — Title | ⬚ | |` under a heading like Progress Tracker, a section for each row."""

import re
from collections.abc import Iterator, Sequence, Set
from typing import TypeAlias

from msgspec.structs import replace

from runplan.domain.plan import reading
from runplan.domain.plan.marks import DONE_TITLE, UNITS, Named, Status, id_key, read_commit, read_mark, read_name
from runplan.domain.plan.scan import LABEL, Heading, Lines

#: The line of a row, its phase (None without an id), and its status and commit with their blanks.
Row: TypeAlias = tuple[int, Named | None, tuple[reading.Spot, ...]]
_HEADINGS = frozenset({"tracker", "progress", "phase tracker", "status tracker", "phases", "status"})
_STATUS = ("status", "state", "progress", "estado", "statut", "stato", "статус", "状态", "狀態", "状態", "상태")
_DEPENDS = ("depends", "dependenc", "blocked by")
_NOTES = ("note", "comment", "reason", "remark", "owner", "assignee")
_NUMBER = ("#", "id", "no", "no.", "nr")


def read_tracker(lines: Lines) -> Iterator[reading.Reading]:
    sections = reading.find_sections(lines, "phase") or reading.find_sections(lines, *UNITS)
    if (tracker := find_table(lines, sections)) is None:
        return
    header, table = tracker
    rows = [(line, name, spots) for line, name, spots in table if name is not None]
    if not rows:
        raise lines.error_at(header, "the tracker lists no phase; add rows like | 1 — Title | ⬚ | | |")
    listed = {id_key(name.id) for _, name, _ in rows}
    if listed != {id_key(section.name.id) for section in sections}:  # the table may say Phase for each Milestone
        sections = _find_listed(lines, listed) or sections
    described = {id_key(section.name.id) for section in sections}
    statuses = [spot for _, _, spots in rows for spot in spots if spot.slot == "cell"]
    done = {spot.at for spot in statuses if read_mark(spot.text_in(lines)).status is Status.DONE}
    history = [row for row in rows if id_key(row[1].id) not in described and row[0] in done]
    if sections and len(history) == len(rows):
        return  # a table of phases that were done before those of the plan
    listed_sections = [section for section in sections if section.name.strong or id_key(section.name.id) in listed]
    listed_sections += [Heading(line, LABEL, "", name, line + 1) for line, name, _ in history] if sections else []
    message = "this tracker row does not begin with a phase id; it is ignored"
    remarks = [reading.Remark(line + 1, message) for line, name, _ in table if name is None]
    for section in sections:
        if section not in listed_sections:
            message = f"the tracker does not list phase {section.name.id}; this heading is ignored"
            remarks.append(reading.Remark(section.at + 1, message))
    names = _column_names(lines.texts[header])
    depends = next((number for number, name in enumerate(names) if name.startswith(_DEPENDS)), len(names))
    noted = [number for number, name in enumerate(names) if name.startswith(_NOTES)]
    places = []
    paired_with = reading.pair_sections(lines, "tracker", [(name.id, line) for line, name, _ in rows], listed_sections)
    for (line, name, spots), section in zip(rows, paired_with, strict=True):
        texts = {spot.slot: spot.text_in(lines) for spot in spots}
        if "cell" not in texts:
            raise lines.error_at(line, f"the row of phase {name.id} has no Status cell; add one")
        commit = read_commit(texts.get("commit", "")) or read_commit(texts["cell"])
        place = reading.Place(id=name.id, title=section.name.title or name.title, first=section.at, end=section.end)
        cells = [lines.texts[line][slice(*cell)].strip() for cell in _cell_columns(lines.texts[line])]
        mark = read_mark(texts["cell"], "; ".join(cells[number] for number in noted if number < len(cells)).strip("; "))
        places.append(replace(place, mark=mark, commit=commit, spots=spots, prose=tuple(cells[depends:][:1])))
        own = reading.section_places(lines, [section])[0]
        is_stated = re.search(DONE_TITLE, section.text) or any(spot.slot in ("line", "word") for spot in own.spots)
        if is_stated and own.mark.known and (own.mark.status is Status.DONE) != (mark.status is Status.DONE):
            message = f"the section of phase {name.id} and its row in the tracker disagree about done"
            remarks.append(reading.Remark(line + 1, f"{message}; correct one of them", is_error=True))
    unit = sections[0].name.unit if sections else "phase"
    yield reading.Reading("tracker", "tracker table", tuple(places), header, unit, tuple(remarks))


def _find_listed(lines: Lines, ids: Set[str]) -> list[Heading]:
    """The headings that count these phases, or headings of one level with ids like V2 or 1.4, one for each."""
    by_word = (reading.find_sections(lines, unit) for unit in UNITS)
    series = (*by_word, *reading.counted_headings(lines.headings).values())
    telling = [h for h in lines.headings if h.level > 1 and id_key(h.name.id) in ids and not h.name.id.isdigit()]
    levels = ([heading for heading in telling if heading.level == level] for level in (2, 3, 4))
    listed = (named for named in (*series, *levels) if ids == {id_key(heading.name.id) for heading in named})
    return next((named for named in listed if len(named) == len(ids) > 1), [])


def find_table(lines: Lines, sections: Sequence[Heading]) -> tuple[int, list[Row]] | None:
    """The header and the rows of the table under a tracker's heading, else of one outside of the sections."""
    ids = {id_key(section.name.id) for section in sections}
    others = []
    for header, names, rows in list_status_tables(lines):
        heading = lines.heading_above(header)
        title = heading.text.lower() if heading is not None else ""
        if "progress tracker" in title or title in _HEADINGS:
            return header, rows
        is_counted = any(name.startswith(UNITS) for name in names) and any(name in _STATUS for name in names)
        is_listed = "phase" in names or any(name is not None and id_key(name.id) in ids for _, name, _ in rows)
        keys = [id_key(name.id) for _, name, _ in rows if name is not None]
        is_list = (is_counted and is_listed) or _find_listed(lines, {*keys}) != []
        is_list = is_list and len(keys) == len(set(keys))
        if is_list and not any(section.at <= header < section.end for section in sections):
            others.append((header, rows))
    return others[0] if others else None


def list_status_tables(lines: Lines) -> Iterator[tuple[int, list[str], list[Row]]]:
    """The header, the names of the columns and the rows of each table with a column for a status."""
    end = 0
    for header, text in enumerate(lines.texts):
        if header < end or "|" not in text or lines.inert[header] or not any(word in text.lower() for word in _STATUS):
            continue
        names = _column_names(text)
        status = next((i for i, name in enumerate(names) if name.endswith(_STATUS)), None)
        if status is None:
            continue
        commit = next((i for i, name in enumerate(names) if name in ("commit", "commits", "hash", "sha")), -1)
        free = [i for i in range(len(names)) if i not in (status, commit)] or [0]
        titles = next((i for i in free if names[i].startswith(UNITS)), free[0])
        ids = next((i for i in free if names[i] in _NUMBER), titles)
        slots: tuple[tuple[reading.Slot, int], ...] = (("cell", status), ("commit", commit))
        rows: list[Row] = []
        for line in range(header + 1, len(lines.texts)):
            row = lines.texts[line]
            if lines.inert[line] or "|" not in row or row.startswith("#"):
                break
            cells = dict(enumerate(_cell_columns(row)))
            name = read_name(row[slice(*cells[ids])].strip()) if ids in cells else None
            if name is not None and ids != titles and titles in cells:
                name = replace(name, title=row[slice(*cells[titles])].strip())
            if row.strip("|-: \t\r"):
                spots = (reading.Spot(slot, line, *cells[number]) for slot, number in slots if number in cells)
                rows.append((line, name, tuple(spots)))
        end = rows[-1][0] + 1 if rows else header + 1
        yield header, names, rows


def _column_names(text: str) -> list[str]:
    return [text[slice(*cell)].strip().strip("*_`").lower() for cell in _cell_columns(text)]


def _cell_columns(text: str) -> list[tuple[int, int]]:
    """The columns of the cells of a row; outer pipes are optional, an escaped pipe is content."""
    pipes = [pipe.end() - 1 for pipe in re.finditer(r"(?<!\\)(?:\\\\)*\|", text)]
    spans = list(zip([0, *(pipe + 1 for pipe in pipes)], [*pipes, len(text)], strict=True))
    first = int(len(spans) > 1 and not text[slice(*spans[0])].strip())
    return spans[first:-1] if len(spans) > first + 1 and not text[slice(*spans[-1])].strip() else spans[first:]
