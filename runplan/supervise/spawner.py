"""Forks shims on request. It starts early and lives as long as its runner.

A new interpreter for every shim would take a hundred milliseconds, a fork takes ten. So a shim supervises one
dispatch after the other.
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

#: A request to a shim is the length of its text, with the lock's descriptor, then the text. The answer is its pid.
HEADER = struct.Struct("!I")
ENDED = b"."  #: a shim's word that its dispatch has ended and that it takes another one
LONGEST_KIND = 64  #: bytes of the name of a kind of agent
IDLE_S = 5.0  #: a shim without a dispatch exits after this

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def main(descriptor: int) -> None:
    """Fork a shim for each socket that the runner sends, until the runner closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    processes.identity(os.getpid())  # caches the boot id for all shims
    cgroups.own_place()
    gc.freeze()  # the forks share these pages
    with socket.socket(fileno=descriptor) as runner:
        while True:
            kind, ends, _, _ = socket.recv_fds(runner, LONGEST_KIND, 1)
            if not ends:
                os._exit(0)
            with contextlib.suppress(ImportError):  # the shim reports it
                reader_of(kind.decode().strip())  # imported here once, not in every shim
            if os.fork() == 0:
                runner.close()
                _become_shim(ends[0])
            os.close(ends[0])


def _become_shim(descriptor: int) -> None:
    code = 1
    try:
        os.setsid()
        os.set_inheritable(descriptor, False)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=descriptor) as runner:
            runner.settimeout(IDLE_S)
            _serve(runner, me=processes.identity(os.getpid()) or "", subreaper=_become_subreaper())
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())
        os._exit(code)


def _serve(runner: socket.socket, *, me: str, subreaper: bool) -> None:
    """Supervise one dispatch after the other, until the runner is gone or sends none for a while."""
    with contextlib.suppress(OSError):  # the runner is gone, or the time is up
        while True:
            header, locks, _, _ = socket.recv_fds(runner, HEADER.size, 1)
            text = runner.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL) if locks else b""
            if not text:
                return
            os.set_inheritable(locks[0], False)
            # From the answer on the shim can be asked to end; the request is delivered when it is ready.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            with contextlib.suppress(OSError):  # the runner may have died
                runner.sendall(HEADER.pack(os.getpid()))
            directory, launch = msgspec.convert(json.loads(text), tuple[str, Launch])
            is_reusable = supervise(launch, DispatchFiles(Path(directory)), me=me, subreaper=subreaper)
            os.close(locks[0])
            if not is_reusable:
                return
            runner.sendall(ENDED)


def _become_subreaper() -> bool:
    """Make orphaned descendants our children, so that a daemon without the mark is found too."""
    return _LIBC is not None and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
