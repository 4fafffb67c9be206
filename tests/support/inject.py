"""Kill points, holds, faults and a clock for a started command, set from outside of the product's code.

A point is a journal transaction, a git child, a ref update, a rename of the landing, a write to a forge or the start of
a dispatch, each before and after it happens. Python's audit events, the SQLite connection, `subprocess.Popen` and the
HTTP connection announce them. The product contains no test hook, and new code is watched like the rest.

`python -c RUN ARGUMENTS…` is the installed command with what the environment asks for.
"""

import contextlib
import errno
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

KILL = "TEST_KILL"  #: where to kill the process: `after Landed`, `before Landed#2`, `before rename index`
NOW = "TEST_NOW"  #: the time at the start of the process; sleeping takes no time
TRACE = "TEST_TRACE"  #: the directory of a trace: `log`, `unsynced`, `at` and `go` are files in it
#: The point to hold at, as JSON: {"point": …, "count": …}, or {"number": …}. With {"fault": …} the point fails instead,
#: by an errno or `git128`; with {"lasting": true} every later one of its kind fails, too, until the file `go` exists.
HOLD = "TEST_HOLD"
OPENED = "TEST_OPENED"  #: a file; it gets a line with each path that the process opens, lists, makes, moves or deletes
VARIABLES = (KILL, NOW, TRACE, OPENED)

FAULTS = ("eio", "enospc", "emfile", "edquot", "git128")
GIT_FAULTS = ("enospc", "edquot", "git128")

ROOT = Path(__file__).parents[2]
RUN = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support.inject import run; run()"

_PRODUCT = f"{ROOT}/runplan/"
_LOOK_S = 0.003
_EVENT = re.compile(r"INSERT INTO events .*? VALUES \('(?:[^']|'')*','(?:[^']|'')*','[^']*','(\w+)'", re.DOTALL)
_STEP = re.compile(r"""INSERT INTO runs .*?"step": "([^"]*)\"""", re.DOTALL)
_CHANGED = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
#: Modules through which every call goes; the caller is the call site.
_SHARED = (
    *("git/command", "store/sql", "store/postgres", "store/journal", "store/files"),
    *("landing/swap.put", "loop/advance", "forge/retry", "forge/github_calls"),
)


def run() -> None:
    inject(os.environ)
    sys.argv[0] = "runplan"
    from runplan.interfaces.cli.main import entry

    entry()


def inject(env: Mapping[str, str]) -> None:
    """Do what the environment asks for; nothing without one of the variables."""
    if now := env.get(NOW):
        _start_clock_at(now)
    if at := env.get(KILL):
        _Points(_Killer(at)).watch()
    if place := env.get(TRACE):
        _Points(_Tracer(Path(place), json.loads(env.get(HOLD, "{}")))).watch()
    if log := env.get(OPENED):
        _log_paths(log)


#: Audit events of Python whose first argument is a path; `os.stat` has none.
_ON_PATHS = frozenset(
    f"os.{name}"
    for name in ("chmod", "link", "listdir", "mkdir", "remove", "rename", "rmdir", "scandir", "symlink", "truncate")
) | {"open"}


def _log_paths(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event: str, args: tuple[Any, ...]) -> None:
        if event in _ON_PATHS and isinstance(args[0], str | bytes | os.PathLike):
            os.write(descriptor, f"{event} ".encode() + os.fsencode(args[0]) + b"\n")

    sys.addaudithook(note)


def _start_clock_at(text: str) -> None:
    from datetime import UTC, datetime, timedelta

    from runplan.adapters.clock import SystemClock

    ahead = [datetime.fromisoformat(text) - datetime.now(UTC)]

    def now(self: SystemClock) -> datetime:
        return datetime.now(UTC) + ahead[0]

    def sleep_until(self: SystemClock, moment: datetime) -> None:
        ahead[0] += max(moment - now(self), timedelta())

    SystemClock.now = now  # type: ignore[method-assign]
    SystemClock.sleep_until = sleep_until  # type: ignore[method-assign]


class _Killer:
    """Kills the process at a named point."""

    step = ""

    def __init__(self, text: str) -> None:
        name, _, count = text.partition("#")
        self._when, _, self._what = name.partition(" ")
        self._left = int(count or 1)

    def passed(self, when: str, kind: str, what: str, _child: int = 0) -> str:
        named = {f"{kind} {what}", *what.split(",")} if kind == "commit" else {f"{kind} {what}"}
        if when == self._when and self._what in named:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def replaced(self, source: str, goal: str) -> None:
        return


