"""Starts the command by a fork of a process that has it imported: the same `entry`, without 0.1 s of imports each time.

`python -m tests.support.forks DESCRIPTOR` takes requests from that socket. With each come three descriptors: two for
the output, and one for the pid and the exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from tests.support.inject import inject
from tests.support.repos import isolated_env

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("plan", "run", "checks", "settings", "store", "git", "agents", "supervise", "landing"),
    *("report", "steps", "engine", "daemon", "cli"),
)
LONGEST = 200_000
#: Variables that an interpreter reads only when it starts.
FOR_INTERPRETERS = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "RUNPLAN_AGENT=", "RUNPLAN_DISPATCH=")


@dataclass
class Started:
    """A command under way."""

    pid: int
    report: IO[str]

    def ended(self, within_s: float = 0) -> bool:
        return bool(select.select([self.report], [], [], within_s)[0])

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit code; minus the signal that ended it."""
        if not select.select([self.report], [], [], timeout_s)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"the command has not ended within {timeout_s} s")
        with self.report:
            return int(self.report.readline())


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
                env=_plain(isolated_env()),
            )

    def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: int, err: int) -> Started:
        read_end, write_end = os.pipe()
        request = {"argv": list(argv), "cwd": str(cwd), "env": dict(env)}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [out, err, write_end])
        os.close(write_end)
        report = open(read_end, encoding="ascii", buffering=1)  # noqa: SIM115 - closed when it has report the end
        return Started(pid=int(report.readline()), report=report)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


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
    """Answer until the socket is closed."""
    _import_everything()
    gc.freeze()  # the forks share these pages until one of them writes
    with socket.socket(fileno=descriptor) as asked, selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is not None:
                    selector.unregister(key.fd)
                    _report_end(key.fd, *key.data)
                    continue
                text, descriptors, _, _ = socket.recv_fds(asked, LONGEST, 3)
                if not text:
                    return
                *output, report = descriptors
                if (pid := os.fork()) == 0:
                    _become(json.loads(text), *output)
                for one in output:
                    os.close(one)
                os.write(report, f"{pid}\n".encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, report))


def _report_end(handle: int, pid: int, report: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(handle)
    with contextlib.suppress(BrokenPipeError), open(report, "wb", buffering=0) as end:
        end.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _import_everything() -> None:
    """The modules that the command imports, except programs of their own."""
    for package in PACKAGES:
        for path in sorted((ROOT / "runplan" / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _become(request: dict[str, Any], out: int, err: int) -> NoReturn:
    """The command itself, from here on like one that was started by its name."""
    code: Any = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, goal in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(source, goal)
        os.closerange(3, 1024)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["runplan", *request["argv"]]
        inject(request["env"])
        from runplan.cli.main import entry

        entry()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - the edge of a process
        traceback.print_exc()
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        with contextlib.suppress(OSError, ValueError):  # the reader may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
