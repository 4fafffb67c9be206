"""Forks shims ahead of their use: a small process that is started early and lives as long as its runner.

One fork always waits for the next request, so that a dispatch waits for nobody; a fresh interpreter for every shim
would take fifty milliseconds.
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

from runplan import processes
from runplan.run.dispatch import Launch
from runplan.supervise import cgroups
from runplan.supervise.files import DispatchFiles
from runplan.supervise.output import reader_of
from runplan.supervise.shim import supervise

#: A request is the length of its text, with the lock's descriptor; then the text. The answer is the shim's pid.
HEADER = struct.Struct("!I")

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_CHILD_SUBREAPER = 36


def main(descriptor: int) -> None:
    """Serve until the runner closes its end; what it asked for before that is still done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
    processes.identity(os.getpid())  # read once, so that no shim has to ask which boot this is
    cgroups.own_home()  # nor in which control group
    gc.freeze()  # the forks share these pages as long as nobody writes to them
    with socket.socket(fileno=descriptor) as runner:
        while (reader := _next_shim(runner)) is not None:
            with contextlib.suppress(ImportError):  # the shim has told
                reader_of(reader)  # imported here, once, and not by every shim
    os._exit(0)  # nothing to tidy up, and the runner waits


def _next_shim(runner: socket.socket) -> str | None:
    """Fork a shim that waits for its request; the reader it was asked for, or None when the runner has gone."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        _wait_for_request(runner, theirs)
    os.close(theirs)
    with open(ours, "rb") as taken:
        word = taken.readline()
    return word.decode().rstrip("\n") if word else None


def _wait_for_request(runner: socket.socket, taken: int) -> None:
    """Get ready, take one request, tell the spawner and the runner, and become its shim."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    me, subreaper = processes.identity(os.getpid()), _adopt_orphans()
    text = _receive(runner)
    if not text or me is None:
        os._exit(0)
    # From its answer on a shim can be asked to end; it hears that as soon as it listens.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with contextlib.suppress(OSError):  # a runner that died since needs no answer
        runner.sendall(HEADER.pack(os.getpid()))
    runner.close()
    request = json.loads(text)
    launch = Launch(**{**request["launch"], "argv": tuple(request["launch"]["argv"])})
    with contextlib.suppress(OSError):  # nor does a spawner
        os.write(taken, f"{launch.reader}\n".encode())
    os.close(taken)
    _become_shim(launch, DispatchFiles(Path(request["directory"])), me, subreaper=subreaper)


def _receive(runner: socket.socket) -> bytes:
    """The next request; its lock is ours from here on. Nothing when the runner has gone."""
    header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
    if not locks:
        return b""
    os.set_inheritable(locks[0], False)
    return _exactly(runner, HEADER.unpack(header)[0])


def _exactly(runner: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        if not (piece := runner.recv(size - len(text))):
            return b""
        text += piece
    return text


def _become_shim(launch: Launch, files: DispatchFiles, me: str, *, subreaper: bool) -> None:
    code = 1
    try:
        supervise(launch, files, me=me, subreaper=subreaper)
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        os._exit(code)


def _adopt_orphans() -> bool:
    """Let orphaned descendants become our children, so that a daemon without the mark is found as well."""
    return _LIBC is not None and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
