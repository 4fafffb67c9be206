"""A reading: the place of every phase in the text of a plan, as one of the formats sees it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from runplan.errors import PlanUnreadable
from runplan.plan.ids import key
from runplan.plan.marks import Mark, Status, read_commit, read_mark, status_value, title_says_done

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from runplan.plan.scan import Entry, Lines


class Format(StrEnum):
    """The way a plan is written; the value is its name in the front matter and in JSON."""

    TRACKER = "tracker"
    SPEC_KIT = "spec-kit"
    HUMANLAYER = "humanlayer"
    SECTIONS = "sections"
    KIRO = "kiro"
    OPENSPEC = "openspec"
    HEADINGS = "headings"
    TODO = "todo"
    CHECKLIST = "checklist"


class Slot(StrEnum):
    """How a status is written into a span of the text."""

    CELL = "cell"  #: a table cell
    COMMIT = "commit"  #: the cell of the commit
    LINE = "line"  #: the value of a status line
    NEW_LINE = "new-line"  #: a status line that has to be added
    BOX = "box"  #: the character in a task box


class Spot(Struct, frozen=True):
    slot: Slot
    begin: int  #: byte offsets
    end: int


class Remark(Struct, frozen=True):
    """A warning about a plan that can be used."""

    line: int
    text: str


class Place(Struct, frozen=True, kw_only=True):
    """The place of one phase in the text."""

    id: str
    title: str
    mark: Mark
    first: int  #: first line of its text
    end: int  #: line after its text
    at: int  #: line with the status
    spots: tuple[Spot, ...]  #: where its status is written
    commit: str = ""
    entries: tuple[Entry, ...] = ()  #: its work items; without them its text names them
    depends: tuple[str, ...] = ()  #: phases that the format has it wait for, in addition to those that its text names
    touches: tuple[str, ...] = ()

    @property
    def is_bare(self) -> bool:
        """Whether the plan states no status for it."""
        return self.spots[0].slot is Slot.NEW_LINE and self.mark.status is Status.TODO


class Reading(Struct, frozen=True, kw_only=True):
    format: Format
    name: str  #: for people: "Kiro tasks"
    places: tuple[Place, ...]
    decided_by: int  #: the line that shows the format
    unit: str = "phase"  #: the word for a phase in its prose
    remarks: tuple[Remark, ...] = ()


class Section(Struct, frozen=True):
    id: str
    title: str
    strong: bool  #: see Named.strong
    at: int  #: line of its heading
    end: int  #: line after its last
    level: int  #: of its heading


def find_sections(
    lines: Lines, units: Collection[str] = ("phase",), levels: Sequence[int] = (2, 3, 4)
) -> tuple[Section, ...]:
    """The sections of the first level that has headings like `Phase <id> — <title>`; the unit "" is for bare ids.

    A heading like `## Phase 2 Findings` counts only when no other heading names that phase more clearly.
    """
    found: dict[int, list[Section]] = {level: [] for level in levels}
    for heading in lines.headings:
        name = heading.name
        if name is not None and heading.level in found and name.unit in units:
            section = Section(name.id, name.title, name.strong, heading.at, heading.end, heading.level)
            found[heading.level].append(section)
    sections = next(filter(None, found.values()), [])
    clear = {key(section.id) for section in sections if section.strong}
    return tuple(section for section in sections if section.strong or key(section.id) not in clear)


class WithoutStatuses(PlanUnreadable):
    """The plan has phase sections and states no status."""


def section_places(lines: Lines, sections: Sequence[Section]) -> tuple[Place, ...]:
    return tuple(section_place(lines, id_=s.id, title=s.title, first=s.at, end=s.end) for s in sections)


def section_place(lines: Lines, *, id_: str, title: str, first: int, end: int) -> Place:
    """A phase that is a section: its status line decides, else its heading, else its boxes."""
    below = lines.start(first + 1)
    new = Spot(Slot.NEW_LINE, below, below)
    place = Place(id=id_, title=title, mark=Mark(Status.TODO), first=first, end=end, at=first, spots=(new,))
    if (found := _status_line(lines, first, end)) is not None:
        at, columns = found
        value = lines.texts[at][slice(*columns)].strip()
        spot = Spot(Slot.LINE, *(lines.offset(at, column) for column in columns))
        return replace(place, mark=read_mark(value), commit=read_commit(value), at=at, spots=(spot,))
    if title_says_done(title):
        return replace(place, mark=Mark(Status.DONE))
    boxes = [box for box in lines.boxes_in(first, end) if not box.optional]
    spots = tuple(box_spot(lines, box) for box in boxes)
    return replace(place, mark=mark_of(boxes), at=boxes[0].at, spots=spots) if boxes else place


def _status_line(lines: Lines, first: int, end: int) -> tuple[int, tuple[int, int]] | None:
    """The status line of a section and the columns of its value: bold anywhere, plain only above its sub-headings."""
    is_above = True
    for i in range(first + 1, end):
        text = lines.texts[i]
        if lines.inert[i]:
            continue
        is_above = is_above and not text.startswith("#")
        if "status" in text.lower() and (columns := status_value(text, only_bold=not is_above)):
            return i, columns
    return None


def mark_of(boxes: Sequence[Entry]) -> Mark:
    """Done when all are ticked."""
    known = all(box.sign in "xX " for box in boxes)
    return Mark(Status.DONE if all(box.ticked for box in boxes) else Status.TODO, known=known)


def box_spot(lines: Lines, box: Entry) -> Spot:
    at = lines.offset(box.at, box.column)
    return Spot(Slot.BOX, at, at + len(box.sign.encode()))


def refuse_duplicates(named: Iterable[tuple[str, int]], what: str, path: str) -> None:
    seen: dict[str, int] = {}
    for id_, index in named:
        if (first := seen.setdefault(key(id_), index)) != index:
            raise PlanUnreadable(
                f"{path}:{index + 1}: two {what} are called {id_!r}, the first on line {first + 1}; rename one"
            )


def refuse_difference(listed: Sequence[str], headings: Sequence[str], tracker: str, where: str) -> None:
    if set(map(key, listed)) != set(map(key, headings)):
        raise PlanUnreadable(
            f"{where}: the {tracker} lists the phases {', '.join(listed)}; "
            f"the '## Phase' headings are {', '.join(headings) or 'none'}; make them agree"
        )
