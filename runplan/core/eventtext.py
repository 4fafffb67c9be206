"""How events are written down and read back; journals outlive versions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from runplan.core.events import Event
from runplan.core.quickclass import dataclass

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An event with its place in the journal."""

    seq: int
    at: str  #: UTC ISO-8601 with Z
    event: Event


def name_of(event: Event) -> str:
    return type(event).__name__


def to_json(event: Event) -> str:
    # Escaped, because file names need not be text; what is not comes back as it was.
    return json.dumps(asdict(event), separators=(",", ":"))


def from_json(name: str, body: str) -> Event | None:
    """The event as it was recorded; None for a kind this version does not know."""
    kind = _KINDS.get(name)
    if kind is None:
        return None
    known = kind.__dataclass_fields__
    fields = {key: _frozen(value) for key, value in json.loads(body).items() if key in known}
    return kind(**fields)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
