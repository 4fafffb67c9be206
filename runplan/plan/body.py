"""The text of a phase: its sub-sections, its `Label: value` lines, its items, paths and execution."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.formats import STATUS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runplan.plan.scan import Heading, Lines

#: The id of the only item of a phase that lists none.
WHOLE_PHASE = "P"

_LABEL = re.compile(
    r"[ \t]*(?:[-*>+][ \t]+)?(?:#{3,6}[ \t]+)?\*{0,2}(Touches|Allows|Depends(?: on)?|Dependencies|Execution)"
    r"(?:\*\*:|:\*\*|:)[ \t]*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_BULLET = re.compile(r"([ \t]*)(?:[-*+]|[0-9]{1,4}[.)])(?:[ \t]+|\Z)(?:\[[^\]]\](?=[ \t]|\Z)[ \t]*)?")
#: Parts of a list of paths; compiled when there is one.
_CODE = r"`([^`]+)`"
_REASON = r"(?<![ \t])[ \t]+(?:—|–|--?|\()[ \t]*"


class Bullet(Struct, frozen=True):
    """An item of a list: bullet, number or box."""

    at: int
    indent: int
    text: str  #: with its continuation lines, joined by blanks


class Part(Struct, frozen=True):
    """The lines under one heading: with its sub-headings, and up to the first of them."""

    whole: range
    direct: range


class Body(Struct, frozen=True):
    lines: Lines
    first: int
    end: int
    headings: tuple[Heading, ...]  #: those below the phase's own
    labels: dict[str, tuple[int, str]]  #: lower-case label to line and value, the first of each

    def parts(self, title: str) -> Iterator[Part]:
        """The lines under each heading that begins with the title."""
        borders = [*(heading.at for heading in self.headings), self.end]
        for place, heading in enumerate(self.headings):
            if heading.text.lower().startswith(title):
                later = place + 1
                while later < len(self.headings) and self.headings[later].level > heading.level:
                    later += 1
                first = heading.at + 1
                yield Part(whole=range(first, borders[later]), direct=range(first, borders[place + 1]))


class Item(Struct, frozen=True):
    """One item that a verifier must pass or fail: work item `W1`, criterion `C1`, or `P`."""

    id: str
    text: str
    line: int


class Execution(Struct, frozen=True):
    """How a phase is worked: `worktree`, `direct` or `delegate …`."""

    how: str = "worktree"
    line: int = 0
    unknown: str = ""  #: the value if it is none of the three


def body_of(lines: Lines, first: int, end: int, headings: tuple[Heading, ...]) -> Body:
    labels: dict[str, tuple[int, str]] = {}
    for i in range(first, end):
        text = lines.texts[i]
        if ":" in text and not lines.inert[i] and (found := _LABEL.match(text)):
            labels.setdefault(found[1].lower(), (i, found[2].strip()))
    return Body(lines, first, end, tuple(heading for heading in headings if heading.at > first), labels)


def bullets(lines: Lines, part: range) -> Iterator[Bullet]:
    """The items of the lists in some lines, nested ones too."""
    for i in part:
        text = lines.texts[i]
        found = None if lines.inert[i] else _BULLET.match(text)
        if found is not None and not STATUS.match(text):
            continued = _continued(lines, range(i + 1, part.stop), len(found[1]))
            text = " ".join([text[found.end() :].strip(), *continued]).strip()
            yield Bullet(at=i, indent=len(found[1].expandtabs(4)), text=text)


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


def read_items(body: Body, *, title: str) -> tuple[Item, ...]:
    """The work items and criteria of a phase in the order of the text; the phase itself when it lists none."""
    found = [*_listed(body, "W", "work item"), *_listed(body, "C", "acceptance criteria")]
    return tuple(found) or (Item(WHOLE_PHASE, title, body.first + 1),)


def _listed(body: Body, letter: str, title: str) -> list[Item]:
    found: list[Item] = []
    for part in body.parts(title):
        # Items are directly below the heading; only where there are none, sub-headings group them.
        for bullet in _top_level(body, part.direct) or _top_level(body, part.whole):
            found.append(Item(f"{letter}{len(found) + 1}", bullet.text, bullet.at + 1))
    return found


def _top_level(body: Body, part: range) -> list[Bullet]:
    found = list(bullets(body.lines, part))
    return [bullet for bullet in found if bullet.indent < found[0].indent + 2]


def read_paths(body: Body, label: str) -> tuple[str, ...]:
    """The path patterns of a line `Touches:` or `Allows:`, of the list below it, or of a part with that heading."""
    index, value = body.labels.get(label, (-1, ""))
    if value:
        return _paths(_split_at_commas(value))
    parts = [range(index + 1, body.end)] if index >= 0 else [part.direct for part in body.parts(label)]
    listed: list[str] = []
    for part in parts:
        for line in part:
            text = body.lines.texts[line]
            if text.startswith("#") or (listed and not text.strip()):
                break
            listed += [bullet.text for bullet in bullets(body.lines, range(line, line + 1))]
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


def read_execution(body: Body) -> Execution:
    index, value = body.labels.get("execution", (-1, ""))
    value = value.strip("`* \t")
    if not value:
        return Execution()
    word, _, rest = value.partition(" ")
    word = word.strip("`*.,;:").lower()
    if word not in ("worktree", "direct", "delegate"):
        return Execution(line=index + 1, unknown=value)
    return Execution(how=f"delegate {rest.strip()}".strip() if word == "delegate" else word, line=index + 1)
