"""Which phases a phase waits for: its own `Depends:` line, else the prose of its Dependencies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.body import unbulleted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.plan.body import Body

#: What stands in a `Depends:` line; compiled when there is one.
_ENTRY = r"[,;]| and | & "
_PHASE = r"(?i:phases? )"


class Told(Struct, frozen=True):
    """Something the Dependencies say and the line they say it on."""

    line: int
    text: str


class Depends(Struct, frozen=True):
    """What a phase waits for."""

    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    outside: tuple[Told, ...] = ()  #: sentences about what is no phase of this plan
    unknown: tuple[Told, ...] = ()  #: ids of phases the plan does not have
    unread: tuple[Told, ...] = ()  #: sentences that were not understood


def read_depends(body: Body, *, own: str, known: Mapping[str, str]) -> Depends:
    """What the phase `own` waits for, in a plan with the phases `known` (key to id, in tracker order)."""
    for label in ("depends", "depends on"):
        if label in body.labels:
            index, value = body.labels[label]
            return _explicit(value, index + 1, own, known)
    paragraphs = list(_paragraphs(body))
    return _from_prose(paragraphs, own, known) if paragraphs else Depends()


def _from_prose(paragraphs: list[tuple[int, str]], own: str, known: Mapping[str, str]) -> Depends:
    from runplan.plan.prose import says_none

    if says_none(paragraphs[0][1]):
        return Depends()
    from runplan.plan.prose import (
        condition,
        read_prose,  # dear to import: two dozen patterns
    )

    hard: list[str] = []
    soft: list[str] = []
    outside: list[Told] = []
    unknown: list[Told] = []
    unread: list[Told] = []
    for index, text in paragraphs:
        if says_none(text):
            continue
        said = read_prose(text, own=own, known=known)
        hard += said.hard
        soft += said.soft
        unknown += [Told(line=index + 1, text=id_) for id_ in said.unknown]
        if not said.phases:
            sentence = condition(text)
            (outside if sentence else unread).append(Told(line=index + 1, text=sentence or text[:200]))
    waits = [id_ for id_ in dict.fromkeys(hard) if id_ != own]
    return Depends(
        hard=tuple(waits),
        soft=tuple(id_ for id_ in dict.fromkeys(soft) if id_ != own and id_ not in waits),
        outside=tuple(outside),
        unknown=tuple(unknown),
        unread=tuple(unread),
    )


def _explicit(value: str, line: int, own: str, known: Mapping[str, str]) -> Depends:
    """A `Depends:` line: a list of ids and ranges, taken at its word."""
    from runplan.plan.prose import (
        resolve,
        says_none,
        spelled_out,  # for the phases that wait for something
    )

    value = " ".join(value.replace("`", "").replace("*", "").split()).rstrip(".")
    if says_none(value) or not value:
        return Depends()
    spelled = spelled_out("all phases" if value.lower() == "all" else value, own=own, known=known)
    hard: list[str] = []
    unknown: list[Told] = []
    for entry in re.split(_ENTRY, spelled):
        words = re.sub(_PHASE, "", entry.partition("(")[0].strip(), count=1)
        ids, strangers = resolve(words, known)
        hard += ids if spelled == value else [id_ for id_ in ids if id_ != own]
        if words and (strangers or not ids):
            unknown.append(Told(line=line, text=words[:80]))
    return Depends(hard=tuple(dict.fromkeys(hard)), unknown=tuple(unknown))


def _paragraphs(body: Body) -> Iterator[tuple[int, str]]:
    """The paragraphs and list items of the Dependencies, with the line each begins on."""
    parts = [part.direct for title in ("dependenc", "depends") for part in body.parts(title)]
    if not parts and "dependencies" in body.labels:
        index, value = body.labels["dependencies"]
        if value:
            yield index, value
        parts = [_below(body, index, listed=not value)]
    for part in parts:
        begin, block = 0, list[str]()
        for i in part:
            bullet, text = unbulleted(body.lines.texts[i])
            if bullet and not text:
                text = body.lines.texts[i].strip("-*+.) \t")  # a lone "2." is an id, not a number of a list
            if block and (bullet or not text or body.lines.inert[i]):
                yield begin, " ".join(block)
                block = []
            if text and not body.lines.inert[i] and text.strip("-*_ "):
                begin = begin if block else i
                block.append(text)
        if block:
            yield begin, " ".join(block)


def _below(body: Body, index: int, *, listed: bool) -> range:
    """The lines of a label's paragraph below its own line; `listed`: a list may follow after a blank line."""
    texts = body.lines.texts
    end = index + 1
    if listed and end + 1 < body.end and not texts[end].strip() and unbulleted(texts[end + 1])[0]:
        end += 1
    while end < body.end and texts[end].strip() and not texts[end].startswith(("#", "**")):
        end += 1
    return range(index + 1, end)
