"""The text of a phase: its parts, its `Label: value` lines, its work items and criteria, paths and execution."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import read_name
from runplan.plan.marks import STATUS_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.plan.scan import Heading, Lines

#: The id of the only item of a phase that lists none.
WHOLE_PHASE = "P"

_LABEL = re.compile(
    r"[ \t]*(?:[-*>+][ \t]+)?(?:#{3,6}[ \t]+)?[*_]{0,2}(Touches|Allows|Depends(?: on)?|Dependencies|Execution|Sign-off)"
    r"(?:\*\*:|:\*\*|:)[ \t]*(.*?)_?\Z",
    re.IGNORECASE | re.DOTALL,
)
#: A line that is a heading in bold: `**Tasks:**`.
_BOLD = re.compile(r"[ \t]{0,3}\*\*([^*`]{1,60}?):?\*\*:?[ \t]*\Z")
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,4}[.)])(?:[ \t]+|\Z)(\[(?:[^\]\w]|[xX])\]\*?(?=[ \t]|\Z)[ \t]*)?")
#: An item that is a paragraph: `**WI 3.1** text`, `4.0 **Title** text`.
_PARAGRAPH = re.compile(r"\*\*(?:WI|Work item)[ \t-]?[0-9]|[0-9]{1,3}\.[0-9]{1,3}[ \t]+\*\*", re.IGNORECASE)
_WORK = re.compile(r"work items?|tasks?\b(?! [0-9])|deliverables?|steps?\b(?! [0-9])", re.IGNORECASE)
_CRITERIA = re.compile(r"(?:acceptance|success|exit) criteria|definition of done|automated verif", re.IGNORECASE)
_MANUAL = re.compile(r"manual (?:verif|test)", re.IGNORECASE)
#: Parts of a list of paths.
_CODE = r"`([^`]+)`"
_REASON = r"(?<![ \t])[ \t]+(?:—|–|--?|\()[ \t]*"


class Bullet(Struct, frozen=True):
    """An item of a list: bullet, number or box."""

    at: int
    indent: int
    is_box: bool
    text: str  #: with its continuation lines, joined by blanks


class Part(Struct, frozen=True):
    """The lines under one heading: with its sub-headings, and up to the first of them."""

    title: str
    whole: range
    direct: range


class Item(Struct, frozen=True):
    """One item that a verifier must pass or fail: work item `W1`, criterion `C1`, or `P`."""

    id: str
    text: str
    line: int


class Body(Struct, frozen=True):
    lines: Lines
    first: int
    end: int
    parts: tuple[Part, ...]
    bullets: tuple[Bullet, ...]
    labels: dict[str, tuple[int, str]]  #: lower-case label to line and value, the first of each

    def listed(self, part: range) -> tuple[Bullet, ...]:
        """The items of the lists in some lines, nested ones too."""
        a, b = (bisect_left(self.bullets, at, key=lambda bullet: bullet.at) for at in (part.start, part.stop))
        return self.bullets[a:b]

    def named(self, title: str) -> Iterator[Part]:
        return (part for part in self.parts if part.title.lower().startswith(title))


def body_of(lines: Lines, first: int, end: int, headings: Iterable[Heading]) -> Body:
    labels: dict[str, tuple[int, str]] = {}
    marks = [(heading.at, heading.level, heading.text) for heading in headings if heading.at > first]
    for i in range(first, end):
        text = lines.texts[i]
        if lines.inert[i] or (":" not in text and "**" not in text):
            continue
        if found := _LABEL.match(text):
            labels.setdefault(found[1].lower(), (i, found[2].strip()))
        elif bold := _BOLD.match(text):
            marks.append((i, 7, bold[1]))
    bullets = tuple(_bullets(lines, first + 1, end))
    return Body(lines, first, end, tuple(_parts(sorted(marks), end)), bullets, labels)


def _parts(marks: list[tuple[int, int, str]], end: int) -> Iterator[Part]:
    borders = [*(at for at, _, _ in marks), end]
    for place, (at, level, title) in enumerate(marks):
        later = place + 1
        while later < len(marks) and marks[later][1] > level:
            later += 1
        yield Part(title, range(at + 1, borders[later]), range(at + 1, borders[place + 1]))


def _bullets(lines: Lines, first: int, end: int) -> Iterator[Bullet]:
    """The items of the lists in some lines, nested ones too."""
    for i in range(first, end):
        text = lines.texts[i]
        found = None if lines.inert[i] or not text else _BULLET.match(text)
        if found is not None and not STATUS_LINE.match(text):
            below = lines.texts[i + 1] if i + 1 < end else ""
            whole = text[found.end() :].strip()
            if below[:1].isspace():
                whole = " ".join([whole, *_continued(lines, range(i + 1, end), len(found[1]))]).strip()
            yield Bullet(i, len(found[1].expandtabs(4)), found[2] is not None, whole)


def _continued(lines: Lines, below: range, mark: int) -> Iterator[str]:
    """The lines that continue an item: those right below it, indented more than its mark."""
    for i in below:
        text = lines.texts[i]
        is_indented = text[: mark + 1].isspace() and len(text) > mark + 1
        if lines.inert[i] or not is_indented or not text.strip() or _BULLET.match(text):
            return
        yield text.strip()


def unbulleted(text: str) -> tuple[bool, str]:
    """Whether a line begins a list item, and its text without the mark."""
    found = _BULLET.match(text)
    return found is not None, text[found.end() :].strip() if found else text.strip()


# --- items ------------------------------------------------------------------------------------------------


def read_items(body: Body, *, title: str) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The work items and criteria of a phase in the order of the text, and the criteria that a person must check.

    The phase itself is the only item when it lists none.
    """
    manual = {i for part in body.parts if _MANUAL.match(part.title) for i in part.whole}
    checked = [part for part in body.parts if _CRITERIA.match(part.title)]
    criteria = _entries(body, checked, without=manual)
    without = manual | {i for part in checked for i in part.whole}
    work = _entries(body, [part for part in body.parts if _WORK.match(part.title)], without=without)
    whole = Part("", range(body.first + 1, body.end), range(0))
    work = work or _boxes(body, whole.whole, without) or _headed(body, whole) or _paragraphs(body, whole, without)
    found = [Item(f"W{n}", text, at + 1) for n, (at, text) in enumerate(sorted(work.items()), 1)]
    found += [Item(f"C{n}", text, at + 1) for n, (at, text) in enumerate(sorted(criteria.items()), 1)]
    sign_off = tuple(bullet.text for bullet in body.bullets if bullet.at in manual)
    return tuple(found) or (Item(WHOLE_PHASE, title, body.first + 1),), sign_off


