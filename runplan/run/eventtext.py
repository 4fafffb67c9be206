"""How events are written down and read back, and which of them may wait for the next transaction."""

from __future__ import annotations

import json

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from runplan.run import events as e
from runplan.run.dispatch import Ending
from runplan.run.events import Event, Fact, LaneFact, VerdictGiven
from runplan.text import bounded, plain

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}


class Recorded(Struct, frozen=True, kw_only=True):
    """An event with its place in the journal."""

    seq: int
    at: str  #: UTC ISO-8601 with Z
    event: Event
    lane: str = ""  #: the lane whose fact it is; "" for the run's own

    @property
    def fact(self) -> Fact:
        """As the state is folded from it."""
        return LaneFact(lane=self.lane, event=self.event) if self.lane else self.event


def name_of(fact: Fact) -> str:
    return type(fact.event if isinstance(fact, LaneFact) else fact).__name__


def to_json(fact: Fact) -> str:
    # Escaped, because file names need not be text; what is not comes back as it was.
    fields = {**to_builtins(fact.event), "lane": fact.lane} if isinstance(fact, LaneFact) else to_builtins(fact)
    return json.dumps(fields, separators=(",", ":"))


def from_json(name: str, body: str) -> Event | None:
    """The event as it was recorded; None for a kind this version does not know."""
    found = recorded_as(name, body)
    return found.event if isinstance(found, LaneFact) else found


def recorded_as(name: str, body: str) -> Fact | None:
    """The same, with the lane whose fact it is."""
    kind = _KINDS.get(name)
    if kind is None:
        return None
    fields = json.loads(body)
    event: Event = convert(fields, kind)
    return LaneFact(lane=fields["lane"], event=event) if fields.get("lane") else event


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
    return replace(event, **found) if found else event


def may_wait(event: Event) -> bool:
    match event:
        case e.PlanRead() | e.WorkTaken() | e.CandidateBuilt() | e.GateJudged() | e.VerdictGiven() | e.CleanedUp():
            return True
        case e.Leased():
            return not event.parked  # once put aside, an earlier attempt's work is not found on the branch again
        case e.DispatchEnded():
            return event.ending == Ending.EXITED  # its shim has written that down
        case _:
            return False
