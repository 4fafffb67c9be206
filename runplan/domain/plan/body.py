"""The text of a phase: its `Label: value` lines, its work items and criteria, paths and execution."""

import posixpath
import re
from bisect import bisect
from collections.abc import Iterator

from msgspec import Struct

from runplan.domain.plan.marks import COLON, DONE_TITLE, MANUAL, NOT_WORK, STATUS_LINE, ExecutionKind, PhaseSettings
from runplan.domain.plan.reading import Remark
from runplan.domain.plan.scan import LABEL, Entry, Heading, Lines, marks_within
from runplan.domain.text import nearest_word

WHOLE_PHASE = "P"  #: the id of the only item of a phase that lists none
HOST_LABEL = r"[a-z0-9][a-z0-9_.-]{0,39}"  #: of a host of a fleet
LONGEST_HEAD = 40  #: lines of a phase that are searched for unknown keys
LIKENESS = 0.76  #: of a key to a known one: Touch, Depend on and Execution mode are like one, Cost and Notes are not
QUOTED = "> >"  #: begins a line of a foreign text, as of an issue: it is no label, and permits nothing
KEYS = ("Touches", "Allows", "Host", "Depends", "Depends on", "Blocked by", "Dependencies", "Execution", "Sign-off")
DEPENDS = ("depends", "depends on", "blocked by")
CODE_KEYS = ("Agent", "Verifier", "Model", "Effort", "Tests", "Pull-request")  #: with a value in backticks
_LABEL = (
    r"(?is)[ \t]*(?:[-*>+][ \t]+)?(?:#{3,6}[ \t]+)?[*_]{0,2}"
    rf"({'|'.join(KEYS)})(?:\*\*{COLON}|{COLON}\*\*|{COLON})[ \t]*(.*?)_?\Z"
)
#: A line that looks like one of these: a capitalised word, perhaps with a second one, and a value.
_KEY = r"(?:[-*>+][ \t]+)?(?:\*\*)?([A-Z][a-z]{3,}(?:[ -][a-z]+)?)(?:\*\*:|:\*\*|:)[ \t]+(\S.*)"
#: An item that is a paragraph: `**WI 3.1** text`, `**WI 1a.n** text`, `4.0 **Title** text`.
_PARAGRAPH = r"(?i)\*\*(?:WI|Work item)[ \t#-]?[A-Z]?[0-9]|[0-9]{1,3}\.[0-9]{1,3}[ \t]+\*\*"
_BOLD_ID = r"\*\*[A-Z]{0,3}[0-9]{1,3}\.[0-9]{1,3}\b"  #: `- **T1.2 — Title.** text`
#: A row of a table of tasks, `| T001 | text |` or `| **1.1** text |`, and its header.
_ROW = r"\|[ \t]*(?:[*`]*[A-Za-z]{0,6}[-.]?[0-9][\w.-]{0,8}[*`]*[ \t]*\||[*`]*[0-9]{1,3}\.[0-9]{1,3}[*`]*[ \t])"
_ROW_HEADER = r"(?i)\|[ \t]*\**(?:#|id|no\.?|nr|task(?: id)?)\**[ \t]*\|"
_WORK = (
    r"(?i)work items?|deliverables?|(?:tasks|steps)\b(?! [0-9])"
    r"|(?:task|step)(?:[ \t]*(?:[:(—–]|\Z)| (?:list|breakdown)\b)"  # not "Step C algorithm"
)
_CRITERIA = (
    r"(?i)(?:acceptance|success|exit) criteria|definition of done|(?:phase \S{1,9} |automated )?verification"
    r"|(?:phase \S{1,9} )?completion criteria"
)
#: Labels whose lists explain the work.
_NO_WORK = r"(?i)\b(?:background|context|decision|depend|example|goal|issue|note|option|question|reason|risk|scope|why)"
#: Suffixes of names that are files also without a folder; `response.json` or `self.cfg` may be an attribute.
_SUFFIXES = (
    r"(?:bash|c|cc|cpp|cs|css|csv|go|gradle|h|hpp|html|ini|ipynb|java|js|jsx|kt|kts|md|mjs|php|proto|ps1|py|pyi|rb|rs|rst"
    r"|scala|scss|sh|sql|svelte|swift|tf|toml|ts|tsx|txt|vue|yaml|yml|zig)"
)
#: `src/x.py`, `./x.py:12`, `tests/x.py::test_y`; not an option, a product (`Vue.js`) or a host (`example.com/x.html`).
_FILE = (
    r"(?:\./)?((?!-|[A-Z]\w*\.js\b|[^./]+\.[^/]*/)(?:(?:(?!\.+/)[\w+.-]+/)+[\w+.-]*[\w+-]\.[a-z][a-z0-9]{0,7}"
    rf"|[\w+.-]*[\w+-]\.{_SUFFIXES}))(?:::.*|[:#]L?\d.*)?"
)
#: A line `Sign-off:` without a demand.
_NO_SIGN_OFF = r"(?i)[`*. \t]*(?:[-–—]|no|n/?a|none\b.*|(?:not (?:required|needed)|optional)\b.*)?[`*. \t]*\Z"
#: Parts of a list of paths. A comma inside braces belongs to a pattern like `src/{a,b}.py`.
_CODE = r"`([^`]+)`"
_LISTED = r"(?:[^,{]|\{[^{}]*\}|\{)+"
_REASON = r"(?<![ \t])[ \t]+(?:—|–|--?|\()[ \t]*"


