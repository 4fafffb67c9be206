"""Connects to the daemon, and starts it when none runs."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from runplan import __version__
from runplan.adapters import processes
from runplan.adapters.agents.environment import for_the_daemon
from runplan.adapters.clock import until
from runplan.adapters.configuration.places import OUTPUT, own_directory, socket_path, state_directory
from runplan.adapters.store.files import publish
from runplan.domain.decoding import convert
from runplan.domain.errors import RefusedEarly, Unreachable, error_with
from runplan.hosts.daemon import service
from runplan.hosts.daemon.protocol import Hello, Ping, Request, line_of, peer_of, read_reply
from runplan.hosts.daemon.state import read_holder

T = TypeVar("T")

LONGEST_ADDRESS = 107 if sys.platform == "linux" else 103
NOT_RUNNING = "the daemon is not running; start it: runplan daemon"
ANSWER_S = 30.0  #: a daemon listens and answers at once, but the machine may be loaded


class NotRunning(Unreachable):
    """No daemon listens."""


class Silent(Unreachable):
    """The daemon does not answer."""


class HungUp(Unreachable):
    """The daemon closed the connection."""


class Client(contextlib.AbstractContextManager["Client"]):
    def __init__(self, path: Path, *, answer_s: float = ANSWER_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._replies = self._socket.makefile("rb")
        self._socket.settimeout(answer_s)
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            try:
                with short_address(path) as address:
                    self._socket.connect(address)
                self._pid, user = peer_of(self._socket)
                if user != os.geteuid():
                    raise Unreachable(f"{path} is served by the user {user}; nothing was sent")
                self.hello = self.call(Ping(), Hello, within_s=answer_s)
            except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError, HungUp) as error:
                raise NotRunning(NOT_RUNNING) from error  # or it was just ending
            except OSError as error:
                raise Silent(f"cannot connect to the daemon at {path}: {error}") from error
            stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def call(self, request: Request, result: type[T], *, within_s: float = ANSWER_S) -> T:
        """Send a request; its result. An error of the daemon is raised."""
        if processes.stopped(self._pid):
            raise Silent(f"the daemon (process {self._pid}) is stopped; continue it: kill -CONT {self._pid}")
        self._socket.settimeout(within_s)
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):  # the daemon may have sent an error before it hung up
                self._socket.sendall(line_of(request))
            line = self._replies.readline()
        except TimeoutError:
            why = f"has not answered for {within_s:.0f} s; see its log"
            raise Silent(f"the daemon (process {self._pid}) {why}") from None
        except OSError:
            pass
        if not line.endswith(b"\n"):
            raise HungUp("the daemon closed the connection; see: runplan status")
        reply = read_reply(line)
        if reply.result is None:
            raise error_with(reply.error, reply.exit)
        return convert(reply.result, result)


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


def connect_daemon(env: Mapping[str, str]) -> Client:
    """A connection to the running daemon; one that is starting is waited for."""
    path = socket_path(env)
    directory = state_directory(env)

    def try_connect() -> Client | None:
        try:
            return Client(path)
        except NotRunning:
            if read_holder(directory) is None:
                raise
            return None

    client = until(try_connect, within_s=ANSWER_S)
    if client is None:
        pid = daemon.pid if (daemon := read_holder(directory)) else 0
        raise Silent(f"the daemon (process {pid}) does not listen at {path}; see its log, or end it: kill {pid}")
    return client


def reach_daemon(env: Mapping[str, str], *, argv: Sequence[str] = service.DAEMON, ready_s: float = ANSWER_S) -> Client:
    """A connection to a daemon of this version, started if need be."""
    try:
        client = connect_daemon(env)
    except NotRunning:
        manager = service.find_installed(env)
        is_started = manager is not None and service.succeeds(manager.starts, env)
        client = Client(socket_path(env)) if is_started else _spawn_daemon(env, argv, ready_s)
    hello = client.hello
    if hello.version != __version__ and not hello.draining:  # the command, given twice, would end its agents
        client.close()
        raise RefusedEarly(
            f"the daemon is runplan {hello.version}, this is {__version__}; restart it, its agents survive: "
            "runplan daemon restart (if it is the login service, first: runplan service install)"
        )
    return client


def _spawn_daemon(env: Mapping[str, str], argv: Sequence[str], ready_s: float) -> Client:
    """Start the daemon without a terminal. It keeps the umask of the user, since it writes into checkouts."""
    output = own_directory(state_directory(env)) / OUTPUT
    publish(output, b"\n", sync=False)  # on a full disk the daemon could not say why it ended
    with open(output, "ab") as file:
        daemon = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd="/",
            env=for_the_daemon(env),
            start_new_session=True,
        )

    def try_connect() -> Client | int | None:
        with contextlib.suppress(NotRunning):
            return Client(socket_path(env), answer_s=ready_s)
        return daemon.poll()  # with 0 another daemon was faster

    try:
        answer = until(try_connect, within_s=ready_s)
    finally:
        daemon.returncode = daemon.returncode or 0  # it outlives us; Popen must not wait for it
    if isinstance(answer, Client):
        return answer
    failure = f"ended with code {answer}" if answer else f"did not answer within {ready_s:.0f} s"
    lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
    raise Unreachable(f"the daemon {failure}; last output: {last}; full output: {output}")
