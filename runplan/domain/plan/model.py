"""Plans: a Markdown file becomes a Plan with its phases, or an error that names the line and the remedy."""

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.errors import NotAPlan, PlanUnreadable
from runplan.domain.plan import body as phase_text, marks
from runplan.domain.plan.body import WHOLE_PHASE, Body, Execution, Item, entry_text
from runplan.domain.plan.completeness import is_told_elsewhere, list_left_out, says_complete
from runplan.domain.plan.dependencies import Depends, read_depends
from runplan.domain.plan.formats import front_matter, sections, speckit, table, tasks_json, tracks
from runplan.domain.plan.marks import ExecutionKind, PhaseSettings, PlanStatus, Status, id_key, read_mark
from runplan.domain.plan.reading import (
    OWN_FRONT,
    Format,
    Place,
    Reading,
    Remark,
    counted_headings,
    list_claims,
    refuse_duplicates,
)
from runplan.domain.plan.scan import Entry, Heading, Lines, marks_within, scan_lines
from runplan.domain.text import command

__all__ = ["Phase", "Plan", "Remark", "Status", "other_way", "parse_plan"]
MAX_PHASES = 1000
MANY_BOXES = 40  #: phases from boxes alone; more are probably steps of fewer phases
#: The recognisers of the formats, most telling first.
RECOGNISERS: dict[Format, Callable[[Lines], Iterator[Reading]]] = {
    "json": tasks_json.read_tasks,
    "backlog": front_matter.read_backlog,
    "cursor": front_matter.read_todos,
    "gsd": tracks.read_gsd,
    "tracker": table.read_tracker,
    "spec-kit": speckit.read_speckit,
    "humanlayer": sections.read_humanlayer,
    "conductor": tracks.read_conductor,
    "sections": sections.read_phases,
    "kiro": sections.read_kiro,
    "openspec": sections.read_openspec,
    "headings": sections.read_headings,
    "todo": sections.read_todo,
    "checklist": sections.read_checklist,
}
_READERS = (*RECOGNISERS.items(), ("checklist", sections.read_steps))
#: Formats that the same evidence may show.
RIVALS: tuple[tuple[Format, ...], ...] = (("humanlayer", "sections", "kiro", "headings"), ("todo", "checklist"))
#: The sections of a plan of plansmith, by the beginnings of their headings.
_PLANSMITH = ("goal", "scope", "non-scope", "steps", "verification", "risk", "open question")
#: Those of the `plan.md` of spec-kit, whose phases are those of the planning.
_SPEC_KIT = ("technical context", "constitution check")  #: parts of their titles
#: A document that holds the progress of a plan: `search-tracker.md`, docs/status.md, X_PROGRESS_AND_NEXT_STEPS.md.
_PROGRESS_FILE = r"(?i)(?<![\w-])((?:[\w./-]{0,99}[_./-])?(?:progress|tracker|status|next.steps)\.(?:md|json))(?!\w)"
_PROGRESS_LABEL = (
    r"(?i)\A\W*(?:progress(?: tracker)?|tracker|status)\**:\W*"
    r"(?:\[[^\[\]]{0,80}\]\()?([\w./-]{1,200}\.(?:md|json))\W*\Z"
)
#: A title that stands for another: `[PHASE_NAME]`, `{{title}}`, `<Title>`.
_PLACEHOLDER = r"\[[^\[\]]*\]|\{+[^{}]*\}+|<[\w -]*>"
_OF_PLAN = r"(?i)status|overview|summary|progress|metadata"  #: chapters that may hold the status of the plan
#: A note above the phases: `> **Historical document.** It led to …`, `> This document is retained as context`, not
#: `> Historical record of what shipped: …`.
_SET_ASIDE_NOTE = (
    rf"{marks.SET_ASIDE}(?<=\w)(?:\W*\Z|[*_]*[.:]| (?:document|plan|roadmap|note|by)\b)"
    r"|>.{0,200}\b(?:document|file|plan|roadmap) is (?:only |now )?(?:retained|kept|preserved)(?: as\b| for\b|\W*\Z)"
)
NO_PRIORITY = 1_000_000
_PRIORITIES = {"critical": 0, "high": 1, "medium": 2, "low": 3}
_LANDING = re.compile(r">[ \t]*\*\*Landing mode:[ \t]*`?(cherry-pick|pr|direct)\b", re.IGNORECASE)


