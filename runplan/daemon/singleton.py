"""One daemon per user: a kernel lock, and a file that describes the process that holds it.

The lock dies with its process. Only a daemon takes it, so a refused lock means that a daemon is alive. Every `status`
imports this module: modules that look at processes are imported where they are used.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.errors import Unreachable
from runplan.settings.places import own_directory

if TYPE_CHECKING:
    from pathlib import Path

    from filelock import FileLock

LOCK = "daemon.lock"
RECORD = "daemon.json"

#: How often a daemon that waits for the lock tries again.
LOOK_AGAIN_S = 0.02


#: In the record of a daemon that is not draining.
_NOT_DRAINING = '"draining": ""'


class Holder(Struct, frozen=True, kw_only=True):
    """The record of the running daemon."""

    identity: str  #: of its process
    version: str
    since: str  #: UTC, ISO 8601
    socket: str  #: where it listens
    draining: str = ""  #: its deadline, UTC, ISO 8601; "" while it does not drain

    @property
    def pid(self) -> int:
        return int(self.identity.partition(":")[0])

    def __str__(self) -> str:
        return f"runplan {self.version} (process {self.pid}, since {self.since})"


class Occupied(Struct, frozen=True, kw_only=True):
    """Another daemon holds the lock; its record may not be written yet."""

    by: Holder | None

    def __str__(self) -> str:
        return f"the daemon is already running: {self.by or 'it is just starting'}"


class Held:
    """The lock while we hold it. Forks must not outlive us with it: start programs, do not fork."""

    def __init__(self, lock: FileLock, holder: Holder, record: Path) -> None:
        self._lock = lock
        self._record = record
        self.holder = holder

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        return self._lock.is_locked

    def drains(self, until: str) -> None:
        """Record that the daemon drains."""
        self._tell(draining=until)

    def listens(self, socket: Path) -> None:
        """Record the socket."""
        if self.holder.socket != str(socket):
            self._tell(socket=str(socket))

    def _tell(self, **fields: str) -> None:
        if self.held:
            from msgspec.structs import replace

            self.holder = replace(self.holder, **fields)
            _write(self._record, self.holder)

    def release(self) -> None:
        """Release the lock; may be called twice."""
        if not self.held:
            return
        with contextlib.suppress(OSError):
            self._record.unlink()
        self._lock.release()


Answer: TypeAlias = Held | Occupied


def take(state: Path, *, version: str, since: str, socket: Path, wait_s: float = 0.0) -> Answer:
    """Take the lock; waits up to `wait_s` for a daemon that is ending."""
    from runplan import processes
    from runplan.store.files import file_lock

    lock = file_lock(own_directory(state) / LOCK)
    try:
        lock.acquire(timeout=wait_s, poll_interval=LOOK_AGAIN_S)
    except TimeoutError:
        return Occupied(by=holder(state))
    except OSError as error:
        raise Unreachable(f"{state / LOCK} cannot be opened: {error.strerror}") from error
    identity = processes.identity(os.getpid()) or f"{os.getpid()}:0:unknown"
    me = Holder(identity=identity, version=version, since=since, socket=str(socket))
    _write(state / RECORD, me)
    return Held(lock, me, state / RECORD)


def holder(state: Path) -> Holder | None:
    """The record of the living daemon; None when none runs."""
    from runplan import processes

    found = _read(state)
    with contextlib.suppress(OSError, ValueError):  # a damaged record names no process
        return found if found is not None and processes.alive(found.identity) else None
    return None


def stopped(state: Path) -> Holder | None:
    """The daemon, if its process is stopped (SIGSTOP); else None."""

    from runplan import processes

    found = holder(state)
    return found if found is not None and processes.stopped(found.pid) else None


def _read(state: Path) -> Holder | None:
    """The record of the last daemon; None when it is missing or damaged."""
    import json

    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        fields = json.loads((state / RECORD).read_bytes())
        names = ("identity", "version", "since", "socket")
        return Holder(**{name: str(fields[name]) for name in names}, draining=str(fields.get("draining", "")))
    return None


def may_drain(state: Path) -> bool:
    """False when the daemon is certainly not draining. Cheaper than `holder`."""
    try:
        return _NOT_DRAINING not in (state / RECORD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _write(record: Path, me: Holder) -> None:
    import json

    from msgspec import to_builtins

    draft = record.with_name(f"{record.name}.new")
    draft.write_text(json.dumps(to_builtins(me)), encoding="utf-8")
    os.replace(draft, record)
