"""Gives a plan of bare phase sections the tracker it lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core import frontmatter
from runplan.core.errors import PlanUnreadable
from runplan.core.ids import key, read_name
from runplan.core.layout import Layout, find_layout, outside, what_is_missing
from runplan.core.marks import WRITTEN, Status, read_mark, says_complete
from runplan.core.quickclass import NamedTuple
from runplan.core.scan import Lines, scan
from runplan.core.sections import ticked
from runplan.core.table import cells

if TYPE_CHECKING:
    from runplan.core.sections import Section

#: A heading that says done: `## Phase 1 — Parser ✅`, `… (done in 4a6075d)`, `… — Done`; not `… (complete rewrite)`.
_DONE_TITLE = re.compile(
    r"✅|\[[xX]\]|(?:[(\[]|[—–-][ \t]+)(?:done|complete|completed|finished|shipped|merged)"
    r"(?:[ \t,:]+(?:(?:in|on|at|by)[ \t]+)?[`#v]?[0-9a-f][\w.:#-]{0,40}`?)?[)\]]?[ \t]*\Z",
    re.IGNORECASE,
)


class Fixed(NamedTuple):
    """A plan with a tracker."""

    text: bytes
    told: tuple[str, ...] = ()  #: which phases are not plainly todo, and why


def add_tracker(text: bytes, *, path: str) -> Fixed:
    """The plan with a tracker above its first phase; a plan that keeps its statuses somewhere comes back as it is.

    Finished work stays finished: a phase is done where its heading, all its boxes or the front matter say so.
    Raises PlanUnreadable when a tracker would not help: there are no phase sections, or two of one name, or another
    table says which phases are done.
    """
    lines = scan(text, path=path)
    found = find_layout(lines, path=path)
    if isinstance(found, Layout):
        return Fixed(text=text)
    if not found.sections:
        raise PlanUnreadable(what_is_missing(lines, (), path))
    _refuse_other_table(lines, found.sections, path)
    front = frontmatter.read(lines)
    complete = front is not None and says_complete(front.get("status") or "")
    told = [_status(lines, section, complete=complete) for section in found.sections]
    statuses = [status for status, _ in told]
    return Fixed(text=_with_tracker(lines, found.sections, statuses), told=tuple(why for _, why in told if why))


def _status(lines: Lines, section: Section, *, complete: bool) -> tuple[Status, str]:
    """What the section says of its own status, and what a person should know about that."""
    done, boxes = ticked(lines, section)
    if complete:
        return Status.DONE, f"phase {section.id} is done: the front matter says that the plan is complete"
    if _DONE_TITLE.search(section.title):
        return Status.DONE, f"phase {section.id} is done: its heading says so"
    if boxes and done == boxes:
        return Status.DONE, f"phase {section.id} is done: all its boxes are ticked"
    if done:
        remedy = f"if it is finished, write {WRITTEN[Status.DONE]} into its row"
        return Status.TODO, f"phase {section.id} is todo: {done} of {boxes} boxes are ticked; {remedy}"
    return Status.TODO, ""


def _refuse_other_table(lines: Lines, sections: tuple[Section, ...], path: str) -> None:
    """Refuse to add a tracker beside a table that marks phases as done under a column of another name."""
    ids = {key(section.id) for section in sections}
    for part in outside(lines, sections):
        for i in part:
            text = lines.texts[i]
            if lines.inert[i] or not text.lstrip().startswith("|"):
                continue
            row = [cell.of(text) for cell in cells(text)]
            names = [name.id for name in map(read_name, row) if name is not None and key(name.id) in ids]
            if names and any(read_mark(cell).status is Status.DONE for cell in row):
                raise PlanUnreadable(
                    f"{path}:{i + 1}: this table says that phase {names[0]} is done, so no tracker was added; to make "
                    "the table the tracker, call its columns Phase and Status"
                )


def _with_tracker(lines: Lines, sections: tuple[Section, ...], statuses: list[Status]) -> bytes:
    rows = ["## Progress Tracker", "", "| Phase | Status | Commit | Notes |", "|-------|--------|--------|-------|"]
    for section, status in zip(sections, statuses, strict=True):
        title = section.title.replace("\\|", "|").replace("|", "\\|")
        rows.append(f"| {section.id}{' — ' if title else ''}{title} | {WRITTEN[status]} | | |")
    at = lines.start(_above(lines, sections[0]))
    tracker = lines.eol.join(row.encode() for row in [*rows, "", ""])
    return lines.raw[:at] + tracker + lines.raw[at:]


def _above(lines: Lines, first: Section) -> int:
    """The line to put the tracker on: before the first phase, or before the level 2 heading that holds it."""
    holders = [h.at for h in lines.headings if h.level == 2 and h.at < first.at]
    return holders[-1] if first.level > 2 and holders else first.at
