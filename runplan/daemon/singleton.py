"""Makes a second daemon of the same user impossible, and says who the first one is.

The lock is the kernel's and dies with its holder; the record beside it only tells. Nobody but a daemon ever takes the
lock, so whoever is refused it has a living daemon before him.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, TypeAlias

from runplan.adapters import processes
from runplan.adapters.places import own_directory
from runplan.adapters.processtable import this_table
from runplan.core.errors import Unreachable
from runplan.core.quickclass import dataclass
from runplan.daemon import record as daemonrecord
from runplan.daemon.record import RECORD as RECORD, Holder as Holder

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "daemon.lock"

#: One daemon hands over to the next by letting go; the next looks this often.
LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupied:
    """Another daemon holds the lock; who it is may not have been told yet."""

    by: Holder | None

    def __str__(self) -> str:
        return f"the daemon already runs: {self.by or 'it is just starting'}"


class Held:
    """The lock while we hold it. Forks must not outlive us with it: start programs, do not fork."""

    def __init__(self, descriptor: int, holder: Holder, record: Path) -> None:
        self._descriptor = descriptor
        self._record = record
        self.holder = holder

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    def drains(self, until: str) -> None:
        """Tell that we are about to let go."""
        self._tell(draining=until)

    def listens(self, socket: Path) -> None:
        """Tell where we are to be found now."""
        if self.holder.socket != str(socket):
            self._tell(socket=str(socket))

    def _tell(self, **fields: str) -> None:
        if self.held:
            from dataclasses import replace  # dear, and `next` imports this module too

            self.holder = replace(self.holder, **fields)
            daemonrecord.write(self._record, self.holder)

    def release(self) -> None:
        """Let the next daemon in; harmless when it was done already."""
        if not self.held:
            return
        with contextlib.suppress(OSError):
            self._record.unlink()
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


Answer: TypeAlias = Held | Occupied


def take(state: Path, *, version: str, since: str, socket: Path, wait_s: float = 0.0) -> Answer:
    """Become the user's daemon, or learn who is; waits that long for one that is about to let go."""
    own_directory(state)
    deadline = time.monotonic() + wait_s
    while (descriptor := _locked(state / LOCK)) is None:
        if time.monotonic() >= deadline:
            return Occupied(by=holder(state))
        time.sleep(LOOK_AGAIN_S)
    identity = processes.identity(os.getpid()) or f"{os.getpid()}:0:unknown"
    me = Holder(identity=identity, version=version, since=since, socket=str(socket))
    daemonrecord.write(state / RECORD, me)
    return Held(descriptor, me, state / RECORD)


def holder(state: Path) -> Holder | None:
    """The living daemon as it told of itself; None when there is none."""
    found = daemonrecord.read(state)
    with contextlib.suppress(OSError, ValueError):  # what is told there may be no process at all
        return found if found is not None and processes.alive(found.identity) else None
    return None


def stopped(state: Path) -> Holder | None:
    """The living daemon when it does nothing until it is told to go on; else None."""
    found = holder(state)
    return found if found is not None and this_table().stopped(found.pid) else None


def _locked(path: Path) -> int | None:
    """The descriptor that holds the lock; None when somebody else has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unreachable(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
