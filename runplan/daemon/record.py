"""What the daemon tells of itself, in a file beside its lock; whether it still lives does not stand there."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

RECORD = "daemon.json"

#: How the record, as `write` writes it, says that its daemon is not about to let go.
_NOT_DRAINING = '"draining": ""'


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The daemon that runs."""

    identity: str  #: of its process
    version: str
    since: str  #: UTC, ISO 8601
    socket: str  #: where it listens
    draining: str = ""  #: until when it lets go, UTC, ISO 8601; "" while it does not

    @property
    def pid(self) -> int:
        return int(self.identity.partition(":")[0])

    def __str__(self) -> str:
        return f"runplan {self.version} (process {self.pid}, since {self.since})"


def read(state: Path) -> Holder | None:
    """Who was the last to tell; None when nobody did, or nobody can read it."""
    import json

    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads((state / RECORD).read_bytes())
        names = ("identity", "version", "since", "socket")
        return Holder(**{name: str(told[name]) for name in names}, draining=str(told.get("draining", "")))
    return None


def may_drain(state: Path) -> bool:
    """Whether the daemon may be about to let go: mostly not, and whoever looks closer pays for that."""
    try:
        return _NOT_DRAINING not in (state / RECORD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def write(record: Path, me: Holder) -> None:
    import json
    from dataclasses import asdict

    draft = record.with_name(f"{record.name}.new")
    draft.write_text(json.dumps(asdict(me)), encoding="utf-8")
    os.replace(draft, record)
