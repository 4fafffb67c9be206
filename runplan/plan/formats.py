"""The parts of a plan with statuses: tracker tables, phase sections and checklists."""

from __future__ import annotations

import re
from bisect import bisect
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import Named, key, read_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.plan.scan import Lines


class Status(StrEnum):
    TODO = "todo"
    IN_PROGRESS = "in-progress"
    BLOCKED = "blocked"
    DONE = "done"


class Mark(Struct, frozen=True):
    status: Status
    known: bool = True  #: False when the text is no known status and counts as todo


_GLYPH = re.compile("✅|🟡|⏳|⚙|🔴|[⬚⬜]|\\[[xX ]?\\]")
_GLYPHS = {
    **dict.fromkeys(("✅", "[x]"), Status.DONE),
    **dict.fromkeys(("🟡", "⏳", "⚙"), Status.IN_PROGRESS),
    "🔴": Status.BLOCKED,
}
_WORD = re.compile(r"\b(?:done|in[ -]progress|blocked)\b", re.IGNORECASE)
_WORDS = {"done": Status.DONE, "blocked": Status.BLOCKED}
#: Words that mean done at the beginning of a text: "Merged in #12", but not "waits until #12 is merged".
_FINISHED = re.compile(r"[\W_]*(?:fully )?(complete|completed|finished|shipped|merged)\b", re.IGNORECASE)
#: Words that negate a "done" after them.
_NOT_YET = re.compile(r"(?:\b(?:not|never|almost|nearly|mostly|half|partly|partially|to be)\b|n't\b|%)", re.IGNORECASE)
_TODO = frozenset(
    {"", "-", "–", "—", "not started", "not done", "not yet done", "incomplete", "not complete", "unfinished"}
    | {"ready", "todo", "to do", "pending", "planned"}
)
_HASH = re.compile(r"`([0-9a-f]{7,40})`|(?<![\w`])(?=[a-f]*[0-9])([0-9a-f]{7,40})(?![\w`])")

#: The text that is written for a status. Only a person writes the other two.
WRITTEN = {Status.DONE: "✅ Done", Status.TODO: "⬚"}


def read_mark(text: str) -> Mark:
    """The status in a cell or a status line; the first glyph decides, else the first word."""
    glyph = _GLYPH.search(text)
    word = _WORD.search(text)
    if glyph is not None and (status := _GLYPHS.get(glyph.group().lower())) is not None:
        return Mark(status)
    if glyph is None and _FINISHED.match(text):
        return Mark(Status.DONE)
    if word is not None and word.group().lower() == "done" and _NOT_YET.search(text, 0, word.start()):
        word = None
    if word is None or (glyph is not None and word.group().lower() != "blocked"):
        return Mark(Status.TODO, known=glyph is not None or _stripped(text) in _TODO)
    return Mark(_WORDS.get(word.group().lower(), Status.IN_PROGRESS))


def says_complete(status: str) -> bool:
    """Whether the status in a front matter means that the whole plan is done."""
    status = _stripped(status)
    found = _FINISHED.match(status)
    return status == "done" or (found is not None and found.end() == len(status))


def _stripped(text: str) -> str:
    return text.strip(" \t\r*_`.").lower()


def read_commit(text: str) -> str:
    """The last commit hash in a text; "" for none."""
    found = _HASH.findall(text)
    return found[-1][0] or found[-1][1] if found else ""


# --- tracker tables ----------------------------------------------------------------------------------------

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


def find_tracker(lines: Lines, outside: Iterable[range], ids: frozenset[str]) -> Table | None:
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
        if "status" in names and any(name.startswith("phase") for name in names):
            table = _table(lines, i, names, ids)
            if "phase" in names or any(key(row.name.id) in ids for row in table.rows):
                return table
    return None


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
        name = _row_name(text, _cell(found, phase), None if phase == titles else _cell(found, titles))
        if name is not None:
            rows.append(Row(i, name, _cell(found, status), _cell(found, commit)))
        elif text.lstrip().startswith("|"):
            nameless.append(i)
        else:
            break
    return Table(header, tuple(rows), tuple(nameless))


def _id_column(
    names: list[str], taken: tuple[int, int], rows: list[tuple[str, list[Cell]]], ids: frozenset[str]
) -> tuple[int, int]:
    """The column of the ids and that of the titles: the column Phase, unless another names more phases."""
    free = [column for column in range(min(len(names), _WIDEST)) if column not in taken] or [0]
    called = [c for c in free if names[c] == "phase"] or [c for c in free if names[c].startswith("phase")]
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
    return name if name is None or title is None else Named(name.id, title.of(text), strong=True, phase=False)


# --- phase sections ----------------------------------------------------------------------------------------

#: A status line up to its value.
STATUS = re.compile(r"[ \t]*(?:[-*>+][ \t]+)?(\*\*)?Status(?:\*\*:|:\*\*|:)[ \t]*", re.IGNORECASE)
#: Another field after it; compiled when there is a status line.
_NEXT_FIELD = r"\*\*[A-Za-z ]{1,30}(?::\*\*|\*\*:)"
_BOX = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,4}[.)])[ \t]+\[([^\]])\](?=[ \t]|\Z)[ \t]*")