class _Tracer:
    """Logs the points of the process, and holds it at one of them until the file `go` is there, or lets it fail."""

    step = ""  #: of the run that was recorded last

    def __init__(self, place: Path, hold: Mapping[str, Any]) -> None:
        self._place = place
        self._point, self._left = hold.get("point", ""), hold.get("count", 0)
        self._number, self._fault = hold.get("number", 0), hold.get("fault", "")
        self._is_lasting, self._failing = hold.get("lasting", False), ""  #: the kind of points that fail
        self._count = 0
        self._lock = threading.Lock()
        self._log = (place / "log").open("ab", buffering=0)
        self._unsynced = place / "unsynced"

    def passed(self, when: str, kind: str, what: str, child: int = 0) -> str:
        """Log the point; the fault that it has."""
        if kind in ("commit", "dispatch"):
            what = what.rpartition(",")[2] or "nothing"  # how many facts share a transaction depends on timing
            what = what if what.islower() and kind == "commit" else f"{what} at {self.step or 'begin'}"
        point = f"{when} {kind} {what} in {_site()}"
        with self._lock:
            self._count += 1
            self._log.write(f"{point}\n".encode())
            if reached := point == self._point or self._count == self._number:
                self._left -= 1
                reached = self._left <= 0
                self._point = "" if reached else self._point
        if when == "before" and kind == self._failing and not (self._place / "go").exists():
            return str(self._fault)
        if reached:
            self._failing = kind if self._is_lasting else ""
            draft = self._place / "at.new"
            draft.write_text(f"{child}", encoding="ascii")
            draft.rename(self._place / "at")
            while not self._fault and not (self._place / "go").exists():
                time.sleep(_LOOK_S)
        return str(self._fault) if reached else ""

    def replaced(self, source: str, goal: str) -> None:
        """Note what a power cut would bring back: the file before a rename whose source was never synced."""
        if "/runplan/dispatch/" not in goal:
            return
        former = Path(goal).read_text(encoding="utf-8") if Path(goal).exists() else None
        with self._lock, self._unsynced.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": goal, "former": former}) + "\n")


def _site() -> str:
    """The step and the function that reached the point: the innermost frame outside of the shared modules."""
    site = step = ""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if module := _module(frame):
            function = f"{module}.{frame.f_code.co_name}"
            if not function.startswith(_SHARED):
                site = site or function
                step = function if module.startswith("steps/") else step
        frame = frame.f_back
    return site if step in ("", site) else f"{step} > {site}"


def _module(frame: FrameType) -> str:
    """The module of the product without its floor, as `landing/swap`; "" for other code."""
    path = frame.f_code.co_filename
    return path.removeprefix(_PRODUCT).removesuffix(".py").partition("/")[2] if path.startswith(_PRODUCT) else ""


