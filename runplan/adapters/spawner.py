"""Forks shims on request: a small process that is started early and lives as long as its runner.

A fork of this process takes a millisecond; a fresh interpreter for every shim would take fifty.
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

from runplan.adapters import processes
from runplan.adapters.dispatch_files import DispatchFiles
from runplan.adapters.shim import supervise
from runplan.core.dispatch import Launch

#: A request is the length of its text, with the lock's descriptor; then the text. The answer is the shim's pid.
HEADER = struct.Struct("!I")

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_CHILD_SUBREAPER = 36


def main(descriptor: int) -> None:
    """Serve until the runner closes its end; what it asked for before that is still done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
    processes.identity(os.getpid())  # read once, so that no shim has to ask which boot this is
    gc.freeze()  # the forks share these pages as long as nobody writes to them
    with socket.socket(fileno=descriptor) as runner:
        while request := _receive(runner):
            text, lock = request
            shim = os.fork()
            if shim == 0:
                runner.close()
                _become_shim(text)
            os.close(lock)
            with contextlib.suppress(OSError):  # a runner that died since needs no answer
                runner.sendall(HEADER.pack(shim))


def _receive(runner: socket.socket) -> tuple[bytes, int] | None:
    header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
    if not locks:
        return None
    os.set_inheritable(locks[0], False)
    text = _exactly(runner, HEADER.unpack(header)[0])
    return (text, locks[0]) if text else None


def _exactly(runner: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        if not (piece := runner.recv(size - len(text))):
            return b""
        text += piece
    return text


def _become_shim(text: bytes) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = json.loads(text)
        launch = Launch(**{**request["launch"], "argv": tuple(request["launch"]["argv"])})
        supervise(launch, DispatchFiles(Path(request["directory"])), subreaper=_adopt_orphans())
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
