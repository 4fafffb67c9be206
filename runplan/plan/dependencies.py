"""The phases that a phase waits for: its `Depends:` line, else the prose of its Dependencies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.body import unbulleted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.plan.body import Body

#: Parts of a `Depends:` line; compiled when there is one.
_ENTRY = r"[,;]| and | & "
_PHASE = r"(?i:phases? )"


class Quote(Struct, frozen=True):
    line: int
    text: str


class Depends(Struct, frozen=True):
    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    unknown: tuple[Quote, ...] = ()  #: ids of phases the plan does not have
    unread: tuple[Quote, ...] = ()  #: sentences that name no phase of this plan


def read_depends(body: Body, *, own: str, known: Mapping[str, str]) -> Depends:
    """The dependencies of the phase `own`, in a plan with the phases `known` (key to id, in tracker order)."""
    for label in ("depends", "depends on"):
        if label in body.labels:
            index, value = body.labels[label]
            return _from_line(value, index + 1, own, known)
    paragraphs = list(_paragraphs(body))
    return _from_prose(paragraphs, own, known) if paragraphs else Depends()


def _from_prose(paragraphs: list[tuple[int, str]], own: str, known: Mapping[str, str]) -> Depends:
    from runplan.plan import prose  # slow to import: two dozen patterns

    if prose.says_none(paragraphs[0][1]):
        return Depends()
    hard: dict[str, None] = {}
    soft: dict[str, None] = {}
    unknown, unread = list[Quote](), list[Quote]()
    for index, text in paragraphs:
        if prose.says_none(text):
            continue
        found = prose.read_prose(text, own=own, known=known)
        hard |= dict.fromkeys(found.hard)
        soft |= dict.fromkeys(found.soft)
        unknown += [Quote(index + 1, id_) for id_ in found.unknown]
        if not found.phases:
            unread.append(Quote(index + 1, text[:200].rstrip(".")))
    hard.pop(own, None)
    softly = tuple(id_ for id_ in soft if id_ != own and id_ not in hard)
    return Depends(tuple(hard), softly, tuple(unknown), tuple(unread))


def _from_line(value: str, line: int, own: str, known: Mapping[str, str]) -> Depends:
    """A `Depends:` line: a list of ids and ranges."""
    from runplan.plan import prose  # only for phases that wait for something

    value = " ".join(value.replace("`", "").replace("*", "").split()).rstrip(".")
    if prose.says_none(value) or not value:
        return Depends()
    spelled = prose.spelled_out("all phases" if value.lower() == "all" else value, own=own, known=known)
    hard: list[str] = []
    unknown: list[Quote] = []
    for entry in re.split(_ENTRY, spelled):
        words = re.sub(_PHASE, "", entry.partition("(")[0].strip(), count=1)
        ids, strangers = prose.resolve(words, known)
        hard += ids if spelled == value else [id_ for id_ in ids if id_ != own]
        if words and (strangers or not ids):
            unknown.append(Quote(line, words[:80]))
    return Depends(hard=tuple(dict.fromkeys(hard)), unknown=tuple(unknown))


def _paragraphs(body: Body) -> Iterator[tuple[int, str]]:
    """The paragraphs and list items of the Dependencies, with the line each begins on."""
    parts = [part.direct for title in ("dependenc", "depends") for part in body.parts(title)]
    if not parts and "dependencies" in body.labels:
        index, value = body.labels["dependencies"]
        if value:
            yield index, value
        parts = [_below(body, index, has_value=bool(value))]
    for part in parts:
        begin, block = 0, list[str]()
        for i in part:
            is_bullet, text = unbulleted(body.lines.texts[i])
            if is_bullet and not text:
                text = body.lines.texts[i].strip("-*+.) \t")  # a lone "2." is an id, not a number of a list
            if block and (is_bullet or not text or body.lines.inert[i]):
                yield begin, " ".join(block)
                block = []
            if text and not body.lines.inert[i] and text.strip("-*_ "):
                begin = begin if block else i
                block.append(text)
        if block:
            yield begin, " ".join(block)


def _below(body: Body, index: int, *, has_value: bool) -> range:
    """The lines of a label's paragraph below its own line; without a value a list may follow after a blank line."""
    texts = body.lines.texts
    end = index + 1
    if not has_value and end + 1 < body.end and not texts[end].strip() and unbulleted(texts[end + 1])[0]:
        end += 1
    while end < body.end and texts[end].strip() and not texts[end].startswith(("#", "**")):
        end += 1
    return range(index + 1, end)