class _Points:
    """Announces points to a watcher; it lives as long as the process."""

    def __init__(self, watcher: _Killer | _Tracer) -> None:
        self.watcher = watcher
        self._pid = os.getpid()
        self._own = threading.local()
        self._synced: set[int] = set()

    def watch(self) -> None:
        sys.addaudithook(self._audit)
        self._watch_commits()
        if os.environ.get("RUNPLAN_FLEET_DSN"):
            self._watch_fleet()
        self._watch_children()
        self._watch_syncs()
        self._watch_forge()

    def passed(self, when: str, kind: str, what: str, child: int = 0) -> str:
        if getattr(self._own, "busy", False) or os.getpid() != self._pid:
            return ""
        with self._quiet():
            return self.watcher.passed(when, kind, what, child)

    def fail_at(self, kind: str, what: str) -> None:
        """Pass the point before a call of the system, which fails where that has a fault."""
        if fault := self.passed("before", kind, what):
            raise _system_error(fault)

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        self._own.busy = True
        try:
            yield
        finally:
            self._own.busy = False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if getattr(self._own, "busy", False) or os.getpid() != self._pid:
            return
        if event == "socket.sendmsg" and _called_from("supervise/"):
            self.fail_at("dispatch", "start")
        elif event in ("os.rename", "os.link"):
            source, goal = os.fsdecode(args[0]), os.fsdecode(args[1])
            if _called_from("landing/"):
                self.fail_at(event[3:], "index" if goal.endswith("/index") else "file")
            if event == "os.rename":
                with self._quiet(), contextlib.suppress(OSError):
                    if os.stat(source, dir_fd=args[2] if args[2] >= 0 else None).st_ino not in self._synced:
                        self.watcher.replaced(source, goal)

    def _watch_commits(self) -> None:
        points = self

        class Watched(sqlite3.Connection):
            changed = ""

            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                with points.committed(self) if sql == "COMMIT" else contextlib.nullcontext():
                    return super().execute(sql, *values)

            def note(self, sql: str) -> None:
                points.note_change(self, sql)

        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            made = before(*args, **options, factory=Watched)
            made.set_trace_callback(made.note)  # type: ignore[attr-defined]
            return made

        before: Callable[..., sqlite3.Connection] = sqlite3.connect
        sqlite3.connect = connect  # type: ignore[assignment]

    def _watch_fleet(self) -> None:
        """The same for the store in PostgreSQL."""
        import psycopg

        points = self
        execute = psycopg.Connection.execute

        def watched(self: Any, sql: Any, values: Any = None, **how: Any) -> Any:
            if isinstance(sql, str):
                points.note_change(self, _with_values(sql, values or ()))
            with points.committed(self) if sql == "COMMIT" else contextlib.nullcontext():
                return execute(self, sql, values, **how)

        psycopg.Connection.execute = watched  # type: ignore[method-assign, assignment]

    @contextlib.contextmanager
    def committed(self, connection: Any) -> Iterator[None]:
        what, connection.changed = getattr(connection, "changed", ""), ""
        if fault := self.passed("before", "commit", what):
            raise _database_error(fault)
        try:
            yield
        finally:
            self.passed("after", "commit", what)

    def note_change(self, connection: Any, sql: str) -> None:
        """Remember which facts the transaction of this connection records."""
        if sql.startswith("BEGIN"):
            connection.changed = ""
        if recorded := _STEP.search(sql):
            self.watcher.step = recorded[1]
        changed = getattr(connection, "changed", "")
        for name in _EVENT.findall(sql) or _CHANGED.findall(sql):
            if name not in ("runs", "events", "SET") and name not in changed.split(","):
                changed += f"{',' if changed else ''}{name}"
        connection.changed = changed

    def _watch_children(self) -> None:
        points = self
        start, end = subprocess.Popen._execute_child, subprocess.Popen._handle_exitstatus  # type: ignore[attr-defined]

        def execute_child(self: Any, args: list[str], *more: Any) -> None:
            what = _verb([os.fsdecode(word) for word in args])
            if not what:
                start(self, args, *more)
                return
            fault = points.passed("before", "git", what)
            if fault in GIT_FAULTS:  # git says it by its exit code
                words = f"fatal: {os.strerror(getattr(errno, fault.upper(), errno.EIO))}"
                start(self, ["sh", "-c", f"echo '{words}' >&2; exit 128"], "/bin/sh", *more[1:])
                return
            if fault:
                raise _system_error(fault)
            start(self, args, *more)
            points.passed("during", "git", what, self.pid)
            if what == "update-ref" and "--stdin" in args and self.stdin is not None:
                self.stdin = _RefWriter(self.stdin.detach(), points, self.pid)

        def handle_exitstatus(self: Any, *status: Any) -> None:
            end(self, *status)
            if what := _verb(self.args if isinstance(self.args, list) else []):
                points.passed("after", "git", what)

        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]
        subprocess.Popen._handle_exitstatus = handle_exitstatus  # type: ignore[attr-defined]

    def _watch_forge(self) -> None:
        points = self
        put, read = HTTPConnection.putrequest, HTTPConnection.getresponse
        at = threading.local()

        def put_request(self: Any, method: str, url: str, *more: Any, **named: Any) -> None:
            parts = (part for part in url.partition("/repos/")[2].split("/")[2:] if part.replace("_", "").isalpha())
            at.what = "" if method == "GET" else f"{method} {'/'.join(parts) or 'graphql'}"
            if at.what and _called_from("forge/"):
                points.fail_at("call", at.what)
            put(self, method, url, *more, **named)

        def get_response(self: Any) -> Any:
            answer = read(self)
            if at.what and _called_from("forge/"):
                points.passed("after", "call", at.what)
            return answer

        HTTPConnection.putrequest = put_request  # type: ignore[method-assign]
        HTTPConnection.getresponse = get_response  # type: ignore[method-assign]

    def _watch_syncs(self) -> None:
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            self._synced.add(os.fstat(descriptor).st_ino)

        os.fsync = noted  # type: ignore[assignment]


class _RefWriter(io.BufferedWriter):
    """The input of `git update-ref --stdin`; by a fault that process dies."""

    def __init__(self, raw: io.RawIOBase, points: _Points, pid: int) -> None:
        super().__init__(raw)
        self._points = points
        self._pid = pid
        self._said = b""

    def write(self, data: Any) -> int:
        self._said += bytes(data)
        return super().write(data)

    def flush(self) -> None:
        said, self._said = self._said, b""
        what = "commit" if said.endswith(b"commit\n") else "prepare"
        if said and self._points.passed("before", "ref", what):
            os.kill(self._pid, signal.SIGKILL)
        super().flush()
        if said:
            self._points.passed("after", "ref", what)


def _system_error(fault: str) -> OSError:
    number = getattr(errno, fault.upper(), errno.EPIPE)
    return OSError(number, os.strerror(number), "(a fault)")


def _database_error(fault: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"a fault: {fault}")
    error.sqlite_errorname = {"eio": "SQLITE_IOERR", "emfile": "SQLITE_CANTOPEN"}.get(fault, "SQLITE_FULL")
    return error


def _with_values(sql: str, values: Iterable[object]) -> str:
    """The statement as SQLite reports it."""
    first, *rest = sql.split("%s")
    quoted = ("'" + str(value).replace("'", "''") + "'" for value in values)
    return first + "".join(value + part for value, part in zip(quoted, rest, strict=True)) if rest else sql


def _called_from(part: str) -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if module := _module(frame):
            return module.startswith(part)
        frame = frame.f_back
    return False


def _verb(args: list[str]) -> str:
    """The command of git; "" for another program."""
    if not args or Path(args[0]).name != "git":
        return ""
    rest = iter(args[1:])
    for word in rest:
        if word in ("-c", "-C"):
            next(rest, "")
        elif not word.startswith("-"):
            return word
    return "git"
