"""Two looks at the user's repository, and what differs between them. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MOST_LINES = 8
_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """One look: refs and HEADs by what they hold, files by a hash of their content."""

    refs: Mapping[str, str]
    heads: Mapping[str, str]
    files: Mapping[str, str]

    def dump(self) -> str:
        return json.dumps({"refs": dict(self.refs), "heads": dict(self.heads), "files": dict(self.files)})


def load(text: str) -> Fingerprint:
    """The inverse of `dump`."""
    stored = json.loads(text)
    return Fingerprint(refs=stored["refs"], heads=stored["heads"], files=stored["files"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that changed."""

    kind: str  #: ref, head, file
    name: str
    old: str  #: empty when it is new
    new: str  #: empty when it is gone
    by_agent: bool = False  #: its newest reflog entry carries the agent's identity


def differences(before: Fingerprint, now: Fingerprint) -> tuple[Difference, ...]:
    """What is new, gone or changed, by kind and name."""
    looks = (("ref", before.refs, now.refs), ("head", before.heads, now.heads), ("file", before.files, now.files))
    return tuple(one for kind, old, new in looks for one in _changed(kind, old, new))


def _changed(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted({*old, *new}):
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            yield Difference(kind=kind, name=name, old=was, new=now)


def foreign(found: Collection[Difference], landed: Collection[str]) -> tuple[Difference, ...]:
    """Without the refs that landings of ours moved meanwhile."""
    return tuple(one for one in found if not (one.kind == "ref" and one.new in landed))


def lines(found: Collection[Difference], process: str) -> tuple[str, ...]:
    """One sentence for the report each, the first few of them."""
    told = [_line(one, process) for one in found]
    more = [f"and {len(told) - MOST_LINES} more"] if len(told) > MOST_LINES else []
    return tuple(told[:MOST_LINES] + more)


def _line(one: Difference, process: str) -> str:
    if one.by_agent:
        return f"{process} changed {one.name} in your repository: {_values(one)}"
    return f"{one.name} changed while {process} ran: {_values(one)}"


def _values(one: Difference) -> str:
    if one.kind == "file":
        return "it is new" if not one.old else "it is gone" if not one.new else "it has other content"
    return f"{_short(one.old) or 'nothing'} → {_short(one.new) or 'nothing'}"


def _short(value: str) -> str:
    return value if value.startswith("ref: ") else value[:_SHORT]
