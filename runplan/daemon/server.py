"""The socket server of the daemon: a thread per caller."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import socket
import socketserver
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from runplan.daemon import protocol
from runplan.daemon.client import reachable
from runplan.daemon.protocol import Refusal, peer_of
from runplan.errors import Exit, RunplanError, Unreachable
from runplan.settings.places import own_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from runplan.daemon.observer import Follower
    from runplan.daemon.protocol import Hello, Request
    from runplan.run.requests import Answer

IDLE_S = 60.0  #: after this without traffic a connection is closed
NO_DESCRIPTOR_S = 0.1  #: pause before the next try, when no descriptor is left


class Daemon(Protocol):
    """Answers requests; called from any thread."""

    @property
    def hello(self) -> Hello: ...

    def answer(self, request: Request, caller: Caller) -> Mapping[str, Any]: ...

    def request_failed(self, verb: str, error: Exception) -> None: ...


class Caller(socketserver.StreamRequestHandler):
    """One connection: a request is answered before the next one is read."""

    server: ControlServer

    def setup(self) -> None:
        super().setup()
        self.request.settimeout(self.server.idle_s)

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # it hung up, or has said nothing for long
            self._peer = peer_of(self.request)
            if self._peer.uid != os.geteuid():
                error_text = f"this daemon serves the user {os.geteuid()}, not {self._peer.uid}"
                self._send(protocol.refusal_line(Refusal(error=error_text)))
                return
            while line := self.rfile.readline(protocol.LONGEST + 1):
                if len(line) > protocol.LONGEST:
                    self._send(protocol.refusal_line(Refusal(error=f"a line has at most {protocol.LONGEST} bytes")))
                    return
                self._send(self._reply(protocol.read_request(line)))

    def _reply(self, request: Request | Refusal) -> bytes:
        if isinstance(request, Refusal):
            return protocol.refusal_line(request)
        if self._peer.agent and request.verb in protocol.ACTING:
            error_text = f"{request.verb} does not run inside an agent ({self._peer.agent})"
            return protocol.refusal_line(Refusal(error=error_text))
        try:
            line = protocol.granted_line(self.server.daemon.answer(request, self))
        except RunplanError as error:
            return protocol.refusal_line(Refusal(error=str(error), exit=error.exit))
        except OSError as error:
            if self.gone:
                raise
            return self._failed(request, error)
        except Exception as error:  # noqa: BLE001 - the edge of a request: it must not end the daemon
            return self._failed(request, error)
        if len(line) > protocol.LONGEST:
            error_text = f"the answer to {request.verb} is longer than a line may be; ask for less"
            return protocol.refusal_line(Refusal(error=error_text, exit=Exit.UNREACHABLE))
        return line

    def _failed(self, request: Request, error: Exception) -> bytes:
        self.server.daemon.request_failed(request.verb, error)
        error_text = f"unexpected {type(error).__name__} in the daemon: {error}; see its log"
        return protocol.refusal_line(Refusal(error=error_text, exit=Exit.UNREACHABLE))

    def _send(self, line: bytes) -> None:
        self.request.sendall(line)

    @property
    def gone(self) -> bool:
        """Whether the caller has hung up."""
        poll = select.poll()  # on a socket with a timeout, recv ignores MSG_DONTWAIT
        poll.register(self.request, select.POLLIN)
        try:
            return bool(poll.poll(0)) and not self.request.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def wait_for(self, future: Future[Answer]) -> Answer:
        """Wait for the answer to a command; an OSError when the caller has hung up."""
        while True:
            with contextlib.suppress(TimeoutError):
                return future.result(timeout=self.server.idle_s)
            self._require_there()

    def tell(self, follower: Follower) -> Mapping[str, Any]:
        """Send events until there are no more; the outcome."""
        while True:
            try:
                last, fields = follower.events.get(timeout=self.server.idle_s)
            except queue.Empty:
                self._require_there()
                continue
            if last:
                return fields
            line = protocol.told_line(fields)
            self._send(line if len(line) <= protocol.LONGEST else protocol.told_line({"left_out": len(line)}))

    def _require_there(self) -> None:
        if self.gone:
            raise ConnectionError(errno.ECONNRESET, "the caller hung up")


class ControlServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Fits into the loop of the main thread: when `fileno` is readable, `handle_request` accepts one caller."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    timeout = 0

    def __init__(self, daemon: Daemon, path: Path, *, idle_s: float = IDLE_S) -> None:
        """Listen at `path`. A socket found there was left by a dead daemon, since we hold the lock."""
        self.daemon = daemon
        self.path = path
        self.idle_s = idle_s
        super().__init__(str(path), Caller, bind_and_activate=False)
        try:
            own_directory(path.parent)
            self._listen()
        except OSError as error:
            self.socket.close()
            raise Unreachable(f"{path} cannot be listened at: {error.strerror}") from error
        self._file = _file_at(path)

    def _listen(self) -> None:
        """Bind under a temporary name; a client never finds a socket that does not listen."""
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        with reachable(draft) as address:
            self.socket.bind(address)
        draft.chmod(0o600)
        self.server_activate()
        os.replace(draft, self.path)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return self.socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(NO_DESCRIPTOR_S)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver calls it so
        """Called in an except block, as when no thread can be started."""
        error = sys.exception()
        if isinstance(error, Exception):
            self.daemon.request_failed("connection", error)

    @property
    def is_reachable(self) -> bool:
        """Whether our socket is still there."""
        return _file_at(self.path) == self._file

    def close(self) -> None:
        """Take the socket away; callers are hung up on when the process ends."""
        with contextlib.suppress(OSError):
            if self.is_reachable:
                self.path.unlink()
        self.server_close()


def listen(daemon: Daemon, paths: Sequence[Path]) -> ControlServer:
    """Listen at the first of these places where that is possible."""
    for path in paths[:-1]:
        with contextlib.suppress(Unreachable):
            return ControlServer(daemon, path)
    return ControlServer(daemon, paths[-1])


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file it is; None when there is none that can be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
