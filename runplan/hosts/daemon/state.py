"""The state directory of the daemon: its lock, the record of its process, and the repositories it knows."""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import DecodeError, Struct

from runplan.adapters import processes
from runplan.adapters.configuration.places import own_directory, state_directory
from runplan.adapters.store.files import file_lock, first_line, publish, read_file
from runplan.adapters.store.location import FleetLocation
from runplan.domain.decoding import decode_json, parse_json, to_json
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.domain.names import digest_of

LOCK = "daemon.lock"
RECORD = "daemon.json"
LOG = "daemon.log"
FAULT = "daemon.fault"  #: what the interpreter writes when a signal such as SIGSEGV ends it
DIED = "daemon.died"  #: how a daemon died, for the next command
LOG_LINES = 3  #: that the next command shows
REPOSITORIES = "repositories"
POLL_S = 0.02


class Holder(Struct, frozen=True, kw_only=True):
    identity: str  #: of its process
    version: str
    since: str  #: UTC, ISO 8601

    @property
    def pid(self) -> int:
        return int(self.identity.partition(":")[0])

    def __str__(self) -> str:
        return f"runplan {self.version} (process {self.pid}, since {self.since})"


@contextlib.contextmanager
def hold_lock(state: Path, *, version: str, since: str, wait_s: float = 0.0) -> Iterator[Holder]:
    """Hold the lock; refused when another daemon has it for longer than `wait_s`.

    Forks would inherit the lock: start programs, do not fork.
    """
    lock = file_lock(own_directory(state) / LOCK)
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except TimeoutError:
        raise RefusedEarly(f"the daemon is already running: {read_holder(state) or 'it is just starting'}") from None
    _note_death(state)
    holder = Holder(identity=processes.identity(os.getpid()) or "", version=version, since=since)
    try:
        publish(state / RECORD, to_json(holder).encode("ascii"), sync=False)
        yield holder
    finally:
        (state / RECORD).unlink(missing_ok=True)
        lock.release()


def read_holder(state: Path) -> Holder | None:
    record = _read_record(state)
    return record if record and processes.alive(record.identity) else None


def _read_record(state: Path) -> Holder | None:
    try:
        return decode_json((state / RECORD).read_bytes(), Holder)
    except (OSError, DecodeError):
        return None


def _note_death(state: Path) -> None:
    """Note how the last daemon died, if it left its record. The caller holds the lock."""
    if (record := _read_record(state)) is None:
        return
    cause = first_line(state / FAULT) or "it left no error, as after SIGKILL, a lack of memory or a power cut"
    lines = (read_file(state / LOG) or b"").decode(errors="replace").splitlines()[-LOG_LINES:]
    text = "\n  ".join([f"the daemon died: {record}: {cause}. The last lines of {state / LOG}:", *lines])
    publish(state / DIED, text.encode(errors="replace"), sync=False)
    (state / RECORD).unlink()


def take_death(env: Mapping[str, str]) -> str:
    """How a daemon died, for the first caller; "" when none did."""
    state = state_directory(env)
    with contextlib.suppress(TimeoutError, OSError):  # a daemon that is starting notes it
        if (state / RECORD).exists() and read_holder(state) is None:
            with file_lock(state / LOCK).acquire(timeout=0):
                _note_death(state)
    with contextlib.suppress(OSError):
        text = (state / DIED).read_text(encoding="utf-8", errors="replace")
        (state / DIED).unlink()
        return text
    return ""


def wake_daemon(env: Mapping[str, str]) -> None:
    """Have the daemon check its repositories (SIGHUP), if one runs."""
    daemon = read_holder(state_directory(env))
    process = processes.living(daemon.identity) if daemon else None
    if process is not None:
        processes.send(process, signal.SIGHUP)


class Known(Struct, frozen=True, kw_only=True, omit_defaults=True):
    common: str  #: the common git directory
    root: str  #: the main checkout
    fleet: FleetLocation | None = None  #: of its journal; never stored
    remote: str = ""  #: that it is cloned from, in a fleet

    @property
    def state(self) -> Path:
        return Path(self.common) / "runplan"

    @property
    def journal(self) -> Path | FleetLocation:
        return self.fleet or self.state

    @property
    def key(self) -> str:
        return digest_of(os.fsencode(self.common))[:16]


def remember_repository(state: Path, repository: Known) -> None:
    """Add the repository, or update its checkout: one file per repository."""
    text = to_json(repository).encode("ascii")
    try:
        publish(own_directory(state / REPOSITORIES) / f"{repository.key}.json", text, sync=True)
    except OSError as error:
        raise Unreachable(f"{state / REPOSITORIES} cannot be written: {error.strerror}") from error


def list_repositories(state: Path) -> list[Known]:
    """The repositories in which a run was started; those that cannot be read are added with the next one."""
    repositories = []
    for file in sorted((state / REPOSITORIES).glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            repositories.append(parse_json(file.read_bytes(), Known))
    return repositories
