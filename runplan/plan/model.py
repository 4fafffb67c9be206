"""Plans: a Markdown file becomes a Plan with its phases, or an error that names the line and the remedy."""

from __future__ import annotations

import contextlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan import frontmatter
from runplan.plan.body import Item, body_of, read_execution, read_items, read_paths
from runplan.plan.dependencies import Depends, Phases, read_depends
from runplan.plan.formats import checklist, headings, kiro, sections, speckit, table
from runplan.plan.frontmatter import FrontMatter
from runplan.plan.ids import key
from runplan.plan.marks import Status, says_complete
from runplan.plan.reading import Format, Reading, Remark
from runplan.plan.scan import Lines, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Format", "Item", "Phase", "Plan", "Remark", "Status", "other_way", "parse"]


MAX_PHASES = 1000
#: The recognisers of the formats, most telling first.
RECOGNISERS: dict[Format, Callable[[Lines, str], Reading | None]] = {
    Format.TRACKER: table.read,
    Format.SPEC_KIT: speckit.read,
    Format.HUMANLAYER: sections.read_humanlayer,
    Format.SECTIONS: sections.read,
    Format.KIRO: kiro.read,
    Format.OPENSPEC: headings.read_openspec,
    Format.HEADINGS: headings.read,
    Format.TODO: checklist.read_todo,
    Format.CHECKLIST: checklist.read,
}


class Phase(Struct, frozen=True):
    """One unit of work, as the plan states it."""

    id: str
    title: str
    status: Status
    commit: str  #: hash in the plan, "" for none
    text: str  #: its section byte for byte, heading included; in a plain checklist the item's lines
    line: int  #: of its status
    heading_line: int
    depends: tuple[str, ...]  #: phases that must be done before it
    soft: tuple[str, ...]  #: phases that should be
    touches: tuple[str, ...]  #: path patterns; empty when it does not say
    allows: tuple[str, ...]  #: path patterns: where tests may be removed, and guarded files changed
    execution: str  #: "worktree", "direct" or "delegate …"
    items: tuple[Item, ...]
    sign_off: tuple[str, ...] = ()  #: criteria that a person must check before it lands


class Plan(Struct, frozen=True, kw_only=True):
    path: str
    title: str
    status: str  #: front matter status, "" for none
    complete: bool  #: its front matter says so, or every phase is done
    issues: tuple[int, ...]
    format: Format
    read_as: str  #: the format in words: "Kiro tasks"
    phases: tuple[Phase, ...]  #: in tracker order
    remarks: tuple[Remark, ...]  #: in the order of lines

    def phase(self, id_: str) -> Phase | None:
        """The phase of that id; case matters only where two differ by nothing else."""
        exact = next((phase for phase in self.phases if phase.id == id_), None)
        return exact or next((phase for phase in self.phases if key(phase.id) == key(id_)), None)


@lru_cache(maxsize=2)
def parse(text: bytes, *, path: str) -> Plan:
    """The plan in a file's bytes. Raises PlanUnreadable and nothing else."""
    front = frontmatter.read(scan(text, path=path)) or FrontMatter()
    entry = front.entry("executable")
    if entry is not None and entry.value.lower() == "false":
        raise PlanUnreadable(f"{path}:{entry.at + 1}: the plan says executable: false; remove that line to work on it")
    for name in ("status", "completed"):
        frontmatter.require_settable(front, name, path=path)
    lines, reading = lay_out(text, path)
    remarks = [*reading.remarks, *_about_text(lines), *_about_boxes(lines, reading), *_about_marks(reading)]
    phases = tuple(_phases(lines, reading, path, remarks))
    _refuse_cycle(phases, path)
    status = (front.get("status") or "").strip().lower()
    left = [phase for phase in phases if phase.status is not Status.DONE]
    if left and says_complete(status):
        ids = ", ".join(phase.id for phase in left)
        remarks.append(Remark(left[0].line, f"the plan says complete, but not done: {ids}"))
    return Plan(
        path=path,
        title=" ".join((front.get("title") or "").split()) or _title(lines, path),
        status=status,
        complete=says_complete(status) or not left,
        issues=_issues(front),
        format=reading.format,
        read_as=reading.name,
        phases=phases,
        remarks=tuple(sorted(remarks, key=lambda remark: remark.line)),
    )