def _entries(body: Body, parts: list[Part], *, without: set[int]) -> dict[int, str]:
    """The entries of some parts by their lines.

    They are directly below the heading. Only where there are none, sub-headings name them or group them.
    """
    found: dict[int, str] = {}
    end = 0
    for part in parts:
        if part.whole.start < end:
            continue  # within the part before it
        end = part.whole.stop
        found |= (
            _listed(body, part.direct, without)
            or _headed(body, part)
            or _listed(body, part.whole, without)
            or _paragraphs(body, part, without)
        )
    return found


def _listed(body: Body, part: range, without: set[int]) -> dict[int, str]:
    """The boxes of a part; its bullets where it has no box."""
    return _boxes(body, part, without) or {b.at: b.text for b in _top_level(body, part) if b.at not in without}


def _boxes(body: Body, part: range, without: set[int]) -> dict[int, str]:
    found = [bullet for bullet in body.listed(part) if bullet.is_box and bullet.at not in without]
    optional = {box.at for box in body.lines.boxes_in(part.start, part.stop) if box.optional}
    least = min((bullet.indent for bullet in found), default=0)
    return {b.at: b.text for b in found if b.indent < least + 2 and b.at not in optional}


def _top_level(body: Body, part: range) -> list[Bullet]:
    found = body.listed(part)
    return [bullet for bullet in found if bullet.indent < found[0].indent + 2]


def _headed(body: Body, part: Part) -> dict[int, str]:
    """The sub-headings `#### 1.1 Title` of a part."""
    found = {}
    first = bisect_left(body.parts, part.whole.start + 1, key=lambda other: other.whole.start)
    for other in body.parts[first:]:
        at = other.whole.start - 1
        if at >= part.whole.stop:
            break
        name = read_name(other.title) if body.lines.texts[at].startswith("#") else None
        if name is not None and name.title and name.id[0].isdigit() and (name.strong or "." in name.id):
            found[at] = other.title
    return found


def _paragraphs(body: Body, part: Part, without: set[int]) -> dict[int, str]:
    lines = ((i, body.lines.texts[i]) for i in part.whole if i not in without and not body.lines.inert[i])
    return {i: text.strip() for i, text in lines if _PARAGRAPH.match(text)}


# --- paths and execution ----------------------------------------------------------------------------------


def read_paths(body: Body, label: str) -> tuple[str, ...]:
    """The path patterns of a line `Touches:` or `Allows:`, of the list below it, or of a part with that heading."""
    index, value = body.labels.get(label, (-1, ""))
    if value:
        return _paths(_split_at_commas(value))
    parts = [range(index + 1, body.end)] if index >= 0 else [part.direct for part in body.named(label)]
    listed: list[str] = []
    for part in parts:
        for line in part:
            text = body.lines.texts[line]
            if text.startswith("#") or (listed and not text.strip()):
                break
            listed += [bullet.text for bullet in body.listed(range(line, line + 1))]
    return _paths(listed)


def _split_at_commas(value: str) -> list[str]:
    """The entries of a list; a comma inside braces belongs to a pattern like `src/{a,b}.py`."""
    entries, depth, begin = [], 0, 0
    for i, char in enumerate(value):
        depth += (char == "{") - (char == "}" and depth > 0)
        if char == "," and not depth:
            entries.append(value[begin:i])
            begin = i + 1
    return [*entries, value[begin:]]


def _paths(entries: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for entry in entries:
        paths = re.findall(_CODE, entry) or [re.split(_REASON, entry.strip(), maxsplit=1)[0].strip().rstrip(".")]
        found += [path for path in paths if path and path.lower() not in ("none", "-", "—")]
    return tuple(dict.fromkeys(found))


def read_execution(body: Body) -> tuple[str, str]:
    """How the phase is worked (`worktree`, `direct` or `delegate …`), and the value if it is none of these."""
    value = body.labels.get("execution", (-1, ""))[1].strip("`* \t")
    word, _, rest = value.partition(" ")
    word = word.strip("`*.,;:").lower()
    if word not in ("worktree", "direct", "delegate"):
        return "worktree", value
    return f"delegate {rest.strip()}".strip() if word == "delegate" else word, ""


def read_sign_off(body: Body) -> tuple[str, ...]:
    """The demand of a line `Sign-off: required`; empty without one."""
    _, value = body.labels.get("sign-off", (-1, ""))
    return (f"Sign-off: {value}",) if value.strip("`*. \t").lower().startswith(("required", "yes")) else ()
