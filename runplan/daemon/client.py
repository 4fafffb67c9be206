"""Connects to the daemon, and starts it when none runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import convert

from runplan import __version__, processes
from runplan.clock import until
from runplan.daemon import service, singleton
from runplan.daemon.protocol import LONGEST, Done, Drain, Hello, Ping, line_of, peer_of, read_reply
from runplan.errors import RefusedEarly, Unreachable, error_with
from runplan.settings.places import OUTPUT, own_directory, socket_path, state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.daemon.protocol import Reply, Request

T = TypeVar("T")

LONGEST_ADDRESS = 107 if sys.platform == "linux" else 103
CHUNK = 64 * 1024
NOT_RUNNING = "the daemon is not running; start it: runplan daemon"

ANSWER_S = 30.0  #: a daemon answers at once, but the machine may be loaded
LISTENS_S = 10.0  #: for a daemon that is starting
READY_S = 10.0  #: for a daemon that was started here
DRAIN_S = 120.0  #: for a daemon of another version to end; its agents survive
DRAIN_NOTICE_S = 1.0
LARGEST_OUTPUT = 1024 * 1024
LAST_LINES = 5


class NotRunning(Unreachable):
    """No daemon listens."""


class Silent(Unreachable):
    """The daemon does not answer."""


class HungUp(Unreachable):
    """The daemon closed the connection."""


class Client:
    """One connection to the daemon."""

    def __init__(self, path: Path, *, answer_s: float = ANSWER_S) -> None:
        self._buffer = b""
        self._socket = _connected(path, answer_s)
        self._pid, user = peer_of(self._socket)
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            if user != os.geteuid():
                raise Unreachable(f"{path} is served by the user {user}; nothing was sent")
            try:
                self.hello = self.call(Ping(), Hello, within_s=answer_s)
            except HungUp as error:  # it was just ending
                raise NotRunning(NOT_RUNNING) from error
            stack.pop_all()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Request, result: type[T], *, within_s: float = ANSWER_S) -> T:
        """Send a request; its result. An error of the daemon is raised."""
        self._send(request, within_s)
        return convert(_result(self._receive()), result)

    def _send(self, request: Request, within_s: float) -> None:
        if processes.stopped(self._pid):
            raise self._silent()
        line = line_of(request)
        if len(line) > LONGEST:
            raise RefusedEarly(f"the request is longer than {LONGEST} bytes")
        self._socket.settimeout(within_s)
        try:
            self._socket.sendall(line)
        except TimeoutError:
            raise self._silent() from None
        except OSError:
            return  # the daemon may have sent an error before it closed the connection

    def _receive(self) -> Reply:
        while b"\n" not in self._buffer:
            try:
                chunk = self._socket.recv(CHUNK)
            except TimeoutError:
                raise self._silent() from None
            except OSError as error:
                raise HungUp(f"the daemon closed the connection ({error.strerror}); see: runplan status") from error
            if not chunk:
                raise HungUp("the daemon closed the connection; see: runplan status")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return read_reply(line)

    def _silent(self) -> Silent:
        if processes.stopped(self._pid):
            return Silent(f"the daemon (process {self._pid}) is stopped; continue it: kill -CONT {self._pid}")
        waited_s = self._socket.gettimeout() or 0.0
        return Silent(f"the daemon (process {self._pid}) has not answered for {waited_s:.0f} s; see its log")


def _result(reply: Reply) -> dict[str, Any]:
    if reply.result is None:
        raise error_with(reply.error, reply.exit)
    return reply.result


def _connected(path: Path, within_s: float) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(within_s)
    try:
        with short_address(path) as address:
            stream.connect(address)
    except OSError as error:
        stream.close()
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            raise NotRunning(NOT_RUNNING) from error
        if isinstance(error, TimeoutError):
            raise Silent(f"the daemon at {path} accepts no connections; see its log") from error
        raise Unreachable(f"cannot connect to {path}: {error.strerror}") from error
    return stream


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """An address short enough for a Unix socket; its directory has to exist."""
    if len(os.fsencode(path)) <= LONGEST_ADDRESS:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
            yield f"/proc/self/fd/{directory}/{path.name}"
        else:
            with contextlib.chdir(directory):
                yield path.name
    finally:
        os.close(directory)


# --- the running daemon -----------------------------------------------------------------------------------


def connect(env: Mapping[str, str]) -> Client:
    """A connection to the running daemon; one that is starting is waited for."""
    path, state = socket_path(env), state_directory(env)

    def attempt() -> Client | None:
        try:
            return Client(path)
        except NotRunning:
            if singleton.holder(state) is None:
                raise
            return None

    client = until(attempt, within_s=LISTENS_S)
    if client is not None:
        return client
    found = singleton.holder(state)
    if found is None:
        raise NotRunning(NOT_RUNNING)
    if processes.stopped(found.pid):
        helps = f"it is stopped; continue it: kill -CONT {found.pid}"
    else:
        helps = f"see its log, or end it: kill {found.pid}"
    raise Silent(f"the daemon (process {found.pid}) does not listen at {path}; {helps}")


def wake(env: Mapping[str, str]) -> None:
    """Have the daemon check its repositories (SIGHUP), if one runs."""
    found = singleton.holder(state_directory(env))
    process = processes.living(found.identity) if found else None
    if process is not None:
        processes.send(process, signal.SIGHUP)


# --- starting it ------------------------------------------------------------------------------------------


def reach(
    env: Mapping[str, str],
    *,
    version: str = __version__,
    argv: Sequence[str] = service.DAEMON,
    ready_s: float = READY_S,
    drain_s: float = DRAIN_S,
    say: Callable[[str], None] = lambda _: None,
) -> Client:
    """A connection to a daemon of this version, started if need be; `say` explains long waits."""
    try:
        client = connect(env)
    except NotRunning:
        return _started(env, version, argv, ready_s)
    if client.hello.version == version:
        return client
    with client:
        _replace(client, drain_s, say)
    return _started(env, version, argv, ready_s)


def _replace(client: Client, drain_s: float, say: Callable[[str], None]) -> None:
    """End a daemon of another version, and wait for that."""
    old = processes.process(client.hello.pid)
    client.call(Drain(), Done, within_s=drain_s)
    if old is None or not processes.await_gone([old], timeout_s=min(DRAIN_NOTICE_S, drain_s)):
        return
    who = f"the other daemon (runplan {client.hello.version}, process {old.pid})"
    say(f"{who} waits for its agents to finish, at most daemon.grace; then this version takes over")
    if processes.await_gone([old], timeout_s=drain_s):
        raise Unreachable(f"{who} has not ended yet; try again, or use that version")


def _started(env: Mapping[str, str], version: str, argv: Sequence[str], ready_s: float) -> Client:
    if not service.start(env):
        return _spawn(env, argv, ready_s)
    client = Client(socket_path(env))
    if client.hello.version != version:
        client.close()
        raise RefusedEarly(
            f"the service starts runplan {client.hello.version}, not {version}; write it again: runplan service install"
        )
    return client


def _spawn(env: Mapping[str, str], argv: Sequence[str], ready_s: float) -> Client:
    """Start the daemon without a terminal. It keeps the umask of the user, since it writes into checkouts."""
    from runplan.agents.environment import for_the_daemon  # slow to import

    output = own_directory(state_directory(env)) / OUTPUT
    large = output.exists() and output.stat().st_size > LARGEST_OUTPUT
    with open(output, "wb" if large else "ab", opener=_private) as file:
        before = os.fstat(file.fileno()).st_size
        daemon = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd="/",
            env=for_the_daemon(env),
            start_new_session=True,
        )

    def attempt() -> Client | None:
        with contextlib.suppress(NotRunning):
            return Client(socket_path(env), answer_s=ready_s)
        if daemon.poll():  # exit code 0: another daemon was faster
            raise _start_failed(daemon.returncode, output, before, ready_s)
        return None

    try:
        client = until(attempt, within_s=ready_s)
        if client is None:
            raise _start_failed(daemon.poll(), output, before, ready_s)
        return client
    finally:
        daemon.returncode = daemon.returncode or 0  # it outlives us; Popen must not wait for it


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _start_failed(code: int | None, output: Path, before: int, ready_s: float) -> Unreachable:
    what = f"did not answer within {ready_s:.0f} s" if code is None else f"ended with code {code}"
    with open(output, "rb") as file:
        file.seek(max(before, output.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").splitlines()[-LAST_LINES:]
    last = " | ".join(line.strip() for line in lines if line.strip())
    return Unreachable(f"the daemon {what}; last output: {last or 'nothing'}; full output: {output}")