class Phase(Struct, frozen=True):
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
    allows: tuple[str, ...]  #: path patterns: where guarded files and promises of tests may change
    execution: Execution
    items: tuple[Item, ...]
    sign_off: tuple[str, ...] = ()  #: criteria that a person must check before it lands
    blocker: str = ""  #: why it is blocked, where the plan does not say it by a word
    note: str = ""  #: the plan's words beside its status, where it is blocked or in progress
    host: tuple[str, ...] = ()  #: labels of the host of a fleet that works on it
    own: PhaseSettings = PhaseSettings()
    pull_request: str = ""  #: its group in a stack; "" for a pull request of its own

    @property
    def unsupported(self) -> str:
        """Why runplan cannot work on it; "" when it can."""
        if self.execution.kind is not None:
            return ""
        known = "worktree, direct, plan plans/SUB.md, delegate COMMAND"
        return f"asks for `Execution: {self.execution.text}`, which runplan does not know; it knows: {known}"


class Plan(Struct, frozen=True, kw_only=True):
    path: str
    title: str
    status: PlanStatus
    complete: bool  #: its front matter says so, or every phase is done
    issues: tuple[int, ...]
    priority: int  #: in the queue, 1 before 2; NO_PRIORITY for none
    created: str  #: the date in its front matter
    after: tuple[str, ...]  #: the plans that have to be complete before the queue takes it
    format: Format
    read_as: str  #: the format in words: "Kiro tasks"
    phases: tuple[Phase, ...]  #: in tracker order
    remarks: tuple[Remark, ...]  #: in the order of lines

    def phase(self, id_: str) -> Phase | None:
        exact = next((phase for phase in self.phases if phase.id == id_), None)
        return exact or next((phase for phase in self.phases if id_key(phase.id) == id_key(id_)), None)

    @property
    def stack(self) -> dict[str, tuple[Phase, ...]]:
        """The groups of a stack of pull requests, the lowest first: neighbours of one `Pull-request:`, or a phase."""
        keys = [phase.pull_request or phase.id for phase in self.phases]
        return {key: tuple(phase for phase, of in zip(self.phases, keys, strict=True) if of == key) for key in keys}

    def refusals(self, *, strict: bool) -> tuple[Remark, ...]:
        return tuple(remark for remark in self.remarks if strict or remark.is_error)


@lru_cache(maxsize=2)
def parse_plan(text: bytes, *, path: str) -> Plan:
    """The plan in a file's bytes. Raises PlanUnreadable and nothing else."""
    lines = scan_lines(text, path=path)
    field = lines.find_field("executable")
    if field is not None and field.value.lower() == "false":
        raise lines.error_at(field.at, "the plan says executable: false; remove that line to work on it", NotAPlan)
    for name in ("status", "completed"):
        require_settable(lines, name)
    lines, reading = lay_out(text, path)
    remarks = [*reading.remarks]
    for examine in (_about_text, _about_boxes, _about_rest, list_left_out, _about_bare):
        remarks += examine(lines, reading)
    bodies = {}
    for place in reading.places:
        own = scan_lines(place.text.encode("utf-8", "surrogatepass"), path=path) if place.text else lines
        span = (0, len(own.texts)) if place.text else (place.first, place.end)
        bodies[place.id] = phase_text.body_of(own, *span)
    waits = read_depends(bodies, reading)
    for place in reading.places:
        remarks += _about_depends(place, waits[place.id], bodies, lines)
    phases = tuple(_build_phase(place, bodies[place.id], waits[place.id]) for place in reading.places)
    for phase in phases:
        about = phase_text.list_remarks(body := bodies[phase.id], phase.id, is_done=phase.status is Status.DONE)
        remarks += about if body.lines is lines else (replace(remark, line=phase.line) for remark in about)
    _refuse_cycle(phases, lines, reading.format)
    status = PlanStatus.ACTIVE if reading.format in OWN_FRONT else _plan_status(lines, reading)
    left = [phase for phase in phases if phase.status is not Status.DONE]
    wrong = ((row.execution.line, f"phase {row.id} {row.unsupported}") for row in left if row.unsupported)
    remarks += [Remark(line, words, is_error=True) for line, words in wrong]
    after = lines.find_field("after")
    numbers = (field.value.strip("# \t") for field in lines.fields if field.key == "issue")
    if left and status is PlanStatus.COMPLETE:
        ids = ", ".join(phase.id for phase in left)
        remarks.append(Remark(left[0].line, f"the plan says complete, but not done: {ids}"))
    titles = [heading for heading in lines.headings if heading.level == 1][:1]  # unless that is a phase
    title = next((heading.text for heading in titles if all(place.first != heading.at for place in reading.places)), "")
    title = re.sub(r"\A(?:plan|tasks)[ \t]*[:—–-][ \t]*", "", title, flags=re.IGNORECASE)
    title = reading.title or " ".join(lines.front_value("title").split()) or title
    return Plan(
        path=path,
        title=title or path.rpartition("/")[2].removesuffix(".md"),
        status=status,
        complete=status is PlanStatus.COMPLETE or not left,
        issues=tuple(dict.fromkeys(int(number) for number in numbers if re.fullmatch(r"[1-9][0-9]{0,17}", number))),
        priority=_read_priority(lines),
        created=lines.front_value("created"),
        after=tuple(front_matter.list_values(lines, after)) if after else (),
        format=reading.format,
        read_as=reading.name,
        phases=phases,
        remarks=tuple(sorted(remarks, key=lambda remark: remark.line)),
    )