class Item(Struct, frozen=True):
    id: str  #: `W1` of a work item, `C1` of a criterion, or `P`
    text: str
    line: int


class Execution(Struct, frozen=True):
    kind: ExecutionKind | None = ExecutionKind.WORKTREE  #: None for one that runplan does not know
    argument: str = ""  #: the path of the plan, or the command
    text: str = ExecutionKind.WORKTREE.value  #: as written
    line: int = 0  #: of the label; 0 for none


class Body(Struct, frozen=True):
    lines: Lines
    whole: range  #: without the heading
    parts: list[Heading]
    labels: dict[str, tuple[int, str]]  #: lower-case label to line and value, the first of each
    further: list[tuple[int, str]]  #: lines and values of further labels like Depends

    def find_parts(self, title: str) -> Iterator[range]:
        """The lines right below each heading that begins with the title; level 1 may be a comment of a script."""
        parts = (part for part in self.parts if part.level > 1 and part.text.lower().startswith(title))
        return (self.direct_lines(part) for part in parts)

    def direct_lines(self, part: Heading) -> range:
        inner = marks_within(self.lines.parts, part.at + 1, self.lines_inside(part).stop)
        return range(part.at + 1, inner[0].at) if inner else self.lines_inside(part)

    def lines_inside(self, part: Heading) -> range:
        return range(part.at + 1, min(part.end, self.whole.stop))


def body_of(lines: Lines, first: int, end: int) -> Body:
    labels: dict[str, tuple[int, str]] = {}
    further: list[tuple[int, str]] = []
    for i in range(first, end):
        text = lines.texts[i]
        if lines.inert[i] or not re.search(COLON, text):
            continue
        for field in text.split(" | ") if text.startswith("**") else [text]:  # `**Priority:** high | **Depends:** 1`
            if label := re.match(_LABEL, field):
                name, line = label[1].lower(), (i, label[2].strip())
                if labels.setdefault(name, line) is not line and name in DEPENDS:
                    further.append(line)
    return Body(lines, range(first + 1, end), marks_within(lines.parts, first + 1, end), labels, further)


def read_settings(body: Body) -> tuple[PhaseSettings, str]:
    """What lines above the headings set, such as "Agent: `codex`" (else it is prose), and the group of a stack."""
    values: dict[str, str] = {}
    for _, key, value in _list_keys(body):
        if key.capitalize() in CODE_KEYS and (code := re.fullmatch(_CODE, value)):
            values.setdefault(key.lower(), code[1].strip())
    group = values.pop("pull-request", "")
    return PhaseSettings(**values), group


def _list_keys(body: Body) -> Iterator[tuple[int, str, str]]:
    """The lines above the headings of a phase that have a key and a value."""
    end = body.parts[0].at if body.parts else body.whole.stop
    for i in body.whole[: min(end - body.whole.start, LONGEST_HEAD)]:
        if not body.lines.inert[i] and (line := re.match(_KEY, body.lines.texts[i])):
            yield i, line[1], line[2].rstrip(" \t.")


def list_remarks(body: Body, phase: str, *, is_done: bool) -> Iterator[Remark]:
    """The keys that are only like one of runplan's, while the phase is open, and a line Host: without labels."""
    for i, key, value in _list_keys(body) if not is_done else ():
        keys = (*KEYS, *CODE_KEYS) if re.fullmatch(_CODE, value) else KEYS
        near = nearest_word(key.capitalize(), keys, LIKENESS) if key.lower() not in body.labels else ""
        if near and near != key:
            message = f"runplan does not know {key}:, which has no effect; did you mean {near}:?"
            yield Remark(i + 1, f"phase {phase}: {message}")
    if "host" in body.labels and not read_labels(body):
        message = f"phase {phase} names no labels after Host:, which has no effect; labels are like: gpu, docker"
        yield Remark(body.labels["host"][0] + 1, message)


