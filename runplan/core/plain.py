"""Events with words that agents chose, fit for a journal: no control characters, and no more than can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core.events import VerdictGiven
from runplan.core.terminal import bounded, plain

if TYPE_CHECKING:
    from runplan.core.events import Event

#: The fields of events that hold what agents, or commands, said.
_BOUNDED = ("detail", "words", "why", "line", "errand", "complaint")
_PLAIN = ("output", "evidence", "note")
_MANY = ("lines",)


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
