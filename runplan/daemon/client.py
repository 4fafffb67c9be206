"""The client of the daemon's socket: one request at a time, or a stream of events."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from runplan import processes
from runplan.daemon import protocol, singleton
from runplan.daemon.protocol import Granted, Lines, Refusal, Told, TooLong, pid_of, user_of
from runplan.errors import RefusedEarly, Unreachable, error_with
from runplan.polling import until
from runplan.settings.places import socket_path, state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from runplan.daemon.protocol import Hello, Reply
    from runplan.daemon.singleton import Holder

LONGEST = 107 if sys.platform == "linux" else 103


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """An address short enough for a Unix socket; its directory has to exist."""
    if len(os.fsencode(path)) <= LONGEST:
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


CHUNK = 64 * 1024
NOT_RUNNING = "the daemon is not running; start it: runplan daemon"

#: A daemon answers at once; a loaded machine may take longer.
ANSWER_S = 30.0
STOPPED_S = 1.0  #: for a daemon whose process is stopped (SIGSTOP)
NOTICE_S = 3.0  #: after this a caller who waits is told so


class NotRunning(Unreachable):
    """No daemon listens."""


class Silent(Unreachable):
    """The daemon does not answer."""


class HungUp(Unreachable):
    """The daemon closed the connection."""


class Client:
    """One connection to the daemon."""

    def __init__(self, path: Path, *, answer_s: float = ANSWER_S) -> None:
        """Connect and ping."""
        self._lines = Lines()
        self._come: deque[bytes] = deque()
        self._stream = _connected(path, answer_s)
        self._pid = pid_of(self._stream)
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self.hello: Hello = self._greeted(answer_s)
            stack.pop_all()

    def _greeted(self, answer_s: float) -> Hello:
        try:
            return protocol.read_hello(self._asked("ping", {}, within_s=answer_s))
        except HungUp as error:  # it was just ending
            raise NotRunning(NOT_RUNNING) from error

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    @property
    def understood(self) -> bool:
        """Whether it speaks our protocol."""
        return protocol.PROTOCOL in self.hello.speaks

    def call(self, verb: str, *, within_s: float = ANSWER_S, **fields: Any) -> Mapping[str, Any]:
        """The answer; a refusal is raised as its error."""
        return self._asked(verb, fields, within_s=within_s)

    def await_answer(self, verb: str, notice: Callable[[], None], **fields: Any) -> Mapping[str, Any]:
        """Like `call`, without a time limit; `notice` is called once when it takes long."""
        self._stream.settimeout(NOTICE_S)
        self._send(verb, fields)
        with contextlib.suppress(Silent):
            return self._answer(verb)
        notice()
        self._stream.settimeout(ANSWER_S)
        return self._granted(verb, self._patiently())

    def stream(self, verb: str = "follow", **fields: Any) -> Iterator[Mapping[str, Any]]:
        """Events, until the daemon ends the stream."""
        self._stream.settimeout(ANSWER_S)
        self._send(verb, fields)
        while isinstance(reply := self._patiently(), Told):
            yield reply.event
        if isinstance(reply, Refusal):
            raise error_with(reply.error, reply.exit)

    def _asked(self, verb: str, fields: Mapping[str, Any], *, within_s: float) -> Mapping[str, Any]:
        within_s = min(within_s, STOPPED_S) if processes.stopped(self._pid) else within_s
        self._stream.settimeout(within_s)
        self._send(verb, fields)
        return self._answer(verb)

    def _answer(self, verb: str) -> Mapping[str, Any]:
        return self._granted(verb, self._reply())

    def _granted(self, verb: str, reply: Reply) -> Mapping[str, Any]:
        match reply:
            case Granted(fields=answer):
                return answer
            case Refusal() as refusal:
                raise error_with(refusal.error, refusal.exit)
            case Told():
                raise Unreachable(f"the daemon sent an event instead of an answer to {verb}; try again")

    def _send(self, verb: str, fields: Mapping[str, Any]) -> None:
        line = protocol.request_line(verb, fields)
        if len(line) > protocol.LONGEST:
            raise RefusedEarly(f"{verb}: the request is longer than the {protocol.LONGEST} bytes a line may have")
        try:
            self._stream.sendall(line)
        except TimeoutError as error:
            raise self._silent() from error
        except OSError:
            # The daemon may have sent a refusal before it closed the connection.
            return

    def _reply(self) -> Reply:
        try:
            while not self._come:
                chunk = self._stream.recv(CHUNK)
                if not chunk:
                    raise HungUp("the daemon closed the connection; see: runplan status")
                self._come += self._lines.take(chunk)
        except TimeoutError as error:
            raise self._silent() from error
        except TooLong as error:
            raise Unreachable("the answer of the daemon is too long; restart the daemon") from error
        except OSError as error:
            raise HungUp(f"the daemon closed the connection ({error.strerror}); see: runplan status") from error
        return protocol.read_reply(self._come.popleft())

    def _patiently(self) -> Reply:
        """The next reply, without a time limit unless the daemon is stopped."""
        while True:
            try:
                return self._reply()
            except Silent:
                if processes.stopped(self._pid):
                    raise

    def _silent(self) -> Silent:
        stopped = processes.stopped(self._pid)
        helps = f"it is stopped; continue it: kill -CONT {self._pid}" if stopped else "see its log"
        waited_s = self._stream.gettimeout() or 0.0
        return Silent(f"the daemon (process {self._pid}) has not answered for {waited_s:.0f} s; {helps}")


def find_socket(env: Mapping[str, str]) -> Path:
    """The socket that the daemon has recorded (another login has other directories); else our own path."""
    found = singleton.holder(state_directory(env))
    ours = socket_path(env)
    return type(ours)(found.socket) if found else ours


def _connected(path: Path, within_s: float) -> socket.socket:
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        stream.settimeout(within_s)
        _connect(stream, path)
        if (user := user_of(stream)) != os.geteuid():
            raise Unreachable(f"{path} is served by the user {user}; nothing was sent")
        stack.pop_all()
    return stream


def _connect(stream: socket.socket, path: Path) -> None:
    try:
        with reachable(path) as address:
            stream.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise NotRunning(NOT_RUNNING) from error
    except TimeoutError as error:
        raise Silent(f"the daemon at {path} accepts no connections; see its log") from error
    except OSError as error:
        raise Unreachable(f"{path} cannot be reached: {error.strerror}") from error


LISTENS_S = 10.0  #: a daemon has reopened its socket or has ended by then


def reached(env: Mapping[str, str]) -> Client:
    """A connection to the daemon; one whose socket is gone is asked to reopen it."""
    try:
        return Client(find_socket(env))
    except NotRunning:
        if not wake(env):
            raise
    found = _holder(env)
    stopped = processes.stopped(found.pid)
    within_s = STOPPED_S if stopped else LISTENS_S

    def listening() -> Client | None:
        _holder(env)
        with contextlib.suppress(NotRunning):
            return Client(find_socket(env))
        return None

    client = until(listening, within_s=within_s, every_s=0.02)
    if client is None:
        raise _silent(_holder(env), within_s, stopped=stopped)
    return client


def _holder(env: Mapping[str, str]) -> Holder:
    found = singleton.holder(state_directory(env))
    if found is None:
        raise NotRunning(NOT_RUNNING)
    return found


def wake(env: Mapping[str, str]) -> bool:
    """Have the daemon check its socket and its repositories (SIGHUP); False when none runs."""
    found = singleton.holder(state_directory(env))
    process = processes.living(found.identity) if found else None
    if process is not None:
        processes.send(process, signal.SIGHUP)
    return process is not None


def _silent(found: Holder, waited_s: float, *, stopped: bool) -> Silent:
    if stopped:
        helps = f"it is stopped; continue it: kill -CONT {found.pid}"
    elif found.draining:
        helps = "it is shutting down; try again when it has ended"
    else:
        helps = f"see its log, or end it: kill {found.pid}"
    return Silent(
        f"the daemon (process {found.pid}) has not been listening at {found.socket} for {waited_s:.0f} s; {helps}"
    )
