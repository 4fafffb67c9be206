"""Forks shims on request. It starts early and lives as long as its runner.

A new interpreter for every shim would take fifty milliseconds; a fork takes two.
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
        while True:
            header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
            text = runner.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL) if locks else b""
            if not text:
                os._exit(0)
            _fork_shim(runner, locks[0], text)


def _fork_shim(runner: socket.socket, lock: int, text: bytes) -> None:
    directory, launch = msgspec.convert(json.loads(text), tuple[str, Launch])
    with contextlib.suppress(ImportError):  # the shim reports it
        reader_of(launch.reader)  # imported here once, not in every shim
    # From the answer on the shim can be asked to end; the request is delivered when it is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if (shim := os.fork()) == 0:
        runner.close()
        _become_shim(launch, Path(directory), lock)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.close(lock)
    with contextlib.suppress(OSError):  # the runner may have died
        runner.sendall(HEADER.pack(shim))


def _become_shim(launch: Launch, directory: Path, lock: int) -> None:
    code = 1
    try:
        os.setsid()
        os.set_inheritable(lock, False)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        me = processes.identity(os.getpid()) or ""
        supervise(launch, DispatchFiles(directory), me=me, subreaper=_become_subreaper())
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
