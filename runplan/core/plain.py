"""Words that agents chose, fit for a terminal and a journal: no control characters, and no more than can be read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core.events import VerdictGiven

if TYPE_CHECKING:
    from runplan.core.events import Event

LONGEST = 4_000  #: characters of one detail
_CUT = " […]"

#: Sequences that terminals obey, whole; what is left of broken ones are control characters.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)
#: All but line end and tab; also what turns the direction of writing around, with which words can be faked.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

#: The fields of events that hold what agents, or commands, said.
_BOUNDED = ("detail", "words", "why", "line", "errand", "complaint")
_PLAIN = ("output", "evidence", "note")
_MANY = ("lines",)


def plain(text: str) -> str:
    """The text without anything that a terminal would obey; line ends and tabs stay."""
    if text.isprintable():
        return text
    return _CONTROL.sub("", _SEQUENCE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning with a mark that it goes on."""
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def plainly(event: Event) -> Event:
    """The event as it may be recorded and told."""
    found: dict[str, object] = {}
    for name in (*_BOUNDED, *_PLAIN):
        text = getattr(event, name, "")
        if isinstance(text, str):
            told = plain(bounded(text) if name in _BOUNDED else text)
            if told != text:
                found[name] = told
    for name in _MANY:
        lines = getattr(event, name, ())
        if (told_lines := tuple(plain(bounded(line)) for line in lines)) != lines:
            found[name] = told_lines
    if isinstance(event, VerdictGiven):
        found["items"] = tuple((plain(item), passed, plain(evidence)) for item, passed, evidence in event.items)
    return replace(event, **found) if found else event  # type: ignore[arg-type]
