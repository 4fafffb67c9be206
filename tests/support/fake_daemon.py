"""Daemons for tests: the real lock, the real socket, and an answer that does little; in this process or its own.

Run as a program it is a whole daemon: VERSION, then words of how it behaves.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.configuration.places import socket_path, state_directory
from runplan.domain.errors import NotFound, RefusedEarly
from runplan.hosts.daemon import protocol, state
from runplan.hosts.daemon.process import ControlServer
from runplan.hosts.daemon.protocol import AnyRequest, Done, Hello, MetricsText

#: Where a child finds this package.
ROOT = Path(__file__).parents[2]
SINCE = "2026-01-01T00:00:00Z"


class Echo:
    """Counts what it was asked; some words make it behave otherwise."""

    def __init__(self, version: str = "0.1.0") -> None:
        self.hello = Hello(version=version, pid=os.getpid(), since=SINCE)
        self.asked: list[AnyRequest] = []
        self.failed: list[Exception] = []
        self.may_answer = threading.Event()

    def answer(self, request: AnyRequest) -> Struct:
        if isinstance(request, protocol.Ping):
            return self.hello
        self.asked.append(request)
        if isinstance(request, protocol.Metrics):
            return MetricsText("runplan_daemon_threads 3\n")
        match request.repository.root if isinstance(request, protocol.Wake) else "":
            case "missing":
                raise NotFound("there is no plan missing")
            case "broken":
                raise ZeroDivisionError("by zero")
            case "later":
                self.may_answer.wait(60)
        return Done()


@contextmanager
def a_door(path: Path) -> Iterator[tuple[ControlServer, Echo]]:
    """A server that accepts callers."""
    echo = Echo()
    with closing(ControlServer(path, echo.answer, echo.failed.append)) as server, serving(server):
        yield server, echo


@contextmanager
def serving(server: ControlServer) -> Iterator[None]:
    loop = threading.Thread(target=server.serve_forever, args=(0.02,))
    loop.start()
    try:
        yield
    finally:
        server.shutdown()
        loop.join()


def main(version: str, *words: str) -> int:
    """A daemon of its own process."""
    if "fails" in words:
        sys.stderr.write("ModuleNotFoundError: no module named engine\n")
        return 1
    env = dict(os.environ)
    if "mute" in words:
        time.sleep(60)
    echo = Echo(version)
    if "draining" in words:
        echo.hello = replace(echo.hello, draining="the daemon is shutting down")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    try:
        with (
            state.hold_lock(state_directory(env), version=version, since=SINCE, wait_s=0.5),
            closing(ControlServer(socket_path(env), echo.answer, echo.failed.append)) as server,
        ):
            facts = f"{Path.cwd()} {os.getsid(0) == os.getpid()} {sorted(env)}"
            (state_directory(env) / "started").write_text(facts, encoding="utf-8")
            with serving(server):
                while not stopped:
                    time.sleep(0.02)
    except RefusedEarly as error:
        sys.stderr.write(f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
