"""Counts the effects of a process from outside of its code, and holds it before one of them.

An effect is whatever another process can see afterwards: a file opened to be written, a rename, a removal, a process
started or signalled, a transaction committed. Python's own audit events tell of each before it happens. So no code of
the product knows that it is watched, and every effect of new code is counted with the others.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

VARIABLE = "CHAOS_TRACE"  #: the directory of the trace; `log`, `at` and `go` are files in it
HOLD = "CHAOS_HOLD"  #: the number of the effect to hold before, from 1
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PATHS = frozenset(("os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"))
_PROCESSES = frozenset(("os.fork", "os.kill", "os.killpg", "socket.sendmsg"))
_ELSEWHERE = ("/dev/null", "/dev/tty", "/proc/", "/sys/")
_LOOK_S = 0.003


def trace(env: Mapping[str, str]) -> None:
    """Trace this process from now on, if the environment asks for it."""
    if place := env.get(VARIABLE):
        tracer = Tracer(Path(place), int(env.get(HOLD, "0")))
        sys.addaudithook(tracer)
        # No audit event tells of a transaction.
        sqlite3.connect = tracer.traced(sqlite3.connect)  # type: ignore[assignment]


class Tracer:
    """An audit hook; it lives as long as the process."""

    def __init__(self, place: Path, hold: int) -> None:
        self._place = place
        self._hold = hold
        self._count = 0
        self._log = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._own = threading.local()

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if name := effect(event, args):
            self._pass(name)

    def traced(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(self._statement)
            return connection

        return connected

    def _statement(self, sql: str) -> None:
        if sql.startswith("COMMIT"):
            self._pass("commit")

    def _pass(self, name: str) -> None:
        if getattr(self._own, "busy", False) or os.getpid() != self._pid:
            return
        self._own.busy = True
        try:
            with self._lock:
                self._count += 1
                number = self._count
                os.write(self._log, f"{number} {name}\n".encode())
            if number == self._hold:
                self._reach(name)
        finally:
            self._own.busy = False

    def _reach(self, name: str) -> None:
        """A git child is met after it has started, everything else before it happens."""
        if name.startswith("git ") and (self._place / "after").exists():
            sys.setprofile(self._started)
        else:
            self._wait(0)

    def _started(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "return" and frame.f_code.co_name == "_execute_child":
            sys.setprofile(None)
            self._wait(frame.f_locals["self"].pid)

    def _wait(self, child: int) -> None:
        draft = self._place / "at.new"
        draft.write_text(f"{child}", encoding="ascii")
        draft.rename(self._place / "at")
        while not (self._place / "go").exists():
            time.sleep(_LOOK_S)


def effect(event: str, args: tuple[Any, ...]) -> str:
    """The name of the effect that an audit event announces; "" for all others."""
    if event == "open":
        path, _, flags = args
        if not isinstance(flags, int) or not flags & _WRITES or isinstance(path, int):
            return ""
        return "" if str(path).startswith(_ELSEWHERE) else f"open {_short(path)}"
    if event == "subprocess.Popen":
        words = [os.fsdecode(word) for word in args[1]]
        return f"git {_verb(words[1:])}" if Path(words[0]).name == "git" else f"start {Path(words[0]).name}"
    if event in _PATHS:
        if os.fsdecode(args[0]).startswith("/") and os.path.lexists(args[0]) == (event == "os.mkdir"):
            return ""  # it is there already, or not there at all
        return f"{event[3:]} {' '.join(_short(arg) for arg in args if isinstance(arg, str | bytes | os.PathLike))}"
    return event if event in _PROCESSES else ""


def _short(path: Any) -> str:
    return "/".join(Path(os.fsdecode(path)).parts[-2:]).replace(" ", "_")


def _verb(words: list[str]) -> str:
    rest = iter(words)
    for word in rest:
        if word in ("-c", "-C"):
            next(rest)
        elif not word.startswith("-"):
            return word
    return "nothing"