@lru_cache(maxsize=2)  # a phase reads the same text when it begins, when it lands and when its row is set
def lay_out(text: bytes, path: str) -> tuple[Lines, Reading]:
    """The lines of a plan and the place of every phase; a plan without statuses is refused."""
    lines = scan(text, path=path)
    front = frontmatter.read(lines)
    return lines, recognise(lines, path, wanted=(front.get("format") or "").lower() if front else "")


def _phases(lines: Lines, reading: Reading, path: str, remarks: list[Remark]) -> Iterator[Phase]:
    known = {key(place.id): place.id for place in reading.places}
    for place in reading.places:
        body = body_of(lines, place.first, place.end)
        depends = read_depends(body, Phases(known, place.id, reading.unit))
        if depends.unknown and place.mark.status is not Status.DONE:
            quote, ids = depends.unknown[0], ", ".join(known.values())
            raise PlanUnreadable(
                f"{path}:{quote.line}: phase {place.id} depends on phase {quote.text}, which is not among {ids}; "
                "correct it, or name the phases in a line 'Depends: …'"
            )
        remarks += _about_dependencies(place.id, depends)
        items, sign_off = read_items(body, title=place.title)
        if place.entries:
            named = tuple(Item(f"W{n}", entry.text, entry.at + 1) for n, entry in enumerate(place.entries, 1))
            items = (*named, *(item for item in items if item.id.startswith("C")))
        yield Phase(
            id=place.id,
            title=place.title,
            status=place.mark.status,
            commit=place.commit,
            text=lines.between(place.first, place.end),
            line=place.at + 1,
            heading_line=place.first + 1,
            depends=tuple(dict.fromkeys((*depends.hard, *place.depends))),
            soft=tuple(depends.soft),
            touches=read_paths(body, "touches") or place.touches,
            allows=read_paths(body, "allows"),
            execution=read_execution(body),
            items=items,
            sign_off=sign_off,
        )


def _title(lines: Lines, path: str) -> str:
    first = next((heading.text for heading in lines.headings if heading.level == 1), "")
    word = re.match(r"(?:plan|tasks)[ \t]*[:—–-][ \t]*", first, re.IGNORECASE)
    return first[word.end() if word else 0 :] or path.rpartition("/")[2].removesuffix(".md")


def _issues(front: FrontMatter) -> tuple[int, ...]:
    numbers = (entry.value.strip("# \t") for entry in front.entries if entry.key == "issue")
    return tuple(dict.fromkeys(int(n) for n in numbers if re.fullmatch(r"[1-9][0-9]{0,17}", n)))


def _refuse_cycle(phases: Sequence[Phase], path: str) -> None:
    """Refuse phases that wait for each other; a phase that is done blocks nothing."""
    open_ = {phase.id: phase for phase in phases if phase.status is not Status.DONE}
    graph = {id_: [other for other in phase.depends if other in open_] for id_, phase in open_.items()}
    if not any(graph.values()):
        return
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        raise PlanUnreadable(
            f"{path}:{open_[cycle[0]].heading_line}: the phases wait for each other: {' → '.join(cycle)}; "
            "break the cycle; a line 'Depends: …' in a phase overrides its prose"
        ) from None


# --- formats ----------------------------------------------------------------------------------------------


