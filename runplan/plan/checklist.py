"""Checklists as trackers: the `- [ ]` items of a plan that has no table and no status lines."""

from __future__ import annotations

import re
from bisect import bisect
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import key, read_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.plan.scan import Lines

_BOX = re.compile(r"[ ]{0,3}(?:[-*+]|[0-9]{1,4}[.)])[ \t]+\[([^\]])\](?=[ \t]|\Z)[ \t]*")
_LANDED = re.compile(r"\(`?([0-9a-f]{7,40})`?(?:,[^()]*)?\)\Z")
#: Boxes under these headings say when a plan is good, not what there is to do.
_NOT_WORK = re.compile(
    r"accept|criteri|verif|definition of done|question|risk|goals|prerequisite|dependenc", re.IGNORECASE
)


class Box(Struct, frozen=True):
    """One item of a checklist that is a phase."""

    id: str
    title: str
    at: int  #: line
    end: int  #: line after its last continuation line
    column: int  #: of the character between the brackets
    commit: str


def find_boxes(lines: Lines, outside: Iterable[range], *, only_named: bool) -> tuple[Box, ...]:
    """The phases of a checklist: items that say `Phase <id>`, else every top-level item, by id or numbered."""
    found = [(i, box) for part in outside for i in part if (box := _box(lines, i))]
    names = [read_name(_title(lines.texts[i][box.end() :])[0]) for i, box in found]
    if only_named or any(name is not None and name.phase for name in names):
        chosen = [(i, b, n.id, n.title) for (i, b), n in zip(found, names, strict=True) if n and n.phase]
        return tuple(_made(lines, *each) for each in chosen)
    headings = [heading.at for heading in lines.headings]
    found = [(i, box) for i, box in found if _is_work(lines, bisect(headings, i))]
    titles = [_title(lines.texts[i][box.end() :])[0] for i, box in found]
    own = [name for name in map(read_name, titles) if name is not None and name.strong]
    if len(own) == len(found) == len({key(name.id) for name in own}):
        return tuple(_made(lines, i, b, n.id, n.title) for (i, b), n in zip(found, own, strict=True))
    return tuple(_made(lines, i, b, str(n), titles[n - 1]) for n, (i, b) in enumerate(found, start=1))


def _box(lines: Lines, index: int) -> re.Match[str] | None:
    return None if lines.inert[index] else _BOX.match(lines.texts[index])


def _title(text: str) -> tuple[str, str]:
    """The title without the `(hash, note)` a landing leaves, and the hash."""
    text = text.strip()
    landed = _LANDED.match(text, max(text.rfind("("), 0))
    return (text[: landed.start()].rstrip(), landed.group(1)) if landed else (text, "")


def _is_work(lines: Lines, headings_above: int) -> bool:
    return not (headings_above and _NOT_WORK.search(lines.headings[headings_above - 1].text))


def _made(lines: Lines, index: int, box: re.Match[str], id_: str, title: str) -> Box:
    text = lines.texts[index]
    return Box(
        id=id_,
        title=title,
        at=index,
        end=_end(lines, index),
        column=box.start(1),
        commit=_title(text[box.end() :])[1],
    )


def _end(lines: Lines, index: int) -> int:
    """The item's own lines: what follows it more deeply indented, blank lines in between included."""
    text = lines.texts[index]
    indent = len(text) - len(text.lstrip())
    end = index + 1
    for i in range(index + 1, len(lines.texts)):
        text = lines.texts[i]
        if text.strip():
            if len(text) - len(text.lstrip()) <= indent:
                break
            end = i + 1
    return end
