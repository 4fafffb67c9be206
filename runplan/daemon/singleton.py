"""One daemon per user: a kernel lock, and a file that describes the process that holds it.

Every `status` imports this module, so modules that look at processes are imported where they are used.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from runplan.errors import RefusedEarly, Unreachable
from runplan.settings.places import own_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = "daemon.lock"
RECORD = "daemon.json"
POLL_S = 0.02


class Holder(Struct, frozen=True, kw_only=True):
    """The record of the running daemon."""

    identity: str  #: of its process
    version: str
    since: str  #: UTC, ISO 8601

    @property
    def pid(self) -> int:
        return int(self.identity.partition(":")[0])

    def __str__(self) -> str:
        return f"runplan {self.version} (process {self.pid}, since {self.since})"


@contextlib.contextmanager
def take(state: Path, *, version: str, since: str, wait_s: float = 0.0) -> Iterator[Holder]:
    """Hold the lock; refused when another daemon has it for longer than `wait_s`.

    Forks would inherit the lock: start programs, do not fork.
    """
    from runplan import processes
    from runplan.store.files import file_lock, publish

    lock = file_lock(own_directory(state) / LOCK)
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except TimeoutError:
        raise RefusedEarly(f"the daemon is already running: {holder(state) or 'it is just starting'}") from None
    except OSError as error:
        raise Unreachable(f"{state / LOCK} cannot be opened: {error.strerror}") from error
    mine = Holder(identity=processes.identity(os.getpid()) or "", version=version, since=since)
    try:
        publish(state / RECORD, msgspec.json.encode(mine), sync=False)
        yield mine
    finally:
        (state / RECORD).unlink(missing_ok=True)
        lock.release()


def holder(state: Path) -> Holder | None:
    """The record of the living daemon; None when none runs."""
    from runplan import processes

    try:
        found = msgspec.json.decode((state / RECORD).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
    return found if processes.alive(found.identity) else None
