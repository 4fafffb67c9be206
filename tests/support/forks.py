"""Starts the command by a fork of a process that has it imported: the same `entry`, without 0.1 s of imports each time.

`python -m tests.support.forks DESCRIPTOR` takes requests from that socket. With each comes a descriptor for the pid and
the exit code, and those that the new process is to have. A command that was started so starts its daemon and its
spawner in the same way: they need up to 0.4 s of imports.
"""

import atexit
import concurrent.futures.thread
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import re
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, NoReturn, Self, TypeAlias

from tests.support.inject import VARIABLES, inject
from tests.support.repos import isolated_env

ROOT = Path(__file__).parents[2]
PACKAGES = ("domain", "adapters", "engine", "hosts", "app", "interfaces/cli")
#: Programs of the product that are forked, too, and libraries that they import when they need them.
PROGRAMS = ("runplan", "runplan.adapters.supervise.shim")
LIBRARIES = (
    *("apscheduler.schedulers.background", "apscheduler.triggers.cron", "git", "github", "psutil", "structlog"),
    *("argparse", "encodings.utf_8_sig"),
)
LONGEST = 200_000
MOST = 8  #: descriptors of a request
HIGH = 900  #: above the descriptors that a process asks for
#: Variables that an interpreter reads only when it starts.
FOR_INTERPRETERS = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "RUNPLAN_AGENT=", "RUNPLAN_DISPATCH=")
#: A variable of the forking process whose place in memory is used for the variables of its forks.
SPACE = "TEST_SPACE"


@dataclass
class Started:
    """A process under way."""

    pid: int
    report: IO[str]

    def ended(self, within_s: float | None = 0) -> bool:
        return bool(select.select([self.report], [], [], within_s)[0])

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code; minus the signal that ended it."""
        if not self.ended(timeout_s):
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"the command has not ended within {timeout_s} s")
        with self.report:
            return int(self.report.readline())


class Program:
    """As much of `subprocess.Popen` as the tests and the product use for a program in the background."""

    def __init__(self, started: Started, stderr: IO[bytes] | None = None) -> None:
        self._started = started
        self.pid = started.pid
        self.stderr = stderr
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._started.ended():
            self.returncode = self._started.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not self._started.ended(timeout):
            raise subprocess.TimeoutExpired("a program", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[None, bytes]:
        """All that it has written to standard error, after its end."""
        assert self.stderr is not None
        with self.stderr:
            text = self.stderr.read()
        self.wait(timeout)
        return None, text

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its end is reported after it is gone
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stderr is not None:
            self.stderr.close()
        self.wait()


#: A command in the background.
Process: TypeAlias = "subprocess.Popen[bytes] | Program"


class Starter:
    """One forking process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**_plain(isolated_env()), SPACE: "x" * 20_000},
            )

    def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: int, err: int) -> Started:
        request = {"module": "runplan", "argv": list(argv), "cwd": str(cwd), "env": dict(env)}
        return _send(self._socket, request, {1: out, 2: err})

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _send(to: socket.socket, request: dict[str, Any], descriptors: Mapping[int, int]) -> Started:
    """Ask for a process that has these descriptors, by the numbers that they have there."""
    read_end, write_end = os.pipe()
    text = json.dumps({**request, "descriptors": list(descriptors)}).encode()
    socket.send_fds(to, [text], [write_end, *descriptors.values()])
    os.close(write_end)
    report = open(read_end, encoding="ascii", buffering=1)  # noqa: SIM115 - closed when it has reported the end
    return Started(pid=int(report.readline()), report=report)


def serves(env: Mapping[str, str]) -> bool:
    """Whether a fork has what a command with these variables would find; else it has to be started by its name."""
    return _for_interpreters(env) == _for_interpreters(_plain(isolated_env()))


@cache
def starter() -> Starter:
    """The one of this process, which ends with it."""
    made = Starter()
    atexit.register(made.close)
    return made


def _for_interpreters(env: Mapping[str, str]) -> set[str]:
    return {report for name, value in env.items() if (report := f"{name}={value}").startswith(FOR_INTERPRETERS)}


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("RUNPLAN")}


# --- the forking process --------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Answer until the socket is closed: the tests, and the forks at a second socket."""
    _import_everything()
    gc.freeze()  # the forks share these pages until one of them writes
    address = f"\0runplan-tests-{os.getpid()}"
    with (
        socket.socket(fileno=descriptor) as asked,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks,
        selectors.DefaultSelector() as selector,
    ):
        forks.bind(address)
        forks.listen(64)
        selector.register(asked, selectors.EVENT_READ)
        selector.register(forks, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fd)
                    _report_end(key.fd, *key.data)
                    continue
                is_test = key.fileobj is asked
                with contextlib.nullcontext(asked) if is_test else forks.accept()[0] as source:
                    text, descriptors, _, _ = socket.recv_fds(source, LONGEST, MOST)
                if not text:
                    if is_test:
                        return
                    continue
                request = json.loads(text)
                if patterns := request.get("patterns"):
                    for pattern, flags in patterns:
                        re.compile(pattern, flags)
                    continue
                report, *given = descriptors
                if (pid := os.fork()) == 0:
                    _become(request, given, address)
                for one in given:
                    os.close(one)
                with contextlib.suppress(BrokenPipeError):
                    os.write(report, f"{pid}\n".encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))