def read_items(body: Body, *, title: str) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The work items and criteria of a phase, else the phase itself, and the criteria that a person must check."""
    manual = {i for part in body.parts if re.match(MANUAL, part.text) for i in body.lines_inside(part)}
    checked = [part for part in body.parts if re.match(_CRITERIA, part.text)]
    criteria = _list_entries(body, checked, without=manual)
    without = manual.union(*(body.lines_inside(part) for part in checked))
    parts = [part for part in body.parts if re.match(_WORK, part.text)]
    work = _list_entries(body, parts, without=without)
    others = without.union(*(body.lines_inside(part) for part in parts)) if work else without
    work |= _list_boxes(body, body.whole, others, bullets=False)
    work = work or _headed_items(body, body.whole) or _list_paragraphs(body, body.whole, without)
    entries = marks_within(body.lines.entries, body.whole.start, body.whole.stop)
    if not work:  # numbered entries above the first heading, also behind bold lines, unless they are no work
        stop = next((part.at for part in body.parts if part.level < LABEL), body.whole.stop)
        aside = without.union(*(body.lines_inside(part) for part in body.parts if re.search(_NO_WORK, part.text)))
        tops = (entry for entry in entries if not entry.indent and entry.at < stop and entry.at not in aside)
        listed = [e for e in tops if body.lines.texts[e.at][0].isdigit() or re.match(_BOLD_ID, e.text)]
        work = {e.at: entry_text(body, e) for e in listed} or list_task_rows(body.lines, body.whole)
    # Sub-headings `### Task 2: Title` without work items that do not say done, beside others that have some, are work.
    titles = _headed_items(body, body.whole)
    headed = [part for part in body.parts if part.at in titles and part.at not in without]
    lines = sorted(work)
    holding = [h for h in headed if bisect(lines, h.at) < bisect(lines, body.lines_inside(h).stop - 1)]
    kinds = {(part.level, part.name.unit) for part in holding}
    passed = {part.at for part in holding}.union(work)
    left = [h for h in headed if h.at not in passed and (h.level, h.name.unit) in kinds]
    left = [h for h in left if not re.search(DONE_TITLE, h.text) and not re.search(f"{NOT_WORK}|~~", h.text)]
    work |= {heading.at: heading.text for heading in left}
    items = [Item(f"W{n}", text, line + 1) for n, (line, text) in enumerate(sorted(work.items()), 1)]
    items += [Item(f"C{n}", text, line + 1) for n, (line, text) in enumerate(sorted(criteria.items()), 1)]
    sign_off = tuple(entry_text(body, entry) for entry in entries if entry.at in manual)
    demand = body.labels.get("sign-off", (0, ""))[1]
    if not re.match(_NO_SIGN_OFF, demand):
        sign_off = (f"Sign-off: {demand}", *sign_off)
    return tuple(items) or (Item(WHOLE_PHASE, title, body.whole.start),), sign_off


def _list_entries(body: Body, parts: list[Heading], *, without: set[int]) -> dict[int, str]:
    """The entries below the headings; boxes, or entries where there are no others, also below their sub-headings."""
    entries: dict[int, str] = {}
    end = 0
    for part in parts:
        if part.at >= end:  # not within the part before it
            inside = body.lines_inside(part)
            end = inside.stop
            direct = body.direct_lines(part)
            has_boxes = any(box.at not in without for box in marks_within(body.lines.boxes, direct.start, direct.stop))
            entries |= (
                ({} if has_boxes else _list_paragraphs(body, inside, without))
                or _list_boxes(body, inside if has_boxes else direct, without)
                or _headed_items(body, inside)
                or _list_boxes(body, inside, without)
            )
    return entries


def _list_boxes(body: Body, part: range, without: set[int], *, bullets: bool = True) -> dict[int, str]:
    """The boxes of a part that are not below other boxes; its bullets where it has no box."""
    entries = [e for e in marks_within(body.lines.entries, part.start, part.stop) if e.at not in without]
    boxes = [entry for entry in entries if entry.sign and not entry.optional]
    listed = boxes or [e for e in entries if bullets and not STATUS_LINE.match(body.lines.texts[e.at])]
    return {entry.at: entry_text(body, entry) for entry in listed if entry.indent < listed[0].indent + 2}


def entry_text(body: Body, entry: Entry) -> str:
    """The text of an entry with the lines that continue it, and with its nested entries that name files."""
    texts = [entry.text]
    goes_on = True  # right below it, and indented more than its mark
    # An entry that a format made up has only its own text.
    is_listed = entry.column in [line.column for line in marks_within(body.lines.entries, entry.at, entry.at + 1)]
    for i in range(entry.at + 1, body.whole.stop if is_listed else 0):
        text = body.lines.texts[i].expandtabs(4)
        if text.strip() and len(text) - len(text.lstrip()) <= entry.indent:
            break
        nested = marks_within(body.lines.entries, i, i + 1)
        goes_on = goes_on and not body.lines.inert[i] and bool(text.strip()) and not nested
        texts += [text.strip()] if goes_on else [inner.text for inner in nested if named_paths(inner.text)]
    return " ".join(texts).strip()


def _headed_items(body: Body, part: range) -> dict[int, str]:
    """The sub-headings `#### 1.1 Title` or `#### T-01 Title` of a part."""
    titled = [h for h in marks_within(body.lines.headings, part.start, part.stop) if h.name.title]
    ids = r"[0-9].*\..*|[A-Za-z]{1,3}(?:-[0-9]+[0-9.]*|[0-9]+\.[0-9.]+)"
    return {h.at: h.text for h in titled if re.fullmatch(ids, h.name.id) or (h.name.strong and h.name.id[0].isdigit())}


def _list_paragraphs(body: Body, part: range, without: set[int]) -> dict[int, str]:
    lines = ((i, body.lines.texts[i]) for i in part if i not in without and not body.lines.inert[i])
    return {i: text.strip() for i, text in lines if re.match(_PARAGRAPH, text)}


def list_task_rows(lines: Lines, span: range) -> dict[int, str]:
    rows = {}
    is_inside = False
    for i in span:
        text = lines.texts[i].strip()
        is_inside = text.startswith("|") and (is_inside or re.match(_ROW_HEADER, text) is not None)
        if is_inside and not lines.inert[i] and re.match(_ROW, text):
            rows[i] = text.strip("| \t")
    return rows


def named_paths(text: str) -> tuple[str, ...]:
    """The files that an item names in backticks: relative paths with a suffix, without wildcards."""
    files = (re.fullmatch(_FILE, code.strip()) for code in re.findall(_CODE, text))
    return tuple(dict.fromkeys(file[1] for file in files if file))


def read_execution(body: Body) -> Execution:
    index, value = body.labels.get("execution", (-1, ""))
    text = value.strip("* \t")
    text = text[1:-1].strip() if text.startswith("`") and text.endswith("`") and text.count("`") == 2 else text
    word, _, rest = text.partition(" ")
    argument = rest.strip()
    kind = next((kind for kind in ExecutionKind if kind == word.strip("`.,;").lower()), None)
    if not text:
        return Execution()
    match kind:
        case ExecutionKind.WORKTREE | ExecutionKind.DIRECT | ExecutionKind.PLAN_FIRST:
            is_known = not argument
        case ExecutionKind.PLAN:
            argument = posixpath.normpath(argument.rstrip(".,;").strip("`"))
            is_known = argument.endswith(".md") and not argument.startswith(("/", ".."))
        case _:
            argument = argument[1:-1] if argument.count("`") == 2 and argument[0] == argument[-1] == "`" else argument
            is_known = bool(argument)
    return Execution(kind if is_known else None, argument, " ".join((kind or word, *rest.split())), index + 1)


def read_paths(body: Body, label: str) -> tuple[str, ...]:
    """The path patterns of a line `Touches:` or `Allows:`, of the list below it, or of a part with that heading."""
    index, value = body.labels.get(label, (-1, ""))
    listed: list[str] = re.findall(_LISTED, value)
    parts = [range(index + 1, body.whole.stop)] if index >= 0 else body.find_parts(label)
    for part in parts if not value else ():
        for line in part:
            text = body.lines.texts[line]
            if text.startswith("#") or (listed and not text.strip()):
                break
            listed += [entry.text for entry in marks_within(body.lines.entries, line, line + 1)]
    paths: list[str] = []
    for entry in listed:
        named = re.findall(_CODE, entry) or [re.split(_REASON, entry.strip(), maxsplit=1)[0].strip().rstrip(".")]
        paths += [path for path in named if path and path.lower() not in ("none", "-", "—")]
    return tuple(dict.fromkeys(paths))


def read_labels(body: Body) -> tuple[str, ...]:
    """The labels of a line `Host: gpu, docker`; of other words there, none."""
    words = [word.strip(" \t`*.").lower() for word in body.labels.get("host", (0, ""))[1].split(",")]
    return tuple(sorted(set(words))) if all(re.fullmatch(HOST_LABEL, word) for word in words) else ()
