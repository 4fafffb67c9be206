"""One daemon per user: a kernel lock, and a file that describes the process that holds it.

Every `status` imports this module, so modules that look at processes are imported where they are used.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
    draining: str = ""  #: its deadline, UTC, ISO 8601; "" while it does not drain

    @property
    def pid(self) -> int:
        return int(self.identity.partition(":")[0])

    def __str__(self) -> str:
        return f"runplan {self.version} (process {self.pid}, since {self.since})"


class Held:
    """The lock while this process holds it. Forks would inherit it: start programs, do not fork."""

    def __init__(self, holder: Holder, record: Path) -> None:
        self.holder = holder
        self._record = record

    def drains(self, until: str) -> None:
        """Record that the daemon drains."""
        self.holder = replace(self.holder, draining=until)
        self.write()

    def write(self) -> None:
        draft = self._record.with_name(f"{self._record.name}.new")
        draft.write_bytes(msgspec.json.encode(self.holder))
        os.replace(draft, self._record)


@contextlib.contextmanager
def take(state: Path, *, version: str, since: str, wait_s: float = 0.0) -> Iterator[Held]:
    """Hold the lock; refused when another daemon has it for longer than `wait_s`."""
    from runplan import processes
    from runplan.store.files import file_lock

    lock = file_lock(own_directory(state) / LOCK)
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except TimeoutError:
        raise RefusedEarly(f"the daemon is already running: {holder(state) or 'it is just starting'}") from None
    except OSError as error:
        raise Unreachable(f"{state / LOCK} cannot be opened: {error.strerror}") from error
    identity = processes.identity(os.getpid()) or ""
    held = Held(Holder(identity=identity, version=version, since=since), state / RECORD)
    try:
        held.write()
        yield held
    finally:
        (state / RECORD).unlink(missing_ok=True)
        lock.release()


def record(state: Path) -> Holder | None:
    """The record of the last daemon, which may be dead; None when it is missing or damaged."""
    try:
        return msgspec.json.decode((state / RECORD).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def holder(state: Path) -> Holder | None:
    """The record of the living daemon; None when none runs."""
    from runplan import processes

    found = record(state)
    return found if found is not None and processes.alive(found.identity) else None