def _report_end(handle: int, pid: int, report: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    with contextlib.suppress(BrokenPipeError), open(report, "wb", buffering=0) as end:
        end.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _import_everything() -> None:
    """The modules of the product and of its libraries."""
    for package in PACKAGES:
        paths = sorted((ROOT / "runplan" / package).rglob("*.py"))
        assert paths, f"runplan/{package} is not there"
        for path in paths:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    for name in LIBRARIES:
        importlib.import_module(name)


def _become(request: dict[str, Any], given: Sequence[int], address: str) -> NoReturn:
    """The program itself, from here on like one that was started by its name."""
    code: Any = 70
    compiled = set(re._cache)  # type: ignore[attr-defined]
    notes = contextlib.ExitStack()
    if "PYTEST_CALLS" in os.environ:
        from tests.support.calls import noted_calls

        # The daemon works in the root directory.
        place = request["cwd"] if request["cwd"] != "/" else request["env"].get("HOME", "/")
        notes.enter_context(noted_calls(cwd=place))
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if request.get("session"):
            os.setsid()
        _take(dict(zip(request["descriptors"], given, strict=True)))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        _show_environment(request["env"])
        inject(request["env"])
        if not any(name in request["env"] for name in VARIABLES):
            subprocess.Popen = partial(_start, subprocess.Popen, address)  # type: ignore[assignment, misc]
        sys.argv = ["runplan", *request["argv"]]
        if request["module"] == "runplan":
            from runplan.interfaces.cli.main import entry

            entry()
        else:
            importlib.import_module(request["module"]).main(*map(int, request["argv"]))
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - the edge of a process
        traceback.print_exc()
    finally:
        concurrent.futures.thread._python_exit()  # ends the threads of pools, which an interpreter does at its end
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        notes.close()
        _tell_patterns(address, set(re._cache) - compiled)  # type: ignore[attr-defined]
        with contextlib.suppress(OSError, ValueError):  # the reader may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def _tell_patterns(address: str, compiled: Set[tuple[type, Any, int]]) -> None:
    """Have the forking process compile them, too: a third of what a command takes is regular expressions."""
    patterns = [(pattern, flags) for kind, pattern, flags in compiled if kind is str]
    if patterns:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.connect(address)
            server.send(json.dumps({"patterns": patterns}).encode())


def _take(descriptors: Mapping[int, int]) -> None:
    """Have these descriptors by these numbers, standard input from nowhere unless given, and no others."""
    sources = {0: os.open(os.devnull, os.O_RDWR), **descriptors}
    high = {goal: fcntl.fcntl(source, fcntl.F_DUPFD, HIGH) for goal, source in sources.items()}
    os.closerange(3, HIGH)
    for goal, source in high.items():
        os.dup2(source, goal)
    os.closerange(HIGH, 2 * HIGH)


def _show_environment(env: Mapping[str, str]) -> None:
    """Write the variables where /proc shows them, by which the tests find the processes of a home directory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last = int(fields[47]), int(fields[48])  # env_start, env_end
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    ctypes.memmove(first, block[: last - first].ljust(last - first, b"\0"), last - first)


# --- in a fork ------------------------------------------------------------------------------------------


def _start(start: Any, address: str, argv: Sequence[Any], **how: Any) -> Any:
    """Have a program of the product forked; start all others by their names."""
    is_ours = list(argv[:3]) == [sys.executable, "-P", "-m"] and argv[3] in PROGRAMS
    if not is_ours or any(name.startswith(("PYTHON", "LD_", "TZ")) for name in how["env"]):
        return start(argv, **how)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    streams = enumerate(how[name] for name in ("stdin", "stdout", "stderr"))
    descriptors = {
        number: nothing if one == subprocess.DEVNULL else number if one is None else one.fileno()
        for number, one in streams
    }
    descriptors |= {number: number for number in how.get("pass_fds", ())}
    request = {
        "module": argv[3],
        "argv": list(argv[4:]),
        "cwd": how["cwd"],
        "env": how["env"],
        "session": how.get("start_new_session", False),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server, open(nothing, "rb"):
        server.connect(address)
        return Program(_send(server, request, descriptors))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