class Section(Struct, frozen=True):
    id: str
    title: str
    strong: bool  #: see Named.strong
    at: int  #: line of its heading
    end: int  #: line after its last
    level: int  #: of its heading


def find_sections(lines: Lines) -> tuple[Section, ...]:
    """The sections `## Phase <id> — <title>` in the order of the text, else those of level 3.

    A heading like `## Phase 2 Findings` counts only when no other heading names that phase more clearly.
    """
    sections = _at_level(lines, 2) or _at_level(lines, 3)
    clear = {key(section.id) for section in sections if section.strong}
    return tuple(section for section in sections if section.strong or key(section.id) not in clear)


def _at_level(lines: Lines, level: int) -> list[Section]:
    # A level 1 heading ends no section: in real plans it is a shell comment of a badly nested fence.
    borders = [h for h in lines.headings if 2 <= h.level <= level]
    ends = [*(h.at for h in borders[1:]), len(lines.texts)]
    found = []
    for heading, end in zip(borders, ends, strict=False):
        name = read_name(heading.text) if heading.level == level else None
        if name is not None and name.phase:
            found.append(Section(name.id, name.title, name.strong, heading.at, end, level))
    return found


def status_line(lines: Lines, section: Section) -> tuple[int, Cell] | None:
    """The section's status line and the columns of its value: bold anywhere, plain only above its sub-headings."""
    is_above = True
    for i in range(section.at + 1, section.end):
        text = lines.texts[i]
        if lines.inert[i]:
            continue
        is_above = is_above and not text.startswith("#")
        found = STATUS.match(text)
        if found is not None and (is_above or found[1]):
            other = re.compile(_NEXT_FIELD).search(text, found.end())
            value = text[: other.start()].rstrip(" \t|·•,;—–") if other else text.rstrip()
            return i, Cell(found.end(), max(found.end(), len(value)))
    return None


def ticked(lines: Lines, section: Section) -> tuple[int, int]:
    """The number of ticked boxes of the section, and of all its boxes."""
    boxes = [_box(lines, i) for i in range(section.at + 1, section.end)]
    marks = [box[2] for box in boxes if box is not None]
    return sum(mark in "xX" for mark in marks), len(marks)


def _box(lines: Lines, index: int) -> re.Match[str] | None:
    return None if lines.inert[index] else _BOX.match(lines.texts[index])


# --- checklists --------------------------------------------------------------------------------------------

_LANDED = re.compile(r"\(`?([0-9a-f]{7,40})`?(?:,[^()]*)?\)\Z")
#: Boxes under these headings are no work.
_NOT_WORK = re.compile(
    r"accept|criteri|verif|definition of done|question|risk|goals|prerequisite|dependenc", re.IGNORECASE
)


class Box(Struct, frozen=True):
    id: str
    title: str
    at: int  #: line
    end: int  #: line after its last continuation line
    column: int  #: of the character between the brackets
    commit: str


def find_boxes(lines: Lines, outside: Iterable[range], *, only_named: bool) -> tuple[Box, ...]:
    """The phases of a checklist: items that say `Phase <id>`, else every top-level item, by id or numbered."""
    boxes = [(i, box) for part in outside for i in part if (box := _box(lines, i)) and _is_top_level(box)]
    found = [(i, box, *_title(lines.texts[i][box.end() :])) for i, box in boxes]
    named = [(*each, name) for each in found if (name := read_name(each[2])) and name.phase]
    if only_named or named:
        return tuple(_made(lines, i, box, name.id, name.title, commit) for i, box, _, commit, name in named)
    headings = [heading.at for heading in lines.headings]
    found = [each for each in found if _is_work(lines, bisect(headings, each[0]))]
    names = [read_name(title) for _, _, title, _ in found]
    own = [name for name in names if name is not None and name.strong]
    if len(own) == len(found) == len({key(name.id) for name in own}):
        chosen = zip(found, own, strict=True)
        return tuple(_made(lines, i, box, name.id, name.title, commit) for (i, box, _, commit), name in chosen)
    return tuple(_made(lines, i, box, str(n), title, commit) for n, (i, box, title, commit) in enumerate(found, 1))


def _is_top_level(box: re.Match[str]) -> bool:
    return len(box[1]) <= 3 and "\t" not in box[1]


def _title(text: str) -> tuple[str, str]:
    """The title without the `(hash, note)` that a landing adds, and the hash."""
    text = text.strip()
    landed = _LANDED.match(text, max(text.rfind("("), 0))
    return (text[: landed.start()].rstrip(), landed[1]) if landed else (text, "")


def _is_work(lines: Lines, headings_above: int) -> bool:
    return not (headings_above and _NOT_WORK.search(lines.headings[headings_above - 1].text))


def _made(lines: Lines, index: int, box: re.Match[str], id_: str, title: str, commit: str) -> Box:
    """The box with its lines: those that follow it more deeply indented, blank lines in between included."""
    end = index + 1
    for i in range(index + 1, len(lines.texts)):
        text = lines.texts[i]
        if text.strip():
            if len(text) - len(text.lstrip()) <= len(box[1]):
                break
            end = i + 1
    return Box(id_, title, index, end, box.start(2), commit)
