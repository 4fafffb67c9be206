"""Daemons for tests: the real lock, the real socket, and a handler that does little; in this process or its own.

Run as a program it is a whole daemon: VERSION, then words of how it behaves.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.adapters.places import socket_path, state_directory
from runplan.core.errors import NotFound
from runplan.daemon import singleton
from runplan.daemon.protocol import Hello
from runplan.daemon.server import ControlServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.adapters.control.connection import Connection

    from runplan.daemon.protocol import Request

#: Where a child finds this package.
ROOT = Path(__file__).parents[2]
SINCE = "2026-01-01T00:00:00Z"


class Echo:
    """Says what it was asked; some plans make it behave otherwise."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.callers: list[Connection] = []
        self.drained = False

    def fail(self, verb: str, error: Exception) -> None:
        raise AssertionError(f"{verb} failed") from error

    def take(self, request: Request, caller: Connection) -> Mapping[str, Any] | None:
        self.asked.append(request.verb)
        self.callers.append(caller)
        self.drained |= request.verb == "drain"
        match request.fields.get("plan"):
            case "missing":
                raise NotFound("there is no plan missing")
            case "later":
                return None
            case "endless":
                for number in range(100_000):
                    caller.tell({"seq": number, "text": "x" * 1000})
                return None
            case "huge":
                caller.tell({"seq": 0, "text": "x" * 2_000_000})
                return {}
            case "three":
                for number in range(3):
                    caller.tell({"seq": number})
                return {"told": 3}
            case "long":
                return {"text": "x" * 2_000_000}
        return {"verb": request.verb, **request.fields}


@contextmanager
def a_door(path: Path, *, version: str = "0.1.0") -> Iterator[tuple[ControlServer, Echo]]:
    """A server that is driven by a loop of its own, as a daemon would."""
    echo = Echo()
    held = singleton.take(path.parent / "state", version=version, since=SINCE, socket=path)
    assert isinstance(held, singleton.Held)
    with held, ControlServer(echo, path=path, held=held, failed=echo.fail) as server:
        ended = threading.Event()
        loop = threading.Thread(target=serve, args=(server, ended.is_set))
        loop.start()
        try:
            yield server, echo
        finally:
            ended.set()
            loop.join()


def serve(server: ControlServer, ended: Any) -> None:
    """Someone else's loop, in which the server is one descriptor among others."""
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        while not ended():
            if selector.select(0.02):
                server.ready()


def main(version: str, *words: str) -> int:
    """A daemon of its own process."""
    if "fails" in words:
        sys.stderr.write("ModuleNotFoundError: no module named engine\n")
        return 1
    env = dict(os.environ)
    if "mute" in words:
        sys.stderr.write("thinking\n")
        time.sleep(60)
    echo = Echo()
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    held = singleton.take(state_directory(env), version=version, since=SINCE, socket=socket_path(env), wait_s=0.5)
    if isinstance(held, singleton.Occupied):
        sys.stderr.write(f"{held}\n")
        return 0
    with held, ControlServer(echo, path=socket_path(env), held=held, failed=echo.fail) as server:
        if "foreign" in words:
            server._hello = Hello(version=version, pid=os.getpid(), since=SINCE, speaks=(7,))
        told = f"{Path.cwd()} {os.getsid(0) == os.getpid()} {sorted(env)}"
        (state_directory(env) / "told").write_text(told, encoding="utf-8")
        serve(server, lambda: stopped or (echo.drained and "stays" not in words))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