@lru_cache(maxsize=2)  # a phase reads the same text when it begins, when it lands and when its row is set
def lay_out(text: bytes, path: str) -> tuple[Lines, Reading]:
    """The lines, and the reading of the first format that they show, or of the one that the front matter names."""
    lines = scan_lines(text, path=path)
    wanted = lines.front_value("format").lower()
    format_ = "headings" if wanted.endswith(" headings") else wanted
    if format_ and format_ not in RECOGNISERS:
        raise lines.error_at(0, f"unknown format {wanted!r}; the formats are {', '.join(RECOGNISERS)}")
    readings = (reading for name, read in _READERS if format_ in ("", name) for reading in read(lines))
    chosen = next((reading for reading in readings if wanted in ("", reading.format, reading.name.lower())), None)
    # One phase section may be a chapter of a plan of another format, unless it states how it is verified.
    if chosen is not None and not wanted and chosen.format in RIVALS[0][1:] and len(chosen.places) == 1:
        rivals = (reading for read in (sections.read_kiro, sections.read_headings) for reading in read(lines))
        chosen = next((reading for reading in rivals if len(reading.places) > 1), chosen)
    if chosen is None and wanted:
        raise lines.error_at(0, f"the front matter says format: {wanted}, but the plan has nothing of that form")
    titles = [heading.text.lower() for heading in lines.headings]
    is_outline = not wanted and all(any(title.startswith(word) for title in titles) for word in _PLANSMITH)
    is_design = not wanted and all(any(part in title for title in titles) for part in _SPEC_KIT)
    is_boxes = chosen is not None and chosen.format in ("kiro", "headings", "todo", "checklist")
    if chosen is None or is_design or (is_outline and is_boxes):
        forms = "'## Phase 1 — Title' or '### Task 1: Title' headings, a Progress Tracker table or '- [ ]' items"
        why = f"no phases found{_describe_nearest(lines)}; a plan has {forms}"
        why = "the steps of a plansmith plan have no status" if is_outline else why
        if is_design:
            why = "this is the design of a feature of spec-kit, whose tasks are in the tasks.md beside it"
        rewrite = f"write phases, or have agents write them: {command('runplan', 'plan', '--file', lines.path)}"
        if lines.boxes and chosen is None and not is_design:
            rewrite = f"to make the boxes phases, write format: checklist into the front matter; else {rewrite}"
        raise lines.error_at(0, f"{why}; {rewrite}", NotAPlan)
    if len(chosen.places) > MAX_PHASES:
        message = f"{len(chosen.places):,} phases as {chosen.name}, and a plan has at most {MAX_PHASES:,}"
        raise lines.error_at(chosen.decided_by, f"{message}; is it a plan?")
    refuse_duplicates(((place.id, min(place.at, place.first)) for place in chosen.places), lines)
    return lines, chosen


