"""Writes a phase's status back into its plan: one cell, line or key changes, every other byte stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runplan.core import frontmatter
from runplan.core.errors import PlanUnreadable
from runplan.core.ids import key
from runplan.core.layout import Format, Layout, Place, lay_out
from runplan.core.marks import WRITTEN, Status, says_complete
from runplan.core.scan import Lines, scan

if TYPE_CHECKING:
    from collections.abc import Iterable

_LANDED = re.compile(rb"[ \t]*\(`?[0-9a-f]{7,40}`?((?:,[^()]*)?)\)\Z")


def set_status(text: bytes, *, path: str, phase: str, status: Status, commit: str = "") -> bytes:
    """The plan with one phase set to done (with the commit that holds its work) or back to todo.

    A plan that says so already comes back as it is. In progress and blocked are for people to write.
    """
    if status not in WRITTEN:
        raise ValueError(f"{status} is never written to a plan")
    lines, layout = lay_out(text, path)
    place = _place(layout, phase, path)
    if place.mark.known and place.mark.status is status and commit in ("", place.commit):
        return text
    return _spliced(text, _edits(lines, layout.format, place, status, commit))


def _place(layout: Layout, phase: str, path: str) -> Place:
    for place in layout.places:
        if key(place.id) == key(phase):
            return place
    ids = ", ".join(place.id for place in layout.places)
    raise PlanUnreadable(f"{path}:1: there is no phase {phase}; the phases are {ids}")


Edit = tuple[int, int, bytes]  #: bytes from, up to, and what stands there instead


def _edits(lines: Lines, format_: Format, place: Place, status: Status, commit: str) -> list[Edit]:
    words = WRITTEN[status]
    match format_:
        case Format.TRACKER:
            return _row_edits(lines.raw, place, words, f"`{commit}`" if commit else "")
        case Format.SECTIONS:
            return [_line_edit(lines, place, f"{words} ({commit})" if commit else words)]
        case Format.CHECKLIST:
            return _box_edits(lines, place, status, commit)


def _row_edits(raw: bytes, place: Place, words: str, commit: str) -> list[Edit]:
    if commit and place.commit_at is None:
        words = f"{words} ({commit})"
    edits = [_cell_edit(raw, place.status_at, words)] if place.status_at else []
    if place.commit_at is not None and (commit or place.commit):
        edits.append(_cell_edit(raw, place.commit_at, commit))
    return edits


def _cell_edit(raw: bytes, at: tuple[int, int], words: str) -> Edit:
    """Replaces a cell's content and keeps the blanks around it; an empty cell gets one on each side."""
    begin, end = at
    content = raw[begin:end]
    if not content.strip():
        return begin, end, f" {words} ".encode()
    if not words and content == b" " + content.strip() + b" ":
        return begin, end, b" "  # as an empty cell is written, and most likely was
    begin += len(content) - len(content.lstrip())
    return begin, begin + len(content.strip()), words.encode()


def _line_edit(lines: Lines, place: Place, words: str) -> Edit:
    if place.status_at is not None:
        begin, end = place.status_at
        gap = b"" if lines.raw[begin - 1 : begin] in (b" ", b"\t") else b" "
        return begin, end, gap + words.encode()
    at = lines.start(place.first + 1)
    added = f"**Status:** {words}".encode()
    return at, at, added + lines.eol if lines.raw[:at].endswith(b"\n") else lines.eol + added


def _box_edits(lines: Lines, place: Place, status: Status, commit: str) -> list[Edit]:
    assert place.status_at is not None
    box: Edit = (*place.status_at, b"x" if status is Status.DONE else b" ")
    begin = lines.starts[place.at]
    content = lines.texts[place.at].encode().rstrip()
    landed = _LANDED.search(content, max(content.rfind(b"("), 0))
    note = landed.group(1) if landed else b""
    if not commit and (landed is None or note):
        return [box]  # a note is a person's, and says more than the commit beside it
    at = begin + (landed.start() if landed else len(content))
    if not commit and lines.raw[at - 1 : at] == b" ":
        at -= 1  # it came with the commit
    gap = b"" if lines.raw[at - 1 : at] == b" " else b" "
    told = gap + b"(" + commit.encode() + note + b")" if commit else b""
    return [box, (at, begin + len(content), told)]


def _spliced(raw: bytes, edits: Iterable[Edit]) -> bytes:
    for begin, end, words in sorted(edits, reverse=True):
        raw = raw[:begin] + words + raw[end:]
    return raw


def complete(text: bytes, *, path: str, completed: str) -> bytes:
    """The plan with `status: complete` and `completed:` in its front matter, both or neither."""
    front = frontmatter.read(scan(text, path=path))
    if front is None or (says_complete(front.get("status") or "") and front.get("completed")):
        return text
    text = frontmatter.put(text, path=path, key="status", value="complete")
    return frontmatter.put(text, path=path, key="completed", value=completed, after="status")


def reopen(text: bytes, *, path: str) -> bytes:
    """The plan as active again, where its front matter says that it is complete."""
    front = frontmatter.read(scan(text, path=path))
    if front is None or not says_complete(front.get("status") or ""):
        return text
    text = frontmatter.put(text, path=path, key="status", value="active")
    return frontmatter.drop(text, path=path, key="completed")
