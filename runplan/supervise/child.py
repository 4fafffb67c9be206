"""Starts the process of a dispatch with pipes to its shim, and writes to its standard input."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.clis import agent_of
from runplan.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.run.dispatch import Launch
    from runplan.supervise.cgroups import Cgroup

PIPE_SIZE = 1024 * 1024


class Child(Struct, frozen=True, kw_only=True):
    """A started process and the shim's ends of its pipes."""

    pid: int
    stdin: StdinWriter | None  #: None when it reads a file
    out: int
    err: int


def start(launch: Launch, group: Cgroup | None) -> Child:
    """Start the process in a session of its own and, where possible, in its control group."""
    writer = None
    with contextlib.ExitStack() as stack:
        if launch.takes_messages:
            prompt = Path(launch.stdin).read_text(encoding="utf-8", errors="replace")
            stdin, to_it = os.pipe()
            writer = StdinWriter(to_it, agent_of(launch.reader).message)
            writer.send(prompt)
        else:
            stdin = os.open(launch.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        (out, out_end), (err, err_end) = _pipe(), _pipe()
        for descriptor in (stdin, out_end, err_end):
            stack.callback(os.close, descriptor)
        if group and group.make():
            stack.enter_context(group.entered())
        agent = subprocess.Popen(
            launch.argv,
            stdin=stdin,
            stdout=out_end,
            stderr=err_end,
            cwd=launch.cwd,
            env={**launch.env, MARK: launch.id},
            start_new_session=True,
        )
    agent.returncode = 0  # the shim waits for every child itself; Popen must not
    return Child(pid=agent.pid, stdin=writer, out=out, err=err)


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with contextlib.suppress(AttributeError, OSError):  # only faster; the user's allowance can be used up
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return read_end, write_end


class StdinWriter:
    """Writes messages to an agent. A thread does it, because an agent may not read them."""

    def __init__(self, pipe: int, form: Callable[[str], bytes]) -> None:
        self._form = form
        self._messages: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._write, args=(pipe,), daemon=True).start()

    def send(self, text: str) -> None:
        self._messages.put(self._form(text))

    def close(self) -> None:
        """Close the pipe after the messages that were sent."""
        self._messages.put(b"")

    def _write(self, pipe: int) -> None:
        with contextlib.suppress(OSError), open(pipe, "wb") as stdin:
            while message := self._messages.get():
                stdin.write(message)
                stdin.flush()


class Signals:
    """Turns SIGTERM and SIGCHLD into a readable descriptor."""

    def __init__(self) -> None:
        self.requests = 0  #: how often the shim was asked to end
        self.descriptor, self._write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Signals:
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # deliver requests that came before
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(self.descriptor)
        os.close(self._write_end)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, 4096):
                pass

    def _on_term(self, *_: object) -> None:
        self.requests += 1
