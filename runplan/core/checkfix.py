"""Gives a plan of bare phase sections the tracker it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.errors import PlanUnreadable
from runplan.core.layout import Layout, find_layout, what_is_missing
from runplan.core.marks import WRITTEN, Status
from runplan.core.scan import Lines, scan

if TYPE_CHECKING:
    from runplan.core.sections import Section


def add_tracker(text: bytes, *, path: str) -> bytes:
    """The plan with a tracker above its first phase; a plan that keeps its statuses somewhere comes back as it is.

    Raises PlanUnreadable when a tracker would not help: there are no phase sections, or two of one name.
    """
    lines = scan(text, path=path)
    found = find_layout(lines, path=path)
    if isinstance(found, Layout):
        return text
    if not found.sections:
        raise PlanUnreadable(what_is_missing(lines, (), path))
    return _with_tracker(lines, found.sections)


def _with_tracker(lines: Lines, sections: tuple[Section, ...]) -> bytes:
    rows = ["## Progress Tracker", "", "| Phase | Status | Commit | Notes |", "|-------|--------|--------|-------|"]
    for section in sections:
        title = section.title.replace("\\|", "|").replace("|", "\\|")
        rows.append(f"| {section.id}{' — ' if title else ''}{title} | {WRITTEN[Status.TODO]} | | |")
    at = lines.start(_above(lines, sections[0]))
    tracker = lines.eol.join(row.encode() for row in [*rows, "", ""])
    return lines.raw[:at] + tracker + lines.raw[at:]


def _above(lines: Lines, first: Section) -> int:
    """The line to put the tracker on: before the first phase, or before the level 2 heading that holds it."""
    holders = [h.at for h in lines.headings if h.level == 2 and h.at < first.at]
    return holders[-1] if first.level > 2 and holders else first.at
