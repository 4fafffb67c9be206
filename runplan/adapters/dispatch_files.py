"""Keeps what is known of a dispatch in a directory of its own, and reads its standing from there.

lock       held by the shim, and by nothing else, for as long as it lives
shim.json  who the shim is; written before the agent is started
out.log    what the agent said, capped; err.log likewise
exit.json  how it ended; the shim's last deed
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from typing import TYPE_CHECKING

from runplan.adapters.heldlock import is_held
from runplan.adapters.tally_record import record_of, tally_of, usage_of, usage_record
from runplan.core.dispatch import Ending, NeverStarted, Outcome, Running, Spent, ToolUsed
from runplan.core.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.core.dispatch import DispatchStanding

_LONGEST_NAME = 120


def directory_name(dispatch: str) -> str:
    """A file name that no other id gets; the id itself where that is harmless."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", dispatch)
    if plain == dispatch and len(dispatch) <= _LONGEST_NAME and not dispatch.startswith("."):
        return dispatch
    import hashlib  # dear, and our own ids are plain

    # "~" stands in no plain name, so the two kinds cannot meet.
    return f"{plain[:_LONGEST_NAME].lstrip('.')}~{hashlib.sha256(dispatch.encode()).hexdigest()[:12]}"


#: The most a file that an agent can write may hold to be read whole; its exit holds the end of its message, too.
LARGEST = 8 * 1024 * 1024
LARGEST_EXIT = 64 * 1024 * 1024
UNSYNCED = "unsynced"


class DispatchFiles:
    """The directory of one dispatch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.shim = directory / "shim.json"
        self.out = directory / "out.log"
        self.err = directory / "err.log"
        self.exit = directory / "exit.json"

    def standing(self) -> DispatchStanding:
        """What has become of the dispatch, asked of the kernel's lock first and of the files after it."""
        # In this order: the shim writes exit.json before it lets go of the lock.
        return Running() if self.locked() else self.standing_unlocked()

    def standing_unlocked(self) -> Outcome | NeverStarted:
        """The same for somebody who knows that no shim holds the lock."""
        if outcome := self._outcome():
            return outcome
        if self.shim.exists():
            return Outcome(ending=Ending.LOST, code=None, signal=None, message="")
        return NeverStarted()

    def locked(self) -> bool:
        """Tell whether somebody holds the lock."""
        return is_held(self.lock)

    def shim_identity(self) -> str | None:
        """The identity of the shim's process, once it has written it."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(json.loads(self.shim.read_bytes())["identity"])
        return None

    def write_shim(self, identity: str) -> None:
        """Say who the shim is."""
        _publish(self.shim, {"identity": identity}, sync=False)

    def write_exit(self, outcome: Outcome) -> None:
        """Say how the dispatch ended; on the disk before it returns."""
        tools = [[event.tool, event.path] for event in outcome.events if isinstance(event, ToolUsed)]
        spent = [event.usage for event in outcome.events if isinstance(event, Spent)]
        record = {
            "ending": outcome.ending.value,
            "code": outcome.code,
            "signal": outcome.signal,
            "message": outcome.message,
            "tools": tools,
            "tools_left_out": outcome.events_left_out,
            "usage": [usage_record(usage) for usage in spent],
            "output_bytes": outcome.output_bytes,
            "leftovers": outcome.leftovers,
            "tally": record_of(outcome.tally),
            "error": outcome.error,
            "ended_at": outcome.ended_at,
            "seconds": round(outcome.seconds, 3),
        }
        _publish(self.exit, record, sync=True)

    def _outcome(self) -> Outcome | None:
        text = read_plain(self.exit, largest=LARGEST_EXIT)
        if text is None:
            return None
        record = json.loads(text)
        tools = tuple(ToolUsed(tool=tool, path=path) for tool, path in record["tools"])
        spent = tuple(Spent(usage=usage_of(usage), total=True) for usage in record["usage"])
        return Outcome(
            ending=Ending(record["ending"]),
            code=record["code"],
            signal=record["signal"],
            message=record["message"],
            events=tools + spent,
            events_left_out=record["tools_left_out"],
            output_bytes=record["output_bytes"],
            leftovers=record["leftovers"],
            # An earlier version's shim, which may still be at work, writes none of these.
            tally=tally_of(record["tally"]) if "tally" in record else Tally(),
            error=record.get("error", ""),
            ended_at=record.get("ended_at", 0.0),
            seconds=record.get("seconds", 0.0),
        )


def read_plain(path: Path, *, largest: int = LARGEST) -> str | None:
    """A plain file's text. A pipe would hang us, a device would fill us, a link would lead us astray."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read().decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _publish(path: Path, record: Mapping[str, object], *, sync: bool) -> None:
    publish(path, json.dumps(record).encode(), sync=sync)


def publish(path: Path, content: bytes, *, sync: bool) -> None:
    """Write the file whole or not at all."""
    draft = f"{path}.new"
    with open(draft, "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if not sync:
        _note(path)
    os.replace(draft, path)


def _note(path: Path) -> None:
    """Let a test that cuts the power put back what the disk need not have seen; it asks by making the file."""
    noted = path.parent.parent / UNSYNCED
    if noted.exists():
        former = path.read_text(encoding="utf-8") if path.exists() else None
        with noted.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": str(path), "former": former}) + "\n")
