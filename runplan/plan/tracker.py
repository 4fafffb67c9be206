"""The tracker: which phase is next, and how its status is written back into the plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan import frontmatter
from runplan.plan.formats import WRITTEN, Status, cells, read_mark, says_complete, ticked
from runplan.plan.ids import key, read_name
from runplan.plan.layout import Format, Layout, Place, find_layout, lay_out, outside, what_is_missing
from runplan.plan.scan import Lines, scan
from runplan.text import command

if TYPE_CHECKING:
    from runplan.plan.formats import Section
    from runplan.plan.model import Phase, Plan

_LANDED = re.compile(rb"[ \t]*\(`?[0-9a-f]{7,40}`?((?:,[^()]*)?)\)\Z")

Edit: TypeAlias = tuple[int, int, bytes]  #: bytes from, up to, and their replacement


def set_status(text: bytes, *, path: str, phase: str, status: Status, commit: str = "") -> bytes:
    """The plan with one phase set to done, with the commit of its work, or back to todo.

    A plan that has this status already is returned unchanged. Only people write in progress and blocked.
    """
    if status not in WRITTEN:
        raise ValueError(f"{status} is never written to a plan")
    lines, layout = lay_out(text, path)
    place = next((place for place in layout.places if key(place.id) == key(phase)), None)
    if place is None:
        ids = ", ".join(place.id for place in layout.places)
        raise PlanUnreadable(f"{path}:1: there is no phase {phase}; the phases are {ids}")
    if place.mark.known and place.mark.status is status and commit in ("", place.commit):
        return text
    for begin, end, words in sorted(_edits(lines, layout.format, place, status, commit), reverse=True):
        text = text[:begin] + words + text[end:]
    return text


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
        return begin, end, b" "  # as people write an empty cell
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
    note = landed[1] if landed else b""
    if not commit and (landed is None or note):
        return [box]  # a note was written by a person and stays
    at = begin + (landed.start() if landed else len(content))
    if not commit and lines.raw[at - 1 : at] == b" ":
        at -= 1  # it was added with the commit
    gap = b"" if lines.raw[at - 1 : at] == b" " else b" "
    return [box, (at, begin + len(content), gap + b"(" + commit.encode() + note + b")" if commit else b"")]


def complete(text: bytes, *, path: str, completed: str) -> bytes:
    """The plan with `status: complete` and `completed:` in its front matter, both or neither."""
    front = frontmatter.read(scan(text, path=path))
    if front is None or (says_complete(front.get("status") or "") and front.get("completed")):
        return text
    text = frontmatter.put(text, path=path, key="status", value="complete")
    return frontmatter.put(text, path=path, key="completed", value=completed, after="status")


def reopen(text: bytes, *, path: str) -> bytes:
    """The plan with `status: active` and without `completed:`, if its front matter says that it is complete."""
    front = frontmatter.read(scan(text, path=path))
    if front is None or not says_complete(front.get("status") or ""):
        return text
    text = frontmatter.put(text, path=path, key="status", value="active")
    return frontmatter.drop(text, path=path, key="completed")


class NoPhase(Struct, frozen=True):
    """Why no phase can be worked now: `all-done`, `complete`, `phase-done`, `needs` or `blocked`."""

    choice: str
    detail: str = ""  #: for people


def choose(plan: Plan, *, wanted: str | None) -> Phase | NoPhase:
    """The requested phase, else the first in tracker order that is not done, not blocked and not waiting.

    A phase marked in progress counts as todo: the claims show whether a run works on it, not the plan.
    """
    if wanted is not None:
        return _requested(plan, wanted)
    if says_complete(plan.status):
        return NoPhase("complete", "the plan is already complete")
    left = [phase for phase in plan.phases if phase.status is not Status.DONE]
    if not left:
        return NoPhase("all-done")
    for phase in left:
        if phase.status is not Status.BLOCKED and not missing(plan, phase):
            return phase
    return NoPhase("blocked", "; ".join(_obstacle(plan, phase) for phase in left))


def _requested(plan: Plan, wanted: str) -> Phase | NoPhase:
    phase = plan.phase(wanted)
    if phase is None:
        return NoPhase("blocked", f"there is no phase {wanted}; there are: {', '.join(one.id for one in plan.phases)}")
    if says_complete(plan.status):
        return NoPhase("complete", "the plan is already complete")
    if phase.status is Status.DONE:
        commit = f" ({phase.commit})" if phase.commit else ""
        return NoPhase("phase-done", f"phase {phase.id} is already done{commit}")
    if waits := missing(plan, phase):
        statuses = ", ".join(f"{one.id} ({one.status})" for one in plan.phases if one.id in waits)
        first = command("runplan", "start", plan.path, waits[0])
        return NoPhase("needs", f"phase {phase.id} depends on {statuses}; first run: {first}")
    return phase


def _obstacle(plan: Plan, phase: Phase) -> str:
    if waits := missing(plan, phase):
        return f"phase {phase.id} waits for {', '.join(waits)}"
    return f"phase {phase.id} is marked blocked; clear its status in the plan to allow work on it"


def missing(plan: Plan, phase: Phase) -> tuple[str, ...]:
    """The phases it must wait for that are not done."""
    done = {other.id for other in plan.phases if other.status is Status.DONE}
    return tuple(id_ for id_ in phase.depends if id_ not in done)


# --- check --fix -------------------------------------------------------------------------------------------

#: A heading that says done: `## Phase 1 — Parser ✅`, `… (done in 4a6075d)`, `… — Done`; not `… (complete rewrite)`.
_DONE_TITLE = re.compile(
    r"✅|\[[xX]\]|(?:[(\[]|[—–-][ \t]+)(?:done|complete|completed|finished|shipped|merged)"
    r"(?:[ \t,:]+(?:(?:in|on|at|by)[ \t]+)?[`#v]?[0-9a-f][\w.:#-]{0,40}`?)?[)\]]?[ \t]*\Z",
    re.IGNORECASE,
)


class Fixed(Struct, frozen=True):
    text: bytes
    notes: tuple[str, ...] = ()  #: which phases are not simply todo, and why


def add_tracker(text: bytes, *, path: str) -> Fixed:
    """The plan with a tracker above its first phase; a plan with statuses is returned unchanged.

    Finished work stays finished: a phase is done if its heading, all its boxes or the front matter say so.
    Raises PlanUnreadable when a tracker would not help: there are no phase sections, or two of one name, or another
    table has the statuses.
    """
    lines = scan(text, path=path)
    found = find_layout(lines, path=path)
    if isinstance(found, Layout):
        return Fixed(text)
    if not found.sections:
        raise PlanUnreadable(what_is_missing(lines, (), path))
    _refuse_other_table(lines, found.sections, path)
    front = frontmatter.read(lines)
    is_complete = front is not None and says_complete(front.get("status") or "")
    statuses = [_status(lines, section, is_complete=is_complete) for section in found.sections]
    made = _with_tracker(lines, found.sections, [status for status, _ in statuses])
    return Fixed(made, tuple(note for _, note in statuses if note))


def _status(lines: Lines, section: Section, *, is_complete: bool) -> tuple[Status, str]:
    """The status that the section itself shows, and a note about it for a person."""
    done, boxes = ticked(lines, section)
    if is_complete:
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
    """Refuse to add a tracker if a table with other column names marks phases as done."""
    ids = {key(section.id) for section in sections}
    for i in (i for part in outside(lines, sections) for i in part):
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
    """The text with the tracker before the first phase, or before the level 2 heading above it."""
    rows = ["## Progress Tracker", "", "| Phase | Status | Commit | Notes |", "|-------|--------|--------|-------|"]
    for section, status in zip(sections, statuses, strict=True):
        title = section.title.replace("\\|", "|").replace("|", "\\|")
        rows.append(f"| {section.id}{' — ' if title else ''}{title} | {WRITTEN[status]} | | |")
    first = sections[0]
    above = [h.at for h in lines.headings if h.level == 2 and h.at < first.at]
    at = lines.start(above[-1] if first.level > 2 and above else first.at)
    return lines.raw[:at] + b"".join(row.encode() + lines.eol for row in [*rows, ""]) + lines.raw[at:]
