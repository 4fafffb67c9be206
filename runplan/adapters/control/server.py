"""Listens on the daemon's socket and hands what callers ask to a handler; never waits for any of them.

It fits into somebody else's loop: its descriptor becomes readable when `ready` has something to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any, Protocol

from runplan.adapters.control.addresses import reachable
from runplan.adapters.control.connection import Connection
from runplan.adapters.control.peers import peer_of
from runplan.adapters.places import own_directory
from runplan.core import control
from runplan.core.control import Hello, Refusal
from runplan.core.errors import Exit, RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from runplan.adapters.singleton import Held
    from runplan.core.control import Request

#: Callers at the same time. The next one takes the place of an idle one, or is sent away when none is idle.
CALLERS = 128

NO_DESCRIPTOR_S = 0.05  #: pause before the next try, when no descriptor is left even to hang up on a caller


class Handler(Protocol):
    """Who answers."""

    def take(self, request: Request, caller: Connection) -> Mapping[str, Any] | None:
        """The answer; None when it comes later through `caller`; a RunplanError is a refusal with its exit code.

        A follower is told events by `caller.tell` until `caller.answer` ends the stream or `caller.gone` holds.
        """


class ControlServer:
    """The daemon's end of the socket."""

    def __init__(self, handler: Handler, *, path: Path, held: Held, failed: Callable[[str, Exception], None]) -> None:
        """Listen at `path`. A socket found there was left by a dead daemon, since we hold the lock.

        `failed` is called with the verb and the error when the handler raises an unexpected one.
        """
        if not held.held:
            raise Unreachable("the daemon's lock was let go; nothing is listened to")
        self._handler = handler
        self._failed = failed
        self._path = path
        self._hello = Hello(
            version=held.holder.version, pid=os.getpid(), since=held.holder.since, speaks=(control.PROTOCOL,)
        )
        self._selector = selectors.DefaultSelector()
        self._closed = False
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._callers: dict[Connection, None] = {}  #: the one that has been silent for longest comes first
        self._listen(path)

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For the selector of whoever runs the loop."""
        return self._selector.fileno()

    def ready(self, timeout_s: float = 0.0) -> None:
        """Do what can be done now; with a time, wait that long for something to do."""
        for key, events in self._selector.select(timeout_s):
            if key.data is None:
                self._accept()
                continue
            caller: Connection = key.data
            if events & selectors.EVENT_WRITE and not caller.gone:
                caller.send()
            if events & selectors.EVENT_READ and not caller.gone:
                self._hear(caller)

    def stay(self, paths: Sequence[Path]) -> Path | None:
        """Where we listen from now on, at the first of these that can be, when our socket was taken away; else None.

        Whoever is connected notices nothing.
        """
        if _file_at(self._path) == self._file:
            return None
        before = self._listener
        for path in paths[:-1]:
            with contextlib.suppress(Unreachable):
                self._listen(path)
                break
        else:
            self._listen(paths[-1])
        self._selector.unregister(before)
        before.close()
        return self._path

    def _listen(self, path: Path) -> None:
        listener = _listener(path)
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._path, self._listener, self._file = path, listener, _file_at(path)

    def close(self) -> None:
        """Hang up on everybody, and take the socket away; harmless when it was done already."""
        if self._closed:
            return
        self._closed = True
        for caller in tuple(self._callers):
            caller.send()
            caller.drop()
        self._selector.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            if _file_at(self._path) == self._file:
                self._path.unlink()
        self._let_go_of_spare()

    # --- callers ------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and not self._drop_idle():
                self._turn_away()
            return
        stream.setblocking(False)
        try:
            peer = peer_of(stream)
        except OSError:  # it has gone already
            stream.close()
            return
        full = len(self._callers) >= CALLERS and not self._drop_idle()
        caller = Connection(stream, peer, changed=self._watch)
        self._callers[caller] = None
        self._selector.register(stream, selectors.EVENT_READ, caller)
        if peer.uid != os.geteuid():
            self._send_away(caller, f"this daemon serves the user {os.geteuid()}, not {peer.uid}")
        elif full:
            self._send_away(caller, "too many callers at the same time; try again")

    def _drop_idle(self) -> bool:
        """Hang up on the caller that has asked for nothing for longest; False when each waits for an answer."""
        idle = next((caller for caller in self._callers if not caller.open), None)
        if idle is not None:
            idle.drop()
        return idle is not None

    def _send_away(self, caller: Connection, why: str) -> None:
        caller.refuse(Refusal(error=why))
        caller.leave()

    def _turn_away(self) -> None:
        """Without a free descriptor a caller would stay at the door, and the door open: hang up on it by the spare."""
        if self._spare < 0:
            time.sleep(NO_DESCRIPTOR_S)
        self._let_go_of_spare()
        with contextlib.suppress(OSError):
            self._listener.accept()[0].close()
        with contextlib.suppress(OSError):  # another thread may have taken it
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _let_go_of_spare(self) -> None:
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)

    def _watch(self, caller: Connection) -> None:
        """Wait for what the caller can do next."""
        if caller not in self._callers:
            return
        reading = 0 if caller.leaving else selectors.EVENT_READ
        writing = selectors.EVENT_WRITE if caller.unsent else 0
        if caller.gone:
            del self._callers[caller]
            with contextlib.suppress(KeyError):
                self._selector.unregister(caller.stream)
        elif self._selector.get_key(caller.stream).events != reading | writing:
            self._selector.modify(caller.stream, reading | writing, caller)

    # --- requests -----------------------------------------------------------------------------------

    def _hear(self, caller: Connection) -> None:
        for line in caller.take():
            if caller.gone:
                return
            self._callers[caller] = self._callers.pop(caller)  # the last to have spoken
            if caller.open:
                self._send_away(caller, f"{caller.open} is not answered yet; ask one thing at a time")
                return
            self._answer(control.read_request(line), caller)

    def _answer(self, request: Request | Refusal, caller: Connection) -> None:
        if isinstance(request, Refusal):
            caller.refuse(request)
        elif request.verb == "ping":
            caller.answer(control.hello_fields(self._hello))
        elif caller.peer.agent and request.verb in control.ACTING:
            caller.refuse(Refusal(error=f"{request.verb} does not run inside an agent ({caller.peer.agent})"))
        else:
            self._ask(request, caller)

    def _ask(self, request: Request, caller: Connection) -> None:
        caller.open = request.verb
        try:
            fields = self._handler.take(request, caller)
            if fields is not None:
                caller.answer(fields)
        except RunplanError as error:
            caller.refuse(Refusal(error=str(error), exit=error.exit))
        except Exception as error:  # noqa: BLE001 - the edge of a request: it must not end the daemon
            self._failed(request.verb, error)
            caller.refuse(Refusal(error=unexpected(error), exit=Exit.UNREACHABLE))


def unexpected(error: BaseException) -> str:
    """What a caller is told of an error in the daemon."""
    return f"unexpected {type(error).__name__} in the daemon: {error}; see its log"


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file it is; None when there is none that can be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _listener(path: Path) -> socket.socket:
    """A socket that only this user can reach; it takes its name when it is ready, so nobody meets a dead one."""
    own_directory(path.parent)
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(draft) as address:
            listener.bind(address)
        draft.chmod(0o600)
        listener.listen(CALLERS)
        listener.setblocking(False)
        os.replace(draft, path)
    except OSError as error:
        listener.close()
        raise Unreachable(f"{path} cannot be listened at: {error.strerror}") from error
    return listener