def require_settable(lines: Lines, key: str) -> None:
    """Refuse a key of the front matter that cannot be set: its value is a block, or has lines below it."""
    field = lines.find_field(key)
    if field is not None and field.below > field.at + 1:
        message = f"{key} has a block as its value, which runplan cannot change; write {key} and its value on one line"
        raise lines.error_at(field.at, message)


def _build_phase(place: Place, body: Body, waits: Depends) -> Phase:
    items, sign_off = phase_text.read_items(body, title=place.title)
    for letter, entries in (("W", place.entries), ("C", place.criteria)):
        if entries:
            named = [Item(f"{letter}{n}", entry_text(body, entry), entry.at + 1) for n, entry in enumerate(entries, 1)]
            items = (*named, *(item for item in items if item.id[0] not in (letter, WHOLE_PHASE)))
    known = {item.text for item in items}
    boxes = marks_within(body.lines.boxes, place.again.start, place.again.stop)
    if more := [box for box in boxes if not box.optional and box.text not in known]:
        count = sum(item.id[0] == "W" for item in items)
        named = [Item(f"W{n}", box.text, box.at + 1) for n, box in enumerate(more, count + 1)]
        items = (*(item for item in items if item.id[0] != WHOLE_PHASE), *named)
    items = tuple(sorted(items, key=lambda item: item.id[0], reverse=True))
    if place.text:
        items = tuple(replace(item, line=place.at + 1) for item in items)
    execution = phase_text.read_execution(body)
    touches = phase_text.read_paths(body, "touches") or place.touches
    own, pull_request = phase_text.read_settings(body)
    return Phase(
        id=place.id,
        title=place.title,
        status=place.mark.status,
        commit=place.commit,
        text=(place.text or body.lines.text_between(place.first, place.end)) + place.context,
        line=place.at + 1,
        heading_line=place.first + 1,
        depends=tuple(dict.fromkeys((*waits.hard, *place.depends, *waits.elsewhere))),
        soft=tuple(waits.soft),
        # What a command changes is not limited, so no other phase runs next to it.
        touches=() if execution.kind is ExecutionKind.DELEGATE else touches,
        allows=phase_text.read_paths(body, "allows"),
        execution=execution,
        items=items,
        sign_off=(*sign_off, *place.sign_off),
        blocker=place.mark.reason,
        note=place.mark.note,
        host=phase_text.read_labels(body),
        own=own,
        pull_request=pull_request,
    )


def _plan_status(lines: Lines, reading: Reading) -> PlanStatus:
    """The status in the front matter, else that of a line above the phases which says draft or proposed."""
    status = marks.read_plan_status(lines.front_value("status"))
    field = lines.find_field("status")
    if status is None and field is not None:
        message = f"unknown status {field.value!r}; a plan is {', '.join(PlanStatus)}"
        raise lines.error_at(field.at, f"{message}. To have it worked, write: status: {PlanStatus.ACTIVE}")
    first = min(place.first for place in reading.places)
    for i in (i for i in range(lines.front, first) if field is None and not lines.inert[i]):
        line = marks.STATUS_LINE.match(lines.texts[i])
        if line and (word := re.match(marks.NOT_READY, lines.texts[i][line.end() :])) and not _is_of_part(lines, i):
            return marks.read_plan_status(word[1]) or PlanStatus.DRAFT
    return status or PlanStatus.ACTIVE


def _is_of_part(lines: Lines, line: int) -> bool:
    """Whether a status line is below the heading of a part that counts, and so that of this part."""
    heading = lines.heading_above(line)
    is_numbered = heading is not None and heading.level > 1 and bool(heading.name.id)
    return is_numbered and heading is not None and not re.search(_OF_PLAN, heading.text)


