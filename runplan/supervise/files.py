"""The directory of one dispatch, named after its id.

own/       the agent's return and private configuration
lock       held by the shim while it lives
shim.json  identity of the shim; written before the agent starts
out.log    output of the agent, capped; err.log likewise
exit.json  how the dispatch ended; written by rename as the shim's last act

A free lock without a complete exit.json means that the shim died.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runplan.run.dispatch import RETURN, Ending, NeverStarted, Outcome, Running
from runplan.run.usage import Tally
from runplan.store.files import is_held, publish, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.run.dispatch import DispatchStanding

#: The largest record or log that is read whole. An exit record includes the end of the message.
LARGEST = 64 * 1024 * 1024

T = TypeVar("T")


class ShimRecord(Struct, frozen=True, kw_only=True):
    """Content of shim.json."""

    identity: str = ""
    reader: str = ""  #: kind of agent whose output this is; "" for a command of the project
    cgroup: str = ""  #: path of the control group of the agent; "" for none


class DispatchFiles:
    """Reads and writes the directory of one dispatch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = directory / "lock"
        self.out = directory / "out.log"
        self.err = directory / "err.log"
        self._shim = directory / "shim.json"
        self._exit = directory / "exit.json"

    def standing(self) -> DispatchStanding:
        """Whether the dispatch runs, never started, or how it ended."""
        # In this order: the shim writes exit.json before it releases the lock.
        return Running() if self.locked() else self.standing_unlocked()

    def standing_unlocked(self) -> Outcome | NeverStarted:
        """The same for a caller that knows that no shim holds the lock."""
        if outcome := _read(self._exit, Outcome):
            return outcome
        return self.lost() if os.path.lexists(self._shim) or os.path.lexists(self._exit) else NeverStarted()

    def lost(self) -> Outcome:
        """The outcome of a dispatch whose shim died: its log shows what the agent used."""
        from runplan.settings.load import kinds  # slow to import, and rarely needed
        from runplan.supervise.output import tally_of

        reader, log = self.shim().reader, read_bounded(self.out, largest=LARGEST)
        seen = tally_of(log, reader) if log and reader in kinds() else Tally()
        tally = replace(seen, troubles=(), finished=None, denied=(), retries=0, waiting="", unread=0)
        return Outcome(ending=Ending.LOST, code=None, signal=None, message="", tally=tally)

    def locked(self) -> bool:
        return is_held(self.lock)

    def released(self) -> bool:
        """Whether the lock is there and free; unlike `not locked()` false while the repository is missing."""
        return self.lock.exists() and not is_held(self.lock)

    def shim(self) -> ShimRecord:
        """The shim's record; an empty one before it is written."""
        return _read(self._shim, ShimRecord) or ShimRecord()

    def reader(self) -> str:
        return self.shim().reader

    def write_shim(self, record: ShimRecord) -> None:
        publish(self._shim, msgspec.json.encode(record), sync=False)

    def write_exit(self, outcome: Outcome, *, held: int) -> None:
        """Write the exit record durably, after the agent's return.

        `held` is the open directory: it is still valid after the repository was moved.
        """
        # Not blocking: an agent can leave a pipe there.
        with contextlib.suppress(OSError), open(os.open(self.directory / RETURN, os.O_RDONLY | os.O_NONBLOCK)) as file:
            os.fsync(file.fileno())
        content = msgspec.json.encode(outcome)
        try:
            publish(self._exit, content, sync=True)
        except FileNotFoundError:
            publish(self._exit.relative_to(self.directory), content, sync=True, at=held)


def _read(path: Path, kind: type[T]) -> T | None:
    """The record in the file; None when it is missing or incomplete, as after a power cut."""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = read_bounded(path, largest=LARGEST)
        return msgspec.json.decode(content, type=kind) if content else None
    return None