def recognise(lines: Lines, path: str, *, wanted: str) -> Reading:
    """The reading of the first format that the plan shows, or of the one that its front matter names."""
    if wanted and wanted not in RECOGNISERS:
        raise PlanUnreadable(f"{path}:1: unknown format {wanted!r}; the formats are {', '.join(RECOGNISERS)}")
    for format_, read in RECOGNISERS.items():
        if wanted in ("", format_) and (found := read(lines, path)) is not None:
            if len(found.places) > MAX_PHASES:
                what = f"{len(found.places):,} phases as {found.name}, and a plan has at most {MAX_PHASES:,}"
                raise PlanUnreadable(f"{path}:{found.decided_by + 1}: {what}; is it a plan?")
            return found
    if wanted:
        raise PlanUnreadable(f"{path}:1: the front matter says format: {wanted}, but the plan has nothing of that form")
    fence = f" (the fence opened on line {lines.open_fence + 1} is never closed)" if lines.open_fence >= 0 else ""
    raise PlanUnreadable(
        f"{path}:1: no phases found{fence}: neither a Progress Tracker table nor '## Phase 1 — Title' or "
        f"'### Task 1: Title' headings nor '- [ ]' items; add phase sections, then run runplan check {path} --fix"
    )


def other_way(text: bytes, *, path: str) -> tuple[Reading, Reading] | None:
    """The reading of an ambiguous plan, and the other one that the same evidence allows."""
    lines, chosen = lay_out(text, path)
    rivals: list[Reading | None] = []
    if chosen.format in (Format.SECTIONS, Format.HUMANLAYER, Format.HEADINGS):
        rivals += headings.readings(lines, path)
    elif chosen.format in (Format.TODO, Format.CHECKLIST):
        with contextlib.suppress(PlanUnreadable):
            rivals += [checklist.read(lines, path), checklist.read_todo(lines, path)]
    firsts = [place.first for place in chosen.places]
    others = (found for found in rivals if found and [place.first for place in found.places] != firsts)
    return next(((chosen, other) for other in others), None)


# --- remarks ----------------------------------------------------------------------------------------------


def _about_text(lines: Lines) -> Iterator[Remark]:
    if lines.texts[0] == "---" and not lines.front:
        yield Remark(1, "the front matter is never closed by a line ---; it is ignored")
    if lines.open_fence >= 0:
        yield Remark(lines.open_fence + 1, "this fence is never closed; the text after it is ignored")


def _about_boxes(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """The boxes that belong to no phase, by the heading above them, and those that are optional."""
    owner = {i: place.id for place in reading.places for i in (place.at, *range(place.first, place.end))}
    outside: dict[str, list[int]] = {}
    optional: dict[str, list[int]] = {}
    for box in lines.boxes:
        if box.at not in owner:
            heading = lines.heading_above(box.at)
            outside.setdefault(heading.text if heading else "", []).append(box.at)
        elif box.optional:
            optional.setdefault(owner[box.at], []).append(box.at)
    for title, found in outside.items():
        where = f"under {title[:60]!r}" if title else "above the first heading"
        yield Remark(found[0] + 1, f"boxes {where} belong to no phase and are left out ({len(found)})")
    for id_, found in optional.items():
        yield Remark(found[0] + 1, f"optional boxes of phase {id_} are no work items and stay open ({len(found)})")


def _about_marks(reading: Reading) -> Iterator[Remark]:
    for place in reading.places:
        line, id_ = place.at + 1, place.id
        if place.mark.status is Status.IN_PROGRESS:
            yield Remark(line, f"phase {id_} is marked in progress; unless a live run owns it, it is todo")
        elif not place.mark.known:
            yield Remark(line, f"the status of phase {id_} is unknown; it counts as todo")


def _about_dependencies(id_: str, depends: Depends) -> Iterator[Remark]:
    for quote in depends.unread:
        what = f"phase {id_} does not wait for this, it names no phase: {quote.text}"
        yield Remark(quote.line, f"{what}; if it should, name the phases in a line 'Depends: …'")
    for quote in depends.unknown:
        yield Remark(quote.line, f"phase {id_} depends on phase {quote.text}, which the plan does not have")