def _refuse_cycle(phases: Sequence[Phase], lines: Lines, format_: Format) -> None:
    """Refuse phases that wait for each other; a phase that is done blocks nothing."""
    open_ = {phase.id: phase for phase in phases if phase.status is not Status.DONE}
    graph = {id_: [other for other in phase.depends if other in open_] for id_, phase in open_.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        prose = "" if format_ in ("json", *OWN_FRONT) else "; a line 'Depends: …' in a phase overrides its prose"
        message = f"the phases wait for each other: {' → '.join(cycle)}; break the cycle{prose}"
        raise lines.error_at(open_[cycle[0]].heading_line - 1, message) from None


def _describe_nearest(lines: Lines) -> str:
    """What comes nearest to phases in a text without any, in brackets; "" for nothing."""
    series = max(counted_headings(lines.headings).values(), key=len, default=[])
    names = enumerate((marks.read_name(re.sub(r"\A[\s|>*+-]*(?:[0-9]+\. )?", "", text)) for text in lines.texts), 1)
    heading = lines.heading_above(lines.boxes[0].at) if lines.boxes else None
    if lines.open_fence >= 0:
        return f" (the fence opened on line {lines.open_fence + 1} is never closed)"
    if named := [number for number, name in names if name and name.unit and name.strong]:
        return f" (line {named[0]} names one, but is no heading)"
    if len(series) > 1:
        return f" (nearest: {len(series)} headings like {series[0].text[:60]!r} on line {series[0].at + 1})"
    if header := next((header for header, _, _ in table.list_status_tables(lines)), 0):
        return f" (nearest: the table on line {header + 1})"
    return f" (nearest: the boxes under {heading.text[:60]!r})" if heading else ""


def other_way(text: bytes, *, path: str) -> tuple[Reading, Reading] | None:
    """The reading of an ambiguous plan, and the other one that the same evidence allows."""
    lines, chosen = lay_out(text, path)
    firsts = [place.first for place in chosen.places]
    formats = next((rivals for rivals in RIVALS if chosen.format in rivals), ())
    with contextlib.suppress(PlanUnreadable):
        for other in (reading for name in formats for reading in RECOGNISERS[name](lines)):
            if other.name != chosen.name and [place.first for place in other.places] != firsts:
                return chosen, other
    return None


def _read_priority(lines: Lines) -> int:
    value = lines.front_value("priority").lower()
    return _PRIORITIES.get(value, int(value) if re.fullmatch(r"[0-9]{1,5}", value) else NO_PRIORITY)


def _about_text(lines: Lines, reading: Reading) -> Iterator[Remark]:
    if (field := lines.find_field("priority")) and _read_priority(lines) == NO_PRIORITY:
        known = f"a number, 1 before 2, or {', '.join(_PRIORITIES)}"
        yield Remark(field.at + 1, f"the queue cannot read priority: {field.value}; write {known}")
    if lines.texts[0] == "---" and not lines.front:
        yield Remark(1, "the front matter is never closed by a line ---; it is ignored")
    if lines.open_fence >= 0:
        fenced = (text for text, inert in zip(lines.texts, lines.inert, strict=True) if inert and text[:1] == "#")
        hidden = filter(None, (marks.read_name(text.lstrip("# ")) for text in fenced))
        ids = {place.id for place in reading.places}
        is_error = any(name.strong and name.unit == reading.unit and name.id not in ids for name in hidden)
        message = "this fence is never closed; the text after it is ignored"
        yield Remark(lines.open_fence + 1, message + " and has phases" * is_error, is_error=is_error)
    if reading.format in ("kiro", "checklist") and (count := len(reading.places)) > MANY_BOXES:
        message = f"the boxes alone make {count} phases; headings above them would make them items of fewer phases"
        yield Remark(reading.decided_by + 1, message)
    for index, text in enumerate(lines.texts):
        if text.startswith(">") and not lines.inert[index] and (named := _LANDING.match(text)):
            mode = named[1].lower()
            message = f"the plan names the landing mode {mode}, which runplan does not take from a plan; to use it, add"
            start = command("runplan", "start", lines.path, mode)
            yield Remark(index + 1, f"{message} the word: {start}", landing=mode)
    stated = [place for place in reading.places if any(spot.slot in ("line", "cell") for spot in place.spots)]
    if len(stated) > 1 and not any(place.mark.known or place.mark.note for place in stated):
        message = "runplan knows none of the statuses of the phases; write todo, in progress, blocked or done there"
        yield Remark(stated[0].at + 1, message, is_error=True)
    for place in reading.places:
        start = command("runplan", "start", lines.path, place.id)
        if place.mark.status is Status.IN_PROGRESS:
            note = f": {place.mark.note}" if place.mark.note else ""
            message = f"phase {place.id} is marked in progress{note}; it is passed over unless it is named: {start}"
            yield Remark(place.at + 1, message)
        elif place.mark.reason:
            yield Remark(place.at + 1, f"phase {place.id} {place.mark.reason}; to have it worked again: {start}")
        elif not place.mark.known:
            message = f"the status of phase {place.id} is unknown; it counts as todo"
            asked = f"phase {place.id} {place.mark.note}; write its status into a line **Status:** below its heading"
            yield Remark(place.at + 1, asked if place.mark.note else message, is_error=bool(place.mark.note))
        if re.fullmatch(_PLACEHOLDER, place.title):
            message = f"the title of phase {place.id} is a placeholder; is it a template? then write a plan from it"
            yield Remark(place.first + 1, message, is_error=True)


def _about_depends(place: Place, waits: Depends, ids: Iterable[str], lines: Lines) -> Iterator[Remark]:
    """The sentences that name no phase, and the phases that the plan does not have; a phase to work on needs them."""
    for quote in waits.unknown:
        message = f"phase {place.id} depends on phase {quote.text}, which"
        if place.mark.status is not Status.DONE:
            remedy = "correct it, or name the phases in a line 'Depends: …'"
            raise lines.error_at(quote.line - 1, f"{message} is not among {', '.join(ids)}; {remedy}")
        yield Remark(quote.line, f"{message} the plan does not have")
    for quote in dict.fromkeys(waits.landed):
        message = f"phase {place.id} does not wait for phase {quote.text}, which the plan does not have"
        yield Remark(quote.line, f"{message}; its text says that it has landed")
    for quote in waits.unread:
        message = f"phase {place.id} does not wait for this, it names no phase: {quote.text}"
        yield Remark(quote.line, f"{message}; if it should, name the phases in a line 'Depends: …'")


def _about_boxes(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """The optional boxes of phases, the open ones of done phases, and those whose texts say done.

    A tracker and a commit say done without ticks; then open boxes count only where others are ticked. A heading or a
    line that says done beside boxes of both kinds is a contradiction, and so are lone signs above open boxes only.
    """
    owner = {i: place for place in reading.places for i in (place.at, *range(place.first, place.end))}
    claimed = {place.id for place in reading.places if place.at in range(place.first, place.end) and not place.commit}
    ticked = [box for box in lines.boxes if box.ticked and box.at in owner and box.at != owner[box.at].at]
    partly = {owner[box.at].id for box in ticked if box.indent <= 3}
    claimed |= {owner[box.at].id for box in ticked}
    is_over = all(place.mark.status is Status.DONE for place in reading.places)
    lines_by_remark: dict[tuple[str, bool], list[int]] = {}
    for box in (box for box in lines.boxes if box.at in owner):
        place = owner[box.at]
        is_error = False
        if box.optional:
            kind = "struck-through" if box.text.startswith("~") else "optional"
            message = f"{kind} boxes of phase {place.id} are no work items and stay open"
        elif place.mark.status is Status.DONE and not box.ticked and place.id in claimed and reading.format != "kiro":
            message = f"phase {place.id} counts as done, but has open boxes"
            slot = place.spots[0].slot if place.spots else ""
            above = [lines.texts[place.first], *(h.text for h in (lines.heading_above(box.at),) if h)]
            adorns = any(re.search(marks.LONE_SIGN, text) for text in above if slot == "box" or is_over)
            says_done = slot in ("", "line", "brackets")
            is_error = not place.commit and box.indent <= 3 and (says_done if place.id in partly else adorns)
        elif place.mark.status is Status.TODO and not box.ticked and re.search(marks.DONE_BOX, box.text):
            message = f"open boxes of phase {place.id} say done in their texts"
            is_error = True
        else:
            continue
        lines_by_remark.setdefault((message, is_error), []).append(box.at)
    for (message, is_error), boxes in lines_by_remark.items():
        remedy = "; correct one of the two" * is_error
        yield Remark(boxes[0] + 1, f"{message} ({len(boxes)}){remedy}", is_error=is_error)
    is_word = all(box.is_word for box in lines.boxes)
    done = {i for i, place in owner.items() if place.mark.status is Status.DONE and lines.texts[i][:1].isdigit()}
    lists = {_list_of(entry, lines) for entry in lines.boxes}
    plain = [e.at for e in lines.entries if (is_word or e.at in done) and not e.sign and _list_of(e, lines) in lists]
    kind, example = ("a word in brackets", "[todo]") if is_word else ("a box", "[ ]")
    message = f"entries without {kind}, which others have ({len(plain)}); write one, such as {example}"
    yield from (Remark(at + 1, message, is_error=True) for at in plain[:1])


def _list_of(entry: Entry, lines: Lines) -> tuple[int, Heading | None]:
    """The indent and the heading of a list; numbers may go on below the next heading."""
    has_number = lines.texts[entry.at].lstrip()[0].isdigit()
    return entry.indent, None if has_number else lines.heading_above(entry.at)


def _about_bare(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """The phases without a status that signs above, in or after them may call done; without signs they are todo."""
    if reading.format not in (*RIVALS[0], "todo") or says_complete(lines):
        return
    bare = [place for place in reading.places if place.is_bare]
    said = [h for h in lines.headings if h.level > 1 and re.search(marks.MAY_BE_DONE, h.text)]
    said = [heading for heading in said if not re.search(marks.RESERVED, heading.text)]
    signed = [h for h in lines.headings if re.search(marks.DONE_ABOVE, h.text) or h in said]
    ticked = (p for p in reading.places if not p.spots or p.spots[0].slot == "box")  # not by a line, as of a landing
    marked = [place.first for place in ticked if place.mark.status is Status.DONE]
    listed = [e for e in lines.entries if e.text.startswith(("✅", "✔", "☑"))]
    with_signs = [place for place in bare if marks_within(listed, place.first, place.end)]
    partly = []
    for place in with_signs:  # some entries right below the heading begin with a sign for done, and others do not
        inner = marks_within(lines.parts, place.first + 1, place.end)
        entries = marks_within(lines.entries, place.first, inner[0].at if inner else place.end)
        signs = {re.match("[✅✔☑]", e.text) is not None for e in entries if not e.indent and not e.sign}
        partly += [place] if len(signs) > 1 else []
    last = max(marked, default=0) if 2 * len(with_signs) <= len(reading.places) else len(lines.texts)
    ends = [0, *accumulate((heading.end for heading in signed), max)]  # of the headings up to each
    doubtful = [p for p in bare if p.first < last or p.first < ends[bisect_left(signed, p.first, key=attrgetter("at"))]]
    doubtful = doubtful or partly
    orders = (heading for heading in lines.headings if re.search(r"(?i)order\W*\Z", heading.text))
    spots = (spots for _, _, rows in table.list_status_tables(lines) for *_, spots in rows if spots)
    first, end = reading.places[0].first, reading.places[-1].end
    cells = (spot.text_in(lines) for spot, *_ in spots if first < spot.at < end)
    is_elsewhere = any(box.ticked for box in lines.boxes) or any(read_mark(c).status is Status.DONE for c in cells)
    if reading.lacks_statuses and (is_elsewhere or any(marks_within(listed, o.at, o.end) for o in orders)):
        doubtful = bare
    if len(bare) == len(reading.places) and is_told_elsewhere(lines, reading):
        doubtful = bare
    parts = [part for part in lines.parts if re.match(marks.TOLD, part.text)]
    told = [place for place in bare if marks_within(parts, place.first, place.end)]
    titles = [heading.text for heading in lines.headings[:1]] + [lines.path.rpartition("/")[2]]
    is_report = any(re.search(marks.REPORT, t) and not re.search(marks.PLAN_WORD, t) for t in titles)
    if reading.lacks_statuses and (is_report or 2 * len(told) > len(reading.places)):
        doubtful = bare
    if is_report and not lines.boxes:
        doubtful = [place for place in reading.places if place.mark.status is Status.TODO]
    is_guide = any(re.search(marks.GUIDE, t) and not re.search(marks.PLAN_WORD, t) for t in titles)
    if any(re.search(marks.HAND_CHECKS, title) for title in titles):
        message = "the title is that of checks that a person goes through; if agents can do them, write a plan"
        yield Remark(reading.decided_by + 1, message, is_error=True)
    if is_guide and reading.unit == "step" and len(bare) == len(reading.places):
        message = "the title is that of a guide, and its steps have no status"
        yield Remark(reading.decided_by + 1, f"{message}; if they are work, write lines **Status:**", is_error=True)
    elif doubtful:
        ids = ", ".join(place.id for place in doubtful)
        message = f"no status of {reading.unit} {ids}, but signs beside it say done; write lines **Status:** there"
        yield Remark(doubtful[0].first + 1, message, is_error=True)
    elif reading.lacks_statuses:
        yield Remark(reading.decided_by + 1, f"no statuses: all {len(bare)} phases count as todo")


def _about_rest(lines: Lines, reading: Reading) -> Iterator[Remark]:
    """What stands outside of the phases and looks like phases or statuses."""
    inside = {i for place in reading.places for i in (place.at, *range(place.first, place.end))}
    todo = {id_key(place.id) for place in reading.places if place.mark.status is Status.TODO}
    count = len(todo)
    if reading.format == "todo":  # its phases may have other numbers than their headings
        titles = (marks.read_name(place.title) for place in reading.places if place.mark.status is Status.TODO)
        todo = {id_key(name.id) for name in titles if name and "." in name.id}
    for index, ids in list_claims(lines, reading.unit, inside):
        if claimed := ", ".join(id_ for id_ in ids if id_key(id_) in todo):
            message = f"here the plan says done of {reading.unit} {claimed}, whose status is todo; correct one of them"
            yield Remark(index + 1, message, is_error=True)
    left = ", ".join(place.id for place in reading.places if place.mark.status is not Status.DONE)
    if left and (folder := re.search(r"(?i)(?:^|/)(completed|done|archived?)/", lines.path)):
        message = f"the plan is in a folder {folder[1]}, but not done: {left}; to have it worked, move it"
        yield Remark(1, message, is_error=True)
    is_unwritten = not left and not any(place.spots for place in reading.places)
    is_bare = all(place.is_bare for place in reading.places)
    documents = {lines.path.rpartition("/")[2].lower()}
    for index, text in enumerate(lines.texts):
        if index in inside or lines.inert[index] or not (":" in text or "." in text):
            continue
        line = marks.STATUS_LINE.match(text)
        value = text[line.end() :] if line else ""
        is_front = text.startswith("status")
        is_of_plan = index < reading.places[0].first and not is_front and not _is_of_part(lines, index)
        is_done = line is not None and read_mark(value).status is Status.DONE
        is_aside = re.match(marks.SET_ASIDE, value) if line else re.match(_SET_ASIDE_NOTE, text)
        if is_of_plan and left and is_aside:
            yield Remark(index + 1, f"the plan says here that it is set aside, but not done: {left}", is_error=True)
        elif is_of_plan and left and not is_done and re.search(marks.MAY_BE_DONE, value) and is_bare:
            message = "the status of the plan says here that work is done, but no phase has a status; write them"
            yield Remark(index + 1, message, is_error=True)
        elif is_of_plan and left and is_done:
            is_whole = not re.search(marks.RESERVED, text)
            is_most = 2 * count > len(reading.places) and re.match(marks.DONE_START, value) is not None
            is_error = count == len(reading.places) if is_whole else is_most
            if is_whole or is_most:
                yield Remark(index + 1, f"the plan says here that it is done, but not done: {left}", is_error=is_error)
        elif line and is_unwritten and not is_done:
            message = "the headings say done of every phase, but the plan does not here; correct one of them"
            yield Remark(index + 1, message, is_error=True)
        for path in (*re.findall(_PROGRESS_FILE, text), *re.findall(_PROGRESS_LABEL, text)):
            name = path.rpartition("/")[2]
            if name.lower() not in documents:
                message = f"the plan names {name} for its progress, which runplan does not keep up to date"
                yield Remark(index + 1, f"{message}; the statuses in this file count", document=path)
            documents.add(name.lower())
