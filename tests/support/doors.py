"""Daemons for tests: the real lock, the real socket, and an answer that does little; in this process or its own.

Run as a program it is a whole daemon: VERSION, then words of how it behaves.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from runplan.daemon import protocol, singleton
from runplan.daemon.observer import Follower
from runplan.daemon.protocol import Hello
from runplan.daemon.server import ControlServer
from runplan.errors import NotFound
from runplan.settings.places import socket_path, state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runplan.daemon.protocol import Request
    from runplan.daemon.server import Caller
    from runplan.run.requests import Answer

#: Where a child finds this package.
ROOT = Path(__file__).parents[2]
SINCE = "2026-01-01T00:00:00Z"


class Echo:
    """Says what it was asked; some plans make it behave otherwise."""

    def __init__(self, version: str = "0.1.0", *, speaks: int = protocol.PROTOCOL) -> None:
        self.hello = Hello(version=version, pid=os.getpid(), since=SINCE, speaks=(speaks,))
        self.asked: list[str] = []
        self.left: list[str] = []  #: requests whose caller did not wait for the answer
        self.failed: list[str] = []
        self.later: Future[Answer] = Future()
        self.drained = False

    def request_failed(self, verb: str, error: Exception) -> None:
        self.failed.append(f"{verb}: {error}")

    def answer(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        if request.verb == "ping":
            return protocol.hello_fields(self.hello)
        self.asked.append(request.verb)
        self.drained |= request.verb == "drain"
        try:
            return self._answer(request, caller)
        except OSError:
            self.left.append(request.verb)
            raise

    def _answer(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        match request.fields.get("plan"):
            case "missing":
                raise NotFound("there is no plan missing")
            case "broken":
                raise ZeroDivisionError("by zero")
            case "later":
                answered: dict[str, Any] = to_builtins(caller.wait_for(self.later))
                return answered
            case "silent":
                return caller.tell(Follower("", "", ""))
            case "endless":
                return caller.tell(follower(*({"seq": number, "text": "x" * 1000} for number in range(20_000))))
            case "huge":
                return caller.tell(follower({"seq": 0, "text": "x" * 2_000_000}))
            case "three":
                return caller.tell(follower(*({"seq": number} for number in range(3))))
            case "long":
                return {"text": "x" * 2_000_000}
        return {"verb": request.verb, **request.fields}


def follower(*events: Mapping[str, Any]) -> Follower:
    """One for whom these events have come, and then the end."""
    made = Follower("", "", "")
    for event in events:
        made.events.put((False, event))
    made.events.put((True, {"outcome": "done"}))
    return made


@contextmanager
def a_door(path: Path, *, idle_s: float = 60.0) -> Iterator[tuple[ControlServer, Echo]]:
    """A server that is driven by a loop of its own, as a daemon would."""
    echo = Echo()
    with closing(ControlServer(echo, path, idle_s=idle_s)) as server, serving(server):
        yield server, echo


@contextmanager
def serving(server: ControlServer) -> Iterator[None]:
    ended = threading.Event()
    loop = threading.Thread(target=serve, args=(server, ended.is_set))
    loop.start()
    try:
        yield
    finally:
        ended.set()
        loop.join()


def serve(server: ControlServer, ended: Callable[[], object]) -> None:
    """Someone else's loop, in which the server is one descriptor among others."""
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        while not ended():
            if selector.select(0.02):
                server.handle_request()


def main(version: str, *words: str) -> int:
    """A daemon of its own process."""
    if "fails" in words:
        sys.stderr.write("ModuleNotFoundError: no module named engine\n")
        return 1
    env = dict(os.environ)
    if "mute" in words:
        sys.stderr.write("thinking\n")
        time.sleep(60)
    echo = Echo(version, speaks=7 if "foreign" in words else protocol.PROTOCOL)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    held = singleton.take(state_directory(env), version=version, since=SINCE, socket=socket_path(env), wait_s=0.5)
    if isinstance(held, singleton.Occupied):
        sys.stderr.write(f"{held}\n")
        return 0
    with held, closing(ControlServer(echo, socket_path(env))) as server:
        told = f"{Path.cwd()} {os.getsid(0) == os.getpid()} {sorted(env)}"
        (state_directory(env) / "told").write_text(told, encoding="utf-8")
        serve(server, lambda: stopped or (echo.drained and "stays" not in words))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
