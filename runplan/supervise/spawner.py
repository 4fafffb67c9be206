"""Forks shims ahead of their use. It starts early and lives as long as its runner.

One fork always waits for the next request: a new interpreter for every shim would take fifty milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path

import msgspec

from runplan import processes
from runplan.run.dispatch import Launch
from runplan.supervise import cgroups
from runplan.supervise.files import DispatchFiles
from runplan.supervise.output import reader_of
from runplan.supervise.shim import supervise

#: A request is the length of its text, with the lock's descriptor, then the text. The answer is the shim's pid.
HEADER = struct.Struct("!I")

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def main(descriptor: int) -> None:
    """Serve until the runner closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    processes.identity(os.getpid())  # caches the boot id for all shims
    cgroups.own_place()
    gc.freeze()  # the forks share these pages
    with socket.socket(fileno=descriptor) as runner:
        while (reader := _next_shim(runner)) is not None:
            with contextlib.suppress(ImportError):  # the shim reports it
                reader_of(reader)  # imported here once, not in every shim
    os._exit(0)


def _next_shim(runner: socket.socket) -> str | None:
    """Fork a shim that waits for a request; the reader of that request, or None when the runner has gone."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        _wait_for_request(runner, theirs)
    os.close(theirs)
    with open(ours, "rb") as taken:
        line = taken.readline()
    return line.decode().rstrip("\n") if line else None


def _wait_for_request(runner: socket.socket, taken: int) -> None:
    """Take one request, answer the runner and the spawner, and become the shim of that request."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    me, subreaper = processes.identity(os.getpid()), _become_subreaper()
    header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
    text = runner.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL) if locks else b""
    if not text or me is None:
        os._exit(0)
    os.set_inheritable(locks[0], False)
    # From the answer on the shim can be asked to end; the request is delivered when it is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with contextlib.suppress(OSError):  # the runner may have died
        runner.sendall(HEADER.pack(os.getpid()))
    runner.close()
    directory, launch = msgspec.convert(json.loads(text), tuple[str, Launch])
    with contextlib.suppress(OSError):  # and so may the spawner
        os.write(taken, f"{launch.reader}\n".encode())
    os.close(taken)
    code = 1
    try:
        supervise(launch, DispatchFiles(Path(directory)), me=me, subreaper=subreaper)
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        os._exit(code)


def _become_subreaper() -> bool:
    """Make orphaned descendants our children, so that a daemon without the mark is found too."""
    return _LIBC is not None and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
