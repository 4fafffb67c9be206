"""Facts in the journal: their JSON, without terminal sequences, and which of them may wait."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.decoding import parse_json
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import SetupReused
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.rows import EventRow
from runplan.domain.text import bounded, plain

#: Fields with words of agents and commands. Those of _SHORT are cut to the length of a detail.
_SHORT = ("detail", "words", "why", "line", "complaint", "lines")
_LONG = ("output", "evidence", "note", "trace")
_FOUND_AGAIN = (
    *(e.Chosen, e.NoWork, e.WorkTaken, e.CandidateBuilt, e.CleanedUp, SetupReused),
    *(e.GateJudged, e.ProofJudged, e.VerdictGiven, e.VerdictDoubted),
)


def _list_kinds(kind: type[e.Event]) -> Iterator[type[e.Event]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _list_kinds(subclass)


_TYPES = {kind.__name__: kind for kind in _list_kinds(e.Event)}
E = TypeVar("E", bound=e.Event)


class Recorded(Struct, Generic[E], frozen=True, kw_only=True):
    seq: int
    run: str = ""
    at: str  #: UTC ISO-8601 with Z
    event: E


def from_json(name: str, body: str) -> e.Event | None:
    kind = _TYPES.get(name)
    return parse_json(body, kind) if kind is not None else None


def read_row(row: EventRow) -> Recorded[e.Event] | None:
    event = from_json(row.type, row.body)
    return Recorded(seq=row.seq, run=row.run, at=row.at, event=event) if event is not None else None


def sanitize_event(event: e.Event) -> e.Event:
    names = (*_SHORT, *_LONG, *(("items",) if isinstance(event, (e.VerdictGiven, e.VerdictDoubted)) else ()))
    names = (*names, *(("text",) if isinstance(event, (e.QuestionAsked, e.QuestionAnswered)) else ()))
    before = {name: value for name in names if (value := getattr(event, name, None))}
    after = {name: _sanitize_value(value, cut=name in _SHORT) for name, value in before.items()}
    return event if after == before else replace(event, **after)


def _sanitize_value(value: object, *, cut: bool) -> object:
    if isinstance(value, tuple):
        return tuple(_sanitize_value(part, cut=cut) for part in value)
    return plain(bounded(value) if cut else value) if isinstance(value, str) else value


def may_wait(event: e.Event) -> bool:
    if isinstance(event, e.Leased):
        return not event.parked  # parked work is not found on the branch a second time
    if isinstance(event, e.DispatchEnded):
        return event.ending == Ending.EXITED  # its shim has written the exit record
    return isinstance(event, _FOUND_AGAIN)
