"""What a phase promises and how it is to be worked: work items, criteria, touched paths, execution."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.body import Body, bullets

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The id of the one item of a phase that lists none.
WHOLE_PHASE = "P"
#: What stands in a list of paths; compiled when there is one.
_CODE = r"`([^`]+)`"
_REASON = r"(?<![ \t])[ \t]+(?:—|–|--?|\()[ \t]*"


class Item(Struct, frozen=True):
    """One thing a verifier must say pass or fail to: work item `W1`, criterion `C1`, or `P`."""

    id: str
    text: str
    line: int


def read_items(body: Body, *, title: str) -> tuple[Item, ...]:
    """The work items and criteria of a phase in the order of the text; the phase itself when it lists none."""
    found = [*_listed(body, "W", "work item"), *_listed(body, "C", "acceptance criteria")]
    return tuple(found) or (Item(id=WHOLE_PHASE, text=title, line=body.first + 1),)


def _listed(body: Body, letter: str, title: str) -> list[Item]:
    found: list[Item] = []
    for part in body.parts(title):
        # Items stand directly below the heading; only where none do, sub-headings group them.
        top = _top_level(body, part.direct) or _top_level(body, part.whole)
        for line, text in top:
            found.append(Item(id=f"{letter}{len(found) + 1}", text=text, line=line))
    return found


def _top_level(body: Body, part: range) -> list[tuple[int, str]]:
    found = list(bullets(body.lines, part))
    base = found[0].indent if found else 0
    return [(bullet.at + 1, bullet.text) for bullet in found if bullet.indent < base + 2]


def read_paths(body: Body, label: str) -> tuple[str, ...]:
    """The path patterns of a line `Touches:` or `Allows:`, of the list below it, or of a part with that heading."""
    index, value = body.labels.get(label, (-1, ""))
    if value:
        return _paths(_by_commas(value))
    parts = [range(index + 1, body.end)] if index >= 0 else [part.direct for part in body.parts(label)]
    listed: list[str] = []
    for part in parts:
        for line in part:
            text = body.lines.texts[line]
            if text.startswith("#") or (listed and not text.strip()):
                break
            listed += [bullet.text for bullet in bullets(body.lines, range(line, line + 1))]
    return _paths(listed)


def _by_commas(value: str) -> list[str]:
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


class Execution(Struct, frozen=True):
    """How a phase is worked: `worktree`, `direct` or `delegate …`."""

    how: str = "worktree"
    line: int = 0
    unknown: str = ""  #: what was written when it is none of the three


def read_execution(body: Body) -> Execution:
    """The `Execution:` of a phase; worktree when it says nothing."""
    index, value = body.labels.get("execution", (-1, ""))
    value = value.strip("`* \t")
    if not value:
        return Execution()
    word, _, rest = value.partition(" ")
    word = word.strip("`*.,;:").lower()
    if word not in ("worktree", "direct", "delegate"):
        return Execution(line=index + 1, unknown=value)
    return Execution(how=f"delegate {rest.strip()}".strip() if word == "delegate" else word, line=index + 1)
