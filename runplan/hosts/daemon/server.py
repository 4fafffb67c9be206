"""The socket server of the daemon: a thread per connection."""

from __future__ import annotations

import contextlib
import os
import socketserver
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, to_builtins

from runplan.adapters.configuration.places import own_directory
from runplan.adapters.processes import agent_above
from runplan.domain.errors import Exit, RunplanError, Unreachable
from runplan.hosts.daemon.client import short_address
from runplan.hosts.daemon.protocol import ACTING, AnyRequest, Reply, line_of, peer_of, read_request


class Connection(socketserver.StreamRequestHandler):
    """Each request is answered before the next one is read."""

    timeout = 60.0  #: a caller that is silent for longer is hung up on, so that its thread and descriptor are free
    server: ControlServer
    pid: int  #: of the caller

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the caller hung up, or was silent for too long
            self.pid, uid = peer_of(self.request)
            if uid != os.geteuid():
                self.send(Reply(error=f"this daemon serves the user {os.geteuid()}, not {uid}"))
                return
            for line in self.rfile:
                self.send(self._reply(line))

    def _reply(self, line: bytes) -> Reply:
        try:
            request = read_request(line)
            if isinstance(request, ACTING) and (agent := agent_above(self.pid)):
                return Reply(error=f"an agent may not send {type(request).__name__.lower()} ({agent})")
            return Reply(result=to_builtins(self.server.answer(request)))
        except RunplanError as error:
            return Reply(error=str(error), exit=int(error.exit))
        except Exception as error:  # noqa: BLE001 - the edge of a request: the caller gets an answer
            self.server.failed(error)
            text = f"unexpected {type(error).__name__} in the daemon: {error}; see its log"
            return Reply(error=text, exit=Exit.UNREACHABLE)

    def send(self, reply: Reply) -> None:
        self.request.sendall(line_of(reply))


class ControlServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """`serve_forever` accepts callers, each in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, path: Path, answer: Callable[[AnyRequest], Struct], failed: Callable[[Exception], None]) -> None:
        """Listen at `path`; `answer` and `failed` are called in the threads of the connections."""
        self.path = path
        self.answer = answer
        self.failed = failed
        super().__init__(str(path), Connection, bind_and_activate=False)
        draft = path.with_name(f"{path.name}.new")
        try:
            # Bound under a temporary name: a client never finds a socket that does not listen.
            own_directory(path.parent)
            draft.unlink(missing_ok=True)
            with short_address(draft) as address:
                self.socket.bind(address)
            draft.chmod(0o600)
            self.server_activate()
            os.replace(draft, path)
        except OSError as error:
            self.socket.close()
            raise Unreachable(f"cannot listen at {path}: {error.strerror}") from error

    def close(self) -> None:
        """Remove the socket; open connections end with the process."""
        self.path.unlink(missing_ok=True)
        self.server_close()
